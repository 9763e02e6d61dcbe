// Package custom compares the custom types of plinth/schema with the libraries of k8s.io/apiextensions-apiserver. For
// the same schema and the same objects, after each step, these have to be equal: the decoded object, the fields
// reported as unknown, the error, the defaults, the causes of validation on create, update and update of status, and
// how a merge sees the type.
//
// Glossary. A schema is an openAPIV3Schema as JSON; a case is a schema, an object, and for updates the object that it
// replaces. Schemas come from a generator (schemas_test.go), one seed each, or from real definitions; objects are made
// to fit their schema and then damaged (objects_test.go).
//
//	go test ./oracle/custom -schemas 2000 -seed 7
//	go test ./oracle/custom -only 342 -seed 7
//
// A schema counts if the reference accepts a definition with it. The values that each keyword accepts and refuses are
// counted, and each count has a floor (coverage_test.go), so that a generator that no longer produces them fails the
// test.
//
// Where the reference's order follows the iteration of a Go map, causes are compared without their order.
package custom
