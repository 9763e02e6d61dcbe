// Package custom holds plinth/schema's custom types against the libraries of k8s.io/apiextensions-apiserver: the same
// schema, the same objects, and after each step the same: what decoding leaves of an object, which fields it reports as
// unknown, which error it refuses it with, what defaults fill in, which causes validation gives, on create, on update
// and on an update of status, and what the type is to a merge.
//
// Glossary. A schema is an openAPIV3Schema as JSON; a case is a schema, an object, and for updates the object that it
// replaces. Schemas come from a generator (schemas_test.go), one seed each, or are those of real definitions; objects
// are made to fit their schema and then damaged (objects_test.go).
//
//	go test ./custom -schemas 2000 -seed 7
//	go test ./custom -only 342 -seed 7
//
// A schema counts if the reference accepts a definition that has it. That each keyword has both let values pass and
// refused some is counted, and has a floor (coverage_test.go): a generator that has gone blind fails the test.
//
// Where the reference goes by the order of a Go map, causes are compared without their order.
package custom
