// Package validation validates CustomResourceDefinitions as the reference does (VAL-1), with its paths, error types
// and texts.
//
// # Glossary
//
//   - definition: a CustomResourceDefinition.
//   - node: one schema in a definition, at any depth.
//   - structural: a schema is structural if every node declares the type of its values, and schemas below allOf,
//     anyOf, oneOf and not only restrict values and declare nothing.
//   - ratcheting: a rule does not apply to an update if the old object already breaks it.
//
// # Paths
//
// The reference validates an internal form of definitions. Members that are the same in all versions (schema,
// subresources, columns, selectable fields) are in spec there, and paths in errors show that form:
// spec.validation.openAPIV3Schema, not spec.versions[0].schema.openAPIV3Schema. See [definition].
//
// # Order
//
// Each schema is validated in steps: the structural rules, the defaults, the rules of OpenAPI, the CEL rules. Errors
// of one step may skip later ones. In the reference the last two steps are one walk; here CEL rules are last, and are
// given the nodes to skip.
//
// Definitions have been decoded and defaulted before. The engine validates their metadata (package objectmeta), with
// [Names] for the name.
package validation
