// Package mutation changes a Go package in many small ways, to find out which of the changes its tests notice.
//
// A mutant is one change: a condition that is always true or always false, a bound that is off by one, a statement, a
// row of a table or a function in it that is missing, another text, another number. All mutants of a package are
// compiled into one program, in which the environment variable PLINTH_MUTANT turns one of them on; so a package is
// built once, and a mutant costs one run of the tests that reach it.
//
// Parse finds the mutants, by the syntax tree and the types; Package.Overlay writes what is to be compiled in the place
// of the package's files (go build -overlay). The changed files call package plinth/internal/mutants, which turns
// mutants on.
package mutation
