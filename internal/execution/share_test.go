package execution

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// flood starts n requests of a share, each of a band and a flow of its own, until it has begun them all.
func (s *scene) flood(of *Share, n int, work func(context.Context, *Place)) {
	for i := range n {
		s.start("flood", of.Band(), uint64(i), work)
	}
}

// turns returns how often requests of a name have got a place.
func (s *scene) turns() (count map[string]int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	count = map[string]int{}
	for _, name := range s.ran {
		count[name]++
	}
	return count
}

func (s *scene) clear() {
	synctest.Wait()
	s.mu.Lock()
	s.ran = nil
	s.mu.Unlock()
}

// SPEC: BEY-9
// While one plane floods with many levels and users, whose requests take long, the one request of another plane
// executes after a moment, in which no place has come free.
func TestOneRequestBesideFlood(t *testing.T) {
	inScene(t, 2, 2, func(s *scene) {
		end := make(chan struct{})
		s.flood(s.share, 50, func(context.Context, *Place) { <-end })
		if held := s.share.Held(); held != 2+bandsBeyond {
			t.Errorf("a flood of 50 levels holds %d places", held)
		}
		s.clear()
		s.start("other", s.l.Share(1).Band(), 1, takes(0))
		time.Sleep(patience)
		s.wants("other")
		close(end)
	})
	// Where places come free, the next one is that of the other plane.
	inScene(t, 2, 2, func(s *scene) {
		s.flood(s.share, 50, takes(50*time.Microsecond))
		time.Sleep(210 * time.Microsecond)
		s.clear()
		s.start("other", s.l.Share(1).Band(), 1, takes(0))
		time.Sleep(40 * time.Microsecond)
		if count := s.turns(); count["other"] != 1 || count["flood"] > 10 {
			t.Errorf("beside a flood of short requests %v", count)
		}
	})
}

// SPEC: BEY-9
// However many planes come at the same time with requests that take long, one more of them executes after each moment
// without change, up to a bound. The others follow in the order of their coming.
func TestPlacesBeyondAreBounded(t *testing.T) {
	inScene(t, 2, 2, func(s *scene) {
		end := make(chan struct{})
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprint("plane", i))
			s.start(all[i], s.l.Share(1).Band(), 1, func(context.Context, *Place) { <-end })
		}
		for i := range 2 * s.l.sharesBeyond() {
			if f := s.l.Figures(); f.Held != min(2+i, 2+s.l.sharesBeyond()) || f.Waiting != 40-f.Held {
				t.Errorf("after %d times the patience %+v", i, f)
			}
			time.Sleep(patience)
			synctest.Wait()
		}
		for range 40 {
			end <- struct{}{}
			synctest.Wait()
		}
		s.wants(all...)
	})
}

// SPEC: BEY-9
// Planes get time in proportion to their weights, whatever the number of their levels and users and the length of their
// requests.
func TestShares(t *testing.T) {
	for weight, least := range map[int]float64{1: 0.45, 3: 0.7, 7: 0.825} {
		inScene(t, 1, 1, func(s *scene) {
			heavy := s.l.Share(7)
			heavy.SetWeight(weight)
			band := heavy.Band()
			for i := range 8 {
				b := s.share.Band()
				b.SetWeight(100)
				for j := range 50 {
					s.start("many", b, uint64(i*50+j), takes(500*time.Microsecond))
				}
			}
			for range 200 {
				s.start("heavy", band, 1, takes(time.Millisecond))
			}
			time.Sleep(100 * time.Millisecond)
			count := s.turns()
			part := float64(count["heavy"]) / (float64(count["heavy"]) + float64(count["many"])/2)
			if part < least || part > least+0.1 {
				t.Errorf("one level of a plane of weight %d has %.2f of the time beside eight of another: %v", weight, part,
					count)
			}
		})
	}
}

// SPEC: BEY-9
// A plane that has wanted nothing for a while has saved nothing, and one that was alone has no debt for that.
func TestSharesSaveNothing(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		rested, busy := s.l.Share(1), s.share.Band()
		s.start("rested", rested.Band(), 1, takes(time.Millisecond))
		for range 600 {
			s.start("busy", busy, 1, takes(100*time.Microsecond))
		}
		time.Sleep(40 * time.Millisecond)
		band := rested.Band()
		for range 100 {
			s.start("rested", band, 1, takes(100*time.Microsecond))
		}
		s.clear()
		time.Sleep(10 * time.Millisecond)
		if count := s.turns(); count["rested"] < 45 || count["rested"] > 55 || count["busy"] < 45 {
			t.Errorf("in 10 ms of two planes %v", count)
		}
	})
}

// SPEC: BEY-9
// A plane that has executed long has its turn again, although there are always requests of planes that have not
// executed at all.
func TestNoShareStarves(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		s.start("first", b, 1, takes(50*time.Millisecond))
		var done atomic.Bool
		s.start("second", b, 1, func(context.Context, *Place) { done.Store(true) })
		for range 20 { // more than get places beyond the number
			s.start("new", s.l.Share(1).Band(), 9, takes(time.Millisecond))
		}
		time.Sleep(50 * time.Millisecond)
		for range 2000 {
			s.start("new", s.l.Share(1).Band(), 9, takes(time.Millisecond))
			time.Sleep(time.Millisecond)
			if done.Load() {
				return
			}
		}
		t.Error("a request waits while planes come and go")
	})
}

// SPEC: BEY-9
// A plane alone may have all places with many users. While others come it has fewer, and the others have the rest at
// once; a level of it that has none still gets one.
func TestOneShareBesideOthers(t *testing.T) {
	inScene(t, 4, 1, func(s *scene) {
		low, high, other := s.share.Band(), s.share.Band(), s.l.Share(1).Band()
		end := make(chan struct{})
		wait := func(context.Context, *Place) { <-end }
		for i := range 4 {
			s.start("low", low, uint64(i%2), wait)
		}
		time.Sleep(memory)
		s.start("other", other, 1, takes(0))
		for range 4 {
			end <- struct{}{}
			synctest.Wait()
		}
		for i := range 4 {
			s.start("low", low, uint64(i), wait)
		}
		if held := s.share.Held(); held != 1 {
			t.Errorf("a plane beside another one has %d places", held)
		}
		s.clear()
		s.start("high", high, 1, wait)
		s.start("other", other, 1, takes(0))
		s.wants("high", "other")
		close(end)
	})
}

// SPEC: BEY-9
// A level gets no place beyond the number while its plane has had more than its part, and gets one when the part has
// grown to that, although no place is given back.
func TestLevelOfShareOverItsPart(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		s.share.SetWeight(2)
		low, mid, high := s.share.Band(), s.share.Band(), s.share.Band()
		s.start("low", low, 1, takes(time.Second))
		s.start("mid", mid, 1, takes(4*time.Millisecond)) // alone it has a part of all
		s.start("high", high, 1, takes(4*time.Millisecond))
		time.Sleep(2 * time.Millisecond) // 6 ms of 6
		s.start("other", s.l.Share(1).Band(), 1, takes(time.Second))
		time.Sleep(2001 * time.Microsecond) // 12 ms of 6 + 2/3 · 8
		s.start("high again", high, 1, takes(0))
		s.wants("low", "mid", "high", "other")
		// The share has two thirds of what two places give, and uses one half: the rest is made up for in 2 ms.
		time.Sleep(1900 * time.Microsecond)
		s.wants("low", "mid", "high", "other")
		time.Sleep(110 * time.Microsecond)
		s.wants("low", "mid", "high", "other", "high again")
	})
}
