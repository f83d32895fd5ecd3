// Decoding the page's data, and the one state that every part reads.
const ARRAYS = { f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };

function unpack(base64, kind) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return new ARRAYS[kind](bytes.buffer);
}

function decodeRun(run) {
  const windows = run.windows;
  const optional = (name, kind) => (windows[name] === undefined ? null : unpack(windows[name], kind));
  return {
    ...run,
    intervals: unpack(run.intervals, "f8"),
    windows: {
      count: windows.count,
      start: unpack(windows.start, "u4"),
      suffix: unpack(windows.suffix, "u4"),
      end: unpack(windows.end, "u4"),
      verbatim: unpack(windows.verbatim, "f8"),
      mass: windows.mass.map((column) => unpack(column, "f8")),
      upper: optional("upper", "f8"),
      greedy: optional("greedy", "u2"),
      evaluations: optional("evaluations", "u4"),
      stop: optional("stop", "u1"),
      ranks: optional("ranks", "u1"),
      estimate: optional("estimate", "f8"),
      estimateLow: optional("estimateLow", "f8"),
      estimateHigh: optional("estimateHigh", "f8"),
    },
  };
}

const DATA = JSON.parse(document.getElementById("rote-data").textContent);
const RUNS = DATA.runs.map(decodeRun);
const STOP_REASONS = DATA.stopReasons;

const state = {
  run: 0,
  document: 0,
  edits: 0,
  tauIndex: DATA.thresholdIndex,
  mode: "probability",
  selected: null, // index of a window in the run, or null
};

const currentRun = () => RUNS[state.run];
const currentDocument = () => currentRun().documents[state.document];
const currentText = () => {
  const index = currentDocument().text;
  return index === null ? null : DATA.texts[index];
};
const tau = () => DATA.thresholds[state.tauIndex];
const edits = () => Math.min(state.edits, currentRun().editBudget);

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const superscript = (number) => String(number).replace("-", "⁻").replace(/\d/g, (digit) => SUPERSCRIPTS[digit]);

function scientific(value) {
  const [mantissa, exponent] = value.toExponential(1).split("e");
  return `${mantissa.replace(".0", "")} × 10${superscript(Number(exponent))}`;
}

function probability(value) {
  if (value === 0) return "0";
  if (value < 0.001) return scientific(value);
  return String(Number(value.toPrecision(3)));
}

function percent(share) {
  if (Number.isNaN(share)) return "–";
  // No line break between a number and its sign.
  if (share === 0 || share === 1) return `${share * 100}\u00a0%`;
  const value = share * 100;
  if (value < 0.1) return "<\u00a00.1\u00a0%";
  if (value > 99.9) return ">\u00a099.9\u00a0%";
  return `${value.toFixed(1)}\u00a0%`;
}

const integer = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");

// n queries reach probability p of at least one success: log(1 − p) / log(1 − mass), rounded up.
function queriesNeeded(mass, chance) {
  if (mass <= 0) return Infinity;
  if (mass >= 1) return 1;
  const real = Math.log1p(-chance) / Math.log1p(-mass);
  const nearest = Math.round(real);
  // A quotient this close to a whole number is that number: three queries at 0.9 reach 0.999.
  return Math.max(1, Math.abs(real - nearest) <= 1e-12 * real ? nearest : Math.ceil(real));
}

const queryCount = (count) => (count === Infinity ? "no number" : count < 1e7 ? integer(count) : scientific(count));
