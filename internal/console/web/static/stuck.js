// Why an object is not done: what its metadata, its conditions and its Events say. Nothing is guessed: a finding is a
// field of the object, and who owns it, or an Event.
import { age } from "./text.js";

// Conditions whose True is the bad news: Kubernetes' own, and what such types are called by custom.
const bad = /Pressure|Fail|Unavailable|Remaining|Error|Unreachable|Disrupt|Degraded|Stalled|Reconciling|Deleting|Dangling/;
const neutral = new Set(["Suspended", "Complete", "SuccessCriteriaMet", "Progressing", "Terminating"]);

// findings returns a list of {what, detail, who}: the most important first. events are those of the object, the latest
// first, if they are known.
export function findings(object, owned, events = []) {
  const { metadata = {}, spec = {}, status = {} } = object;
  const found = [];
  const finalizers = metadata.finalizers || [];
  if (metadata.deletionTimestamp) {
    found.push({
      what: `It is being deleted, since ${age(metadata.deletionTimestamp)}`,
      detail: finalizers.length || spec.finalizers?.length
        ? "It goes when its finalizers are removed, each by whoever answers for it:"
        : "It has no finalizers: it goes at the end of its grace period.",
    });
    for (const name of finalizers) {
      found.push({ what: `Finalizer ${name}`, detail: "Its controller has to remove it.", who: addedBy(owned, name) });
    }
    if (object.kind === "Namespace") {
      for (const name of spec.finalizers || []) {
        found.push({ what: `Finalizer ${name} of the namespace`, detail: "It goes when nothing is left in the namespace." });
      }
    }
  }
  for (const c of Array.isArray(status.conditions) ? status.conditions : []) {
    if (!c || !isBad(c, object)) continue;
    found.push({
      what: `${c.type} is ${c.status}${c.reason ? `: ${c.reason}` : ""}`,
      detail: c.message, since: c.lastTransitionTime,
    });
  }
  if (object.kind === "ResourceQuota") found.push(...fullQuotas(status));
  found.push(...warnings(events));
  if (Number.isInteger(status.observedGeneration) && status.observedGeneration < metadata.generation) {
    found.push({
      what: "Its controller has not seen the last change of the spec",
      detail: `generation ${metadata.generation}, observed ${status.observedGeneration}`,
    });
  }
  if (!metadata.deletionTimestamp && finalizers.length) {
    found.push({
      what: `A delete would wait for ${finalizers.length === 1 ? "a finalizer" : `${finalizers.length} finalizers`}`,
      detail: finalizers.join(", "), who: addedBy(owned, finalizers[0]), mild: true,
    });
  }
  return found;
}

// fullQuotas are what a ResourceQuota has no room for any more.
function fullQuotas({ hard = {}, used = {} }) {
  return Object.keys(hard).filter((name) => quantity(used[name]) >= quantity(hard[name])).map((name) => ({
    what: `The quota of ${name} is used up`, detail: `${used[name]} of ${hard[name]}: what needs more is refused.`,
  }));
}

const suffixes = { n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

// quantity is the number of a quantity; NaN if it is none.
function quantity(text) {
  const [, number, suffix] = /^([-+.\d]+(?:e[-+]?\d+)?)([a-zA-Z]*)$/.exec(String(text)) || [];
  return suffix ? Number(number) * (suffixes[suffix] ?? NaN) : Number(number);
}

const lately = 3600e3; // milliseconds

// warnings are the latest Event of each reason that warns of the object: a quota that is used up, a webhook that fails,
// an image that there is not.
function warnings(events) {
  const seen = new Set();
  const found = [];
  for (const e of events) {
    if (e.type !== "Warning" || Date.now() - Date.parse(e.when) > lately || seen.has(e.reason)) continue;
    seen.add(e.reason);
    found.push({ what: `Warning ${e.reason}, ${age(e.when)} ago`, detail: e.message });
  }
  return found;
}

function isBad({ type, status }, object) {
  if (object.kind === "CustomResourceDefinition" && type === "NonStructuralSchema") return status === "True";
  if (status === "Unknown") return true;
  if (bad.test(type)) return status === "True";
  return status === "False" && !neutral.has(type);
}

// addedBy are the managers that own a finalizer.
function addedBy(owned, finalizer) {
  if (!owned) return [];
  const line = owned.lines.find((l) => l.path.startsWith(".metadata.finalizers") && l.text.includes(finalizer));
  return (line?.owners || line?.itemOwners || []).map((i) => owned.managers[i]);
}
