// What has to do with an object: its Events, its owners, and the objects that depend on it or are in it.
import { asMetadata, asMetadataList, get, pathOf } from "./api.js";
import { ofKind, types } from "./discovery.js";
import { html, useEffect, useState } from "./html.js";
import { load } from "./load.js";
import { objectURL } from "./route.js";
import { age, visible } from "./text.js";

export function Events({ object }) {
  const { uid, namespace, resourceVersion } = object.metadata;
  const { value, error } = load(async (abort) => {
    const path = pathOf({ group: "", version: "v1", resource: "events" }, namespace);
    const list = await get(path, { fieldSelector: `involvedObject.uid=${uid}`, limit: 500 }, { abort });
    const when = (e) => e.series?.lastObservedTime || e.lastTimestamp || e.eventTime || e.metadata.creationTimestamp;
    return list.items.map((e) => ({ ...e, when: when(e) })).sort((a, b) => (a.when < b.when ? 1 : -1)).slice(0, 50);
  }, [uid, resourceVersion]);
  return html`<section><h2>Events</h2>
    ${error && html`<p class="error">${visible(error.message)}</p>`}
    ${value?.length === 0 && html`<p class="faint">None.</p>`}
    <ul class="events">${value?.map((e) => html`<li key=${e.metadata.uid} class=${e.type === "Warning" ? "warning" : ""}>
      <b>${visible(e.reason, 200)}</b> <span class="faint">${age(e.when)}${e.count > 1 && ` ×${e.count}`}
      ${" "}${visible(e.source?.component || e.reportingComponent, 100)}</span><br />${visible(e.message)}</li>`)}</ul>
  </section>`;
}

// Owners is the chain of owner references, up to the top.
export function Owners({ object }) {
  const { value, error } = load((abort) => up(object, abort, 0), [object.metadata.uid, object.metadata.resourceVersion]);
  if (!object.metadata.ownerReferences?.length) return null;
  return html`<section><h2>Owners</h2>${error && html`<p class="error">${visible(error.message)}</p>`}
    ${value && html`<${Tree} nodes=${value} />`}</section>`;
}

const deepest = 8;

async function up(object, abort, depth) {
  const { namespace, ownerReferences = [] } = object.metadata;
  return Promise.all(ownerReferences.slice(0, 20).map(async (ref) => {
    const type = ofKind(ref.apiVersion, ref.kind);
    const node = { kind: ref.kind, name: ref.name, controller: ref.controller, inner: [] };
    if (!type) return { ...node, note: "the server has no such type" };
    const of = type.namespaced ? namespace : "";
    node.url = objectURL(type, of, ref.name);
    try {
      const owner = await get(pathOf(type, of, ref.name), {}, { accept: asMetadata, abort });
      if (owner.metadata.uid !== ref.uid) node.note = "gone: another object has its name";
      else if (depth < deepest) node.inner = await up(owner, abort, depth + 1);
    } catch (e) {
      node.note = e.code === 404 ? "gone" : e.message;
    }
    return node;
  }));
}

function Tree({ nodes }) {
  return html`<ul class="tree">${nodes.map((n) => html`<li>${visible(n.kind, 100)}
    ${" "}${n.url ? html`<a href=${n.url}>${visible(n.name, 300)}</a>` : visible(n.name, 300)}
    ${n.controller && html` <span class="faint">controller</span>`}
    ${n.note && html` <span class="faint">${visible(n.note)}</span>`}
    ${n.inner.length > 0 && html`<${Tree} nodes=${n.inner} />`}</li>`)}</ul>`;
}

const mostFound = 200;

// Below looks for the objects that depend on an object, or, for a namespace, that are in it. The API has no request for
// either: all lists are read, as metadata, and only when somebody asks.
export function Below({ object }) {
  const [found, setFound] = useState(null);
  const [state, setState] = useState("");
  const [abort] = useState(() => new AbortController());
  useEffect(() => () => abort.abort(), []);
  const isNamespace = object.kind === "Namespace" && object.apiVersion === "v1";
  const namespace = isNamespace ? object.metadata.name : object.metadata.namespace;

  const scan = async () => {
    const all = [], failed = [];
    const asked = types.value.filter((t) => (namespace ? t.namespaced : true));
    setFound([]);
    for (const [i, type] of asked.entries()) {
      setState(`reading ${i + 1} of ${asked.length} types…`);
      try {
        let more = "";
        do {
          const list = await get(pathOf(type, namespace), { limit: 500, continue: more },
            { accept: asMetadataList, abort: abort.signal });
          for (const { metadata } of list.items) {
            const is = isNamespace || metadata.ownerReferences?.some((r) => r.uid === object.metadata.uid);
            if (is && all.length < mostFound && !all.some((o) => o.metadata.uid === metadata.uid)) all.push({ type, metadata });
          }
          more = list.metadata.continue;
        } while (more && all.length < mostFound);
      } catch (e) {
        if (abort.signal.aborted) return;
        failed.push(`${type.resource}: ${e.message}`);
      }
      setFound([...all]);
    }
    setState([all.length ? "" : "None.", ...failed].filter(Boolean).join(" "));
  };
  return html`<section><h2>${isNamespace ? "What is in it" : "Dependents"}</h2>
    ${!found && html`<button onClick=${scan}>${isNamespace ? "Find what is left in it" : "Find dependents"}</button>`}
    ${state && html`<p class="faint" role="status">${visible(state)}</p>`}
    <ul class="tree found">${found?.map(({ type, metadata: m }) => html`<li key=${m.uid}>${visible(type.kind, 100)}
      ${" "}<a href=${objectURL(type, m.namespace, m.name)}>${visible(m.name, 300)}</a>
      ${m.deletionTimestamp && html` <b>being deleted</b>`}
      ${m.finalizers?.length > 0 && html` <span class="faint">finalizers: ${visible(m.finalizers.join(", "))}</span>`}
    </li>`)}</ul>
    ${found?.length === mostFound && html`<p class="faint">These are the first ${mostFound}.</p>`}
  </section>`;
}
