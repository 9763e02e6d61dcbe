package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// SPEC: WATCH-1
func TestACrowdIsNotWokenForEachRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd = 1000
		f := &feed{waiting: newWaiting()}
		join := func(n int) *group {
			var g *group
			for range n {
				g = f.join("", Term{})
			}
			return g
		}
		fire := func() {
			for _, g := range f.fire(&Record{}, nil) {
				close(g.wake)
			}
		}
		woken := func(g *group) bool {
			synctest.Wait()
			select {
			case <-g.wake:
				return true
			default:
				return false
			}
		}

		first := join(crowd)
		fire()
		if !woken(first) {
			t.Fatal("a crowd that has rested waits")
		}
		second := join(crowd)
		fire()
		third := join(1)
		time.Sleep(maxRest / 2)
		fire()
		if woken(second) || woken(third) {
			t.Fatal("a crowd is woken in its rest")
		}
		time.Sleep(maxRest / 2)
		if !woken(second) || !woken(third) {
			t.Fatal("a crowd sleeps on after its rest")
		}
		fourth := join(crowd)
		fire()
		if woken(fourth) {
			t.Fatal("there is no rest behind the batch")
		}
		time.Sleep(2 * maxRest)
		if !woken(fourth) {
			t.Fatal("a crowd sleeps on after its second rest")
		}

		for range 3 {
			few := join(2)
			fire()
			if !woken(few) {
				t.Fatal("a few have to wait")
			}
		}
	})
}
