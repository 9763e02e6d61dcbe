package httpapi

import (
	"context"
	"sync/atomic"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// Slots bounds how many requests are served at the same time, and refuses those above the bound. Reads and writes share
// the slots, or each have their own.
type Slots struct {
	of [LongRunning]*slots // by class
}

// slots is a number of slots, of which taken are held by requests.
//
//	taken ≤ limit + calls of acquire that are about to refuse
type slots struct {
	limit int64 // 0: no limit
	taken atomic.Int64
	free  func() // gives a slot back; made once, so that a request does not allocate it
}

func newSlots(limit int) *slots {
	s := &slots{limit: int64(limit)}
	s.free = func() { s.taken.Add(-1) }
	return s
}

// NewSlots returns the slots of requests that read and of those that write. If mutating is nil, both share the first
// number. 0 is no limit.
func NewSlots(readOnly int, mutating *int) *Slots {
	reads := newSlots(readOnly)
	s := &Slots{of: [LongRunning]*slots{ReadOnly: reads, Mutating: reads}}
	if mutating != nil {
		s.of[Mutating] = newSlots(*mutating)
	}
	return s
}

// Acquire takes a slot (Config.Acquire). As in the reference's priority level "exempt", health probes and members of
// system:masters take none, so that an overloaded server can still be examined.
func (s *Slots) Acquire(_ context.Context, class Class, asked *access.Attributes) (release func(), err error) {
	if class == LongRunning || s.of[class].limit == 0 || asked.User.In(access.Masters) || probes(asked) {
		return nil, nil
	}
	return s.of[class].acquire()
}

// acquire raises the counter first and compares it afterwards. Comparing first would let two requests take the last
// slot.
func (s *slots) acquire() (release func(), err error) {
	if s.taken.Add(1) <= s.limit {
		return s.free, nil
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
