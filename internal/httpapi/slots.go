package httpapi

import (
	"context"
	"sync/atomic"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/fairness"
)

// Slots bounds how many requests are served at the same time, and refuses those above the bound. Reads and writes share
// the slots, or each have their own. In a plane that has a share of the process, they need a seat of it, too.
type Slots struct {
	of    [LongRunning]*slots // by class
	share *fairness.Share     // nil: none
	give  func()              // gives a seat of it back
}

// slots is a number of slots, of which taken are held by requests.
//
//	taken ≤ limit + calls of acquire that are about to refuse
type slots struct {
	limit int64 // 0: no limit
	taken atomic.Int64
	// free gives a slot back, and freeBoth the seat of the share, too; made once, so that a request does not allocate
	// them.
	free, freeBoth func()
}

func newSlots(limit int, share *fairness.Share) *slots {
	s := &slots{limit: int64(limit)}
	s.free = func() { s.taken.Add(-1) }
	s.freeBoth = func() {
		s.free()
		share.Give()
	}
	return s
}

// NewSlots returns the slots of requests that read and of those that write. If mutating is nil, both share the first
// number. 0 is no limit. share is what the plane has of the process; nil: there is no other limit.
func NewSlots(readOnly int, mutating *int, share *fairness.Share) *Slots {
	reads := newSlots(readOnly, share)
	s := &Slots{of: [LongRunning]*slots{ReadOnly: reads, Mutating: reads}, share: share}
	if mutating != nil {
		s.of[Mutating] = newSlots(*mutating, share)
	}
	if share != nil {
		s.give = share.Give
	}
	return s
}

// Acquire takes a slot (Config.Acquire). As in the reference's priority level "exempt", health probes and members of
// system:masters take none, so that an overloaded server can still be examined. The seat of the share they take, unless
// it exempts them.
func (s *Slots) Acquire(_ context.Context, class Class, asked *access.Attributes) (release func(), err error) {
	if class == LongRunning {
		return nil, nil
	}
	exempt := asked.User.In(access.Masters) || probes(asked)
	of := s.of[class]
	if s.share == nil || exempt && s.share.Exempts() {
		if exempt || of.limit == 0 {
			return nil, nil
		}
		return of.acquire(of.free)
	}
	if !s.share.Take() {
		return nil, errTooMany()
	}
	if exempt || of.limit == 0 {
		return s.give, nil
	}
	if release, err = of.acquire(of.freeBoth); err != nil {
		s.share.Give()
	}
	return release, err
}

// acquire takes a slot, which release gives back. It raises the counter first and compares it afterwards. Comparing
// first would let two requests take the last slot.
func (s *slots) acquire(release func()) (func(), error) {
	if s.taken.Add(1) <= s.limit {
		return release, nil
	}
	s.free()
	return nil, errTooMany()
}

// errTooMany refuses a request for want of a slot or of memory.
func errTooMany() error {
	return apierr.NewTooManyRequests("Too many requests, please try again later.", 1)
}

// probes says whether a request is a health probe: the paths of the reference's flow schema "probes".
func probes(asked *access.Attributes) bool {
	return asked.Verb == "get" && (asked.Path == "/healthz" || asked.Path == "/livez" || asked.Path == "/readyz")
}
