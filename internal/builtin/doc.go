// Package builtin is the built-in API as data for the engine: one row for every resource type that Kubernetes 1.37
// serves, but for APIService.
//
// Each API group has a file with its table and, below it, the few functions that are particular to its kinds: what a
// create or an update resets, which of an object's parts count as a new generation, what can be selected by field. What
// many kinds share is beside them: names (what a name may look like), status and scale (subresources). Defaults,
// validation, warnings, conversion and Table columns have packages of their own, with one exported name a kind.
//
// A kind is declared once, by its row: the Go types of an object and of a list, the verbs, and the functions, which the
// row names. A new kind is a new row, and what that names; a test fails where a row leaves something out, and where
// there is something that no row names. A kind that is not served stands in Missing instead.
//
// Glossary. A kind is one row. To prepare is to reset what a client may not set on the main URL of an object (WRITE-4).
// A gated field belongs to a feature gate (package features): while that is off, the field is dropped from new objects.
//
// Caveats. All functions are pure: no state, values in, values out. Nothing is compiled until it is asked for; making
// the whole table costs some allocations and no reflection. What the reference serves and this server does not is
// listed in Missing.
package builtin
