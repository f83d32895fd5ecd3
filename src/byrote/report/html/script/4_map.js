// The whole document as a strip: exact reproduction above, near-verbatim below; the frame is what the reader shows.
function stepColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    steps: Array.from({ length: BINS + 1 }, (_, step) => (step ? read(`--h${step}`) : read("--map-empty"))),
    categories: [read("--map-empty"), read("--blue"), read("--orange"), read("--vermillion")],
    paper: read("--paper"),
    hatch: read("--unmeasured"),
  };
}

// Slanted lines, as in the text: what no window covers is unknown, not safe.
function hatching(context, colours) {
  const size = Math.round(6 * (window.devicePixelRatio || 1));
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colours.hatch;
  pen.lineWidth = size / 5;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

function drawRow(context, colours, row) {
  const { geometry } = reader;
  const { boundaries } = geometry;
  const length = boundaries[boundaries.length - 1] || 1;
  const strongest = new Float64Array(row.width).fill(-1);
  const window = new Int32Array(row.width).fill(-1);
  for (let segment = 0; segment < geometry.segments; segment += 1) {
    const first = Math.floor((boundaries[segment] / length) * row.width);
    const last = Math.max(first + 1, Math.ceil((boundaries[segment + 1] / length) * row.width));
    for (let column = first; column < Math.min(last, row.width); column += 1) {
      if (row.heat[segment] > strongest[column]) {
        strongest[column] = row.heat[segment];
        window[column] = row.best[segment];
      }
    }
  }
  const threshold = tau();
  const unmeasured = hatching(context, colours);
  for (let column = 0; column < row.width; column += 1) {
    if (window[column] < 0) {
      context.fillStyle = unmeasured;
      context.fillRect(column, row.top, 1, row.height);
      continue;
    }
    let colour = colours.steps[bin(strongest[column], threshold)];
    if (state.mode === "category") {
      colour = colours.categories[categoryOf(window[column], strongest[column], threshold)];
    }
    context.fillStyle = colour;
    context.fillRect(column, row.top, 1, row.height);
  }
}

function drawMap() {
  const canvas = byId("map-canvas");
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(2, Math.round(canvas.clientHeight * ratio));
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const colours = stepColours();
  const { geometry } = reader;
  const gap = Math.round(2 * ratio);
  const half = Math.floor((height - gap) / 2);
  drawRow(context, colours, { width, top: 0, height: half, heat: geometry.exactHeat, best: geometry.exactBest });
  drawRow(context, colours, { width, top: half + gap, height: half, heat: geometry.heat, best: geometry.best });
  byId("map-near-label").textContent = `ε ≤ ${edits()}`;
  drawFrame();
}

function drawFrame() {
  const holder = byId("reader");
  const share = holder.scrollTop / Math.max(1, holder.scrollHeight);
  const view = byId("map-view");
  view.style.left = `${share * 100}%`;
  view.style.width = `${Math.min(1, holder.clientHeight / Math.max(1, holder.scrollHeight)) * 100}%`;
  byId("map").setAttribute("aria-valuenow", Math.round(share * 100));
}

function drawScale() {
  const scale = byId("scale");
  scale.replaceChildren();
  const unmeasured = () => [element("span", { class: "swatch unmeasured" }), element("span", {}, "not measured")];
  if (state.mode === "category") {
    for (const [name, label] of [["verbatim", "word for word"], ["unlocked", "only nearly"], ["zero", "exact impossible"]]) {
      scale.append(element("span", { class: `swatch ${name}` }), element("span", {}, label));
    }
    scale.append(...unmeasured());
    return;
  }
  scale.append(element("span", {}, `τ = ${probability(tau())}`));
  const ramp = element("span", { class: "ramp" });
  for (let step = 1; step <= BINS; step += 1) ramp.append(element("i", { class: `h${step}` }));
  scale.append(ramp, element("span", {}, "1 (certain)"), ...unmeasured());
}

function jumpOnMap(event) {
  const box = byId("map").getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const length = currentText()?.length ?? 0;
  if (length) scrollToOffset(Math.min(length - 1, Math.floor(share * length)));
}

function listenToMap() {
  const map = byId("map");
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    jumpOnMap(event);
  });
  map.addEventListener("pointermove", (event) => {
    if (event.buttons) jumpOnMap(event);
  });
  map.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    byId("reader").scrollTop += step * byId("reader").clientHeight * 0.9;
  });
  byId("reader").addEventListener("scroll", drawFrame, { passive: true });
  window.addEventListener("resize", drawMap);
}
