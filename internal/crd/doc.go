// Package crd makes served types of CustomResourceDefinitions (EXT-1): what a definition says becomes rows for the
// engine, as package builtin does for the built-in types.
//
// Nouns. A definition is an object of the type customresourcedefinitions; custom objects are what it defines. The names
// that a definition asks for are in its spec; those that it has are in its status (acceptedNames), and no two
// definitions of a group have the same. A definition is established when it has all the names that it has asked for:
// from then on it is served, also while it asks for other names.
//
// Three things are made of the collection of definitions, and each is as new as the store:
//
//   - the types that are served ([Definitions.Define], a view in the registry of the engine): names, columns,
//     selectors, and functions that compile a schema on first use
//   - who has which name (claims, a view): by it a definition is accepted or not
//   - what the server says of a definition in its status ([Definitions.report]), in the commit of the definition
//     itself: so a new type is served when the answer to its POST is there, and a name that is given up goes to who
//     waits for it in the same commit
//
// Compiled schemas are kept while they are used (types.go) and made again when they were let go: a definition that
// nobody uses costs its bytes and its names.
package crd
