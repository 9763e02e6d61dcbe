// Paths of fields, as the server prints them (.spec.containers[name="web"].image), in JSON. A key may have any
// character, dots too, so that a path is read along the value: of several keys that fit, the longest one.

// valueAt returns the value of a path; undefined if there is none.
export function valueAt(value, path) {
  const found = follow(value, path);
  return found && found.at(-1).value;
}

// without returns the value without what is at a path, and without maps and items that have nothing else then.
export function without(value, path) {
  return edit(value, path, undefined);
}

// withValue returns the value with another one at a path, which exists.
export function withValue(value, path, to) {
  return edit(value, path, to);
}

function edit(value, path, to) {
  const copy = structuredClone(value);
  const steps = follow(copy, path);
  if (!steps) return copy;
  let i = steps.length - 1;
  const { of, key } = steps[i];
  if (to !== undefined) of[key] = to;
  else if (Array.isArray(of)) of.splice(key, 1);
  else delete of[key];
  // A container that is empty now goes with it, but for metadata, which has the name.
  for (i--; to === undefined && i >= 0; i--) {
    if (Object.keys(steps[i].value).length > 0 || (i === 0 && steps[i].key === "metadata")) break;
    if (Array.isArray(steps[i].of)) steps[i].of.splice(steps[i].key, 1);
    else delete steps[i].of[steps[i].key];
  }
  return copy;
}

// follow returns the steps of a path: {of, key, value}. undefined if the value has no such path.
function follow(value, path) {
  if (path === "" || path === ".") return [];
  if (value === null || typeof value !== "object") return undefined;
  const rest = (key, after) => {
    const more = follow(value[key], after);
    return more && [{ of: value, key, value: value[key] }, ...more];
  };
  if (path[0] === ".") {
    const fits = Object.keys(value).filter((key) => {
      const next = path[key.length + 1];
      return path.startsWith(key, 1) && (next === undefined || next === "." || next === "[");
    }).sort((a, b) => b.length - a.length);
    for (const key of fits) {
      const found = rest(key, path.slice(key.length + 1));
      if (found) return found;
    }
    return undefined;
  }
  if (path[0] !== "[" || !Array.isArray(value)) return undefined;
  for (const [i, item] of value.entries()) {
    const end = ends(path, item, i);
    const found = end > 0 && rest(i, path.slice(end));
    if (found) return found;
  }
  return undefined;
}

// ends is how long the element is with which a path begins, if it names an item; 0: it does not.
function ends(path, item, i) {
  const element = [`[${i}]`, `[=${JSON.stringify(item)}]`];
  const close = path.indexOf("]");
  if (item && typeof item === "object") {
    const keys = [...path.slice(1).matchAll(/(?:^|,)(\w+)=/g)].map((m) => m[1]);
    for (let n = 1; n <= keys.length; n++) {
      if (keys.slice(0, n).every((k) => Object.hasOwn(item, k))) {
        element.push(`[${keys.slice(0, n).map((k) => `${k}=${JSON.stringify(item[k])}`).join(",")}]`);
      }
    }
  }
  return close < 0 ? 0 : element.find((e) => path.startsWith(e))?.length || 0;
}
