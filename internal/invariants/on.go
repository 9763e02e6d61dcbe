//go:build invariants || race

package invariants

// Enabled says whether assertions are on.
const Enabled = true
