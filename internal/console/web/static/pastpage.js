// The page of an object's past: its changes on a slider, what each has changed, who has set each line as of then, and a
// change taken back. The server says all of it (?history, ?undo); what is written is an update as any other one.
import { get, pathOf } from "./api.js";
import { isSecretPath, masked } from "./blame.js";
import { difference } from "./difference.js";
import { known } from "./discovery.js";
import { html, useEffect, useState } from "./html.js";
import { load } from "./load.js";
import { listURL, objectURL, setQuery } from "./route.js";
import { age, visible } from "./text.js";

const most = 200; // changes that are read
const manager = "plinth-console";

const asOf = (revision) => ({ resourceVersion: revision, resourceVersionMatch: "Exact" });

// versionAt is the object as of a resourceVersion; undefined if it was not there, or that is not known.
const versionAt = (path, revision, abort) => get(path, asOf(revision), { abort }).catch((e) => {
  if (e.code === 404 || e.code === 410) return undefined;
  throw e;
});

const isMap = (v) => v !== null && typeof v === "object" && !Array.isArray(v);

// skeleton is the maps of an object, without what is in them: the difference from it names each field.
const skeleton = (v) => Object.fromEntries(Object.entries(v).filter(([, x]) => isMap(x)).map(([k, x]) => [k, skeleton(x)]));

// compared is the difference of two versions, of which one may be missing.
function compared(was, is) {
  for (const v of [was, is]) delete v?.metadata.managedFields;
  return difference(was || skeleton(is || {}), is || skeleton(was || {}));
}

const before = (revision) => String(BigInt(revision) - 1n);

export function PastPage({ type: named, namespace, name, query }) {
  const type = known(named), path = pathOf(type, namespace, name);
  const secret = type.resource === "secrets" && type.group === "";
  const [written, setWritten] = useState(0); // how often something was written here: the record is read again
  useEffect(() => (document.title = `${name}: history — ${type.resource} — Plinth`), []);
  const { value: record, error } = load((abort) => get(path, { history: "document", limit: most }, { abort }), [written]);
  const changes = record?.changes || [];
  const found = changes.findIndex((c) => c.resourceVersion === query.at);
  const at = Math.max(0, found);
  const pick = (i) => setQuery({ at: i > 0 ? changes[i].resourceVersion : "" });
  const change = changes[at];
  return html`
    <p class="crumbs"><a href=${listURL(type)}>${visible(type.resource)}</a> / <a href=${objectURL(type, namespace, name)}>${visible(name, 300)}</a></p>
    <h1>${visible(name, 300)} <small>history</small></h1>
    ${error && html`<p class="error" role="alert">${visible(error.message)}</p>`}
    ${!record && !error && html`<p aria-busy="true">Reading who has changed it…</p>`}
    ${change && html`
      <label class="slide"><span>Older</span>
        <input type="range" min="0" max=${changes.length - 1} value=${changes.length - 1 - at} aria-label="Change"
          aria-valuetext=${said(change)} onInput=${(e) => pick(changes.length - 1 - Number(e.target.value))} /><span>Newer</span></label>
      <p class="status" role="status">${at + 1} of ${changes.length}${record.metadata.continue ? " that are shown; there are older ones"
        : record.complete ? "" : "; older ones are not kept any more"}</p>
      <${Change} key=${change.resourceVersion + written} ...${{ path, change, secret, newest: at === 0 }} onWritten=${() => (setQuery({ at: "" }), setWritten(written + 1))} />`}
    ${record && !change && html`<p>No change of it is known any more.</p>`}`;
}

// said is a change in words, without its fields.
const said = (c) => `${c.resourceVersion}, ${c.change} ${age(c.time)} ago by ${who(c)}${c.manager ? ` with ${c.manager}` : ""}`;

const who = (c) => (c.user || "the server") + (c.impersonator ? ` (${c.impersonator})` : "");

// Change is one change: who has made it, what it has changed, the object as of then, and the ways back.
function Change({ path, change, secret, newest, onWritten }) {
  const revision = change.resourceVersion;
  const deleted = change.change === "deleted";
  const { value, error } = load(async (abort) => {
    const [was, is] = await Promise.all([versionAt(path, before(revision), abort), versionAt(path, revision, abort)]);
    return compared(was, is);
  }, []);
  return html`<h2>${change.change} <time datetime=${change.time} title=${change.time}>${age(change.time)} ago</time> by ${visible(who(change), 200)}</h2>
    <p class="faint">resourceVersion ${revision}${change.manager && ` · manager ${visible(change.manager, 200)}`} · ${visible(change.verb, 50)}${change.subresource && ` /${visible(change.subresource, 50)}`}
      ${change.auditID && ` · audit ID ${visible(change.auditID, 100)}`}</p>
    <div class="ways">${change.change !== "created" && html`<${Undo} ...${{ path, secret, onWritten }} question=${{ undo: revision }} text="Undo this change" /> `}
      ${!newest && !deleted && html`<${Undo} ...${{ path, secret, onWritten }} question=${{ undo: null, to: revision }} text="Back to this" />`}</div>
    ${error && html`<p class="error" role="alert">${visible(error.message)}</p>`}
    ${value && html`<${Difference} lines=${value} secret=${secret} label="What has changed" />`}
    ${!deleted && html`<${Lines} ...${{ path, revision, secret }} />`}`;
}

// Difference is what differs, path by path.
function Difference({ lines, secret, label }) {
  const hidden = (l) => (secret && (isSecretPath(`${l.path}.`) || isSecretPath(l.value)) ? "••••••" : visible(l.value, 500));
  return html`<div class="scroll changes" tabindex="0" role="region" aria-label=${label}><pre>${lines.length === 0 && "Nothing but what every write changes."}
    ${lines.slice(0, 500).map((l) => html`<span class=${l.sign === "+" ? "plus" : "minus"}>${l.sign} ${visible(l.path || ".", 300)}: ${hidden(l)}</span>`)}
    ${lines.length > 500 && `… and ${lines.length - 500} more`}</pre></div>`;
}

// Lines is the object as of a change, each line with the change that has set it.
function Lines({ path, revision, secret }) {
  const { value, error } = load((abort) => get(path, { history: "lines", ...asOf(revision) }, { abort }), []);
  if (error) return html`<p class="error">${visible(error.message)}</p>`;
  if (!value) return html`<p aria-busy="true">Reading who has set each line…</p>`;
  const text = (l) => visible(secret && isSecretPath(l.path) ? masked(l.text) : l.text);
  return html`<section class="blame"><h2>Who has set each line, as of then</h2><div class="lines" tabindex="0" role="region" aria-label="Lines">${value.lines.map((l) => {
    const c = value.changes[l.change];
    return html`<div class="line"><span class="gutter">${c
      ? html`<span class="who" title=${said({ ...c, change: "set" })}>${visible(who(c), 40)}</span><span class="how">${c.resourceVersion}</span><span class="when">${age(c.time)}</span>`
      : html`<span class="who faint">${l.structural ? "" : "earlier"}</span>`}</span><code>${text(l)}</code></div>`;
  })}</div></section>`;
}

const printed = (v) => (v === undefined ? "nothing" : visible(JSON.stringify(v), 300));

// Undo shows what a way back would write, as a dry run, and writes it.
function Undo({ path, question: asked, text, secret, onWritten }) {
  const [state, setState] = useState({});
  const run = async (step) => {
    setState((s) => ({ ...s, busy: true, error: null }));
    try {
      setState(await step());
    } catch (e) {
      setState({ error: e });
    }
  };
  // send sends the object of an answer: it has the resourceVersion of what it changes.
  const send = (undo, query) => get(undo.write === "create" ? path.slice(0, path.lastIndexOf("/")) : path, { fieldManager: manager, ...query },
    { method: undo.write === "create" ? "POST" : "PUT", contentType: "application/json", body: JSON.stringify(undo.object) });
  const preview = (force) => run(async () => {
    const undo = await get(path, { ...asked, ...(force && { force: "true" }) });
    if (undo.write === "none") return { undo, lines: [] };
    const now = undo.write === "create" ? undefined : await get(path);
    return { undo, lines: compared(now, await send(undo, { dryRun: "All" })) };
  });
  const write = () => run(async () => {
    await send(state.undo);
    onWritten();
    return {};
  });
  const { undo, lines } = state;
  const others = undo?.disagreements || [];
  const value = (d, key) => (secret && isSecretPath(`${d.path}.`) ? "••••••" : printed(d[key]));
  return html`<button disabled=${state.busy} aria-expanded=${Boolean(undo)} onClick=${() => preview(false)}>${text}</button>
    ${state.error && html`<p class="error" role="alert">${visible(state.error.message, 4000)}</p>`}
    ${undo && html`<section class="outcome" role="status"><h2>${undo.write === "none" ? "There is nothing to write" : undo.write === "create" ? "It would be created anew" : "It would become"}</h2>
      ${undo.write !== "none" && html`<${Difference} ...${{ lines, secret }} label="What would change" />`}
      ${others.length > 0 && html`<p class="hint">These have changed again since, and stay:</p><ul>${others.map((d) => html`<li><code>${visible(d.path, 300)}</code>
        was ${value(d, "before")}, became ${value(d, "after")}, and is ${value(d, "live")}</li>`)}</ul>
        <p><button disabled=${state.busy} onClick=${() => preview(true)}>Take these back, too</button></p>`}
      ${undo.notes?.map((n) => html`<p class="hint">${visible(n)}</p>`)}
      ${undo.dependents && html`<p class="hint">These had it as their owner, and do not have the new one: ${visible(undo.dependents.map((d) => `${d.kind} ${d.name}`).join(", "), 2000)}</p>`}
      ${undo.write !== "none" && html`<p><button class="apply" disabled=${state.busy} onClick=${write}>Write this</button></p>`}</section>`}`;
}
