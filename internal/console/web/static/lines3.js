// Merging texts by lines, of three versions.

// merge puts the changes from base to mine into theirs. It returns the text, or null if both have changed the same
// lines, or lines beside each other, in different ways.
export function merge(base, mine, theirs) {
  const [b, m, t] = [base, mine, theirs].map((text) => text.split("\n"));
  const changes = [hunks(b, m), hunks(b, t)];
  const out = [];
  let at = 0; // in b
  while (changes[0].length || changes[1].length) {
    const [x, y] = changes.map((list) => list[0]);
    const next = !y || (x && x.from < y.from) ? x : y;
    const both = x && y && Math.max(x.from, y.from) <= Math.min(x.to, y.to);
    if (both) {
      if (x.from !== y.from || x.to !== y.to || x.lines.join("\n") !== y.lines.join("\n")) return null;
      changes[0].shift();
      changes[1].shift();
    } else (next === x ? changes[0] : changes[1]).shift();
    out.push(...b.slice(at, next.from), ...next.lines);
    at = next.to;
  }
  return [...out, ...b.slice(at)].join("\n");
}

// hunks are the changes from a to b, in order: lines [from, to) of a become these.
function hunks(a, b) {
  let start = 0, enda = a.length, endb = b.length;
  while (start < enda && start < endb && a[start] === b[start]) start++;
  while (enda > start && endb > start && a[enda - 1] === b[endb - 1]) [enda, endb] = [enda - 1, endb - 1];
  const n = enda - start, m = endb - start;
  if (!n && !m) return [];
  if (n * m > 4e6) return [{ from: start, to: enda, lines: b.slice(start, endb) }]; // one hunk is right, too
  // length[i][j] is how many lines a[i:] and b[j:] have in common, in order.
  const length = Array.from({ length: n + 1 }, () => new Uint32Array(m + 1));
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      length[i][j] = a[start + i] === b[start + j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const found = [];
  let i = 0, j = 0, open = null;
  const change = () => {
    open ||= found[found.push({ from: start + i, to: start + i, lines: [] }) - 1];
    return open;
  };
  while (i < n || j < m) {
    if (i < n && j < m && a[start + i] === b[start + j]) [i, j, open] = [i + 1, j + 1, null];
    else if (j < m && (i === n || length[i][j + 1] >= length[i + 1][j])) change().lines.push(b[start + j++]);
    else [change().to, i] = [start + i + 1, i + 1];
  }
  return found;
}
