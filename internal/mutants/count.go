package mutants

// Count is how many mutants there are, Globals are those in the values of variables, and Names has what each is called:
// Names[0] is number 1. A mutation run compiles another file in the place of this one.
var (
	Count   = 0
	Globals []int
	Names   []string
)
