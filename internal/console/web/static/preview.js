// What an edit would do, asked of the server before it is done. The server decides who owns what: it makes the intent
// of the edit, and answers a dry run of its apply with the owners of each line.
import { label } from "./blame.js";
import { request } from "./api.js";
import { valueAt, without, withValue } from "./paths.js";

const applyYAML = "application/apply-patch+yaml";

async function apply(path, query, body, headers) {
  const answer = await request(path, query, { method: "PATCH", contentType: applyYAML, body, headers });
  const warnings = (answer.headers.get("Warning") || "").match(/"(?:[^"\\]|\\.)*"/g) || [];
  return { value: await answer.json(), warnings: warnings.map((w) => w.slice(1, -1).replace(/\\(.)/g, "$1")) };
}

// precondition says of which version the edit is: of none for a new object.
const precondition = (version) => (version ? { "If-Match": `"${version}"` } : { "If-None-Match": "*" });

// isStale says whether an error is that the object has changed since it was read.
export const isStale = (e) => e.code === 412 || (e.code === 409 && !conflictsOf(e).length);

const conflictsOf = (e) => e.causes.filter((c) => c.reason === "FieldManagerConflict");

// intentOf is the intent of an edited text.
export async function intentOf(path, manager, text, version) {
  const { value } = await apply(path, { fieldManager: manager, dryRun: "All", ownership: "intent" }, text, precondition(version));
  return value;
}

// resolved is an intent after what was chosen for its conflicts: a map from the path of a field to take, share or give.
export function resolved(intent, live, choices) {
  let made = intent;
  for (const [path, choice] of choices) {
    if (choice === "give") made = without(made, path);
    if (choice === "share") made = withValue(made, path, valueAt(live, path));
  }
  return { intent: made, force: [...choices.values()].includes("take") };
}

// tryOut makes a dry run of an intent: {after, warnings}, the owners of each line as they would be; or {conflicts}.
export async function tryOut(path, manager, { intent, force }, version) {
  try {
    const { value, warnings } = await apply(path, { fieldManager: manager, dryRun: "All", ownership: "lines", ...(force && { force: "true" }) },
      JSON.stringify(intent), precondition(version));
    return { after: value, warnings };
  } catch (e) {
    const causes = e.code === 409 ? conflictsOf(e) : [];
    if (!causes.length) throw e;
    const conflicts = new Map();
    for (const { field, message } of causes) {
      conflicts.set(field, [...(conflicts.get(field) || []), message.replace(/^conflict with /, "")]);
    }
    return { conflicts: [...conflicts].map(([field, owners]) => ({ field, owners, wants: valueAt(intent, field) })) };
  }
}

// write applies an intent for good, to the version that was tried.
export async function write(path, manager, { intent, force }, version) {
  return apply(path, { fieldManager: manager, ...(force && { force: "true" }) }, JSON.stringify(intent), precondition(version));
}

const owners = (document, line) => (line ? [...new Set([...(line.owners || []), ...(line.itemOwners || [])])].map((i) => label(document.managers[i])) : []);

// changes compares two answers of ?ownership=lines, the first of which may be missing: a list of {path, before, after,
// lost, gained, owners}, of the places whose text or owners differ. before and after are texts, or null.
export function changes(before, after) {
  const places = (document) => {
    const all = new Map();
    for (const line of document?.lines || []) {
      if (line.system && /^\.metadata\.(resourceVersion|generation|managedFields)$/.test(line.path)) continue;
      const place = all.get(line.path);
      if (place) place.text += `\n${line.text}`;
      else all.set(line.path, { text: line.text, owners: owners(document, line) });
    }
    return all;
  };
  const [was, is] = [places(before), places(after)];
  const found = [];
  for (const path of new Set([...is.keys(), ...was.keys()])) {
    const [a, b] = [was.get(path), is.get(path)];
    const lost = (a?.owners || []).filter((o) => !b?.owners.includes(o)), gained = (b?.owners || []).filter((o) => !a?.owners.includes(o));
    if (a?.text === b?.text && !lost.length && !gained.length) continue;
    found.push({ path, before: a?.text ?? null, after: b?.text ?? null, lost, gained, owners: b?.owners || [] });
  }
  return found;
}

// staying are the lines that were deleted in the editor and are there all the same, as others own them. Fields for which
// something was chosen in a conflict are no surprise.
export function staying(base, text, before, after, choices) {
  const left = new Map();
  for (const line of text.split("\n")) left.set(line, (left.get(line) || 0) + 1);
  const now = new Set(after.lines.map((l) => `${l.path}\n${l.text}`));
  return before.lines.filter((line) => {
    if (!base.includes(line.text)) return false;
    const n = left.get(line.text) || 0;
    left.set(line.text, n - 1);
    return n <= 0 && !choices.has(line.path) && now.has(`${line.path}\n${line.text}`) && !line.structural;
  }).map((line) => ({ text: line.text.trim(), path: line.path, owners: owners(before, line) }));
}
