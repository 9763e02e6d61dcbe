package main

import "testing"

func TestMemoryIsGivenBackOnceAfterWork(t *testing.T) {
	var idle idleness
	total := uint64(0)
	for i, period := range []struct {
		allocated uint64
		giveBack  bool
	}{
		{100 << 20, false}, // the start
		{idleBytes, true},
		{10, false}, // once is enough
		{0, false},
		{idleBytes + 1, false},
		{50 << 20, false},
		{idleBytes, true},
		{idleBytes, false},
	} {
		total += period.allocated
		if got := idle.passed(total); got != period.giveBack {
			t.Errorf("period %d, %d bytes allocated: memory is given back: %v", i, period.allocated, got)
		}
	}
}
