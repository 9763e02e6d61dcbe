package soak

import (
	"flag"
	"testing"

	"plinth/conformance/internal/harness"
)

var full = flag.Bool("full", false, "as long and as much as the requirements say: minutes")

func TestMain(m *testing.M) { harness.Main(m) }

// scale picks the short or the full size of something.
func scale[T any](short, all T) T {
	if *full {
		return all
	}
	return short
}
