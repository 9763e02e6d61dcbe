//go:build race

package addresses_test

// manyPorts is small under the race detector, which makes each of them ten times as slow.
const manyPorts = 2_000
