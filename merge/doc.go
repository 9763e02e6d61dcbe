// Package merge is server-side apply as a library: who owns which field of an object, what an intent changes, and whose
// fields it would take. It needs no server: values in, values out, and the time is an argument.
//
// Glossary. A writer is whoever changes an object; a manager is the name under which its fields are owned. An intent is the
// body of an apply: all that the writer wants to have a say in. Ownership is a [Set] of paths for each entry of
// metadata.managedFields. A conflict is a field that an intent would change and that somebody else owns. To reconcile is to
// bring a stored set in line with a schema that has since made a list or a map atomic, or granular. To prune is to remove
// what a manager owned, and does not want any longer, and nobody else has.
//
// An apply goes this way (SSA-3): the intent is joined into the live object (join.go), what the writer gave up is pruned
// (prune.go), the result is compared with what was there (compare.go), and where others own a part of the difference, there is a
// conflict, or the field changes hands. An update is the comparison alone (SSA-6).
//
// The measure of all this is the field manager of Kubernetes, which conformance/merge runs beside it. Values are compared
// in their canonical form here and as they were written there, which is the one known difference: `cpu: "0.5"` meets a live
// `500m` without a conflict (SSA-18).
package merge
