// Character differences of a continuation against the target: [kind, text], kind "same", "gone" (target only) or
// "new" (continuation only). Longest common subsequence over whole characters, astral ones included.
const SHORTEST_ISLAND = 3;

function characterDifference(target, continuation) {
  const left = Array.from(target);
  const right = Array.from(continuation);
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (tail < left.length - head && tail < right.length - head && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail += 1;
  const middle = alignMiddle(left.slice(head, left.length - tail), right.slice(head, right.length - tail));
  const pieces = [["same", left.slice(0, head).join("")], ...middle, ["same", left.slice(left.length - tail).join("")]];
  return tidied(pieces.filter(([, text]) => text));
}

function alignMiddle(left, right) {
  const columns = right.length + 1;
  const longest = new Uint32Array((left.length + 1) * columns);
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      const here = row * columns + column;
      longest[here] = left[row] === right[column] ? longest[here + columns + 1] + 1 : Math.max(longest[here + columns], longest[here + 1]);
    }
  }
  const pieces = [];
  const push = (kind, character) => {
    const open = pieces[pieces.length - 1];
    if (open && open[0] === kind) open[1] += character;
    else pieces.push([kind, character]);
  };
  let row = 0;
  let column = 0;
  while (row < left.length || column < right.length) {
    const here = row * columns + column;
    if (row < left.length && column < right.length && left[row] === right[column]) {
      push("same", left[row]);
      row += 1;
      column += 1;
    } else if (column >= right.length || (row < left.length && longest[here + columns] >= longest[here + 1])) {
      push("gone", left[row]);
      row += 1;
    } else {
      push("new", right[column]);
      column += 1;
    }
  }
  return pieces;
}

// Single letters shared by chance between two edits read worse than one larger edit: islands below three characters
// that stand between edits join them.
function tidied(pieces) {
  const tidy = [];
  let gone = "";
  let fresh = "";
  const flush = () => {
    if (gone) tidy.push(["gone", gone]);
    if (fresh) tidy.push(["new", fresh]);
    gone = "";
    fresh = "";
  };
  pieces.forEach(([kind, text], index) => {
    const isIsland = kind === "same" && (gone || fresh) && index + 1 < pieces.length && text.length < SHORTEST_ISLAND && !/\s/.test(text);
    if (kind === "gone" || isIsland) gone += text;
    if (kind === "new" || isIsland) fresh += text;
    if (kind === "same" && !isIsland) {
      flush();
      tidy.push(["same", text]);
    }
  });
  flush();
  return tidy;
}

function differenceNodes(target, continuation) {
  const tags = { gone: "del", new: "ins" };
  return characterDifference(target, continuation).map(([kind, text]) => (kind === "same" ? text : element(tags[kind], {}, text)));
}
