package httpapi

import (
	"sync"

	"plinth/internal/invariants"
)

// stalls bounds the memory of all answers that wait for their clients. guard bounds how long one answer waits, but a
// client may have thousands of them: HTTP/2 streams that it has given no window, and connections from which it does
// not read. Stored versions are shared by all answers that send them (wire.Parts). What an answer has alone is counted
// here: text in an encoding that is not kept, converted objects, a compressor.
//
//	bytes = Σ g.private over the listed guards
//	bytes ≤ limit, or there is one listed guard
//	listed ⇔ the write is under way, has more than eventBuffer private bytes, and was not ended for its memory
//
// Above the limit, the answer ends whose write has lasted longest: clients that read make their writes short, so it is
// most probably one that does not. Refusing the new answer would let the clients that do not read keep all others out.
//
// Writes with fewer private bytes are not counted: those belong to the fixed cost of a stream, as its stack does, and
// most writes need no lock therefore.
type stalls struct {
	limit int64

	mu     sync.Mutex
	bytes  int64
	oldest *guard // the listed guards, in the order in which their writes began
	newest *guard
}

// add lists the guard of a write that begins, and ends the writes that have lasted longest while there are too many
// bytes.
func (s *stalls) add(g *guard, private int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.private, g.before = private, s.newest
	if s.newest == nil {
		s.oldest = g
	} else {
		s.newest.after = g
	}
	s.newest = g
	s.bytes += private
	for s.bytes > s.limit && s.oldest != g {
		longest := s.oldest
		s.unlist(longest)
		longest.timer.Reset(0) // calls cut
	}
	if invariants.Enabled {
		s.check()
	}
}

// remove takes the guard of a write that has ended from the list, unless add has done that.
func (s *stalls) remove(g *guard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.private > 0 {
		s.unlist(g)
	}
	if invariants.Enabled {
		s.check()
	}
}

// unlist is called under the lock.
func (s *stalls) unlist(g *guard) {
	if g.before == nil {
		s.oldest = g.after
	} else {
		g.before.after = g.after
	}
	if g.after == nil {
		s.newest = g.before
	} else {
		g.after.before = g.before
	}
	s.bytes -= g.private
	g.private, g.before, g.after = 0, nil, nil
}

// check asserts the invariants of the list.
func (s *stalls) check() {
	sum, n := int64(0), 0
	var last *guard
	for g := s.oldest; g != nil; last, g = g, g.after {
		if g.private <= 0 || g.before != last {
			invariants.Fail("httpapi: a listed guard has %d bytes, and another guard before it: %v", g.private, g.before != last)
		}
		sum += g.private
		n++
	}
	if sum != s.bytes || s.newest != last || s.bytes > s.limit && n > 1 {
		invariants.Fail("httpapi: %d bytes are counted in %d writes that wait with %d, the limit is %d", s.bytes, n, sum, s.limit)
	}
}
