// Package builtin is the built-in API as data for the engine: one row for every resource type that Kubernetes 1.37
// serves, but for APIService.
//
// Each API group has a file with its table and, below it, the few functions that are specific to its kinds: what a
// create or an update resets, which changes make a new generation, which fields can be selected. Other files have the
// parts that many kinds share: names.go (the rules for names), status.go and scale.go (subresources). Defaults,
// validation, warnings, conversion and Table columns are separate packages, with one exported name per kind.
//
// A kind is declared once, by its row (table.go, type kind): its versions, each with the Go types of an object and of a
// list, the verbs, and the functions. The Go types say since when there is a version; version.go derives from that
// which versions are served, and in which one objects are stored. A new kind is a new row, with the functions that it
// names; a test fails if a row leaves out something that the reference has, or if no row names a function.
//
// Glossary. A kind is one row. To prepare is to reset the fields that a client may not set on the main URL of an object
// (WRITE-4). A gated field belongs to a feature gate (package features): while that is off, the field is dropped from
// new objects.
//
// Caveats. All functions are pure. Nothing is compiled before its first use; building the whole table takes some
// allocations and, for the names of versions, the package paths of the Go types.
package builtin
