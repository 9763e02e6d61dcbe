// Package validation says what the reference refuses of a CustomResourceDefinition (VAL-1), with its paths, types and
// texts.
//
// Glossary. A definition is a CustomResourceDefinition. A node is one schema of a definition, at any depth. A schema is
// structural if every node says of which type its values are, and if what stands below allOf, anyOf, oneOf and not says
// of values only what they may be, and not what they are.
//
// Paths. The reference validates a form of definitions that only it has: what is the same in all versions (schema,
// subresources, columns, selectable fields) stands in spec itself there, and paths tell of it so, however many versions
// there are: spec.validation.openAPIV3Schema, not spec.versions[0].schema.openAPIV3Schema. See [definition].
//
// Order of work. Each schema is looked at in steps, and a step that finds something can keep a later one from being
// taken: the structural rules, the defaults, the rules of OpenAPI, the CEL rules. The last two walk the schema together
// in the reference; here CEL rules come last, and are told which nodes not to look at.
//
// Definitions have been decoded and defaulted before. Their metadata is the engine's to check (package objectmeta),
// with what [Names] says of the name.
package validation
