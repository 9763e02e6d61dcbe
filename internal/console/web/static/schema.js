// What a line of an object in YAML may have: the schema of its place, from the OpenAPI documents of the server.
//
// The text is in block style, as the server writes it. A place is found by indentation: a parser would have no tree for
// a text that is being written.
import { get } from "./api.js";

// Schema is the schema of one type. Its documents are other people's: names are looked up as own properties alone.
export class Schema {
  #all;
  #top;

  static async load({ group, version, kind }, abort) {
    const index = await get("/openapi/v3", {}, { abort });
    const path = index.paths[group ? `apis/${group}/${version}` : `api/${version}`];
    if (!path) throw new Error("the server has no schema of this type");
    const url = new URL(path.serverRelativeURL, location.origin);
    const document = await get(url.pathname, Object.fromEntries(url.searchParams), { abort });
    const s = new Schema();
    s.#all = document.components?.schemas || {};
    s.#top = Object.values(s.#all).find((t) => t["x-kubernetes-group-version-kind"]?.some((k) =>
      (k.group || "") === group && k.version === version && k.kind === kind));
    if (!s.#top) throw new Error("the server has no schema of this type");
    return s;
  }

  // at is the schema of a path of keys, in which "*" or a number stands for an item of a list; undefined if there is none.
  at(path) {
    let t = this.#resolved(this.#top);
    for (const key of path) {
      if (!t) return undefined;
      if (key === "*" || typeof key === "number") t = this.#resolved(t.items);
      else if (t.properties && Object.hasOwn(t.properties, key)) t = this.#resolved(t.properties[key]);
      else t = typeof t.additionalProperties === "object" ? this.#resolved(t.additionalProperties) : undefined;
    }
    return t;
  }

  // #resolved follows references. A description beside one stays: it is about the field.
  #resolved(t, depth = 0) {
    if (!t || depth > 16) return t;
    const inner = t.$ref || t.allOf?.[0]?.$ref;
    if (!inner) return t;
    const name = inner.split("/").at(-1);
    const found = Object.hasOwn(this.#all, name) ? this.#resolved(this.#all[name], depth + 1) : undefined;
    return found && { ...found, description: t.description || found.description };
  }
}

// open says whether an object of a schema may have members that the schema does not name.
export const open = (t) => !t?.properties || Boolean(t.additionalProperties) || t["x-kubernetes-preserve-unknown-fields"];

// typeName is the type of a schema, for people.
export const typeName = (t) => (t?.type === "array" ? "list" : t?.type === "object" && !t.properties ? "map" : t?.type || t?.format || "");

// parseLine reads a line: the columns of its dashes, its key, the column of the key, and what is behind the colon.
export function parseLine(text) {
  const dashes = [];
  let col = /^ */.exec(text)[0].length;
  while (text[col] === "-" && (text[col + 1] === " " || text[col + 1] === undefined)) {
    dashes.push(col);
    col++;
    col += /^ */.exec(text.slice(col))[0].length;
  }
  const rest = text.slice(col);
  const key = /^("(?:[^"\\]|\\.)*"|[^\s"'#[\]{},:&*!|>%@`](?:[^:#]|:(?=\S)|#(?!\s))*?)\s*:(?:\s+(.*))?$/.exec(rest);
  return { dashes, col, key: key ? unquoted(key[1]) : null, value: key ? (key[2] ?? "").trim() : rest.trim(), blank: !rest.trim() || rest.startsWith("#") };
}

function unquoted(key) {
  try {
    return key.startsWith('"') ? JSON.parse(key) : key;
  } catch {
    return key;
  }
}

// pathOf is the path of what is in line n at a column, behind these dashes: the keys above it, outermost first.
export function pathOf(lines, n, col, dashes) {
  const path = [];
  let want = col, item = false; // what is looked for is left of want, or, above an item, at want
  const above = (columns) => {
    for (const dash of [...columns].reverse()) {
      if (dash >= want) continue;
      path.unshift("*");
      [want, item] = [dash, true];
    }
  };
  above(dashes);
  for (let i = n - 1; i >= 0 && (want > 0 || item); i--) {
    const line = parseLine(lines[i]);
    if (line.blank) continue;
    if (line.key !== null && (line.col < want || (item && line.col === want))) {
      path.unshift(line.key);
      [want, item] = [line.col, false];
    }
    above(line.dashes);
  }
  return path;
}

// places finds the keys of a text: {line, col, key, parent}, where parent is the path of keys and of numbers of items
// above. Each line is read once: pathOf for each of them would read all of them for each. What is in a block of text is
// no key.
export function places(lines) {
  const found = [], above = []; // above: {col, step} of what is open, outermost first; an item's step is its number
  const close = (col) => {
    while (above.length && above.at(-1).col >= col) above.pop();
  };
  let block = -1; // the column of the key of the block of text that we are in
  for (const [n, text] of lines.entries()) {
    const line = parseLine(text);
    if (block >= 0 && (line.blank || /^ */.exec(text)[0].length > block)) continue;
    block = -1;
    if (line.blank) continue;
    for (const col of line.dashes) {
      close(col + 1); // a list may begin at the column of its key
      const before = typeof above.at(-1)?.step === "number" && above.at(-1).col === col ? above.pop().step : -1;
      above.push({ col, step: before + 1 });
    }
    if (line.key === null) continue;
    close(line.col);
    found.push({ line: n, col: line.col, key: line.key, parent: above.map((a) => a.step) });
    above.push({ col: line.col, step: line.key });
    if (/^[|>]/.test(line.value)) block = line.col;
  }
  return found;
}

// unknown finds the keys that the schema does not have: {line, from, to, key}.
export function unknown(schema, lines) {
  return places(lines).filter(({ key, parent }) => {
    const t = schema.at(parent);
    return t && !open(t) && !Object.hasOwn(t.properties, key);
  }).map(({ line, col, key }) => ({ line, from: col, to: lines[line].indexOf(":", col), key }));
}

// lineOf is the line of a field, as errors of the server name it (spec.containers[0].image), or of what is nearest above
// it; -1 if there is none.
export function lineOf(lines, field) {
  const steps = [...field.matchAll(/\[([^\]]*)\]|[^.[\]]+/g)].map((m) => m[1] ?? m[0]);
  let line = -1, depth = 0;
  for (const p of places(lines)) {
    for (const path of [p.parent, [...p.parent, p.key]]) { // an item is where its first key is
      if (path.length > depth && path.every((step, i) => String(step) === steps[i])) [line, depth] = [p.line, path.length];
    }
  }
  return line;
}
