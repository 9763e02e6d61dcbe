// The difference of two versions of an object, as lines: "- path: value" and "+ path: value". What every write changes
// by itself (managedFields, resourceVersion) is left out.

// difference returns a list of {sign, path, value}.
export function difference(before, after) {
  const lines = [];
  compare(before, after, "", lines);
  return lines;
}

const ignored = new Set([".metadata.managedFields", ".metadata.resourceVersion"]);

const isMap = (v) => v !== null && typeof v === "object" && !Array.isArray(v);

function compare(a, b, path, lines) {
  if (ignored.has(path)) return;
  if (isMap(a) && isMap(b)) {
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const inner = /^[A-Za-z_][\w-]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
      compare(Object.hasOwn(a, key) ? a[key] : undefined, Object.hasOwn(b, key) ? b[key] : undefined, inner, lines);
    }
  } else if (Array.isArray(a) && Array.isArray(b)) compareLists(a, b, path, lines);
  else if (!same(a, b)) {
    if (a !== undefined) lines.push({ sign: "-", path, value: printed(a) });
    if (b !== undefined) lines.push({ sign: "+", path, value: printed(b) });
  }
}

// Items are the same one if they have the same name (or type, as conditions have), and by their index otherwise.
function compareLists(a, b, path, lines) {
  const key = ["name", "type", "uid", "ip"].find((k) => [...a, ...b].every((v) => isMap(v) && typeof v[k] === "string") &&
    [a, b].every((list) => new Set(list.map((v) => v[k])).size === list.length));
  if (!key) {
    for (let i = 0; i < Math.max(a.length, b.length); i++) compare(a[i], b[i], `${path}[${i}]`, lines);
    return;
  }
  for (const name of new Set([...a, ...b].map((v) => v[key]))) {
    const item = (list) => list.find((v) => v[key] === name);
    compare(item(a), item(b), `${path}[${key}=${JSON.stringify(name)}]`, lines);
  }
}

const printed = (v) => (typeof v === "string" && v !== "" && !/^[\s"]/.test(v) ? v : JSON.stringify(v));

const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);
