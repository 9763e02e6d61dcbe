// The lines of an object, each with who owns it. The server decides who does (?ownership=lines); this shows it.
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { step } from "./keys.js";
import { setQuery } from "./route.js";
import { age, longest, visible } from "./text.js";

const colours = 12; // that console.css has: .c0 to .c11

// label is how a manager is called: no two of an object have the same one.
export function label(m) {
  return `${m.manager || "(unnamed)"} ${m.operation || ""}${m.subresource ? ` (${m.subresource})` : ""}`;
}

// A Secret's values, also in the annotation in which kubectl apply keeps them.
export function isSecretPath(path) {
  return /^\.(data|stringData)[.[]/.test(path) || path.includes("last-applied-configuration");
}

// masked is a line without the value of a Secret.
export function masked(text) {
  const end = text.indexOf(": ");
  return end < 0 ? "••••••" : `${text.slice(0, end)}: ••••••`;
}

export function Blame({ owned, secret, q, manager }) {
  const box = useRef();
  const [, setAt] = useState(0);
  const at = useRef(0); // two keys may come before the line of the first one is rendered
  const [shown, setShown] = useState(false); // the values of a Secret
  const drawn = useRef([]);
  const { managers } = owned;
  const picked = managers.findIndex((m) => label(m) === manager);
  const lines = useMemo(() => owned.lines.map((l) => {
    const all = [...new Set([...(l.owners || []), ...(l.itemOwners || [])])];
    return { ...l, all, whose: ownersText(l, all), text: secret && !shown && isSecretPath(l.path) ? masked(l.text) : l.text };
  }), [owned, secret, shown]);
  const search = q.trim().toLowerCase();
  const hits = useMemo(() => (search
    ? lines.flatMap((l, i) => (`${l.path} ${l.text}`.toLowerCase().includes(search) ? [i] : []))
    : []), [lines, search]);
  const chosen = () => Math.min(at.current, lines.length - 1);
  const current = chosen();
  const pick = (i) => setAt((at.current = i));

  const show = (i, focus = true) => {
    pick(i);
    const row = box.current?.querySelector(`#line-${i}`);
    row?.scrollIntoView({ block: "nearest" });
    if (focus) row?.focus({ preventScroll: true });
  };
  // What is found first is shown, and stays where it is searched for.
  useEffect(() => {
    if (hits.length) show(hits[0], false);
  }, [search]);
  // So is the first line of a manager that is picked.
  useEffect(() => {
    const first = picked < 0 ? -1 : lines.findIndex((l) => l.all.includes(picked));
    if (first >= 0) show(first, false);
  }, [picked]);
  const nextHit = (direction) => {
    if (!hits.length) return;
    const after = direction > 0 ? hits.find((i) => i > chosen()) : hits.findLast((i) => i < chosen());
    show(after ?? (direction > 0 ? hits[0] : hits.at(-1)));
  };
  const move = (event) => {
    if (event.target.closest("input")) return;
    const n = step(event);
    if (n) show(Math.min(lines.length - 1, Math.max(0, chosen() + n)));
    else if (event.key === "n" && !event.ctrlKey && !event.metaKey) nextHit(1);
    else if (event.key === "N") nextHit(-1);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    const elsewhere = (event) => event.target === document.body && move(event);
    document.addEventListener("keydown", elsewhere);
    return () => document.removeEventListener("keydown", elsewhere);
  });

  const found = new Set(hits);
  // A line that is as it was is the same one as before, at which Preact does not look again: there may be 20,000.
  const line = (l, i) => {
    const first = !sameOwners(l, lines[i - 1]), dim = picked >= 0 && !l.all.includes(picked);
    const props = { l, i, managers, first, chosen: i === current, found: found.has(i), dim };
    const old = drawn.current[i];
    if (old && Object.keys(props).every((k) => old.props[k] === props[k])) return old;
    return (drawn.current[i] = html`<${Line} key=${i} ...${props} onPick=${() => pick(i)} />`);
  };
  return html`<section class="blame" onKeyDown=${move}>
    <${Legend} ...${{ managers, lines, picked }} />
    <form role="search" class="find" onSubmit=${(e) => {
      e.preventDefault();
      show(hits.find((i) => i >= chosen()) ?? hits[0] ?? 0);
    }}>
      <input data-search type="search" aria-label="Find a line" placeholder="Find a line ( / )" value=${q}
        onInput=${(e) => setQuery({ q: e.target.value })} autocomplete="off" spellcheck=${false} />
      ${search && html`<span role="status">${hits.length} found</span>`}
      ${secret && html`<button type="button" onClick=${() => setShown(!shown)} aria-pressed=${shown}>
        ${shown ? "Hide the data" : "Show the data"}</button>`}
    </form>
    <${Detail} line=${lines[current]} managers=${managers} />
    <div class=${picked >= 0 ? "lines picked" : "lines"} ref=${box} role="listbox" aria-label="Lines">
      ${lines.map(line)}</div>
  </section>`;
}

const sameOwners = (a, b) => b && a.whose === b.whose;
const ownersText = (l, all) => (all.length ? all.join() : l.system ? "system" : l.structural ? "structural" : "nobody");

// Legend is the key of the colours. A manager that is clicked is picked: only its lines stay bright.
function Legend({ managers, lines, picked }) {
  const count = (i) => lines.reduce((n, l) => n + (l.all.includes(i) ? 1 : 0), 0);
  return html`<ul class="legend" aria-label="Managers">${managers.map((m, i) => html`<li key=${i}>
    <button class=${`manager c${i % colours}`} aria-pressed=${picked === i}
      onClick=${() => setQuery({ m: picked === i ? "" : label(m) })}><i class="swatch" aria-hidden="true"></i>
      <b>${visible(m.manager, 80)}</b> ${m.operation}${m.subresource && ` · ${visible(m.subresource, 40)}`}
      ${m.time && ` · ${age(m.time)}`} · ${count(i)} ${count(i) === 1 ? "line" : "lines"}</button></li>`)}</ul>`;
}

function Line({ l, i, managers, first, chosen, found, dim, onPick }) {
  const [whole, setWhole] = useState(false);
  const owners = l.all.map((o) => managers[o]);
  const gutter = owners.length
    ? html`<span class="who">${visible(owners[0].manager, 40)}${owners.length > 1 && ` +${owners.length - 1}`}</span>
      <span class="how">${owners[0].operation}</span><span class="when">${age(owners[0].time)}</span>`
    : html`<span class="who faint">${l.system ? "server" : l.structural ? "" : "nobody"}</span>`;
  const cut = l.text.length > longest && !whole;
  return html`<div id=${`line-${i}`} role="option" aria-selected=${chosen} tabindex=${chosen ? 0 : -1}
    class=${`line${dim ? " dim" : ""}${found ? " found" : ""}`} onMouseDown=${onPick} onFocus=${onPick}>
    <span class="gutter">${l.all.slice(0, 4).map((o) => html`<i class=${`swatch c${o % colours}`} aria-hidden="true"></i>`)}
      ${first && gutter}</span>
    <code>${visible(l.text, whole ? Infinity : longest)}${cut && html` <button onClick=${() => setWhole(true)}>
      Show all</button>`}</code></div>`;
}

// Detail says all that is known of the line that is chosen.
function Detail({ line, managers }) {
  if (!line) return null;
  const what = line.all.length ? "" : line.system ? "Set by the server; never owned."
    : line.structural ? "It has no owners of its own: its fields may." : "Nobody owns it: a default, or set without a manager.";
  return html`<div class="detail" role="status" aria-live="polite"><code>${visible(line.path || ".", 300)}</code>
    ${what && html` <span>${what}</span>`}
    ${line.all.map((i) => html` <span class=${`owner c${i % colours}`}><i class="swatch" aria-hidden="true"></i>
      <b>${visible(managers[i].manager, 80)}</b> ${managers[i].operation}
      ${managers[i].subresource && ` of ${visible(managers[i].subresource, 40)}`}
      ${managers[i].time && html` <time datetime=${managers[i].time} title=${managers[i].time}>${age(managers[i].time)} ago</time>`}
      ${managers[i].goesWithIt?.includes(line.path) && " · goes with it"}</span>`)}</div>`;
}
