// Package cel compiles and runs the validation rules of custom types (x-kubernetes-validations), written in the Common
// Expression Language, over values ([object.Value]), which are not copied for it.
//
// # Glossary
//
//   - rule: one expression at a place of a schema, with the message for when it is false.
//   - self: the value at that place. oldSelf: the value that an update replaces there.
//   - transition rule: a rule that uses oldSelf. It is skipped where there is no old value to compare with.
//   - shape: a type as CEL sees it.
//   - estimated cost: the worst case of a rule over all objects that the schema allows. It bounds what a definition
//     may ask for ([Check]), before there is any object.
//   - actual cost: what is counted while a rule runs. It bounds what one object may cost ([Rules.Validate]).
//
// # Caveats
//
// Language, libraries and limits are those of the reference, with its own library packages; see environment.go. Which
// of its packages are linked, and what that costs, is in docs/decisions/0005-cel.md.
//
// [CheckDeviceSelector] checks the expressions by which device classes and claims select devices (device.go).
//
// Nothing is done at start, nor when a type is compiled: the environment is built for the first rule of all, a rule is
// compiled when a value stands at its place for the first time, and what has been compiled is dropped when it has not
// been used for some time ([Cache]).
package cel
