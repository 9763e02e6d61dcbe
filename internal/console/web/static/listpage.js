// A list of objects. Only the rows that can be seen are in the document: all have the same height, and a spacer has the
// height of all.
import { known } from "./discovery.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { step } from "./keys.js";
import { List } from "./list.js";
import { editURL, go, listURL, objectURL, setQuery } from "./route.js";
import { age, visible } from "./text.js";

const rowHeight = 28;

// ListPage is the list of a type. Another heading, columns that others have with -o wide alone, and where a row leads
// make other pages of it.
export function ListPage({ type: named, query, heading, wide, urlOf }) {
  const type = known(named);
  const { ns = "", l = "", f = "", q = "", s = "" } = query;
  const list = useMemo(() => new List(type, { namespace: ns, labels: l, fields: f, wide }), [ns, l, f]);
  useEffect(() => () => list.close(), [list]);
  useEffect(() => (document.title = `${heading || type.resource} — Plinth`), []);
  list.changed.value; // rendered again with each change
  useEffect(() => list.filter(q), [list, q]);
  useEffect(() => list.sort(s), [list, s, list.columns]);

  const total = list.size.toLocaleString("en");
  const count = list.shown.length === list.size ? total : `${list.shown.length.toLocaleString("en")} of ${total}`;
  return html`
    <h1>${heading || visible(type.resource)} <small>${visible(`${type.group || "core"}/${type.version}`)}</small></h1>
    <${Selectors} ...${{ type, ns, l, f, q }} />
    <p class="status" role="status" data-state=${list.state.value}>${count} ${list.size === 1 ? "object" : "objects"} ·
      ${" "}${words[list.state.value]}
      ${type.verbs?.includes("patch") && html` · <a href=${editURL(listURL(type, { ns }))}>New</a>`}
      ${urlOf && html` · <a href=${listURL(type)}>As objects</a>`}</p>
    ${list.error.value && html`<p class="error" role="alert">${visible(list.error.value)}</p>`}
    ${list.columns.length > 0 && html`<${Rows} ...${{ type, list, sorted: s }}
      urlOf=${urlOf || ((row) => objectURL(type, row.namespace, row.name))} namespaces=${type.namespaced && !ns} />`}`;
}

const words = { loading: "loading…", live: "live", connecting: "connecting again…", failed: "not live" };

// Selectors are a form: they are used on Enter, as a request of the server is needed for each. The filter is not.
function Selectors({ type, ns, l, f, q }) {
  const field = (name, value, label, hint) => html`<label><span>${label}</span>
    <input name=${name} value=${value} placeholder=${hint} autocomplete="off" spellcheck=${false}
      onChange=${(e) => e.target.value !== value && setQuery({ [name]: e.target.value.trim() }, { push: true })} /></label>`;
  return html`<form class="selectors" role="search" onSubmit=${(e) => {
    e.preventDefault();
    document.activeElement?.blur();
  }}>
    <label class="wide"><span>Filter</span><input data-search type="search" value=${q} placeholder="/" autocomplete="off"
      spellcheck=${false} onInput=${(e) => setQuery({ q: e.target.value })} /></label>
    ${type.namespaced !== false && field("ns", ns, "Namespace", "all")}
    ${field("l", l, "Labels", "app=web")}
    ${field("f", f, "Fields", "metadata.name=web")}
    <button class="away">Apply</button>
  </form>`;
}

function Rows({ type, list, sorted, namespaces, urlOf }) {
  list.changed.value; // signals render a component again only for what it has read itself
  const box = useRef();
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const [, setAt] = useState(0);
  const at = useRef(0); // two keys may come before the row of the first one is rendered
  const choose = (n) => setAt((at.current = n));
  const look = () => box.current && setSeen({ top: box.current.scrollTop, height: box.current.clientHeight });
  useEffect(() => {
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  const columns = list.columns.map((c, i) => ({ ...c, i }));
  const first = Math.max(0, Math.floor(seen.top / rowHeight) - 10);
  const rows = list.shown.slice(first, first + Math.ceil(seen.height / rowHeight) + 20);
  const chosen = () => Math.min(at.current, list.shown.length - 1);
  const current = chosen();

  const move = (event) => {
    if (event.target.closest("button")) return;
    const row = list.shown[chosen()];
    if (event.key === "Enter" && row && !event.target.closest("a")) {
      event.preventDefault();
      go(urlOf(row));
      return;
    }
    const n = step(event, Math.floor(seen.height / rowHeight) - 2);
    if (!n) return;
    event.preventDefault();
    const to = Math.min(list.shown.length - 1, Math.max(0, chosen() + n));
    choose(to);
    const b = box.current, head = rowHeight;
    if (to * rowHeight < b.scrollTop) b.scrollTop = to * rowHeight;
    else if ((to + 1) * rowHeight + head > b.scrollTop + b.clientHeight) {
      b.scrollTop = (to + 1) * rowHeight + head - b.clientHeight;
    }
  };
  // j and k move in the list wherever the focus is, unless it is in a field.
  useEffect(() => {
    const elsewhere = (event) => {
      if (event.target === document.body && (step(event) || event.key === "Enter")) move(event);
    };
    document.addEventListener("keydown", elsewhere);
    return () => document.removeEventListener("keydown", elsewhere);
  });

  const all = [...(namespaces ? [{ name: "Namespace", i: -1 }] : []), ...columns];
  const widths = all.map((c) => (c.name === "Name" ? "minmax(14rem, 3fr)" : c.i < 0 ? "minmax(8rem, 1.2fr)" : "minmax(6rem, 1fr)"));
  const grid = { gridTemplateColumns: widths.join(" "), minWidth: `${all.length * 7 + 7}rem` };
  return html`<div class="rows" ref=${box} onScroll=${look} onKeyDown=${move} tabindex="0" role="grid"
    aria-label=${type.resource} aria-rowcount=${list.shown.length + 1}
    aria-activedescendant=${rows[current - first] ? `row-${current}` : undefined}>
    <div class="row head" role="row" aria-rowindex="1" style=${grid}>${all.map((c) => html`<${Head} key=${c.name}
      column=${c} sorted=${sorted} />`)}</div>
    <div class="space" role="rowgroup" style=${{ height: `${list.shown.length * rowHeight}px`, minWidth: grid.minWidth }}>
      ${rows.map((row, i) => html`<${Row} key=${row.uid} n=${first + i} chosen=${first + i === current}
        onPick=${() => choose(first + i)} ...${{ row, all, grid, urlOf }} />`)}
    </div>
  </div>`;
}

function Head({ column, sorted }) {
  const { name } = column;
  const how = sorted === name ? "ascending" : sorted === `-${name}` ? "descending" : "none";
  if (column.i < 0) return html`<span role="columnheader">${name}</span>`;
  const next = { none: name, ascending: `-${name}`, descending: "" }[how];
  return html`<span role="columnheader" aria-sort=${how}><button class="sort" title=${visible(column.description, 300)}
    onClick=${() => setQuery({ s: next })}>${visible(name, 60)}${{ none: "", ascending: " ↑", descending: " ↓" }[how]}
  </button></span>`;
}

function Row({ row, all, grid, urlOf, n, chosen, onPick }) {
  const cell = (c) => {
    if (c.i < 0) return visible(row.namespace);
    if (c.name === "Name") {
      return html`<a href=${urlOf(row)} tabindex="-1">${visible(row.cells[c.i], 300)}</a>`;
    }
    if (c.name === "Age" && row.created) return age(row.created);
    return visible(row.cells[c.i], 300);
  };
  return html`<div class="row" role="row" id=${`row-${n}`} aria-rowindex=${n + 2} aria-selected=${chosen}
    style=${{ ...grid, transform: `translateY(${n * rowHeight}px)` }} onMouseDown=${onPick}>
    ${all.map((c) => html`<span role="gridcell" key=${c.name}>${cell(c)}</span>`)}</div>`;
}
