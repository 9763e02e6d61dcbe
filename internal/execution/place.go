package execution

import (
	"context"
	"time"

	"plinth/internal/invariants"
)

// Place is the place of one request, which it may hold or not. Before Enter the methods do nothing, so that requests
// that need no place run the same code. It must not be copied after Enter.
//
// The goroutine of the request calls its methods. Others that work for it may call Leave and Return, too: while the
// request itself is outside, as it is whenever it waits for them, these have no effect.
//
//	none, out → held           Enter, Return: a place is free
//	none, out → waiting        Enter, Return: there is none
//	waiting → held             it is the next one
//	held → waiting             Yield, EndSend: another one is next
//	held → out                 Leave
//	held → sending             BeginSend
//	sending → held             EndSend
//	sending → out              it sends while others wait, see patience
//	held, sending, out → none  Exit
//	waiting → none             its context has ended, or Exit
type Place struct {
	band *Band // nil until Enter
	key  uint64

	// Guarded by the lock of the execution:
	seq        uint64
	state      state
	flow       *flow         // nil in the state none
	since      time.Duration // when it got its place, or began to wait
	paid       time.Duration // what its flow was charged for in advance
	next, prev *Place        // in the list of its flow
	sends      time.Duration // since when it sends
	sender     int           // its index in Limiter.senders while it sends
	wake       chan struct{} // receives when its waiting has ended; nil: it has never waited
}

type state uint8

const (
	none state = iota
	waiting
	held
	sending // and held
	out
)

// Enter waits for a place. key is that of the flow in the band. If ctx ends before there is a place, the error is that
// of ctx.
func (p *Place) Enter(ctx context.Context, b *Band, key uint64) error {
	p.band, p.key = b, key
	l := b.share.limiter
	l.mu.Lock()
	if invariants.Enabled && p.state != none {
		invariants.Fail("execution: a request enters in state %d", p.state)
	}
	l.seq++
	p.seq = l.seq
	now := l.now()
	l.attach(p, now)
	l.look(now)
	entered(p)
	return p.await(ctx, now)
}

// await takes a place. It is called with the lock held, and returns without it.
func (p *Place) await(ctx context.Context, now time.Duration) error {
	l := p.band.share.limiter
	if f := p.flow; l.free > 0 && !l.looking && f.first == nil && f.held < l.mostOfFlow(now) &&
		p.band.share.held < l.mostOfShare(now) {
		l.take(p, now)
		l.mu.Unlock()
		return nil
	}
	l.push(p, now)
	l.fill(now)
	l.mu.Unlock()
	return p.wait(ctx)
}

// wait waits until serve or Exit has woken the request, or ctx has ended.
func (p *Place) wait(ctx context.Context) error {
	select {
	case <-p.wake:
		return nil
	case <-ctx.Done():
	}
	l := p.band.share.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state != waiting { // it was woken at the same time
		<-p.wake
		return nil
	}
	l.pull(p, l.now())
	p.end()
	return ctx.Err()
}

// end ends the account. The caller holds the lock.
func (p *Place) end() {
	p.state = none
	p.band.share.limiter.detach(p)
}

// Leave gives the place back until Return, and says whether the request had one. If it had none, Return must not be
// called.
func (p *Place) Leave() bool {
	if p == nil || p.band == nil {
		return false
	}
	l := p.band.share.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state != held {
		return false
	}
	p.state = out
	l.giveBack(p, l.now())
	return true
}

// Return waits for a place again. If ctx ends before there is one, the error is that of ctx, and the request goes on
// without: it is expected to end soon.
func (p *Place) Return(ctx context.Context) error {
	l := p.band.share.limiter
	l.mu.Lock()
	if p.state != out { // the request has ended
		l.mu.Unlock()
		return nil
	}
	return p.await(ctx, l.now())
}

// BeginSend is called before something is written to the client, which may take long or wait, and says whether EndSend
// is to be called. While the request sends, its place may be taken away.
func (p *Place) BeginSend() bool {
	if p.band == nil {
		return false
	}
	l := p.band.share.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state != held {
		return false
	}
	now := l.now()
	p.state, p.sends, p.sender = sending, now, len(l.senders)
	l.senders = append(l.senders, p)
	l.arm(now)
	return true
}

// EndSend waits for a place again if it was taken away, and otherwise lets others go first as Yield does. The error is
// that of ctx, as in Return.
func (p *Place) EndSend(ctx context.Context) error {
	l := p.band.share.limiter
	l.mu.Lock()
	switch p.state {
	case sending:
		l.unlist(p)
		p.state = held
		return p.yield(ctx)
	case out:
		return p.await(ctx, l.now())
	}
	l.mu.Unlock()
	return nil
}

// Yield is called between two parts of long work. If the request has had its place for a while, and another one is
// next, it lets that one go first. The error is that of ctx, as in Return.
func (p *Place) Yield(ctx context.Context) error {
	if p == nil || p.band == nil || p.band.share.limiter.waiters.Load() == 0 {
		return nil
	}
	l := p.band.share.limiter
	l.mu.Lock()
	return p.yield(ctx)
}

// yield is called with the lock held, and returns without it.
func (p *Place) yield(ctx context.Context) error {
	l := p.band.share.limiter
	if p.state != held || l.waiting == 0 {
		l.mu.Unlock()
		return nil
	}
	now := l.now()
	if now-p.since < atLeast {
		l.mu.Unlock()
		return nil
	}
	l.untake(p, now)
	l.push(p, now)
	l.look(now)
	kept := false
	for next := l.next(now); next != nil && !l.looking; next = l.next(now) {
		if kept = next == p; kept {
			l.pull(p, now)
			l.take(p, now)
			break
		}
		l.serve(next, now)
	}
	if kept {
		l.fill(now)
		l.mu.Unlock()
		return nil
	}
	l.arm(now)
	l.mu.Unlock()
	return p.wait(ctx)
}

// Exit gives the place back for good, if the request has one. It may be called more than once.
func (p *Place) Exit() {
	if p.band == nil {
		return
	}
	exited(p)
	l := p.band.share.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	switch p.state {
	case none:
		return
	case held, sending:
		if p.state == sending { // its write has panicked
			l.unlist(p)
		}
		l.giveBack(p, l.now())
	case waiting: // on another goroutine, which has to go on
		l.pull(p, l.now())
		p.wake <- struct{}{}
	}
	p.end()
}

// key is that of the Place in a context.
type key struct{}

// With returns a context that has the place. A nil Place hides that of ctx, for work that outlives the request.
func With(ctx context.Context, p *Place) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the place of the request of a context; nil: it has none.
func From(ctx context.Context) *Place {
	p, _ := ctx.Value(key{}).(*Place)
	return p
}

// Sending runs write, which writes to the client of the request whose context it is, as between BeginSend and EndSend.
func Sending(ctx context.Context, write func()) {
	p := From(ctx)
	if p == nil || !p.BeginSend() {
		write()
		return
	}
	write()
	_ = p.EndSend(ctx) // the next write finds out that the context has ended
}

// Outside runs wait without the place of the request whose context it is. If wait panics, the request has no place
// from then on.
func Outside(ctx context.Context, wait func()) {
	p := From(ctx)
	if !p.Leave() {
		wait()
		return
	}
	wait()
	_ = p.Return(ctx) // the caller finds out by itself that its context has ended
}
