// All types, by group, with a search.
import { types, typesError } from "./discovery.js";
import { html, useEffect, useRef } from "./html.js";
import { step } from "./keys.js";
import { listURL, route, setQuery } from "./route.js";
import { visible } from "./text.js";

// found are the types that match a text, the best ones first: a name or short name that is the text, then one that
// begins with it.
function found(text) {
  const all = types.value || [];
  const t = text.trim().toLowerCase();
  if (!t) return all;
  const rank = (type) => {
    const names = [type.resource, type.kind.toLowerCase(), ...type.shortNames];
    if (names.includes(t)) return 0;
    if (names.some((n) => n.startsWith(t))) return 1;
    return `${type.resource}.${type.group}`.includes(t) || type.kind.toLowerCase().includes(t) ? 2 : 3;
  };
  return all.map((type) => [rank(type), type]).filter(([r]) => r < 3).sort((a, b) => a[0] - b[0]).map(([, type]) => type);
}

export function TypesPage() {
  const box = useRef();
  const text = route.value.query.q || "";
  useEffect(() => (document.title = "Types — Plinth"), []);
  const list = found(text);
  const groups = new Map();
  for (const type of list) groups.set(type.group, [...(groups.get(type.group) || []), type]);

  const move = (event) => {
    const n = step(event);
    if (!n || (event.target.matches("input") && !event.key.startsWith("Arrow"))) return;
    const links = [...box.current.querySelectorAll("a.type")];
    const at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + n))]?.focus();
    event.preventDefault();
  };
  const open = (event) => {
    event.preventDefault();
    box.current.querySelector("a.type")?.click();
  };
  return html`<div ref=${box} onKeyDown=${move}>
    <h1>Types</h1>
    <form role="search" onSubmit=${open}>
      <input data-search type="search" aria-label="Search types" placeholder="Search types ( / )" value=${text}
        onInput=${(e) => setQuery({ q: e.target.value })} autocomplete="off" spellcheck=${false} />
    </form>
    ${typesError.value && html`<p class="error" role="alert">${visible(typesError.value)}</p>`}
    ${!types.value && !typesError.value && html`<p aria-busy="true">Reading the types…</p>`}
    ${types.value && !list.length && html`<p>No type matches.</p>`}
    <div class="groups">${[...groups].map(([group, members]) => html`<section key=${group}>
      <h2>${group || "core"}</h2>
      <ul>${members.map((t) => html`<li key=${t.resource}><a class="type" href=${listURL(t)}>${visible(t.resource)}</a>
        <span class="faint">${visible(t.kind)}${t.shortNames.length > 0 && ` · ${visible(t.shortNames.join(", "))}`}</span>
      </li>`)}</ul>
    </section>`)}</div>
  </div>`;
}
