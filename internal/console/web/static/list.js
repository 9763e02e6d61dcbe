// The rows of a list, as the server's Table has them, kept up to date by a watch.
//
// A list may have 100,000 rows and more, and change a thousand times a second, while a frame has 16 ms. Therefore
//
//   - of an object only its cells, namespace, name and UID are kept;
//   - rows come in chunks, of which the first is small;
//   - events are collected, and applied once a frame;
//   - what is seen (shown: the rows that match, in order) is changed, not made again: rows that have changed are taken
//     out, and put in again by binary search. A batch of k changes to n rows costs k log n comparisons and a copy of n
//     pointers; to sort again would cost n log n comparisons. A row that stays where it is, as most do, is changed in
//     place, at no cost for the others.
import { asTable, get, pathOf } from "./api.js";
import { signal } from "./html.js";
import { watch } from "./watch.js";

const firstChunk = 100;
const chunk = 2000;

const byName = (a, b) => order(a.namespace, b.namespace) || order(a.name, b.name);

function order(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

const units = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };

// numberOf is the number with which a cell begins; that of a size ("1.5Ki") has its unit.
const numberOf = (cell) => parseFloat(cell) * (typeof cell === "string" && units[cell.slice(-2)] || 1);

// Cells that are numbers, or begin with one ("10m"), are in the order of numbers.
function orderCells(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const x = numberOf(a), y = numberOf(b);
  if (x !== y && !Number.isNaN(x) && !Number.isNaN(y)) return x - y;
  return order(String(a ?? ""), String(b ?? ""));
}

export class List {
  columns = [];
  shown = [];
  // changed counts the changes of columns, shown and rows: who reads it is rendered again.
  changed = signal(0);
  state = signal("loading"); // loading, live, connecting, failed
  error = signal("");

  #byUID = new Map();
  #pending = new Map();
  #frame = 0;
  #abort = new AbortController();
  #text = "";
  #compare = byName;

  // Columns that kubectl prints with -o wide alone are kept if wide names them.
  constructor(type, { namespace, labels, fields, wide = [] }) {
    this.wide = wide;
    this.path = pathOf(type, namespace);
    this.query = { labelSelector: labels, fieldSelector: fields };
    this.#run();
  }

  get size() {
    return this.#byUID.size;
  }

  close() {
    this.#abort.abort();
    cancelAnimationFrame(this.#frame);
  }

  // filter shows the rows that have all words of a text.
  filter(text) {
    text = text.toLowerCase();
    if (text === this.#text) return;
    const narrower = text.startsWith(this.#text);
    this.#text = text;
    if (narrower) this.shown = this.shown.filter((row) => this.#matches(row));
    else this.#show();
    this.changed.value++;
  }

  // sort orders by a column ("Age", "-Age"), or by name.
  sort(by) {
    const down = by.startsWith("-");
    const name = down ? by.slice(1) : by;
    const i = this.columns.findIndex((c) => c.name === name);
    const sign = down ? -1 : 1;
    if (i < 0) this.#compare = byName;
    else if (name === "Age") this.#compare = (a, b) => sign * (b.created - a.created) || byName(a, b);
    else this.#compare = (a, b) => sign * orderCells(a.cells[i], b.cells[i]) || byName(a, b);
    this.#show();
    this.changed.value++;
  }

  #matches(row) {
    if (!this.#text) return true;
    return this.#text.split(" ").every((word) =>
      row.name.toLowerCase().includes(word) || row.namespace.toLowerCase().includes(word) ||
      row.cells.some((c) => c !== null && String(c).toLowerCase().includes(word)));
  }

  #show() {
    this.shown = [...this.#byUID.values()].filter((row) => this.#matches(row)).sort(this.#compare);
  }

  async #run() {
    const abort = this.#abort.signal;
    while (!abort.aborted) {
      try {
        const resourceVersion = await this.#load(abort);
        await watch(this.path, { ...this.query, includeObject: "Metadata" }, {
          accept: asTable, resourceVersion, abort,
          on: (event) => this.#event(event),
          state: (s) => (this.state.value = s),
        });
      } catch (e) {
        if (abort.aborted) return;
        if (e.code === 410) continue; // the continue token is too old: from the beginning
        this.error.value = e.message;
        if (e.code >= 400 && e.code < 500 && e.code !== 429) {
          this.state.value = "failed";
          return;
        }
        this.state.value = "connecting";
        await new Promise((done) => setTimeout(done, 2000));
      }
    }
  }

  // load reads all chunks. Rows of before that are in none of them are gone.
  async #load(abort) {
    const before = new Set(this.#byUID.keys());
    let more = "", resourceVersion = "";
    do {
      const limit = before.size || more ? chunk : firstChunk;
      const table = await get(this.path, { ...this.query, limit, continue: more, includeObject: "Metadata" },
        { accept: asTable, abort });
      if (abort.aborted) return "";
      resourceVersion ||= table.metadata.resourceVersion;
      // The columns that kubectl prints without -o wide: the cells of others are not kept.
      if (!more && table.columnDefinitions) {
        this.columns = table.columnDefinitions.map((c, from) => ({ ...c, from })).filter((c) => !c.priority || this.wide.includes(c.name));
      }
      for (const row of table.rows || []) {
        const kept = this.#keep(row);
        before.delete(kept.uid);
        this.#pending.set(kept.uid, kept);
      }
      this.#apply();
      this.error.value = "";
      more = table.metadata.continue;
    } while (more);
    for (const uid of before) this.#pending.set(uid, null);
    this.#apply();
    return resourceVersion;
  }

  #event({ type, object }) {
    for (const row of object.rows || []) {
      const kept = this.#keep(row);
      this.#pending.set(kept.uid, type === "DELETED" ? null : kept);
    }
    this.#frame ||= requestAnimationFrame(() => this.#apply());
  }

  // keep is what is kept of a row. Its name is one of its cells.
  #keep({ cells, object: { metadata } }) {
    return {
      cells: this.columns.map((c) => (cells[c.from] === metadata.name ? metadata.name : cells[c.from])), name: metadata.name,
      namespace: metadata.namespace || "", uid: metadata.uid, created: Date.parse(metadata.creationTimestamp) || 0,
    };
  }

  // apply makes the pending changes seen.
  #apply() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (this.#pending.size) {
      const pending = this.#pending;
      this.#pending = new Map();
      const coming = [];
      let out = false;
      for (const [uid, row] of pending) {
        const old = this.#byUID.get(uid);
        if (old && row && this.#compare(old, row) === 0 && this.#matches(old) === this.#matches(row)) {
          Object.assign(old, row); // it stays where it is
          pending.delete(uid);
          continue;
        }
        out = Boolean(old) || out;
        if (row) {
          this.#byUID.set(uid, row);
          if (this.#matches(row)) coming.push(row);
        } else this.#byUID.delete(uid);
      }
      const stay = out ? this.shown.filter((row) => !pending.has(row.uid)) : this.shown;
      if (out || coming.length) this.shown = merge(stay, coming.sort(this.#compare), this.#compare);
    }
    this.changed.value++;
  }
}

// merge puts few rows into many. Both are sorted.
function merge(many, few, compare) {
  const all = [];
  let from = 0;
  const take = (to) => {
    while (from < to) all.push(many[from++]);
  };
  for (const row of few) {
    let low = from, high = many.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(many[middle], row) < 0) low = middle + 1;
      else high = middle;
    }
    take(low);
    all.push(row);
  }
  take(many.length);
  return all;
}
