// Package mutants turns mutants on, small changes that a mutation run makes in another package. The product does not
// import it: it is called by the files that the run compiles in place of that package's (go build -overlay), and by the
// tests with the tag mutants. conformance/internal/mutation makes these files, conformance/mutants runs them.
//
// Exactly one mutant is on, or none: Active has its number. The environment variable PLINTH_MUTANT turns it on for a
// process; Set does so while the process runs. A Recorder tries many mutants on many inputs in one process.
package mutants
