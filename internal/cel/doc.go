// Package cel compiles and runs the validation rules of custom types (x-kubernetes-validations), written in the Common Expression
// Language, over values ([object.Value]), which are not copied for it.
//
// Glossary. A rule is one expression at a place of a schema, with what is told when it is false. Self is the value at that
// place; the old self is what an update replaces there. A transition rule uses oldSelf, and is skipped where there is nothing to
// compare with. A shape is a type as CEL sees it ([shape]). The estimated cost of a rule is the worst case over all objects
// that the schema allows, and bounds what definitions may ask for ([Check]); its actual cost is counted while it runs, and
// bounds what an object may cost ([Rules.Validate]).
//
// Language, libraries and limits are those of the reference, with its own library packages; see environment.go. Which of its
// packages are linked, and what that costs, is in docs/decisions/0005-cel.md.
//
// [CheckDeviceSelector] checks the expressions by which device classes and claims select devices (device.go).
//
// Nothing is done at start, nor when a type is compiled: the environment is built for the first rule of all, a rule is
// compiled when a value stands at its place for the first time, and what has been compiled is dropped when it has not been
// used for some time ([Cache]).
package cel
