// Package invariants says whether the program checks itself while it runs. Tests are built with `-tags invariants`, or with the
// race detector, and check things that cost too much for a release: where they do not hold, the program panics.
package invariants
