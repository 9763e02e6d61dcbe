// Package mutants changes the rules of built-in and custom types one by one, and demands that a test notices each
// change: validation, defaults, columns, warnings, conversions, the validation of definitions, and protobuf.
//
// The mutants are found by package mutation; the tests are those of the product, which stand on what was recorded from
// the reference. "go test ./mutants" tries a sample of validation and of defaults, "go test ./mutants -all" (make
// nightly) tries every one.
//
// testdata has a file for each package. Its first line has the figures. Below it are the mutants that no test notices,
// a line each: those that are equivalent, with the reason why nothing can tell them from the original ("= name:
// reason"), and those that no test covers yet ("? name"). A mutant that is in the file and is noticed is an error, like
// one that is not in it and is not noticed. "go test ./mutants -all -update" writes the figures and the uncovered ones
// anew.
package mutants
