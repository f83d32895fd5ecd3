// Numbers that follow the sliders. Counts are made here from the same doubles Python counted.
function countWindows(isControl, criterion) {
  const run = currentRun();
  const { rated } = run.windows;
  let windows = 0;
  let hits = 0;
  for (const entry of run.documents) {
    if ((entry.split === "control") !== isControl) continue;
    for (let index = entry.first; index < entry.first + entry.count; index += 1) {
      if (rated !== null && !rated[index]) continue;
      windows += 1;
      if (criterion(index)) hits += 1;
    }
  }
  return { windows, hits };
}

function countNear(isControl, allowed = edits()) {
  const column = currentRun().windows.mass[allowed];
  const threshold = tau();
  return countWindows(isControl, (index) => column[index] >= threshold);
}

function countGreedy(isControl, allowed) {
  const { greedy } = currentRun().windows;
  return greedy ? countWindows(isControl, (index) => greedy[index] <= allowed) : null;
}

// [low, high] of the near-verbatim rate, worked out in Python for every stop of both sliders; null when undefined.
function intervalAt(isControl, allowed) {
  const run = currentRun();
  const at = (((isControl ? 1 : 0) * (run.editBudget + 1) + allowed) * DATA.thresholds.length + state.tauIndex) * 2;
  return run.intervals[at] < 0 ? null : [run.intervals[at], run.intervals[at + 1]];
}

function rateText({ windows, hits }, interval) {
  if (!windows) return "";
  const range = interval ? `; 95 % interval ${percent(interval[0])} to ${percent(interval[1])}` : "";
  return ` (${percent(hits / windows)}${range})`;
}

// The other side of the count: windows that their upper bound rules out. What samples limit is in the summary.
function ruledOutText(isControl) {
  const { upper } = currentRun().windows;
  if (!upper) return "";
  const { windows, hits } = countWindows(isControl, (index) => upper[edits()][index] < tau());
  return windows ? `; ${integer(hits)} ruled out` : "";
}

function showCounts() {
  const column = currentRun().windows.mass[edits()];
  for (const side of ["target", "control"]) {
    const counted = countNear(side === "control");
    byId(`count-${side}`).textContent = integer(counted.hits);
    byId(`count-${side}`).dataset.value = counted.hits;
    byId(`windows-${side}`).textContent = integer(counted.windows);
    byId(`rate-${side}`).textContent = rateText(counted, intervalAt(side === "control", edits()));
    byId(`ruled-out-${side}`).textContent = ruledOutText(side === "control");
    if (side === "control") document.querySelector(".control-line").hidden = counted.windows === 0;
  }
  const categories = [0, 0, 0, 0];
  countWindows(false, (index) => {
    categories[categoryOf(index, column[index], tau())] += 1;
    return false;
  });
  for (const [index, name] of [[VERBATIM, "verbatim"], [UNLOCKED, "unlocked"], [UNLOCKED_FROM_ZERO, "zero"]]) {
    byId(`count-${name}`).textContent = integer(categories[index]);
    byId(`count-${name}`).dataset.value = categories[index];
  }
  const target = countNear(false);
  byId("inline-count").replaceChildren(element("b", {}, integer(target.hits)), ` of ${integer(target.windows)} target windows (${percent(target.hits / target.windows)})`);
  byId("edits-value").textContent = edits();
  byId("tau-value").textContent = probability(tau());
  byId("live-note").textContent = tau() < currentRun().threshold
    ? `This run searched at τ = ${probability(currentRun().threshold)} and may have stopped early where less can be shown; below it these counts are at-least counts.`
    : "";
}

const CHART = { width: 340, height: 168, left: 40, right: 10, top: 12, bottom: 34 };

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The lowest round share that nothing drawn exceeds.
function chartCeiling(budget) {
  let highest = 0;
  for (const isControl of [false, true]) {
    for (let allowed = 0; allowed <= budget; allowed += 1) {
      const { windows, hits } = countNear(isControl, allowed);
      const greedy = isControl ? null : countGreedy(isControl, allowed);
      if (!windows) continue;
      const interval = intervalAt(isControl, allowed);
      highest = Math.max(highest, hits / windows, interval ? interval[1] : 0, greedy ? greedy.hits / windows : 0);
    }
  }
  return [0.05, 0.1, 0.2, 0.4, 0.6].find((share) => highest <= share) ?? 1;
}

// Share of windows at or above τ for every ε, target and control, with intervals; greedy as hollow marks.
function drawChart() {
  const chart = byId("live-chart");
  const { width, height, left, right, top, bottom } = CHART;
  const budget = currentRun().editBudget;
  const x = (allowed, shift) => left + ((allowed + 0.5) / (budget + 1)) * (width - left - right) + shift;
  const labelled = Math.ceil((budget + 1) / 11);  // every how many edits: characters have budgets of 20
  const ceiling = chartCeiling(budget);
  const y = (share) => top + (1 - share / ceiling) * (height - top - bottom);
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  for (const share of [0, ceiling / 2, ceiling]) {
    chart.append(svg("line", { x1: left, x2: width - right, y1: y(share), y2: y(share), class: "grid" }));
    chart.append(svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${Number((share * 100).toPrecision(3))} %`));
  }
  for (let allowed = 0; allowed <= budget; allowed += 1) {
    if (allowed === edits()) chart.append(svg("rect", { x: x(allowed, -14), y: top, width: 28, height: height - top - bottom, rx: 4, class: "current" }));
    if (allowed % labelled === 0) chart.append(svg("text", { x: x(allowed, 0), y: height - bottom + 15, "text-anchor": "middle" }, allowed));
    for (const isControl of [false, true]) {
      const { windows, hits } = countNear(isControl, allowed);
      if (!windows) continue;
      const side = isControl ? "control" : "target";
      const shift = isControl ? 5 : -5;
      const interval = intervalAt(isControl, allowed);
      if (interval) chart.append(svg("line", { x1: x(allowed, shift), x2: x(allowed, shift), y1: y(interval[0]), y2: y(interval[1]), class: `whisker ${side}` }));
      const greedy = countGreedy(isControl, allowed);
      if (greedy && !isControl) chart.append(svg("circle", { cx: x(allowed, shift), cy: y(greedy.hits / windows), r: 4, class: `greedy ${side}` }));
      chart.append(svg("circle", { cx: x(allowed, shift), cy: y(hits / windows), r: 4, class: `mark ${side}` }));
    }
  }
  chart.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "edits allowed, ε  (● near-verbatim   ○ greedy)"));
}

const LISTED_PASSAGES = 12;

// Windows start anywhere; a snippet starts with the whole word.
function wordStart(text, offset) {
  let start = offset;
  while (start > 0 && offset - start < 30 && /\S/.test(text[start - 1])) start -= 1;
  return offset - start < 30 ? start : offset;
}

function showPassages() {
  const list = byId("passage-list");
  const text = currentText();
  const passages = passagesOf(currentDocument());
  const covered = passages.reduce((sum, passage) => sum + passage.end - passage.start, 0);
  byId("passages").querySelector(".hint").textContent = passages.length
    ? `${integer(passages.length)} passage${passages.length === 1 ? "" : "s"}, ${integer(covered)} characters${text ? ` (${percent(covered / text.length)} of the document)` : ""}. Overlapping extractable windows are joined; longest first.`
    : "No window of this document reaches τ at these settings.";
  passages.sort((one, other) => other.end - other.start - (one.end - one.start) || one.start - other.start);
  list.replaceChildren(...passages.slice(0, LISTED_PASSAGES).map((passage) => {
    const words = text === null ? `characters ${passage.start}–${passage.end}` : text.slice(wordStart(text, passage.start), passage.end).replace(/\s+/g, " ");
    return element("li", {}, element("button", { class: "passage-link", type: "button", onclick: () => openPassage(passage) },
      element("span", { class: "snippet", dir: "auto" }, words.length > 220 ? `${words.slice(0, 220).trimEnd()}…` : words),
      element("span", { class: "small" }, `${integer(passage.end - passage.start)} characters · up to ${probability(passage.peak)}`)));
  }));
}
