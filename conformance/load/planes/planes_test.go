package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

func TestMain(m *testing.M) {
	if reader, err := load.Reading(os.Args); reader {
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	harness.Main(m)
}

// All parts are measured with a few planes, and no bound is broken: planes that nobody uses have no goroutines, hold
// little, are there after a kill, and leave nothing when they are deleted.
//
// SPEC: BEY-11
func TestFewPlanes(t *testing.T) {
	var out strings.Builder
	err := measure(t.Context(), settings{dir: t.TempDir(), planes: 60, maps: 10, alone: 20, busy: 30,
		lasts: time.Second, turns: 3, requests: 200}, names(), &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Error(err)
	}
	for _, part := range names() {
		if !strings.Contains(out.String(), "\n"+part+" ") {
			t.Errorf("the part %s has no figure", part)
		}
	}
}

// A bound that is broken is an error, a target that is missed is not.
func TestBounds(t *testing.T) {
	var out strings.Builder
	s := &subject{out: &out}
	s.target("p", "missed", 2, 1, "s")
	s.bound("p", "kept", 1, 1, "")
	if len(s.broken) > 0 {
		t.Errorf("without a broken bound: %v", s.broken)
	}
	s.bound("p", "broken", 2, 1, "")
	if len(s.broken) != 1 || strings.Count(out.String(), "missed") != 3 {
		t.Errorf("%d bounds are broken, of one; the table is\n%s", len(s.broken), &out)
	}
}

func TestInterval(t *testing.T) {
	values := make([]float64, 15)
	for i := range values {
		values[i] = float64(i + 1)
	}
	slices.Reverse(values)
	// Fewer than four of 15 are below the median in 1.8 % of all cases, fewer than five in 5.9 %.
	if low, high := interval(values); low != 4 || high != 12 {
		t.Errorf("the interval is from value %g to value %g", low, high)
	}
	if low, high := interval([]float64{2, 1}); low != 1 || high != 2 {
		t.Errorf("the interval of two values is from %g to %g", low, high)
	}
}
