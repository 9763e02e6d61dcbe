package samplelog

import (
	"testing"
	"time"
)

func TestSampler(t *testing.T) {
	var s Sampler
	now := time.Unix(1000, 0)
	for i := range 3 * PerSecond {
		if skipped, ok := s.allow(now); ok != (i < PerSecond) || skipped != 0 {
			t.Errorf("line %d: %v, %d skipped", i, ok, skipped)
		}
	}
	if skipped, ok := s.allow(now.Add(time.Second)); !ok || skipped != 2*PerSecond {
		t.Errorf("first line of the next second: %v, %d skipped", ok, skipped)
	}
	if skipped, ok := s.allow(now.Add(time.Second)); !ok || skipped != 0 {
		t.Errorf("its second line: %v, %d skipped", ok, skipped)
	}
}
