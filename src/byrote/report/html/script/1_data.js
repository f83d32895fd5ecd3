// Decoding the page's data, and the one state that every part reads.
// Stands for a greedy answer that is further away than the edit budget.
const BEYOND = 65535;
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
      impossible: unpack(windows.impossible, "u1"),
      mass: windows.mass.map((column) => unpack(column, "f8")),
      upper: windows.upper?.map((column) => unpack(column, "f8")) ?? null,
      greedy: optional("greedy", "u2"),
      rated: optional("rated", "u1"), // 0: shown, but in no count (a control window that a target holds too)
      evaluations: optional("evaluations", "u4"),
      stop: optional("stop", "u1"),
      ranks: optional("ranks", "u1"),
      estimate: optional("estimate", "f8"),
      estimateLow: optional("estimateLow", "f8"),
      estimateHigh: optional("estimateHigh", "f8"),
    },
  };
}

const SHORT_DOCUMENT = 4000;
const FEWEST_TOGETHER = 4;

// What can be opened in the reader: every document, and before them many short documents of one side as one text.
// A reading knows its windows (first, count), its text, where each window lies in it, and its documents with their
// first character.
function readingsOf(run) {
  const single = run.documents.map((entry) => ({
    name: entry.name,
    split: entry.split,
    first: entry.first,
    count: entry.count,
    text: entry.text === null ? null : DATA.texts[entry.text],
    places: run.windows,
    members: [{ entry, offset: 0 }],
  }));
  const together = ["target", "control"].map((split) => collectionOf(run, split)).filter((made) => made !== null);
  return [...together, ...single];
}

function collectionOf(run, split) {
  const entries = run.documents.filter((entry) => entry.split === split);
  if (entries.length < FEWEST_TOGETHER || entries.some((entry) => entry.text === null)) return null;
  const texts = entries.map((entry) => DATA.texts[entry.text]);
  const characters = texts.reduce((sum, text) => sum + text.length, 0);
  if (characters / entries.length > SHORT_DOCUMENT) return null;
  const { start, suffix, end, count } = run.windows;
  const placed = { start: new Uint32Array(count), suffix: new Uint32Array(count), end: new Uint32Array(count) };
  let offset = 0;
  const members = entries.map((entry, index) => {
    for (let row = entry.first; row < entry.first + entry.count; row += 1) {
      placed.start[row] = start[row] + offset;
      placed.suffix[row] = suffix[row] + offset;
      placed.end[row] = end[row] + offset;
    }
    const member = { entry, offset };
    offset += texts[index].length + 1;
    return member;
  });
  return {
    name: `All ${entries.length} ${split} texts`,
    split,
    first: Math.min(...entries.map((entry) => entry.first)),
    count: entries.reduce((sum, entry) => sum + entry.count, 0),
    text: texts.join("\n"),
    places: placed,
    members,
  };
}

const DATA = JSON.parse(document.getElementById("byrote-data").textContent);
const RUNS = DATA.runs.map(decodeRun);
for (const run of RUNS) run.readings = readingsOf(run);
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
const currentDocument = () => currentRun().readings[state.document];
const currentText = () => currentDocument().text;
const places = () => currentDocument().places;
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

// A probability may be too small for a double without being 0.
function probability(value, isZero = true) {
  if (value === 0) return isZero ? "0" : "< 10⁻³²³";
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
