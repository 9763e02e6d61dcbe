// Why an object is not done: what its metadata and its conditions say. Nothing is guessed: a finding is a field of the
// object, and who owns it.
import { age } from "./text.js";

// Conditions whose True is the bad news: Kubernetes' own, and what such types are called by custom.
const bad = /Pressure|Fail|Unavailable|Remaining|Error|Unreachable|Disrupt|Degraded|Stalled|Reconciling|Deleting|Dangling/;
const neutral = new Set(["Suspended", "Complete", "SuccessCriteriaMet", "Progressing", "Terminating"]);

// findings returns a list of {what, detail, who}: the most important first.
export function findings(object, owned) {
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
