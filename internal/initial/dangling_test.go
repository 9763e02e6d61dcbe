package initial

import (
	"fmt"
	"testing"
	"time"
)

// A pace counts the writes of each object within a minute, and forgets those before.
func TestWritePace(t *testing.T) {
	p, now := &writePace{}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range mostWrites {
		if !p.may("a", now.Add(time.Duration(i)*time.Second)) {
			t.Errorf("write %d is put off", i)
		}
	}
	if p.may("a", now.Add(10*time.Second)) || !p.may("b", now.Add(10*time.Second)) {
		t.Error("each object has writes of its own")
	}
	if p.may("a", now.Add(writePeriod)) || !p.may("a", now.Add(writePeriod+time.Millisecond)) {
		t.Error("writes of more than a minute ago count, or younger ones do not")
	}
	if !p.may("c", now.Add(time.Hour)) || len(p.written) != 1 {
		t.Error(fmt.Sprint("it remembers ", p.written))
	}
}
