// The address of the page says what is seen:
//
//	/console/                                                types
//	/console/r/GROUP/VERSION/RESOURCE?ns&l&f&q&s             a list: namespace, selectors, filter, sorted column
//	/console/r/GROUP/VERSION/RESOURCE/NAMESPACE/NAME?q&m     an object: text that is searched, manager that is picked
//	either of them, with ?edit&fm                            editing it, or a new object, as a manager
//	an object, with ?past&at                                 its past, at the change that has made a resourceVersion
//	/console/access, /console/expressions, /console/health   with their questions in the query
//	/console/planes?q&s                                      the planes, where there are some, at the first one
//
// The core group is "core"; the namespace of a cluster-scoped object is "-". Before it all is the path of the plane that
// the console is of, if it has one: /clusters/NAME.
import { signal } from "./html.js";

// root is where the console is: the folder above that of this file, "/console/" without planes.
export const root = new URL("../", import.meta.url).pathname;

// plane is the name in that path; "": this is the console of the first plane, or of one with a host name of its own.
export const plane = root.match(/\/clusters\/([^/]+)\/console\/$/)?.[1] || "";

// first is where the console of the first plane is.
export const first = plane ? root.slice(0, -`clusters/${plane}/console/`.length) + "console/" : root;

// consoleOf is where the console of a plane is; "": of the first one.
export const consoleOf = (name) => name ? `${first.slice(0, -"console/".length)}clusters/${encodeURIComponent(name)}/console/` : first;

const pages = new Set(["access", "expressions", ...(plane ? [] : ["health", "planes"])]);

export const route = signal(parse(location));

function parse({ pathname, search }) {
  const query = Object.fromEntries(new URLSearchParams(search));
  const parts = pathname.slice(root.length).split("/").filter(Boolean).map(decode);
  if (parts.length === 1 && pages.has(parts[0])) return { page: parts[0], query };
  // No name is dots or has a slash: it would make a path to something else.
  const elsewhere = parts.some((p) => /^\.\.?$|\//.test(p));
  if (parts[0] !== "r" || elsewhere || (parts.length !== 4 && parts.length !== 6)) {
    return { page: parts.length ? "none" : "types", query };
  }
  const [, group, version, resource, namespace, name] = parts;
  const type = { group: group === "core" ? "" : group, version, resource };
  if (!name) return { page: "edit" in query ? "edit" : "list", type, query };
  return { page: "edit" in query ? "edit" : "past" in query ? "past" : "object", type, namespace: namespace === "-" ? "" : namespace, name, query };
}

// decode reads a part of an address, which anybody may have written.
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function listURL(type, query = {}) {
  const pairs = Object.entries(query).filter(([, v]) => v);
  const search = new URLSearchParams(pairs).toString();
  return `${root}r/${type.group || "core"}/${type.version}/${type.resource}${search && "?" + search}`;
}

export function objectURL(type, namespace, name) {
  return `${listURL(type)}/${encodeURIComponent(namespace || "-")}/${encodeURIComponent(name)}`;
}

// editURL is where the object of an address is edited, or a new one of a list is written.
export function editURL(address) {
  const url = new URL(address, location);
  const namespace = url.searchParams.get("ns");
  return `${url.pathname}?edit${namespace ? `&ns=${encodeURIComponent(namespace)}` : ""}`;
}

// pastURL is where the past of the object of an address is.
export const pastURL = (address) => `${new URL(address, location).pathname}?past`;

// go shows another page. That of another plane is another document.
export function go(url, { push = true } = {}) {
  if (!new URL(url, location).pathname.startsWith(root)) return location.assign(url);
  history[push ? "pushState" : "replaceState"](null, "", url);
  route.value = parse(location);
}

// setQuery changes parts of the query of the address. What one types makes no entries of the history.
export function setQuery(changes, { push = false } = {}) {
  const url = new URL(location);
  for (const [name, value] of Object.entries(changes)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history[push ? "pushState" : "replaceState"](null, "", url);
  route.value = parse(location);
}

// Links are followed without loading the page again, unless the user wants another tab.
function follow(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.defaultPrevented) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(root)) return;
  event.preventDefault();
  go(link.href);
}

export function followLinks() {
  addEventListener("popstate", () => (route.value = parse(location)));
  document.addEventListener("click", follow);
}
