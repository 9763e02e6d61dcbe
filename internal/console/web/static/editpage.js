// The page on which an object is edited, or a new one is written: the text, what applying it would do, and the ways out
// of conflicts.
import { create, get, pathOf, session } from "./api.js";
import { isSecretPath } from "./blame.js";
import { known } from "./discovery.js";
import { Editor } from "./editor.js";
import { effect, html, useEffect, useMemo, useRef, useState } from "./html.js";
import { merge } from "./lines3.js";
import { valueAt } from "./paths.js";
import { changes, intentOf, isStale, resolved, staying, tryOut, write } from "./preview.js";
import { go, listURL, objectURL, setQuery } from "./route.js";
import { lineOf, parseLine, pathOf as keysOf, Schema } from "./schema.js";
import { visible } from "./text.js";

const usual = "plinth-console"; // the manager's name

// editable is the text of an object that may be edited: without its status, and without what the server sets.
function editable(owned) {
  const theirs = /^\.(status|metadata\.(uid|resourceVersion|generation|creationTimestamp|deletionTimestamp|deletionGracePeriodSeconds|selfLink|managedFields))([.[]|$)/;
  return owned.lines.filter((l) => !theirs.test(l.path)).map((l) => l.text).join("\n") + "\n";
}

const fresh = (type, namespace) => [
  `apiVersion: ${type.group ? `${type.group}/` : ""}${type.version}`, `kind: ${type.kind}`, "metadata:", "  name: ",
  ...(type.namespaced ? [`  namespace: ${namespace || "default"}`] : []), "",
].join("\n");

// nameIn is the name, or another member of metadata, in a text.
function nameIn(text, member = "name") {
  const lines = text.split("\n");
  for (const [n, l] of lines.entries()) {
    const line = parseLine(l);
    if (line.key === member && keysOf(lines, n, line.col, line.dashes).join(".") === "metadata") return line.value.replace(/^(['"])(.*)\1$/, "$2");
  }
  return "";
}

// drafts are the edits of pages that were left without an apply, {base, text}, by the paths of the objects. They are in
// memory alone, and of one user.
const drafts = new Map();
effect(() => {
  if (!session.value) drafts.clear();
});

export function EditPage({ type: named, namespace, name, query }) {
  const type = known(named);
  const secret = type.resource === "secrets" && type.group === "";
  const manager = query.fm || usual;
  const managerNow = useRef();
  managerNow.current = manager;
  const [base, setBase] = useState(null); // {text, owned, object, version}: what the edit began with
  const [text, setText] = useState(null); // of the editor when it was last set
  const edited = useRef(""), begun = useRef(null); // begun is base, for when the page is left; null: it is applied
  const [resumed, setResumed] = useState(false); // the text is a draft
  const [mine, setMine] = useState(null); // the text that could not be put on a new version
  const [schema, setSchema] = useState(null);
  const [state, setState] = useState({}); // {error, stale, busy, preview}
  const [shown, setShown] = useState(!secret || !name);
  const [may, setMay] = useState("");
  const path = () => pathOf(type, type.namespaced ? namespace || nameIn(edited.current, "namespace") || "default" : "", name || nameIn(edited.current));

  const read = async (abort) => {
    const [owned, object] = await Promise.all([get(path(), { ownership: "lines" }, { abort }), get(path(), {}, { abort })]);
    if (owned.object.resourceVersion !== object.metadata.resourceVersion) return read(abort); // it has changed in between
    return { text: editable(owned), owned, object, version: object.metadata.resourceVersion };
  };
  const set = (value) => {
    edited.current = value;
    setText(value);
  };
  const begin = (b, value = b.text) => {
    setBase((begun.current = b));
    set(value);
  };
  const draft = `${pathOf(type, namespace, name)} ${query.ns || ""}`;
  const fromServer = async (abort) => begin(name ? await read(abort)
    : { text: fresh(type, query.ns), owned: null, object: {}, version: "" });
  useEffect(() => {
    document.title = `${name ? `Edit ${name}` : `New ${type.kind}`} — Plinth`;
    const abort = new AbortController();
    const fail = (e) => abort.signal.aborted || setState({ error: e });
    const left = drafts.get(draft);
    drafts.delete(draft);
    if (left) {
      begin(left.base, left.text);
      setResumed(true);
    } else fromServer(abort.signal).catch(fail);
    Schema.load(type, abort.signal).then(setSchema, () => {}); // without it there is no completion
    create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { verb: "patch", group: type.group, version: type.version, resource: type.resource, namespace, name } },
    }, { abort: abort.signal }).then((r) => setMay(r.status.allowed ? "" : "You may not change this: the server will refuse it."), () => {});
    return () => {
      abort.abort();
      const b = begun.current;
      if (session.value && b && edited.current !== b.text) drafts.set(draft, { base: b, text: edited.current });
    };
  }, []);

  // run does one step of a preview, and shows its error where it belongs. A preview of a text that has been changed since,
  // or for another manager, is not shown: what is applied is what one sees.
  const run = async (step) => {
    setState((s) => ({ ...s, busy: true, error: null, stale: false }));
    try {
      const made = await step();
      setState(made && made.text === edited.current && made.manager === managerNow.current ? { preview: made } : {});
    } catch (e) {
      if (!base.version && isStale(e)) e.message = "There is one of this name already.";
      setState({ error: e, stale: Boolean(base.version) && isStale(e) });
    }
  };
  const tried = async (of, intent, choices) => {
    const what = resolved(intent, base.object, choices);
    const result = await tryOut(path(), manager, what, base.version);
    return { text: of, manager, intent, choices, what, ...result };
  };
  const preview = () => run(async () => {
    if (!name && !nameIn(edited.current)) throw new Error("metadata.name is missing.");
    const of = edited.current;
    return tried(of, await intentOf(path(), manager, of, base.version), new Map());
  });
  const choose = (p, some) => {
    const choices = new Map([...p.choices, ...some]);
    if (p.conflicts.every((c) => choices.has(c.field))) run(() => tried(p.text, p.intent, choices));
    else setState({ preview: { ...p, choices } });
  };
  const save = (p) => run(async () => {
    await write(path(), p.manager, p.what, base.version);
    begun.current = null;
    go(objectURL(type, type.namespaced ? namespace || nameIn(p.text, "namespace") || "default" : "", name || nameIn(p.text)));
  });
  const rebase = () => run(async () => {
    const now = await read();
    const merged = merge(base.text, edited.current, now.text);
    setMine(merged === null ? edited.current : null);
    begin(now, merged ?? now.text);
  });
  const told = useMemo(() => toldBy(state.error, edited.current), [state.error]);
  if (!base) {
    return state.error ? html`<p class="error" role="alert">${visible(state.error.message)}</p>` : html`<p aria-busy="true">Reading the object…</p>`;
  }
  const p = state.preview;
  const back = name ? objectURL(type, namespace, name) : listURL(type);
  return html`
    <p class="crumbs"><a href=${listURL(type)}>${visible(type.resource)}</a> / <a href=${back}>${visible(name || "new", 300)}</a></p>
    <h1>${name ? "Edit " : "New "}${visible(name || type.kind, 300)}</h1>
    ${may && html`<p class="hint" role="status">${may}</p>`}
    ${resumed && html`<p class="hint" role="status">This is what you had written when you left this page.
      ${" "}<button onClick=${() => run(async () => (await fromServer(), setResumed(false)))}>Begin anew</button></p>`}
    ${!shown ? html`<p>The values are hidden. <button onClick=${() => setShown(true)}>Show the data and edit</button></p>` : html`
    <form class="manager" onSubmit=${(e) => (e.preventDefault(), preview())}>
      <label><span>As the manager</span> <input name="fm" value=${manager} autocomplete="off" spellcheck=${false}
        onChange=${(e) => (setState({}), setQuery({ fm: e.target.value.trim() === usual ? "" : e.target.value.trim() }))} /></label>
      <button disabled=${state.busy}>Preview</button> <span class="faint">Ctrl-Enter · Esc, then Tab leaves the text</span>
    </form>
    <${Editor} text=${text} schema=${schema} told=${told} label=${`${type.kind} as YAML`}
      onChange=${(t) => {
        edited.current = t;
        if (state.preview || state.error) setState({});
      }} onPreview=${preview} />
    ${state.busy && html`<p aria-busy="true">Asking the server…</p>`}
    ${state.error && html`<${Problem} error=${state.error} stale=${state.stale} onRebase=${rebase} />`}
    ${mine !== null && html`<section role="alert"><p class="error">It was changed in the same lines by somebody else: this is the object as it is now. Yours was:</p>
      <pre class="mine">${secret ? "••••••" : visible(mine, 20000)}</pre></section>`}
    ${p?.conflicts && html`<${Conflicts} p=${p} live=${base.object} secret=${secret} onChoose=${choose} />`}
    ${p?.after && html`<${Outcome} ...${{ p, base, manager, secret }} onSave=${() => save(p)} busy=${state.busy} />`}`}`;
}

// toldBy are the lines that an error of the server is about, as far as they can be told.
function toldBy(error, text) {
  const lines = text.split("\n");
  return (error?.causes || []).map(({ field, message }) => ({ line: lineOf(lines, field || ""), message }))
    .filter(({ line }) => line >= 0);
}

function Problem({ error, stale, onRebase }) {
  const causes = error.causes?.filter((c) => c.message) || [];
  return html`<div class="error" role="alert"><p>${stale ? "The object has changed since you opened it." : visible(error.message, 4000)}</p>
    ${stale && html`<button onClick=${onRebase}>Take the new version, with your changes</button>`}
    ${!stale && causes.length > 1 && html`<ul>${causes.map((c) => html`<li><code>${visible(c.field, 300)}</code> ${visible(c.message)}</li>`)}</ul>`}</div>`;
}

const value = (v, path, secret) => (secret && isSecretPath(`${path}.`) ? "••••••" : visible(JSON.stringify(v) ?? "nothing", 300));

const ways = [["take", "Take over", "you own it, with your value"], ["share", "Share", "you own it, too, with the value that it has"],
  ["give", "Give up", "it stays as it is"]];

// Conflicts are the fields that others own with other values.
function Conflicts({ p, live, secret, onChoose }) {
  return html`<section class="conflicts"><div role="alert"><h2>${p.conflicts.length === 1 ? "1 field is" : `${p.conflicts.length} fields are`} somebody else's</h2></div>
    <ul>${p.conflicts.map(({ field, owners, wants }) => html`<li key=${field}><code>${visible(field, 300)}</code> is
      ${" "}<b>${value(valueAt(live, field), field, secret)}</b>, of ${visible(owners.join(", "), 300)}; you want <b>${value(wants, field, secret)}</b>
      <div class="ways">${ways.map(([way, text, why]) => html`<button title=${why} aria-pressed=${p.choices.get(field) === way}
        onClick=${() => onChoose(p, [[field, way]])}>${text}</button>`)}</div></li>`)}</ul>
    ${p.conflicts.length > 1 && html`<p>All of them: ${ways.map(([way, text, why]) => html`<button title=${why}
      onClick=${() => onChoose(p, p.conflicts.map((c) => [c.field, way]))}>${text}</button> `)}</p>`}
    <p class="hint">${ways.map(([, text, why]) => `${text}: ${why}`).join(". ")}.</p></section>`;
}

// Outcome is what an apply would do.
function Outcome({ p, base, manager, secret, onSave, busy }) {
  const all = changes(base.owned, p.after);
  const kept = base.owned ? staying(base.text, p.text, base.owned, p.after, p.choices) : [];
  const mine = `${manager} Apply`;
  const hide = (path, text) => (text && secret && isSecretPath(path) ? text.replace(/:.*/s, ": ••••••") : text);
  const asked = (c) => c.gained.includes(mine) || c.owners.includes(mine) || c.after === null;
  return html`<section class="outcome"><div role="status"><h2>${all.length ? `${all.length} ${all.length === 1 ? "line changes" : "lines change"}` : "Nothing changes"}</h2></div>
    ${p.warnings.map((w) => html`<p class="hint">The server warns: ${visible(w)}</p>`)}
    ${kept.length > 0 && html`<p class="hint">These were deleted, and stay, as others own them: ${kept.map((k, i) => html`${i > 0 && ", "}
      <code>${visible(hide(k.path, k.text), 200)}</code> (${visible(k.owners.join(", ") || "nobody", 200)})`)}</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="What changes"><table><thead><tr><th scope="col">Line</th><th scope="col">Owners then</th></tr></thead>
    <tbody>${all.map((c) => html`<tr key=${c.path}><td><code>
      ${c.before !== null && c.before !== c.after && html`<span class="minus">- ${visible(hide(c.path, c.before))}</span>`}
      ${c.after !== null && html`<span class=${c.before === c.after ? "" : "plus"}>${c.before === c.after ? "  " : "+ "}${visible(hide(c.path, c.after))}</span>`}</code></td>
      <td>${visible(c.owners.join(", ") || "nobody", 300)}
        ${c.lost.map((o) => html`<br /><b class="minus">${o === mine ? "you give it up" : `${visible(o, 100)} loses it`}</b>`)}
        ${c.before === null && !asked(c) && html`<br /><span class="faint">added by the server</span>`}</td></tr>`)}</tbody></table></div>
    <details><summary>The intent: what is applied as ${visible(manager, 100)}</summary>
      <pre>${secret ? "••••••" : visible(JSON.stringify(p.what.intent, null, 2), 20000)}</pre></details>
    <p><button class="apply" disabled=${busy} onClick=${onSave}>Apply${p.what.force ? ", and take over" : ""}</button></p></section>`;
}
