// Package builtin is the built-in API as data for the engine: one row for every resource type that Kubernetes 1.37
// serves, but for APIService.
//
// Each API group has a file with its table and, below it, the few functions that are particular to its kinds: what a
// create or an update resets, which of an object's parts count as a new generation, what can be selected by field. What
// many kinds share is beside them: names (what a name may look like), status and scale (subresources). Defaults,
// validation, conversion and Table columns have packages of their own; the rows only point there.
//
// A new kind is named here, and a test fails where a name is mistyped or left out:
//
//   - its row in the file of its group, which has everything that decides how it is served
//   - defaults.byKind, validation.kinds, warnings.kinds: its rules, by group and kind
//   - a Table in columns, which the row points to
//   - untouchedFields (resets.go), if it has a status: what a write to each endpoint does not own
//   - convert, if it has several versions; then versions (resets.go), too
//   - Missing, instead of all this, if it is not served
//
// Glossary. A kind is one row. To prepare is to reset what a client may not set on the main URL of an object (WRITE-4).
// A gated field belongs to a feature gate (package features): while that is off, the field is dropped from new objects.
//
// Caveats. All functions are pure: no state, values in, values out. Nothing is compiled until it is asked for; making
// the whole table costs some allocations and no reflection. What the reference serves and this server does not is
// listed in Missing.
package builtin
