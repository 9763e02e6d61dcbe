package mutants

// Count is how many mutants there are, and Globals are those in the values of variables. A mutation run compiles
// another file in the place of this one.
var (
	Count   = 0
	Globals []int
)
