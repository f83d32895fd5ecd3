// What each stretch of the text is worth: segments between window edges, and the strongest window over each.
const BINS = 8;
const NOT_EXTRACTABLE = 0;
const VERBATIM = 1;
const UNLOCKED = 2;
const UNLOCKED_FROM_ZERO = 3;
const CATEGORY_CLASS = ["", "verbatim", "unlocked", "zero"];

// 0 below τ; otherwise 1 (just at τ) to 8 (certain), even steps on a log scale.
function bin(mass, threshold) {
  if (!(mass >= threshold)) return 0;
  if (threshold >= 1) return BINS;
  const depth = 1 - Math.log(mass) / Math.log(threshold);
  return 1 + Math.min(BINS - 1, Math.floor(depth * BINS));
}

function categoryOf(window, mass, threshold) {
  const { verbatim, impossible } = currentRun().windows;
  if (verbatim[window] >= threshold) return VERBATIM;
  if (!(mass >= threshold)) return NOT_EXTRACTABLE;
  return impossible[window] ? UNLOCKED_FROM_ZERO : UNLOCKED;
}

function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The fixed geometry of one document: cut points, and which segments each window's suffix covers.
function buildGeometry(entry, length) {
  const { suffix, end } = entry.places;
  const last = entry.first + entry.count;
  const cuts = new Float64Array(2 * entry.count + 2);
  for (let index = entry.first, slot = 2; index < last; index += 1, slot += 2) {
    cuts[slot] = Math.min(suffix[index], length);
    cuts[slot + 1] = Math.min(end[index], length);
  }
  cuts[1] = length;
  cuts.sort();
  const boundaries = cuts.filter((value, index) => index === 0 || value !== cuts[index - 1]);
  const from = new Int32Array(entry.count);
  const to = new Int32Array(entry.count);
  for (let index = 0; index < entry.count; index += 1) {
    from[index] = lowerBound(boundaries, suffix[entry.first + index]);
    to[index] = lowerBound(boundaries, Math.min(end[entry.first + index], length));
  }
  const segments = boundaries.length - 1;
  return { boundaries, from, to, segments, best: new Int32Array(segments), heat: new Float64Array(segments) };
}

// Fills heat with the largest mass over each segment and best with the window that has it (−1: no window).
function paint(geometry, entry, mass, heat = geometry.heat, best = geometry.best) {
  heat.fill(-1);
  best.fill(-1);
  for (let index = 0; index < entry.count; index += 1) {
    const value = mass[entry.first + index];
    for (let segment = geometry.from[index]; segment < geometry.to[index]; segment += 1) {
      if (value > heat[segment]) {
        heat[segment] = value;
        best[segment] = entry.first + index;
      }
    }
  }
  return heat;
}

const segmentAt = (geometry, offset) =>
  Math.max(0, Math.min(geometry.segments - 1, lowerBound(geometry.boundaries, offset + 1) - 1));

function segmentClass(geometry, segment) {
  const window = geometry.best[segment];
  if (window < 0) return "unmeasured";
  const threshold = tau();
  if (state.mode === "category") {
    const category = categoryOf(window, geometry.heat[segment], threshold);
    return CATEGORY_CLASS[category];
  }
  const step = bin(geometry.heat[segment], threshold);
  return step ? `h${step}` : "";
}

// Overlapping extractable suffixes joined: [{start, end, peak, window}], in reading order.
function passagesOf(entry) {
  const { suffix, end } = entry.places;
  const column = currentRun().windows.mass[edits()];
  const threshold = tau();
  const passages = [];
  for (let index = entry.first; index < entry.first + entry.count; index += 1) {
    if (!(column[index] >= threshold)) continue;
    const open = passages[passages.length - 1];
    if (open && suffix[index] <= open.end) {
      open.end = Math.max(open.end, end[index]);
      if (column[index] > open.peak) Object.assign(open, { peak: column[index], window: index });
    } else {
      passages.push({ start: suffix[index], end: end[index], peak: column[index], window: index });
    }
  }
  return passages;
}
