// Package crd turns CustomResourceDefinitions into served types (EXT-1). It creates the same rows for the engine that
// package builtin has for the built-in types.
//
// # Glossary
//
//   - definition: an object of the type customresourcedefinitions.
//   - custom object: an object of a type that a definition defines.
//   - accepted names: the names that a definition has (status.acceptedNames), as opposed to those that it requests
//     (spec.names). In a group a name is accepted for at most one definition.
//   - established: a definition is established once all names that it first requested are accepted. From then on it is
//     served, even if it later requests names that it cannot have.
//
// # What is derived from definitions
//
// Three things are derived from the collection of definitions, and each is as new as the store:
//
//   - the served types ([Definitions.Define], a view in the engine's registry): names, columns, selectors, and
//     functions that compile a schema on first use
//   - the index of names (nameindex.go, a view), which decides whether a name can be accepted
//   - the status of definitions ([Definitions.serverStatus]), which is written in the same commit as the definition. So
//     a new type is served when the response to its POST arrives, and a name that is given up is accepted in the same
//     commit for a definition that waits for it.
//
// Compiled schemas are kept while they are used (types.go) and compiled again when they are needed later. A definition
// that is not used takes the memory of its bytes and its names.
package crd
