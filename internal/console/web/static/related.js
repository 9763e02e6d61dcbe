// What has to do with an object: its Events, and its owners.
import { asMetadata, get, pathOf } from "./api.js";
import { ofKind } from "./discovery.js";
import { html } from "./html.js";
import { load } from "./load.js";
import { objectURL } from "./route.js";
import { age, visible } from "./text.js";

// eventsOf is a hook: the Events of an object, the latest first, as load has them.
export function eventsOf(object) {
  const { uid, namespace, resourceVersion } = object.metadata;
  return load(async (abort) => {
    const path = pathOf({ group: "", version: "v1", resource: "events" }, namespace);
    const list = await get(path, { fieldSelector: `involvedObject.uid=${uid}`, limit: 500 }, { abort });
    const when = (e) => e.series?.lastObservedTime || e.lastTimestamp || e.eventTime || e.metadata.creationTimestamp;
    return list.items.map((e) => ({ ...e, when: when(e) })).sort((a, b) => (a.when < b.when ? 1 : -1)).slice(0, 50);
  }, [uid, resourceVersion]);
}

export function Events({ events: { value, error } }) {
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

// Tree shows nodes: {kind, name, url, controller, deleting, finalizers, note, inner}.
export function Tree({ nodes }) {
  return html`<ul class="tree">${nodes.map((n) => html`<li>${visible(n.kind, 100)}
    ${" "}${n.url ? html`<a href=${n.url}>${visible(n.name, 300)}</a>` : visible(n.name, 300)}
    ${n.controller && html` <span class="faint">controller</span>`}
    ${n.deleting && html` <b>being deleted</b>`}
    ${n.finalizers?.length > 0 && html` <span class="faint">finalizers: ${visible(n.finalizers.join(", "))}</span>`}
    ${n.note && html` <span class="faint">${visible(n.note)}</span>`}
    ${n.inner.length > 0 && html`<${Tree} nodes=${n.inner} />`}</li>`)}</ul>`;
}
