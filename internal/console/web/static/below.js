// The objects that depend on an object, or that are in a namespace, as a tree.
import { asMetadataList, create, get, pathOf } from "./api.js";
import { types } from "./discovery.js";
import { html, useEffect, useState } from "./html.js";
import { load } from "./load.js";
import { Tree } from "./related.js";
import { objectURL } from "./route.js";
import { visible } from "./text.js";

export function Below({ object }) {
  const { uid, name, namespace, resourceVersion } = object.metadata;
  const isNamespace = object.kind === "Namespace" && object.apiVersion === "v1";
  const { value, error } = load(async (abort) => (await create("/apis/plinth/v1alpha1/dependentsreviews", {
    apiVersion: "plinth/v1alpha1", kind: "DependentsReview",
    spec: isNamespace ? { namespace: name } : { owner: uid, namespace: namespace || "" },
  }, { abort })).status, [uid, resourceVersion]);
  const where = isNamespace ? name : namespace;
  return html`<section><h2>${isNamespace ? "What is in it" : "Dependents"}</h2>
    ${value?.objects.length === 0 && html`<p class="faint">None.</p>`}
    ${value && html`<div class="found"><${Tree} nodes=${treeOf(value.objects)} /></div>`}
    ${value?.incomplete?.map((why) => html`<p class="faint">Not all is shown: ${visible(why)}.</p>`)}
    ${error && html`<${ByLists} key=${uid} of=${isNamespace ? "" : uid} namespace=${where} />`}
  </section>`;
}

// treeOf puts each object below its owners, if they are among the objects.
function treeOf(objects) {
  const nodes = new Map(objects.map((o) => [o.uid, {
    kind: o.kind, name: o.name, url: objectURL(o, o.namespace, o.name), deleting: Boolean(o.deletionTimestamp),
    finalizers: o.finalizers, note: o.unreadable ? "it cannot be read" : "", inner: [],
  }]));
  const top = [];
  for (const o of objects) {
    const owners = o.owners.filter((uid) => uid !== o.uid && nodes.has(uid));
    for (const uid of owners) nodes.get(uid).inner.push(nodes.get(o.uid));
    if (!owners.length) top.push(nodes.get(o.uid));
  }
  return top;
}

const mostFound = 200;

// ByLists is for users who may not ask for dependents: all lists are read, as metadata, when they say so.
function ByLists({ of, namespace }) {
  const [found, setFound] = useState(null);
  const [state, setState] = useState("");
  const [abort] = useState(() => new AbortController());
  useEffect(() => () => abort.abort(), []);

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
          for (const { metadata: m } of list.items) {
            const owners = (m.ownerReferences || []).map((r) => r.uid);
            if ((of && !owners.includes(of)) || all.length >= mostFound || all.some((o) => o.uid === m.uid)) continue;
            all.push({ ...type, ...m, owners });
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
  return html`${!found && html`<button onClick=${scan}>${of ? "Find dependents" : "Find what is left in it"}</button>`}
    ${state && html`<p class="faint" role="status">${visible(state)}</p>`}
    ${found && html`<div class="found"><${Tree} nodes=${treeOf(found)} /></div>`}
    ${found?.length === mostFound && html`<p class="faint">These are the first ${mostFound}.</p>`}`;
}
