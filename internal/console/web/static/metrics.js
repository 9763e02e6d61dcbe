// The server's metrics: the text format of Prometheus, and what can be computed from two readings of it.

// parse returns a map from names to lists of {labels, value}. It takes what the server writes; a line that it does not
// understand is left out.
export function parse(text) {
  const all = new Map();
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#") continue;
    const end = line.lastIndexOf(" ");
    const open = line.indexOf("{");
    const name = line.slice(0, open < 0 ? end : open);
    const value = Number(line.slice(end + 1));
    if (!name || Number.isNaN(value)) continue;
    const labels = {};
    if (open >= 0) {
      for (const [, key, text] of line.slice(open, end).matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
        labels[key] = text.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
      }
    }
    if (!all.has(name)) all.set(name, []);
    all.get(name).push({ labels, value });
  }
  return all;
}

// sum adds the values of a metric whose labels a function accepts.
export function sum(metrics, name, accept = () => true) {
  return (metrics.get(name) || []).reduce((n, { labels, value }) => (accept(labels) ? n + value : n), 0);
}

// rate is the increase of a counter for each second between two readings. A counter that begins again, as after a
// restart, counts from zero.
export function rate(before, now, seconds, name, accept) {
  const a = sum(before, name, accept), b = sum(now, name, accept);
  return (b < a ? b : b - a) / seconds;
}

// quantile is the q-quantile of what a histogram has counted between two readings, in seconds, interpolated within its
// bucket; null if it has counted nothing.
export function quantile(before, now, q, name, accept) {
  const counts = new Map();
  const add = (metrics, sign) => {
    for (const { labels, value } of metrics.get(`${name}_bucket`) || []) {
      if (accept(labels)) counts.set(labels.le, (counts.get(labels.le) || 0) + sign * value);
    }
  };
  add(now, 1);
  add(before, -1);
  const buckets = [...counts].map(([le, n]) => [le === "+Inf" ? Infinity : Number(le), n]).sort((a, b) => a[0] - b[0]);
  const total = buckets.at(-1)?.[1] || 0;
  if (total <= 0) return null;
  let from = 0, below = 0;
  for (const [le, n] of buckets) {
    if (n >= q * total) return le === Infinity ? from : from + (le - from) * ((q * total - below) / (n - below || 1));
    [from, below] = [le, n];
  }
  return from;
}
