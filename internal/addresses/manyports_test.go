//go:build !race

package addresses_test

// manyPorts is a number of ports with which an algorithm of quadratic time would take minutes.
const manyPorts = 20_000
