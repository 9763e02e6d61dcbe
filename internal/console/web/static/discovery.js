// The types that the server serves, in the version that each group prefers.
import { asDiscovery, get, session } from "./api.js";
import { effect, signal } from "./html.js";

// types is a list of {group, version, resource, kind, namespaced, shortNames, verbs}; null: not known yet.
export const types = signal(null);
export const typesError = signal("");

let loaded = []; // of all versions, for references from objects

export async function loadTypes() {
  try {
    const [core, groups] = await Promise.all(["/api", "/apis"].map((p) => get(p, {}, { accept: asDiscovery })));
    loaded = [];
    const preferred = [];
    for (const group of [...core.items, ...groups.items]) {
      const seen = new Set();
      for (const version of group.versions || []) {
        for (const r of version.resources || []) {
          const type = {
            group: group.metadata?.name || "", version: version.version, resource: r.resource,
            kind: r.responseKind?.kind || "", namespaced: r.scope === "Namespaced",
            shortNames: r.shortNames || [], verbs: r.verbs || [],
          };
          loaded.push(type);
          if (!seen.has(r.resource) && type.verbs.includes("list")) preferred.push(type);
          seen.add(r.resource);
        }
      }
    }
    types.value = preferred;
    typesError.value = "";
  } catch (e) {
    typesError.value = e.message;
  }
}

// What one user was told another is not shown.
effect(() => {
  if (!session.value) types.value = null;
});

// ofKind is the type of a reference of an object; undefined if the server has none.
export function ofKind(apiVersion, kind) {
  const [version, group = ""] = String(apiVersion).split("/").reverse();
  return loaded.find((t) => t.group === group && t.version === version && t.kind === kind);
}

// known completes a type of an address with what the server says of it.
export function known(type) {
  const same = (t) => t.group === type.group && t.version === type.version && t.resource === type.resource;
  return (types.value && loaded.find(same)) || type;
}
