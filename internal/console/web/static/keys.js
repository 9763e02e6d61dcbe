// The keyboard: keys of the whole page, and which element has the focus.
import { session } from "./api.js";
import { signal } from "./html.js";
import { editURL, first, go, listURL, pastURL, plane, root, route } from "./route.js";

export const helpShown = signal(false);

// After g. The rows are shown by the help.
export const destinations = () => [
  ["t", "types", root],
  ["a", "access", `${root}access`],
  ["x", "expressions", `${root}expressions`],
  ...(plane ? [] : [["h", "health of the server", `${root}health`]]),
  ...(session.value?.planes ? [["l", "planes", `${first}planes`]] : []),
  ["p", "Pods", listURL({ group: "", version: "v1", resource: "pods" })],
  ["d", "Deployments", listURL({ group: "apps", version: "v1", resource: "deployments" })],
  ["s", "Services", listURL({ group: "", version: "v1", resource: "services" })],
  ["c", "ConfigMaps", listURL({ group: "", version: "v1", resource: "configmaps" })],
  ["n", "Namespaces", listURL({ group: "", version: "v1", resource: "namespaces" })],
  ["o", "Nodes", listURL({ group: "", version: "v1", resource: "nodes" })],
  ["e", "Events", listURL({ group: "", version: "v1", resource: "events" })],
  ["r", "CustomResourceDefinitions",
    listURL({ group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" })],
];

let leader = false; // g was pressed, and its letter is to come

// typing says whether the keys are for a field.
const typing = (event) => event.target.closest?.("input, textarea, select, [data-typing]");

export function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (typing(event)) {
    if (event.key === "Escape" && !event.target.closest("[data-typing]")) event.target.blur();
    return;
  }
  const afterG = leader;
  leader = false;
  if (afterG) {
    const found = destinations().find(([letter]) => letter === event.key);
    if (found) go(found[2]);
  } else if (event.key === "g") leader = true;
  else if (event.key === "e" && ["object", "list"].includes(route.value.page)) go(editURL(location.href));
  else if (event.key === "h" && route.value.page === "object") go(pastURL(location.href));
  else if (event.key === "?") helpShown.value = !helpShown.value;
  else if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    field?.focus();
    field?.select();
  } else if (event.key === "Escape") {
    if (helpShown.value) helpShown.value = false;
    else if (route.value.page !== "types") history.back();
  } else return;
  event.preventDefault();
}

// step says by how many rows a key moves; 0: it does not.
export function step(event, page = 20) {
  if (event.ctrlKey || event.metaKey || event.altKey) return 0;
  const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  return steps[event.key] || 0;
}
