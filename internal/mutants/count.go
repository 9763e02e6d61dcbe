package mutants

// Count is the number of mutants, Globals are those in the values of variables, and Names are the names of all:
// Names[0] is number 1. A mutation run compiles another file in place of this one.
var (
	Count   = 0
	Globals []int
	Names   []string
)
