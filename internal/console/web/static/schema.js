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

  // at is the schema of a path of keys, in which "*" stands for an item of a list; undefined if there is none.
  at(path) {
    let t = this.#resolved(this.#top);
    for (const key of path) {
      if (!t) return undefined;
      if (key === "*") t = this.#resolved(t.items);
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

// unknown finds the keys that the schema does not have: {line, from, to, key}. What is in a block of text is no key.
export function unknown(schema, lines) {
  const found = [];
  let block = -1; // the column of the key of the block of text that we are in
  for (const [n, text] of lines.entries()) {
    const line = parseLine(text);
    if (block >= 0 && (line.blank || /^ */.exec(text)[0].length > block)) continue;
    block = -1;
    if (line.blank || line.key === null) continue;
    if (/^[|>]/.test(line.value)) block = line.col;
    const parent = schema.at(pathOf(lines, n, line.col, line.dashes));
    if (parent && !open(parent) && !Object.hasOwn(parent.properties, line.key)) {
      found.push({ line: n, from: line.col, to: text.indexOf(":", line.col), key: line.key });
    }
  }
  return found;
}
