package execution

import "time"

// account is what a share or a band has had.
//
//	counted  ⇔  a request of it waits or holds a place
type account struct {
	weight  int
	held    int // places
	counted bool
	spent   time.Duration // per unit of its weight
}

// clock is the virtual time of those that share something: the shares of a Limiter, or the bands of a Share. What they
// spend is charged to their accounts.
//
//	virtual += held / weights    weights = Σ weight of the accounts that are counted
type clock struct {
	weights int
	virtual time.Duration
	rest    time.Duration // what virtual does not have yet, times weights
	last    time.Duration // when virtual was computed
}

// advance advances the virtual time: so many places have been held until now.
func (c *clock) advance(now time.Duration, held int) {
	if c.weights > 0 {
		c.rest += (now - c.last) * time.Duration(held)
		whole := c.rest / time.Duration(c.weights)
		c.virtual += whole
		c.rest -= whole * time.Duration(c.weights)
	}
	c.last = now
}

// count counts an account in weights if it wants or has places. The clock has been advanced.
func (c *clock) count(a *account, wants bool) {
	switch {
	case wants && !a.counted:
		c.weights += a.weight
	case !wants && a.counted:
		c.weights -= a.weight
	}
	a.counted = wants
}

// weigh changes the weight of an account. The clock has been advanced.
func (c *clock) weigh(a *account, weight int) {
	if weight = max(1, weight); a.counted {
		c.weights += weight - a.weight
	}
	a.weight = weight
}

// begin readies an account of which nothing has waited: it has saved nothing, and its debt is bounded. It will be
// charged running for requests that hold a place.
func (c *clock) begin(a *account, running time.Duration) {
	a.spent = min(max(a.spent+running, c.virtual), c.virtual+longestDebt) - running
}

// due is when the virtual time reaches what an account without places has spent, if nothing changes: so long from now.
func (c *clock) due(a *account, held int) time.Duration {
	return (a.spent - c.virtual) * time.Duration(c.weights) / time.Duration(held)
}

// Share is the requests of one plane. The lock of the Limiter guards its fields.
//
//	b in busy  ⇔  a request of b waits    held = Σ held of its bands
//	began = Σ since + paid of the requests that hold a place
type Share struct {
	limiter *Limiter
	account
	clock // of the bands
	began time.Duration
	busy  []*Band
	index int // in Limiter.busy
}

// Band is the requests of one priority level of a share. The lock of the Limiter guards its fields.
//
//	f in waiting  ⇔  a request of f waits    f in flows  ⇔  a request of f is attached to it
type Band struct {
	share *Share
	account
	virtual time.Duration // of the flows
	flows   map[uint64]*flow
	waiting []*flow
	index   int // in Share.busy
}

// flow is the account of a flow.
type flow struct {
	band        *Band // nil while it is spare
	key         uint64
	spent       time.Duration
	attached    int    // requests that have a pointer to it
	held        int    // places
	first, last *Place // those that wait, in the order of their arrival
	index       int    // in Band.waiting
}

// Share makes a share. The Limiter does not know it except while it has requests, so it need not be closed.
func (l *Limiter) Share(weight int) *Share {
	return &Share{limiter: l, account: account{weight: max(1, weight)}}
}

// SetWeight changes the weight of a share.
func (s *Share) SetWeight(weight int) {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now()
	l.clock.weigh(&s.account, weight)
}

// Held is how many of its requests hold a place.
func (s *Share) Held() int {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	return s.held
}

// Figures returns the figures of the Limiter.
func (s *Share) Figures() Figures { return s.limiter.Figures() }

// Band makes a band, of weight 1.
func (s *Share) Band() *Band {
	return &Band{share: s, account: account{weight: 1}, flows: map[uint64]*flow{}}
}

// SetWeight changes the weight of a band.
func (b *Band) SetWeight(weight int) {
	s := b.share
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.advance(s.limiter.now())
	s.clock.weigh(&b.account, weight)
}

// advance advances the virtual time of the bands.
func (s *Share) advance(now time.Duration) { s.clock.advance(now, s.held) }

// used is what the share has spent until now, by the requests that hold a place, too: they are charged at their end.
func (s *Share) used(now time.Duration) time.Duration { return s.spent + s.running(now) }

// running is what the requests that hold a place will be charged for until now.
func (s *Share) running(now time.Duration) time.Duration {
	return (time.Duration(s.held)*now - s.began) / time.Duration(s.weight)
}

// bandsBeyond is how many places beyond the number there may be when a band gets one whose share holds places. A new
// server has seven levels with a limit.
const bandsBeyond = 8

// sharesBeyond is how many there may be when a share gets one that holds none. The difference is kept for shares: the
// bands of others cannot use it up.
func (l *Limiter) sharesBeyond() int { return bandsBeyond + l.places }

// beyond says whether a band may have a place although none is free, or although its share holds as many as it may.
//
// The problem: requests cannot be interrupted. Those of one plane or level that take long must not keep out another
// one. But if each of a thousand planes got a place at once for a request of its own, nothing would be bounded, and the
// order in which they execute would be that of Go's scheduler. So a share without any place gets one beyond the number
// only when no place has been given to anyone for patience: as long as places change hands, its turn comes by that. A
// band without any in a share that has some gets one at once, if the share has not had more than its part: there are
// few of these.
func (l *Limiter) beyond(b *Band, now time.Duration) bool {
	s := b.share
	if s.held == 0 {
		return s.spent <= l.clock.virtual && now-l.given >= patience && -l.free < l.sharesBeyond()
	}
	if b.held > 0 || -l.free >= bandsBeyond {
		return false
	}
	s.advance(now)
	return b.spent <= s.clock.virtual && (l.alone(s) || s.used(now) <= l.clock.virtual)
}

// alone says whether no other share wants or has places: what there is is the part of this one.
func (l *Limiter) alone(s *Share) bool { return l.clock.weights == s.weight }

// turn is when a band without places may have one beyond their number at the earliest, if nothing changes: the least
// due of those of the share.
func (l *Limiter) turn(s *Share, now time.Duration) time.Duration {
	held := l.places - l.free
	if s.held == 0 {
		if held == 0 || -l.free >= l.sharesBeyond() {
			return never
		}
		return max(l.clock.due(&s.account, held), l.given+patience-now)
	}
	if -l.free >= bandsBeyond {
		return never
	}
	after := time.Duration(never)
	s.advance(now)
	for _, b := range s.busy {
		if b.held == 0 {
			after = min(after, s.clock.due(&b.account, s.held))
		}
	}
	if after == never || l.alone(s) {
		return after
	}
	over := s.used(now) - l.clock.virtual
	if over <= 0 {
		return after
	}
	// The virtual time advances by held / weights, what the share uses by its own held / weight.
	faster := time.Duration(held*s.weight - s.held*l.clock.weights)
	if faster <= 0 {
		return never
	}
	return max(after, over*time.Duration(l.clock.weights*s.weight)/faster)
}

// never is later than any time.
const never = 1<<63 - 1

// next returns the flow of the share whose request is to get a place now; nil: there is none. free says whether all of
// its bands may have one, and most is how many a flow may hold.
func (s *Share) next(free bool, most int, now time.Duration) *flow {
	var best *flow
	for _, b := range s.busy {
		if best != nil && b.spent >= best.band.spent || !free && !s.limiter.beyond(b, now) {
			continue
		}
		var of *flow
		for _, f := range b.waiting {
			switch {
			case f.held >= most:
			case of == nil, f.spent < of.spent, f.spent == of.spent && f.first.seq < of.first.seq:
				of = f
			}
		}
		if of != nil {
			best = of
		}
	}
	return best
}
