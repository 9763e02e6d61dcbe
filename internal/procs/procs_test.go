package procs

import (
	"runtime"
	"testing"
	"time"
)

// within waits until the process uses so many processors.
func within(t *testing.T, d time.Duration, want int) {
	t.Helper()
	for end := time.Now().Add(d); runtime.GOMAXPROCS(0) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processors, want %d", runtime.GOMAXPROCS(0), want)
		}
	}
}

func TestGovernor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(4) // whatever the machine has
	defer runtime.GOMAXPROCS(before)
	g := New()
	g.all = func() { runtime.GOMAXPROCS(4) }
	time.Sleep(3 * calm)
	within(t, 0, 4) // nobody has said that the process is up
	for range 3 {
		g.Crowd()
		within(t, 10*time.Second, 4)
		for range 5 { // a crowd that stays
			time.Sleep(calm / 4)
			g.Crowd()
			within(t, 10*time.Second, 4)
		}
		within(t, 10*time.Second, 1)
	}
	g.Stop()
	within(t, 0, 4)
	g.Crowd()
	time.Sleep(3 * calm)
	within(t, 0, 4)
	g.rest() // which had begun when it was stopped
	within(t, 0, 4)
}

func TestNoGovernor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	if New() != nil {
		t.Error("what the environment says does not count")
	}
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	g := New()
	if g != nil {
		t.Error("there is something to be won with one processor")
	}
	g.Crowd()
	g.Stop()
}
