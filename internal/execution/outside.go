package execution

import (
	"bytes"
	"context"
	"runtime"
	"strconv"
	"sync"

	"plinth/internal/invariants"
)

// ofGoroutines has, while assertions are on, the place that a goroutine has entered, by the number of the goroutine. It
// may be outside; its state says so.
var ofGoroutines sync.Map

// entered and exited note which goroutine has a place.
func entered(p *Place) {
	if invariants.Enabled {
		ofGoroutines.Store(goroutine(), p)
	}
}

func exited(p *Place) {
	if invariants.Enabled {
		ofGoroutines.CompareAndDelete(goroutine(), p)
	}
}

// AssertOutside fails in tests if a place is held now, by the request of ctx or by the calling goroutine. Whatever
// waits for a disk, another process or a client calls it first, below all callers of which one could forget Outside.
// The goroutine is looked at, too, because the usual mistake has a context of its own: that of the server in the place
// of the request's.
//
// who is what is waited for.
func AssertOutside(ctx context.Context, who string) {
	if invariants.Enabled && inside(ctx) {
		invariants.Fail("execution: a goroutine waits for %s while its request holds a place", who)
	}
}

// inside says whether the request of ctx or the calling goroutine holds a place.
func inside(ctx context.Context) bool {
	if From(ctx).holds() {
		return true
	}
	p, _ := ofGoroutines.Load(goroutine())
	entered, _ := p.(*Place)
	return entered.holds()
}

// holds says whether the place is held. One that sends is not: it is taken away when others wait.
func (p *Place) holds() bool {
	if p == nil || p.band == nil {
		return false
	}
	l := p.band.share.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.state == held
}

// goroutine is the number of the calling goroutine. Only the text of its stack has it, which is good enough for tests.
func goroutine() uint64 {
	var text [64]byte
	_, after, _ := bytes.Cut(text[:runtime.Stack(text[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(after, []byte(" "))
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		invariants.Fail("execution: the stack begins with %q", text[:])
	}
	return n
}
