// Controls, keys, search, theme: everything that changes the state, and what is redrawn for it.
const PASSAGES_WAIT_MS = 80;
let laterWork = null;
let passagesTimer = null;

// Shading and counts follow a slider at once, map and chart a frame later, the list below the text when it rests.
function redraw() {
  repaint();
  showCounts();
  drawScale();
  if (laterWork) cancelAnimationFrame(laterWork);
  laterWork = requestAnimationFrame(() => {
    laterWork = null;
    drawMap();
    drawChart();
    clearTimeout(passagesTimer);
    passagesTimer = setTimeout(showPassages, PASSAGES_WAIT_MS);
    if (state.selected !== null) showDetails();
  });
}

function selectWindow(window, { scroll = true } = {}) {
  state.selected = window;
  refreshMarks();
  showDetails();
  if (window !== null && scroll) scrollToOffset(places().suffix[window]);
}

function openPassage(passage) {
  selectWindow(passage.window, { scroll: false });
  scrollToOffset(passage.start);
  document.querySelector(".reader-grid").scrollIntoView({ block: "start" });
}

function stepWindow(delta) {
  const entry = currentDocument();
  const next = state.selected === null ? entry.first : state.selected + delta;
  selectWindow(Math.min(entry.first + entry.count - 1, Math.max(entry.first, next)));
}

function stepPassage(delta) {
  const passages = passagesOf(currentDocument());
  if (!passages.length) return;
  const { suffix } = places();
  const here = state.selected === null ? -1 : suffix[state.selected];
  const ahead = delta > 0 ? passages.find((passage) => passage.start > here) : passages.findLast((passage) => passage.end < here);
  const passage = ahead ?? (delta > 0 ? passages[0] : passages[passages.length - 1]);
  selectWindow(passage.window, { scroll: false });
  scrollToOffset(suffix[passage.window]);
}

function stepDocument(delta) {
  const count = currentRun().readings.length;
  state.document = (state.document + delta + count) % count;
  byId("document").value = state.document;
  showDocument();
}

function showDocument() {
  state.selected = null;
  Object.assign(reader, { hits: [], hit: -1, queryLength: 0 });
  byId("search").value = "";
  byId("search-count").textContent = "";
  byId("reader").scrollTop = 0;
  openDocument();
  showDetails();
  redraw();
}

function listDocuments() {
  const groups = ["target", "control"].map((split) => {
    const group = element("optgroup", { label: split === "target" ? "Target texts" : "Control texts" });
    currentRun().readings.forEach((entry, index) => {
      if (entry.split === split) group.append(element("option", { value: index }, entry.name));
    });
    return group;
  });
  byId("document").replaceChildren(...groups.filter((group) => group.children.length));
  byId("document").value = state.document;
}

function showRun() {
  const slider = byId("edits");
  slider.max = currentRun().editBudget;
  slider.disabled = currentRun().editBudget === 0;
  state.edits = Math.min(state.edits, currentRun().editBudget);
  slider.value = state.edits;
  listDocuments();
  showDocument();
}

function setEdits(value) {
  state.edits = Math.max(0, Math.min(currentRun().editBudget, value));
  byId("edits").value = state.edits;
  redraw();
}

function setTau(index) {
  state.tauIndex = Math.max(0, Math.min(DATA.thresholds.length - 1, index));
  byId("tau").value = state.tauIndex;
  redraw();
}

function setMode(mode) {
  state.mode = mode;
  for (const button of document.querySelectorAll("[data-mode]")) button.setAttribute("aria-checked", String(button.dataset.mode === mode));
  redraw();
}

function find(query) {
  const text = currentText();
  reader.hits = [];
  reader.hit = -1;
  reader.queryLength = query.length;
  if (query && text !== null) {
    const pattern = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s/g, "\\s"), "gi");
    for (const match of text.matchAll(pattern)) reader.hits.push(match.index);
  }
  if (reader.hits.length) stepHit(1);
  else {
    byId("search-count").textContent = query ? "none" : "";
    refreshMarks();
  }
}

function stepHit(delta) {
  const count = reader.hits.length;
  if (!count) return;
  reader.hit = (reader.hit + delta + count) % count;
  byId("search-count").textContent = `${integer(reader.hit + 1)} of ${integer(count)}`;
  refreshMarks();
  scrollToOffset(reader.hits[reader.hit]);
}

let chosenTheme = null; // null: as the system wants it

function setTheme(theme) {
  if (theme === null) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  drawMap();
}

function toggleTheme() {
  const isDark = chosenTheme === null ? matchMedia("(prefers-color-scheme: dark)").matches : chosenTheme === "dark";
  chosenTheme = isDark ? "light" : "dark";
  setTheme(chosenTheme);
}

const KEYS = {
  j: () => stepWindow(1), k: () => stepWindow(-1), n: () => stepPassage(1), p: () => stepPassage(-1),
  "[": () => setEdits(state.edits - 1), "]": () => setEdits(state.edits + 1),
  ",": () => setTau(state.tauIndex - 1), ".": () => setTau(state.tauIndex + 1),
  c: () => setMode(state.mode === "category" ? "probability" : "category"),
  N: () => stepDocument(1), P: () => stepDocument(-1),
  d: toggleTheme, "/": () => byId("search").focus(), "?": () => byId("keys").showModal(),
  Escape: () => selectWindow(null),
};

function onKey(event) {
  const isTyping = event.target.matches?.("input[type=search], select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || (isTyping && event.key !== "Escape") || byId("keys").open) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  if (isTyping) event.target.blur();
  action();
}

function listen() {
  byId("edits").addEventListener("input", (event) => setEdits(Number(event.target.value)));
  byId("tau").addEventListener("input", (event) => setTau(Number(event.target.value)));
  byId("document").addEventListener("change", (event) => {
    state.document = Number(event.target.value);
    showDocument();
  });
  byId("run").addEventListener("change", (event) => {
    const name = currentDocument().name;
    state.run = Number(event.target.value);
    state.document = Math.max(0, currentRun().readings.findIndex((entry) => entry.name === name));
    showRun();
  });
  for (const button of document.querySelectorAll("[data-mode]")) button.addEventListener("click", () => setMode(button.dataset.mode));
  byId("search").addEventListener("input", (event) => find(event.target.value));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") stepHit(event.shiftKey ? -1 : 1);
  });
  byId("search-next").addEventListener("click", () => stepHit(1));
  byId("search-previous").addEventListener("click", () => stepHit(-1));
  byId("theme").addEventListener("click", toggleTheme);
  byId("keys-open").addEventListener("click", () => byId("keys").showModal());
  byId("reader").addEventListener("click", (event) => {
    if (!getSelection().isCollapsed || currentText() === null) return;
    const offset = offsetOfPoint(event.clientX, event.clientY);
    if (offset !== null) selectWindow(windowAt(offset), { scroll: false });
  });
  for (const button of document.querySelectorAll("button[data-document]")) {
    button.addEventListener("click", () => {
      state.run = Number(button.dataset.run);
      const run = RUNS[state.run];
      state.document = run.readings.length - run.documents.length + Number(button.dataset.document);
      byId("run").value = state.run;
      showRun();
      document.querySelector(".reader-grid").scrollIntoView({ block: "start" });
    });
  }
  document.addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
  listenToMap();
}

// What to open first: short targets together, else the target with the most extractable windows.
function strongestDocument() {
  const run = currentRun();
  const column = run.windows.mass[run.editBudget];
  const scores = run.documents.map((entry) => {
    let hits = entry.split === "target" ? 0 : -1;
    for (let index = entry.first; index < entry.first + entry.count; index += 1) if (column[index] >= run.threshold) hits += 1;
    return hits;
  });
  const together = run.readings.length - run.documents.length;
  return together ? 0 : scores.indexOf(Math.max(...scores));
}

function start() {
  byId("run").append(...RUNS.map((run, index) => element("option", { value: index }, run.label)));
  state.edits = currentRun().editBudget;
  state.document = strongestDocument();
  byId("tau").max = DATA.thresholds.length - 1;
  byId("tau").value = state.tauIndex;
  listen();
  showRun();
  document.documentElement.dataset.ready = "true";
}

start();
