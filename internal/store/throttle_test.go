package store

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// SPEC: WATCH-1
func TestACrowdIsNotWokenForEachRecord(t *testing.T) {
	for _, processors := range []int{1, 2, 20, 128} {
		// most waiters cause a pause of maxPause; few is the largest number that causes none.
		most := int(maxPause/(4*wakeCost)) * processors
		few := int((minPause-1)/(4*wakeCost)) * processors
		t.Run(fmt.Sprint("processors=", processors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPace(t, processors, most, maxPause) })
			synctest.Test(t, func(t *testing.T) { testPace(t, processors, 3*most, maxPause) })
			synctest.Test(t, func(t *testing.T) { testPace(t, processors, most/2, maxPause/2) })
			synctest.Test(t, func(t *testing.T) { testNoRest(t, processors, few) })
		})
	}
}

// pacedFeed is a feed on a machine with the given number of processors.
type pacedFeed struct{ *feed }

func newPacedFeed(processors int) pacedFeed {
	return pacedFeed{&feed{waiting: newWaiting(), throttle: throttle{processors: processors}}}
}

func (f pacedFeed) wait(n int) *group {
	var g *group
	for range n {
		g = f.join(&Cursor{}, nil)
	}
	return g
}

func (f pacedFeed) record() {
	for _, g := range f.fire(&Record{}, nil) {
		close(g.wake)
	}
}

func woken(g *group) bool {
	synctest.Wait()
	select {
	case <-g.wake:
		return true
	default:
		return false
	}
}

// testPace wakes a number of waiters that causes a pause, repeatedly.
func testPace(t *testing.T, processors, crowd int, rest time.Duration) {
	f := newPacedFeed(processors)
	first := f.wait(crowd)
	f.record()
	if !woken(first) {
		t.Fatal("after a pause, the first record does not wake at once")
	}
	second := f.wait(crowd)
	f.record()
	third := f.wait(1)
	time.Sleep(rest - 1)
	f.record()
	if woken(second) || woken(third) {
		t.Fatal("watchers are woken during the pause")
	}
	time.Sleep(time.Nanosecond)
	if !woken(second) || !woken(third) {
		t.Fatal("watchers sleep on after the pause")
	}
	fourth := f.wait(crowd)
	f.record()
	time.Sleep(rest - 1)
	if woken(fourth) {
		t.Fatal("there is no pause after the pending wake-ups")
	}
	time.Sleep(1 + rest/10) // the batch had one more waiter
	if !woken(fourth) {
		t.Fatal("watchers sleep on after the second pause")
	}
	if f.throttle.processors != processors {
		t.Fatalf("the throttle computes with %d processors", f.throttle.processors)
	}
}

// testNoRest wakes a number of waiters that causes no pause.
func testNoRest(t *testing.T, processors, few int) {
	f := newPacedFeed(processors)
	for range 3 {
		g := f.wait(few)
		f.record()
		if !woken(g) {
			t.Fatalf("%d watchers have to wait", few)
		}
	}
}
