// One window in full: what was given, what was expected, what the model says instead, how likely, how many queries.
const CHANCES = [0.5, 0.9, 0.999];
const CONTINUATIONS_OPEN = 2;
const blockCache = new Map();

async function continuationsOf(window) {
  const size = currentRun().continuationBlock;
  const id = `continuations-${state.run}-${Math.floor(window / size)}`;
  if (!blockCache.has(id)) {
    const packed = byId(id)?.textContent;
    if (!packed) return [];
    if (typeof DecompressionStream === "undefined") return null;
    const stream = new Blob([unpack(packed, "u1")]).stream().pipeThrough(new DecompressionStream("gzip"));
    blockCache.set(id, JSON.parse(await new Response(stream).text()));
  }
  return blockCache.get(id)[window % size];
}

function verdictOf(window) {
  const { mass, upper } = currentRun().windows;
  const value = mass[edits()][window];
  const category = categoryOf(window, value, tau());
  if (category === VERBATIM) return ["verbatim", "Extractable word for word"];
  if (category === UNLOCKED) return ["unlocked", "Extractable, but only nearly word for word"];
  if (category === UNLOCKED_FROM_ZERO) return ["zero", "Extractable nearly; the exact words cannot occur"];
  if (upper && upper[edits()][window] < tau()) return ["ruled-out", "Ruled out at this τ"];
  return ["not-shown", "Not shown to be extractable"];
}

const linked = (anchor, label) => element("a", { class: "def", href: `#def-${anchor}`, title: DATA.definitions[anchor] ?? "" }, label);

function massRows(window) {
  const { mass, verbatim, impossible, upper, greedy } = currentRun().windows;
  const rows = element("div", { class: "mass-rows" });
  const width = (value) => (value > 0 ? Math.max(1.5, 100 * (1 + Math.log10(value) / 6)) : 0);
  const row = (label, value, note, isCurrent, isZero = true) => {
    const bar = element("i", {});
    bar.style.width = `${Math.max(0, width(value))}%`;
    rows.append(element("div", { class: isCurrent ? "mass-row is-current" : "mass-row" }, element("span", {}, label), element("span", { class: "mass-bar" }, bar), element("b", {}, note + probability(value, isZero))));
  };
  row(linked("verbatim", "exact, p_z"), verbatim[window], "", edits() === 0, Boolean(impossible[window]));
  if (currentRun().hasNear) mass.forEach((column, index) => index && row(linked("near", `ε ≤ ${index}`), column[window], "≥ ", index === edits()));
  if (upper) row(linked("bounds", "at most"), upper[edits()][window], "≤ ", false);
  const estimate = estimateText(window);
  if (estimate) rows.append(element("p", { class: "small" }, linked("estimate", "Sampled estimate"), ` ${estimate}`));
  if (greedy) rows.append(element("p", { class: "small" }, linked("greedy", "Greedy"), greedy[window] === 0 ? " answer is exact." : greedy[window] === BEYOND ? " answer is further away than the edit budget." : ` answer is ${greedy[window]} edits away.`));
  return rows;
}

// Sampled, not certified: kept in words apart from the bars of what is certain.
function estimateText(window) {
  const { estimate, estimateLow, estimateHigh } = currentRun().windows;
  if (!estimate || estimate[window] < 0) return null;
  const range = estimateLow[window] < 0 ? "" : `, 95 % interval ${probability(estimateLow[window])} to ${probability(estimateHigh[window])}`;
  return `${probability(estimate[window])}${range}.`;
}

function queryTable(window) {
  const { mass, upper } = currentRun().windows;
  const lower = mass[edits()][window];
  const body = element("tbody");
  for (const chance of CHANCES) {
    const most = queriesNeeded(lower, chance);
    const least = upper ? queriesNeeded(upper[edits()][window], chance) : 1;
    const text = most === Infinity ? (least > 1 ? `at least ${queryCount(least)}` : "not bounded by this run") : most === least ? queryCount(most) : `${queryCount(least)} to ${queryCount(most)}`;
    body.append(element("tr", {}, element("td", {}, `${chance * 100} %`), element("td", { class: "number" }, text)));
  }
  return element("table", { class: "queries" }, element("thead", {}, element("tr", {}, element("th", {}, "To see it once with chance"), element("th", { class: "number" }, linked("queries", "queries needed")))), body);
}

function rankStrip(window) {
  const { ranks } = currentRun().windows;
  if (!ranks) return null;
  const tokens = currentRun().suffixTokens;
  const strip = element("div", { class: "ranks", role: "img", "aria-label": "Rank of each target token under the model" });
  for (let index = 0; index < tokens; index += 1) {
    const rank = ranks[window * tokens + index];
    const bar = element("i", { title: `token ${index + 1}: rank ${rank === 255 ? "255 or more" : rank}` });
    bar.style.height = `${8 + 92 * Math.min(1, Math.log2(rank || 1) / 8)}%`;
    if (rank <= 1) bar.className = "first";
    strip.append(bar);
  }
  return element("div", {}, element("h4", {}, linked("rank", "Rank of each target token")), strip, element("p", { class: "small" }, "Low and pale: the model’s first choice. Tall: far down its list (log scale)."));
}

async function fillContinuations(window, holder, target) {
  const list = await continuationsOf(window);
  if (state.selected !== window) return;
  if (list === null) {
    holder.append(element("p", { class: "small" }, "This browser cannot unpack the stored continuations."));
    return;
  }
  if (!list.length) {
    holder.append(element("p", { class: "small" }, "No continuation within the edit budget was kept for this window."));
    return;
  }
  const rest = element("details", {}, element("summary", { class: "small" }, `${list.length - CONTINUATIONS_OPEN} more`));
  list.forEach(([text, logProbability, distance], index) => {
    const words = element("p", { class: "passage", dir: "auto" });
    words.append(...(target === null ? [text] : differenceNodes(target, text)));
    const label = distance === 0 ? "exact" : `${distance} edit${distance === 1 ? "" : "s"}`;
    const head = element("p", { class: "small continuation-head" }, element("b", {}, `p = ${probability(Math.exp(logProbability))}`), ` · ${label}`);
    (index < CONTINUATIONS_OPEN ? holder : rest).append(element("div", { class: "continuation" }, head, words));
  });
  if (list.length > CONTINUATIONS_OPEN) holder.append(rest);
}

function placeText(window) {
  const { members } = currentDocument();
  const member = members.findLast((candidate) => candidate.entry.first <= window) ?? members[0];
  const { start, end } = currentRun().windows;
  const name = members.length > 1 ? `${member.entry.name}, ` : "";
  return `${name}characters ${integer(start[window])}–${integer(end[window])}`;
}

function showDetails() {
  const holder = byId("details");
  const window = state.selected;
  document.body.classList.toggle("has-details", window !== null);
  if (window === null) {
    holder.replaceChildren(element("div", { class: "empty" }, element("p", {}, "Click a shaded passage, or press n, to see what the model was given and what it says.")));
    return;
  }
  const { stop, evaluations } = currentRun().windows;
  const { start, suffix, end } = places();
  const text = currentText();
  const target = text === null ? null : text.slice(suffix[window], end[window]);
  const [verdict, sentence] = verdictOf(window);
  const continuations = element("div", { class: "continuations" });
  const entry = currentDocument();
  const step = (delta) => () => selectWindow(Math.min(entry.first + entry.count - 1, Math.max(entry.first, window + delta)));
  holder.replaceChildren(
    element("div", { class: "details-head" },
      element("span", { class: `verdict ${verdict}` }, sentence),
      element("button", { class: "quiet", type: "button", "aria-label": "Previous window", onclick: step(-1) }, "‹"),
      element("button", { class: "quiet", type: "button", "aria-label": "Next window", onclick: step(1) }, "›"),
      element("button", { class: "quiet", type: "button", "aria-label": "Close", id: "details-close", onclick: () => selectWindow(null) }, "×")),
    element("p", { class: "small" }, `Window ${integer(window - entry.first + 1)} of ${integer(entry.count)} · ${placeText(window)}`),
    ...(text === null ? [] : [
      element("h4", {}, linked("window", "Given to the model (prefix)")),
      element("p", { class: "passage prefix", dir: "auto" }, text.slice(start[window], suffix[window])),
      element("h4", {}, linked("window", "Expected (target)")),
      element("p", { class: "passage target", dir: "auto" }, target),
    ]),
    element("h4", {}, linked("continuation", "What the model says"), element("span", { class: "small" }, " most likely first")),
    continuations,
    element("h4", {}, linked("probability", "Probability under the policy"), element("span", { class: "small" }, " log scale, 10⁻⁶ to 1")),
    massRows(window), queryTable(window), rankStrip(window) ?? "",
    element("p", { class: "small" }, stop && STOP_REASONS[stop[window]] ? `${STOP_REASONS[stop[window]]} ` : "", evaluations ? `${integer(evaluations[window])} token evaluations.` : ""),
  );
  holder.scrollTop = 0;
  // The words right before the target matter most.
  const prefix = holder.querySelector(".passage.prefix");
  if (prefix) prefix.scrollTop = prefix.scrollHeight;
  fillContinuations(window, continuations, target);
}
