package execution

import (
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/invariants"
)

// Limiter gives out places. Its methods, and those of its shares, bands and places, may be called concurrently.
//
//	free + number of requests that hold a place = places    active = number of bands of which a request holds one
//	free > 0  ⇒  all flows of which a request waits, or their shares, hold as many places as they may, or looking
//	free < 0  ⇒  −free < active and −free ≤ sharesBeyond, see beyond
//	s in busy  ⇔  a request of s waits
//
// A place that is given back goes to the request that is next at once, under the lock: a request that arrives at that
// moment cannot overtake it.
//
// A flow may hold all places while it is the only one, but fewer than there are processors if another flow has had a
// request within the last seconds (crowded). A flow that keeps all processors busy slows others down even if they never
// wait for a place, because Go's scheduler looks for what has arrived from the network when a processor has nothing to
// do, and otherwise only every 10 ms. Places alone do not prevent that: connections read, decrypt and route requests
// before these come here, and these goroutines are ready to run, too. So while it is crowded, and there are more
// requests than places, the limiter now and then gives out no place until the scheduler has run what was ready and has
// looked at the network (look). The same bound is that of a share beside others, whatever the number of its flows.
//
// A request cannot be interrupted, and some take long. So that those of one share or level cannot keep out another one,
// a share or a band that holds no place, and has not spent more than its part, gets one beyond the number of places
// (beyond).
//
// Time is shared by virtual times, as in hierarchical fair queuing of packets: first among shares, then among the bands
// of a share, then among the flows of a band. An account says what a share, a band or a flow has spent, per unit of its
// weight (a flow has the weight 1), and the one that has spent least is next. The virtual time is what each one that
// wants places would have spent if all had been served at the same time:
//
//	account += held / weight    virtual time += Σ held / Σ weights of those that want or have places
//
// Each share has a virtual time for its bands, which runs by the places that the share holds. So a plane with many
// levels and users gets no more than one with few, and how it divides its part is its own business. One level of
// accounts, with the product of the weights, would not do that: the part of a plane would grow with the number of its
// levels that want places.
//
// Who wanted nothing for a while begins with the virtual time: it cannot save up what it did not use. The virtual time
// overtakes one that has spent more than others, so none waits for ever, even if new ones always come.
type Limiter struct {
	began   time.Time // the origin of all times here
	waiters atomic.Int32

	mu      sync.Mutex
	places  int
	most    int // places that one flow or one share may hold while others come, too
	free    int
	active  int   // bands
	waiting int   // = waiters
	clock   clock // of the shares
	busy    []*Share
	senders []*Place      // that hold a place and send
	timer   *time.Timer   // calls revoke; nil before its first use
	armed   bool          // the timer runs
	alarm   time.Duration // until then
	seq     uint64        // requests that have entered
	present int           // requests that have entered, and have not ended
	given   time.Duration // when a request got a place
	handed  uint64        // places that were handed over
	waited  time.Duration // for them

	// The newest request came at the time arrived, of the flow newestFlow of newestBand. otherArrived is when the last
	// one of another flow came, and otherShareArrived when that of another share did.
	newestBand                               *Band
	newestFlow                               uint64
	arrived, otherArrived, otherShareArrived time.Duration
	spare                                    []*flow // to use again

	polled  func()        // waits for the scheduler to look at the network
	looking bool          // no place is given until it has
	looked  time.Duration // when it had, the last time
	took    time.Duration // how long that took
}

// assumed is the time that a flow and its band are charged when a request gets a place. It is replaced by the real time
// when the place is given back. Without it, the flow that has spent least would get all places that become free until
// the first of its requests gives one back.
const assumed = 200 * time.Microsecond

// patience is how long a request that sends keeps its place when others wait. To send is work, too, most of the work of
// a long list: it is encrypted and copied into the kernel, by goroutines of the connection. Without a bound on how many
// requests send at one time, these would be ready by the hundred, as the requests were. But a client that does not read
// makes a write wait for ever, and nothing shows the difference but time. It is also how long no place is given to
// anyone before a share gets one beyond their number.
const patience = 200 * time.Microsecond

// atLeast is how long a request holds its place before Yield lets others go first: to change places takes time, too.
const atLeast = 200 * time.Microsecond

// lookEvery is how long places are given before the scheduler has to look at the network again. A look costs about as
// much as to wake two goroutines. A request that arrives is read after about this time, and after what is ready to run
// then; without looks, up to 10 ms later.
const lookEvery = 200 * time.Microsecond

// longestDebt is by how much a flow or a band may have spent more than others when it begins to wait.
const longestDebt = 100 * time.Millisecond

// memory is how long after its last request a flow still counts as one of several, see crowded.
const memory = 10 * time.Second

// New makes a Limiter with so many places, of which one flow or share may hold as many as most while others come, too.
func New(places, most int) *Limiter {
	return &Limiter{began: time.Now(), places: places, most: most, free: places, arrived: -memory, otherArrived: -memory,
		otherShareArrived: -memory, polled: new(poller).wait}
}

// Figures are figures about a Limiter, for metrics.
type Figures struct {
	Places, Held, Waiting int
	HandedOver            uint64        // places that a request has waited for and got
	Waited                time.Duration // for all of them
}

// Figures returns the figures.
func (l *Limiter) Figures() Figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Figures{l.places, l.places - l.free, l.waiting, l.handed, l.waited}
}

// now returns the time, after it has advanced the virtual time of the shares: the state so far has lasted until now.
func (l *Limiter) now() time.Duration {
	now := time.Since(l.began)
	l.clock.advance(now, l.places-l.free)
	return now
}

// attach makes a request one of its flow.
func (l *Limiter) attach(p *Place, now time.Duration) {
	b := p.band
	f := b.flows[p.key]
	if f == nil {
		if n := len(l.spare); n > 0 {
			f, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			f = new(flow)
		}
		*f = flow{band: b, key: p.key, spent: b.virtual}
		b.flows[p.key] = f
	}
	f.attached++
	l.present++
	p.flow = f
	if last := l.newestBand; last != b || l.newestFlow != p.key {
		if last != nil && last.share != b.share {
			l.otherShareArrived = l.arrived
		}
		l.newestBand, l.newestFlow, l.otherArrived = b, p.key, l.arrived
	}
	l.arrived = now
}

// maxSpare is how many flows are kept to be used again.
const maxSpare = 64

// detach ends what attach has begun.
func (l *Limiter) detach(p *Place) {
	f := p.flow
	p.flow = nil
	l.present--
	if f.attached--; f.attached == 0 {
		delete(f.band.flows, f.key)
		f.band = nil // its plane may be closed
		if len(l.spare) < maxSpare {
			l.spare = append(l.spare, f)
		}
	}
}

// crowded says whether requests of more than one flow have come within memory.
func (l *Limiter) crowded(now time.Duration) bool { return now-l.otherArrived < memory }

// mostOfFlow and mostOfShare are how many places a flow and a share may hold now.
func (l *Limiter) mostOfFlow(now time.Duration) int {
	if l.crowded(now) {
		return l.most
	}
	return l.places
}

func (l *Limiter) mostOfShare(now time.Duration) int {
	if now-l.otherShareArrived < memory {
		return l.most
	}
	return l.places
}

// push makes a request wait.
func (l *Limiter) push(p *Place, now time.Duration) {
	f, b, s := p.flow, p.band, p.band.share
	s.advance(now)
	if len(s.busy) == 0 {
		l.clock.begin(&s.account, s.running(now))
		s.index = len(l.busy)
		l.busy = append(l.busy, s)
	}
	if len(b.waiting) == 0 {
		s.clock.begin(&b.account, 0)
		b.index = len(s.busy)
		s.busy = append(s.busy, b)
	}
	if f.first == nil {
		f.spent = min(max(f.spent, b.virtual), b.virtual+longestDebt)
		f.index = len(b.waiting)
		b.waiting = append(b.waiting, f)
	}
	// New ones come behind all others. Of those that come back few wait, and they are in front.
	after := f.last
	if after != nil && after.seq > p.seq {
		after = nil
		for q := f.first; q.seq < p.seq; q = q.next {
			after = q
		}
	}
	f.link(p, after)
	if p.wake == nil {
		p.wake = make(chan struct{}, 1)
	}
	p.state, p.since = waiting, now
	l.clock.count(&s.account, true)
	s.clock.count(&b.account, true)
	l.waiting++
	l.waiters.Add(1)
}

// link puts a request into the list behind another one; nil: to its beginning.
func (f *flow) link(p, after *Place) {
	p.prev, p.next = after, f.first
	if after != nil {
		p.next = after.next
		after.next = p
	} else {
		f.first = p
	}
	if p.next != nil {
		p.next.prev = p
	} else {
		f.last = p
	}
}

// pull ends the waiting of a request.
func (l *Limiter) pull(p *Place, now time.Duration) {
	f, b, s := p.flow, p.band, p.band.share
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		f.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		f.last = p.prev
	}
	p.prev, p.next = nil, nil
	if f.first == nil {
		last := b.waiting[len(b.waiting)-1]
		b.waiting[f.index], last.index = last, f.index
		b.waiting = b.waiting[:len(b.waiting)-1]
	}
	if len(b.waiting) == 0 {
		s.advance(now)
		last := s.busy[len(s.busy)-1]
		s.busy[b.index], last.index = last, b.index
		s.busy = s.busy[:len(s.busy)-1]
		s.clock.count(&b.account, b.held > 0)
	}
	if len(s.busy) == 0 {
		last := l.busy[len(l.busy)-1]
		l.busy[s.index], last.index = last, s.index
		l.busy[len(l.busy)-1] = nil // its plane may be closed
		l.busy = l.busy[:len(l.busy)-1]
		l.clock.count(&s.account, s.held > 0)
	}
	l.waiting--
	l.waiters.Add(-1)
}

// arm sets the timer to the moment at which revoke may have something to do: a request has been sending for patience,
// or the turn of a share or a band without a place has come (beyond), with no place given back.
func (l *Limiter) arm(now time.Duration) {
	if l.waiting == 0 || l.armed && l.alarm <= now+patience { // it is never set to less
		return
	}
	after := time.Duration(never)
	if len(l.senders) > 0 {
		after = patience
	}
	for _, s := range l.busy {
		if after <= patience {
			break
		}
		after = min(after, max(l.turn(s, now), patience))
	}
	if after == never || l.armed && l.alarm <= now+after {
		return
	}
	l.armed, l.alarm = true, now+after
	if l.timer == nil {
		l.timer = time.AfterFunc(after, l.revoke)
	} else {
		l.timer.Reset(after)
	}
}

// revoke takes the places of those who have been sending for too long, and gives places to bands whose turn has come.
func (l *Limiter) revoke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	now := l.now()
	for i := len(l.senders) - 1; i >= 0 && l.waiting > 0; i-- {
		if p := l.senders[i]; now-p.sends >= patience {
			l.unlist(p)
			p.state = out
			l.giveBack(p, now)
		}
	}
	l.fill(now)
}

// unlist ends what BeginSend has begun.
func (l *Limiter) unlist(p *Place) {
	last := l.senders[len(l.senders)-1]
	l.senders[p.sender], last.sender = last, p.sender
	l.senders[len(l.senders)-1] = nil // its plane may be closed
	l.senders = l.senders[:len(l.senders)-1]
}

// take gives a free place to a request.
func (l *Limiter) take(p *Place, now time.Duration) {
	b, s := p.band, p.band.share
	s.advance(now)
	l.free--
	p.flow.held++
	if b.held++; b.held == 1 {
		l.active++
		s.clock.count(&b.account, true)
	}
	if s.held++; s.held == 1 {
		l.clock.count(&s.account, true)
	}
	s.began += now
	l.given = now
	p.state, p.since = held, now
}

// untake takes the place of a request.
func (l *Limiter) untake(p *Place, now time.Duration) {
	b, s := p.band, p.band.share
	s.advance(now)
	l.charge(p, now)
	l.free++
	p.flow.held--
	if b.held--; b.held == 0 {
		l.active--
		s.clock.count(&b.account, len(b.waiting) > 0)
	}
	if s.held--; s.held == 0 {
		l.clock.count(&s.account, len(s.busy) > 0)
	}
}

// giveBack takes the place of a request, and gives it to the one that is next.
func (l *Limiter) giveBack(p *Place, now time.Duration) {
	l.untake(p, now)
	l.look(now)
	l.fill(now)
}

// look lets the scheduler look at the network, if it is time to, and gives out no place until it has. That takes until
// all goroutines that are ready have run, those of other work of the process, too. After it, places are given out for
// at least as long, so that this other work takes at most half of the time from requests.
func (l *Limiter) look(now time.Duration) {
	if l.looking || l.present <= l.places || !l.crowded(now) || now-l.looked < max(lookEvery, l.took) {
		return
	}
	l.looking = true
	go func() {
		l.polled()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looking = false
		l.looked = l.now()
		l.took = l.looked - now
		l.fill(l.looked)
	}()
}

// fill gives the free places to those who wait, as far as they may have them.
func (l *Limiter) fill(now time.Duration) {
	for l.waiting > 0 && !l.looking {
		p := l.next(now)
		if p == nil {
			break
		}
		l.serve(p, now)
	}
	l.arm(now)
	if invariants.Enabled {
		l.check(now)
	}
}

// charge charges the flow, the band and the share of a request for the time in which it has held its place, less what
// they were charged in advance (assumed), and advances the virtual time of the band's flows.
func (l *Limiter) charge(p *Place, now time.Duration) {
	f, b, s := p.flow, p.band, p.band.share
	owed := now - p.since - p.paid
	f.spent += owed
	b.spent += owed / time.Duration(b.weight)
	s.spent += owed / time.Duration(s.weight)
	s.began -= p.since + p.paid
	p.paid = 0
	flows := len(b.waiting)
	if f.first == nil {
		flows++
	}
	b.virtual += (now - p.since) / time.Duration(flows)
}

// serve gives a place to a request that waits.
func (l *Limiter) serve(p *Place, now time.Duration) {
	l.handed++
	l.waited += now - p.since
	l.pull(p, now)
	l.take(p, now)
	p.paid = assumed
	b, s := p.band, p.band.share
	p.flow.spent += assumed
	b.spent += assumed / time.Duration(b.weight)
	s.spent += assumed / time.Duration(s.weight)
	s.began += assumed
	p.wake <- struct{}{} // has room: a request is woken once for each time that it waits
}

// next returns the request that is to get a place now; nil: there is none. It is the oldest of the flow that has spent
// least, in the band that has spent least, in the share that has spent least. Of shares that have spent the same, often
// nothing, the one whose request is the oldest is first. A linear search does, as only requests with seats wait: some
// hundreds.
func (l *Limiter) next(now time.Duration) *Place {
	most, mostOfShare := l.mostOfFlow(now), l.mostOfShare(now)
	var best *flow
	for _, s := range l.busy {
		if best != nil && s.spent > best.band.share.spent {
			continue
		}
		f := s.next(l.free > 0 && s.held < mostOfShare, most, now)
		if f != nil && (best == nil || s.spent < best.band.share.spent || f.first.seq < best.first.seq) {
			best = f
		}
	}
	if best == nil {
		return nil
	}
	return best.first
}

// check fails where an invariant of the Limiter does not hold.
func (l *Limiter) check(now time.Duration) {
	n, weights := 0, 0
	for i, s := range l.busy {
		weights += s.weight
		if s.index != i || len(s.busy) == 0 || !s.counted {
			invariants.Fail("execution: share %d of %d has %d bands that wait", s.index, i, len(s.busy))
		}
		n += l.checkShare(s, now)
	}
	if n != l.waiting || int32(n) != l.waiters.Load() || weights > l.clock.weights {
		invariants.Fail("execution: %d requests of the weight %d wait, counted as %d, %d and %d", n, weights, l.waiting,
			l.waiters.Load(), l.clock.weights)
	}
	if l.free < 0 && -l.free >= l.active || -l.free > l.sharesBeyond() || l.free > l.places ||
		l.free > 0 && n > 0 && !l.crowded(now) && !l.looking {
		invariants.Fail("execution: %d requests wait, and %d places of %d are free", n, l.free, l.places)
	}
}

// checkShare checks a share of which requests wait, and returns their number.
func (l *Limiter) checkShare(s *Share, now time.Duration) (n int) {
	weights := 0
	for i, b := range s.busy {
		weights += b.weight
		if b.index != i || len(b.waiting) == 0 {
			invariants.Fail("execution: band %d of %d has %d flows that wait", b.index, i, len(b.waiting))
		}
		if l.beyond(b, now) && !l.looking {
			invariants.Fail("execution: band %d waits, holds no place, and has not spent its part", i)
		}
		for i, f := range b.waiting {
			if f.index != i || f.first == nil || f.attached == 0 {
				invariants.Fail("execution: flow %d of %d, to which %d requests are attached", f.index, i, f.attached)
			}
			if l.free > 0 && f.held < l.most && s.held < l.most && !l.looking {
				invariants.Fail("execution: %d places are free, and a flow waits with %d", l.free, f.held)
			}
			before := uint64(0)
			for p := f.first; p != nil; p = p.next {
				if p.state != waiting || p.seq <= before {
					invariants.Fail("execution: request %d in state %d waits behind request %d", p.seq, p.state, before)
				}
				before = p.seq
				n++
			}
		}
	}
	if weights > s.clock.weights || s.held < 0 {
		invariants.Fail("execution: bands of the weight %d wait in a share that counts %d", weights, s.clock.weights)
	}
	return n
}
