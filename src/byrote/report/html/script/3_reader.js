// The text, in chunks: plain text at once (so that the browser's own search and selection work), shading only near
// the screen.
const CHUNK_CHARACTERS = 2500;
const LONGEST_CHUNK = 6000;

const reader = { geometry: null, chunks: [], observer: null, hits: [], hit: -1, queryLength: 0 };

function chunkEdges(text, from, to) {
  const edges = [from];
  while (edges[edges.length - 1] < to) {
    const start = edges[edges.length - 1];
    const wanted = start + CHUNK_CHARACTERS;
    let edge = text.indexOf("\n", wanted);
    if (edge < 0 || edge > start + LONGEST_CHUNK) edge = text.indexOf(" ", wanted);
    if (edge < 0 || edge > start + LONGEST_CHUNK) edge = start + LONGEST_CHUNK;
    edge += 1;
    // Never between the halves of an astral character, nor before a mark that belongs to the letter before it.
    while (edge < text.length && /[\uDC00-\uDFFF\u200D\uFE0E\uFE0F]|\p{M}/u.test(text[edge])) edge += 1;
    edges.push(Math.min(edge, to));
  }
  return edges;
}

function openDocument() {
  const holder = byId("reader");
  const entry = currentDocument();
  const text = currentText();
  reader.observer?.disconnect();
  reader.chunks = [];
  holder.replaceChildren();
  if (text === null) {
    reader.geometry = buildGeometry(entry, 0xffffffff);
    paintExact();
    return;
  }
  reader.geometry = buildGeometry(entry, text.length);
  paintExact();
  reader.observer = new IntersectionObserver(onVisibility, { root: holder, rootMargin: "400px 0px" });
  entry.members.forEach((member, index) => {
    const to = index + 1 < entry.members.length ? entry.members[index + 1].offset : text.length;
    if (entry.members.length > 1) holder.append(documentHeading(member.entry));
    appendChunks(holder, text, chunkEdges(text, member.offset, to));
  });
}

function appendChunks(holder, text, edges) {
  for (let index = 0; index + 1 < edges.length; index += 1) {
    const node = element("div", { class: "chunk" }, text.slice(edges[index], edges[index + 1]));
    const chunk = { node, start: edges[index], end: edges[index + 1], isVisible: false, isStale: true };
    node.chunk = chunk;
    reader.chunks.push(chunk);
    holder.append(node);
    reader.observer.observe(node);
  }
}

function documentHeading(entry) {
  const copies = entry.copies === null ? "" : ` · ${integer(entry.copies)} ${entry.copies === 1 ? "copy" : "copies"} in training${entry.isOtherEdition ? ", in another wording" : ""}`;
  return element("h4", { class: "document-heading" }, entry.name, element("span", { class: "small" }, copies));
}

// Exact reproduction does not depend on ε: it is painted once for the map.
function paintExact() {
  const { geometry } = reader;
  geometry.exactHeat = new Float64Array(geometry.segments);
  geometry.exactBest = new Int32Array(geometry.segments);
  paint(geometry, currentDocument(), currentRun().windows.verbatim, geometry.exactHeat, geometry.exactBest);
}

function onVisibility(entries) {
  for (const entry of entries) {
    const chunk = entry.target.chunk;
    chunk.isVisible = entry.isIntersecting;
    if (chunk.isVisible && chunk.isStale) shadeChunk(chunk);
  }
}

function repaint() {
  const entry = currentDocument();
  paint(reader.geometry, entry, currentRun().windows.mass[edits()]);
  if (currentText() === null) showWindowsInstead(byId("reader"), entry);
  for (const chunk of reader.chunks) chunk.isStale = true;
  for (const chunk of reader.chunks) if (chunk.isVisible) shadeChunk(chunk);
}

function refreshMarks() {
  for (const chunk of reader.chunks) chunk.isStale = true;
  for (const chunk of reader.chunks) if (chunk.isVisible) shadeChunk(chunk);
}

// The cut points inside a chunk: segment edges, the selected window, search hits.
function cutsWithin(chunk) {
  const cuts = new Set([chunk.start, chunk.end]);
  const { boundaries } = reader.geometry;
  const add = (offset) => {
    if (offset > chunk.start && offset < chunk.end) cuts.add(offset);
  };
  for (let index = lowerBound(boundaries, chunk.start); boundaries[index] < chunk.end; index += 1) add(boundaries[index]);
  if (state.selected !== null) {
    const { start, suffix, end } = places();
    add(start[state.selected]);
    add(suffix[state.selected]);
    add(end[state.selected]);
  }
  const first = lowerBound(reader.hits, chunk.start - reader.queryLength);
  for (let index = first; index < reader.hits.length && reader.hits[index] < chunk.end; index += 1) {
    add(reader.hits[index]);
    add(reader.hits[index] + reader.queryLength);
  }
  return Float64Array.from(cuts).sort();
}

function markClass(offset) {
  let name = "";
  if (state.selected !== null) {
    const { start, suffix, end } = places();
    if (offset >= suffix[state.selected] && offset < end[state.selected]) name += " is-target";
    else if (offset >= start[state.selected] && offset < suffix[state.selected]) name += " is-prefix";
  }
  const before = lowerBound(reader.hits, offset + 1) - 1;
  if (before >= 0 && offset < reader.hits[before] + reader.queryLength) {
    name += before === reader.hit ? " is-hit is-current" : " is-hit";
  }
  return name;
}

function shadeChunk(chunk) {
  const text = currentText();
  const cuts = cutsWithin(chunk);
  const pieces = document.createDocumentFragment();
  let from = chunk.start;
  let open = null;
  const flush = (to) => {
    if (to === from) return;
    const content = text.slice(from, to);
    pieces.append(open ? element("span", { class: open, "data-at": from }, content) : content);
    from = to;
  };
  for (let index = 0; index + 1 < cuts.length; index += 1) {
    const shade = segmentClass(reader.geometry, segmentAt(reader.geometry, cuts[index]));
    const name = (shade + markClass(cuts[index])).trim();
    if (name !== open) {
      flush(cuts[index]);
      open = name;
    }
  }
  flush(chunk.end);
  chunk.node.replaceChildren(pieces);
  chunk.isStale = false;
}

function offsetOfPoint(x, y) {
  let node;
  let offset;
  if (document.caretPositionFromPoint) {
    const caret = document.caretPositionFromPoint(x, y);
    if (!caret) return null;
    node = caret.offsetNode;
    offset = caret.offset;
  } else {
    const range = document.caretRangeFromPoint(x, y);
    if (!range) return null;
    node = range.startContainer;
    offset = range.startOffset;
  }
  const holder = node.parentElement?.closest(".chunk");
  if (!holder || node.nodeType !== Node.TEXT_NODE) return null;
  let before = holder.chunk.start;
  const walker = document.createTreeWalker(holder, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && walker.currentNode !== node) before += walker.currentNode.data.length;
  return before + offset;
}

// The window to open for a place: the strongest that covers it, else the one whose suffix starts nearest.
function windowAt(offset) {
  const window = reader.geometry.best[segmentAt(reader.geometry, offset)];
  if (window >= 0) return window;
  const entry = currentDocument();
  const { suffix } = places();
  let nearest = entry.first;
  for (let index = entry.first; index < entry.first + entry.count; index += 1) {
    if (Math.abs(suffix[index] - offset) < Math.abs(suffix[nearest] - offset)) nearest = index;
  }
  return nearest;
}

function scrollToOffset(offset) {
  const chunk = reader.chunks.find((candidate) => offset < candidate.end);
  if (!chunk) return;
  if (chunk.isStale) shadeChunk(chunk);
  const walker = document.createTreeWalker(chunk.node, NodeFilter.SHOW_TEXT);
  let before = chunk.start;
  while (walker.nextNode()) {
    const length = walker.currentNode.data.length;
    if (offset < before + length) break;
    before += length;
  }
  const range = document.createRange();
  range.setStart(walker.currentNode ?? chunk.node, walker.currentNode ? Math.max(0, offset - before) : 0);
  range.collapse(true);
  const holder = byId("reader");
  const place = range.getBoundingClientRect();
  const box = place.height ? place : chunk.node.getBoundingClientRect();
  const frame = holder.getBoundingClientRect();
  holder.scrollTop += box.top - frame.top - frame.height / 3;
}

function showWindowsInstead(holder, entry) {
  const { suffix, end, verbatim, impossible, mass } = currentRun().windows;
  const rows = [];
  for (let index = entry.first; index < entry.first + entry.count; index += 1) rows.push(index);
  rows.sort((left, right) => mass[edits()][right] - mass[edits()][left]);
  const body = element("tbody");
  for (const index of rows.slice(0, 200)) {
    const open = element("button", { class: "link", type: "button", onclick: () => selectWindow(index) }, `${suffix[index]}–${end[index]}`);
    body.append(element("tr", {}, element("td", {}, open), element("td", { class: "number" }, probability(verbatim[index], Boolean(impossible[index]))), element("td", { class: "number" }, probability(mass[edits()][index]))));
  }
  const head = element("tr", {}, element("th", {}, "Characters"), element("th", { class: "number" }, "Verbatim"), element("th", { class: "number" }, "Near-verbatim, at least"));
  holder.replaceChildren(
    element("p", { class: "notice" }, "The text of this document is not available in the run; these are its strongest windows by position."),
    element("table", {}, element("thead", {}, head), body),
  );
}
