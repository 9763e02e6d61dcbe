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
		// The fewest waiters that rest for maxPause, the most that need no rest, and some between.
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

// pacedFeed is a feed on a machine with so many processors.
type pacedFeed struct{ *feed }

func newPacedFeed(processors int) pacedFeed {
	return pacedFeed{&feed{waiting: newWaiting(), throttle: throttle{processors: processors}}}
}

func (f pacedFeed) wait(n int) *group {
	var g *group
	for range n {
		g = f.join("", Term{})
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

// testPace has a crowd that rests for so long, again and again.
func testPace(t *testing.T, processors, crowd int, rest time.Duration) {
	f := newPacedFeed(processors)
	first := f.wait(crowd)
	f.record()
	if !woken(first) {
		t.Fatal("a crowd that has rested waits")
	}
	second := f.wait(crowd)
	f.record()
	third := f.wait(1)
	time.Sleep(rest - 1)
	f.record()
	if woken(second) || woken(third) {
		t.Fatal("a crowd is woken in its rest")
	}
	time.Sleep(time.Nanosecond)
	if !woken(second) || !woken(third) {
		t.Fatal("a crowd sleeps on after its rest")
	}
	fourth := f.wait(crowd)
	f.record()
	time.Sleep(rest - 1)
	if woken(fourth) {
		t.Fatal("there is no rest behind the batch")
	}
	time.Sleep(1 + rest/10) // the batch had one waiter more
	if !woken(fourth) {
		t.Fatal("a crowd sleeps on after its second rest")
	}
	if f.throttle.processors != processors {
		t.Fatalf("the throttle reckons with %d processors", f.throttle.processors)
	}
}

// testNoRest has a few that need no rest.
func testNoRest(t *testing.T, processors, few int) {
	f := newPacedFeed(processors)
	for range 3 {
		g := f.wait(few)
		f.record()
		if !woken(g) {
			t.Fatalf("%d have to wait", few)
		}
	}
}
