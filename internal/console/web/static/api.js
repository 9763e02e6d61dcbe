// The session of this page, and requests to the API in its name. The token of a session is in a cookie that no script
// can read; its key, which requests have to carry, is in memory alone.
import { signal } from "./html.js";
import { first, plane, root } from "./route.js";

// session is {user, key, expires, plane, planes}, planes if there is a way to others; null: nobody has signed in; undefined: not known yet.
export const session = signal(undefined);

// why is the reason that a session has ended, or could not begin.
export const why = signal("");

// Failure is an answer that is no success: the Status of the API.
export class Failure extends Error {
  constructor(code, status) {
    super(status?.message || (code === 404 ? "the server does not have this type" : `the server answered ${code}`));
    this.code = code;
    this.reason = status?.reason || "";
    this.causes = status?.details?.causes || [];
  }
}

async function failure(response) {
  const text = await response.text().catch(() => "");
  let status;
  try {
    status = JSON.parse(text);
  } catch {
    // It is no Status: the code has to do.
  }
  return Object.assign(new Failure(response.status, status), { text });
}

async function begin(path, init) {
  const response = await fetch(path, init);
  if (!response.ok) throw await failure(response);
  session.value = await response.json();
  why.value = "";
}

const posted = (body) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

// resume uses the session that the browser has, if any.
export async function resume() {
  try {
    await begin(`${root}session`, {});
  } catch (e) {
    if (e.code !== 401) why.value = e.message;
    session.value = null;
  }
}

// arrive uses the session that the browser has at the first plane, if any, to begin one in this plane: the user has
// signed in there, and has the rights here that this plane gives to that user.
export async function arrive() {
  const there = await fetch(`${first}session`);
  if (!there.ok) return;
  const { key } = await there.json();
  const asked = posted({ plane });
  const entered = await fetch(`${first}enter`, { ...asked, headers: { ...asked.headers, "X-Plinth-Console": key } });
  if (!entered.ok) return;
  await resume();
  if (!session.value && !why.value) why.value = "This plane does not accept the credential with which you have signed in.";
}

// planeNames returns names of planes, as the user of the session may list them in the first plane.
export async function planeNames() {
  const there = await fetch(`${first}session`);
  if (!there.ok) return [];
  const { key } = await there.json();
  const answer = await fetch(`${first}api/apis/plinth/v1alpha1/planes?limit=500`,
    { headers: { Accept: asMetadataList, "X-Plinth-Console": key } });
  return answer.ok ? (await answer.json()).items.map((item) => item.metadata.name) : [];
}

// signIn begins a session with {token}, {code}, or {} for the certificate of the connection.
export async function signIn(credential) {
  await begin(`${root}session`, posted(credential));
}

// issuers returns the issuers at which one can sign in: [{id, name}].
export async function issuers() {
  const response = await fetch(`${root}oidc`);
  return response.ok ? (await response.json()).issuers : [];
}

// leaveFor leaves the page for that of an issuer, which sends the browser back to callback.
export async function leaveFor(issuer) {
  const response = await fetch(`${root}oidc`, posted({ issuer, at: location.pathname + location.search }));
  if (!response.ok) throw await failure(response);
  location.assign((await response.json()).location);
}

export const callback = `${root}oidc/callback/`;

// comeBack signs in with an issuer's answer, which the address has, and returns the page at which one was. The answer
// goes from the address before anything else. If it is none for this browser, a session that there was goes on.
export async function comeBack() {
  const { pathname, search } = location;
  history.replaceState(null, "", root);
  const query = new URLSearchParams(search);
  const names = ["state", "code", "iss", "error", "error_description"];
  const answer = Object.fromEntries(names.map((name) => [name, query.get(name) || ""]));
  try {
    await begin(pathname, posted(answer));
  } catch (e) {
    await resume();
    if (!session.value) why.value = e.message;
  }
  return session.value?.at || root;
}

export async function signOut() {
  const key = session.value?.key;
  session.value = null;
  await fetch(`${root}session`, { method: "DELETE", headers: { "X-Plinth-Console": key } });
}

// Media types.
const json = "application/json";
export const asTable = `${json};as=Table;v=v1;g=meta.k8s.io;drop=metadata.managedFields`;
export const asMetadata = `${json};as=PartialObjectMetadata;v=v1;g=meta.k8s.io`;
export const asMetadataList = `${json};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io`;
export const asDiscovery = `${json};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,${json}`;

// request sends a request, a GET unless it has another method, and returns the response, whose body may be a stream. A
// parameter that is null is sent without a value, and one that is empty is not sent. A session that has ended shows the
// sign-in.
export async function request(path, query = {}, { accept = json, abort, method = "GET", body, contentType, headers } = {}) {
  const pairs = Object.entries(query).filter(([, v]) => v !== undefined && v !== "").map(([name, v]) => [name, v ?? ""]);
  const search = new URLSearchParams(pairs).toString();
  const key = session.value?.key || "";
  const response = await fetch(`${root}api${path}${search && "?" + search}`, {
    method,
    headers: { Accept: accept, "X-Plinth-Console": key, ...(contentType && { "Content-Type": contentType }), ...headers },
    body,
    signal: abort,
  });
  if (response.ok) return response;
  const e = await failure(response);
  if (e.code === 401 && session.value?.key === key) {
    why.value = "The session has ended.";
    session.value = null;
  }
  throw e;
}

// get returns the body of an answer.
export async function get(path, query, options) {
  return (await request(path, query, options)).json();
}

// create sends an object, and returns the answer. Reviews are created, too.
export async function create(path, object, options) {
  return get(path, {}, { ...options, method: "POST", contentType: json, body: JSON.stringify(object) });
}

// pathOf is the path of a collection, or of one of its objects. A type is {group, version, resource}.
export function pathOf(type, namespace, name) {
  const part = encodeURIComponent; // an address may have any text for a type
  let path = type.group ? `/apis/${part(type.group)}/${part(type.version)}` : `/api/${part(type.version)}`;
  if (namespace) path += `/namespaces/${part(namespace)}`;
  path += `/${part(type.resource)}`;
  return name ? `${path}/${part(name)}` : path;
}
