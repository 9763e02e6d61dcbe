package fairness

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/execution"
	"plinth/internal/invariants"
)

// CapacityConfig is what a Capacity is made of.
type CapacityConfig struct {
	Seats int // of all planes; 0: no limit
	// Waiting bounds how many requests wait for seats, in all planes; 0: roomPerSeat for each seat.
	Waiting int
	// Places and PlacesOfOne are as in Config; PlacesOfOne bounds those of one plane, too.
	Places, PlacesOfOne int
}

// Capacity is what a process has for the requests of all its planes: seats, room to wait for them, and places in which
// requests execute. Each plane has a Share. Its methods may be called concurrently.
//
// The problem: each plane has its levels, and each level its seats and queues. If these were the only bounds, a
// thousand planes would have a thousand times the requests under way of one server. If the seats were divided among
// the planes beforehand, none would have even one. So a plane's levels divide all seats among themselves, as if it were
// alone, and a request that its level would let begin takes its seats from here, too:
//
//   - while seats are free, and nobody else wants one, a plane may use all of them;
//   - a seat that comes free goes to the plane that has the fewest in use per unit of its weight, of those that want
//     one, and there to the level that has the fewest by its own part. So each plane comes to its weighted part as fast
//     as requests of the others end, and what it does not want is used by others. It depends on what is in use alone:
//     who wanted nothing has neither saved nor lost anything;
//   - a plane that uses none gets some beyond their number, for one request: it does not wait for those of others that
//     take long. An eighth of the seats can be beyond.
//
// A request that gets no seat waits in the queues of its own plane. Those of a thousand planes are long, so the
// requests that wait are bounded in all: a plane may have as many as there is room left. That is the threshold of
// switches that share memory among ports: one plane alone may take half of the room, n take an equal part each, and as
// much is left for one more that has none waiting.
//
// A request that needs several seats begins as soon as one is free. Otherwise it would wait for ever beside narrow
// ones, or keep them from seats that are free.
//
//	inUse    = Σ inUse of the shares     inUse < seats + beyond + widest request
//	waiting  = Σ waiting of the shares ≤ room
//	s in busy  ⇔  a level of s is in s.busy: its queues wanted seats, and got none
//	inUse < seats  ⇒  no share in busy may have more requests, or a call of serve is under way
//
// The lock of a level is locked before mu. So a level cannot be told of seats by the one that gives them back before
// that one has given back its own lock: serve is called without locks.
type Capacity struct {
	limiter             *execution.Limiter
	seats, beyond, room int

	mu      sync.Mutex
	inUse   int
	waiting int // requests
	busy    []*Share
	asked   uint64 // how often a level has come into the list of its share
	active  []*Share

	wanted atomic.Int32 // = len(busy)
}

// Share is what one plane has of a Capacity. It outlives the plane's Fairness, and need not be closed. The lock of the
// Capacity guards its fields.
//
//	inUse = Σ inUse of its portions = Σ seatsInUse of the queues    requests = Σ executing of the queues
//	limit > 0  ⇒  requests ≤ limit, if it was not lowered
type Share struct {
	capacity *Capacity
	places   *execution.Share
	exempts  bool // the exempt level takes no seats

	weight   int
	limit    int // of requests; 0: none
	inUse    int
	requests int // that execute
	waiting  int
	busy     []*portion
	index    int // in Capacity.busy

	slots    portion   // of requests that are not classified
	fairness *Fairness // of the plane while it is open; nil: it has none
	listed   bool      // in Capacity.active
	used     bool      // has taken seats since the last adjustment
	idle     int       // adjustments since
}

// portion is the seats of a level of a plane. The lock of the Capacity guards its fields.
type portion struct {
	share  *Share
	level  *Level // nil: of no level, and never busy
	weight int
	inUse  int
	asked  uint64 // when it was last refused: its turn among equals
	listed bool   // in Share.busy
	told   bool   // that there are seats; it is about to take them
}

// ShareConfig is what a Share is made of.
type ShareConfig struct {
	Weight int // 0: 1
	// Requests is how many requests of the plane may be served at one time, those of the exempt level included; 0: no
	// limit. Others wait in its queues, or are refused.
	Requests int
	// Exempts says that the exempt level needs no seats and no places, as on a server without planes. Otherwise only the
	// levels of the plane do not bound it.
	Exempts bool
}

// roomPerSeat is how many requests wait for one seat. A new server has queues for more.
const roomPerSeat = 32

// beyondPart is the part of the seats that may be in use beyond their number.
const beyondPart = 8

// NewCapacity makes a Capacity. Its seats are divided anew by Run.
func NewCapacity(c CapacityConfig) *Capacity {
	if c.Seats == 0 {
		c.Seats = math.MaxInt32
	}
	if c.Waiting == 0 {
		c.Waiting = roomPerSeat * c.Seats
	}
	return &Capacity{limiter: newLimiter(c.Places, c.PlacesOfOne), seats: c.Seats, beyond: max(1, c.Seats/beyondPart),
		room: c.Waiting}
}

// newLimiter makes a Limiter; 0 are the defaults of Config.
func newLimiter(places, ofOne int) *execution.Limiter {
	processors := runtime.GOMAXPROCS(0)
	if places == 0 {
		places = 2 * processors
	}
	if ofOne == 0 {
		ofOne = max(1, processors-1)
	}
	return execution.New(places, ofOne)
}

// Share makes the share of a plane.
func (c *Capacity) Share(of ShareConfig) *Share {
	weight := max(1, of.Weight)
	s := &Share{capacity: c, places: c.limiter.Share(weight), exempts: of.Exempts, weight: weight, limit: of.Requests}
	s.slots = portion{share: s, weight: 1}
	return s
}

// Places returns the figures of the places.
func (c *Capacity) Places() execution.Figures { return c.limiter.Figures() }

// ShareFigures are figures about a Share, or about all of them.
type ShareFigures struct {
	Seats    int // in use
	Requests int // that are served
	Waiting  int // for seats
}

// Figures returns the sums of all shares, without what needs no seats.
func (c *Capacity) Figures() (f ShareFigures) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ShareFigures{Seats: c.inUse, Waiting: c.waiting}
}

// Figures returns the figures of the share.
func (s *Share) Figures() ShareFigures {
	s.capacity.mu.Lock()
	defer s.capacity.mu.Unlock()
	return ShareFigures{Seats: s.inUse, Requests: s.requests, Waiting: s.waiting}
}

// Exempts is that of its ShareConfig.
func (s *Share) Exempts() bool { return s.exempts }

// SetWeight changes the weight.
func (s *Share) SetWeight(weight int) {
	weight = max(1, weight)
	s.places.SetWeight(weight)
	c := s.capacity
	c.mu.Lock()
	s.weight = weight
	c.mu.Unlock()
	c.serve()
}

// SetRequests changes how many requests may be served at one time; 0: no limit. Those that are served go on. The
// plane's levels divide the number with the next adjustment.
func (s *Share) SetRequests(limit int) {
	c := s.capacity
	c.mu.Lock()
	s.limit = limit
	c.mu.Unlock()
	c.serve()
}

// seats is how many seats the levels of the plane divide.
func (s *Share) seats() int {
	s.capacity.mu.Lock()
	defer s.capacity.mu.Unlock()
	if s.limit > 0 {
		return min(s.limit, s.capacity.seats)
	}
	return s.capacity.seats
}

// Take takes a seat for a request that is not classified, and says whether there is one. The request does not wait.
// Give gives it back.
func (s *Share) Take() bool { return s.slots.take(1, false) }

// Give gives back what Take has taken.
func (s *Share) Give() {
	s.slots.give(1)
	s.slots.end()
	s.capacity.serve()
}

// full says whether the share may have no more requests.
func (s *Share) full() bool { return s.limit > 0 && s.requests >= s.limit }

// before says whether a share has fewer seats than another one, by weight.
func (s *Share) before(other *Share) bool { return s.inUse*other.weight < other.inUse*s.weight }

func (p *portion) before(other *portion) bool { return p.inUse*other.weight < other.inUse*p.weight }

// may says whether a share that is not full may take seats, as far as their number goes.
func (c *Capacity) may(s *Share) bool {
	return c.inUse < c.seats || s.inUse == 0 && c.inUse < c.seats+c.beyond
}

// take takes seats for a request, and says whether it may have them. If not, and it waits, its level is told when it
// may (serve).
func (p *portion) take(seats int, waits bool) bool {
	s, c := p.share, p.share.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.full() || !c.may(s) || c.overtakes(p) {
		if waits {
			c.want(p)
		}
		return false
	}
	c.inUse += seats
	s.inUse += seats
	p.inUse += seats
	s.requests++
	if s.used = true; !s.listed && s.fairness != nil {
		s.listed = true
		c.active = append(c.active, s)
	}
	return true
}

// overtakes says whether another share or level is to have the next seats. One that was told of them is still listed,
// so that none takes them in the meantime.
func (c *Capacity) overtakes(p *portion) bool {
	for _, s := range c.busy {
		if s != p.share && !s.full() && s.before(p.share) {
			return true
		}
	}
	return slices.ContainsFunc(p.share.busy, func(q *portion) bool { return q != p && q.before(p) })
}

// want puts a level into the list of those that want seats.
func (c *Capacity) want(p *portion) {
	c.asked++
	p.asked, p.told = c.asked, false
	if p.listed {
		return
	}
	s := p.share
	if len(s.busy) == 0 {
		s.index = len(c.busy)
		c.busy = append(c.busy, s)
		c.wanted.Store(int32(len(c.busy)))
	}
	p.listed = true
	s.busy = append(s.busy, p)
}

// taken takes a level out of the list that has taken what it may, unless it was refused more since it was told.
func (c *Capacity) taken(p *portion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.told {
		return
	}
	s := p.share
	p.listed, p.told = false, false
	s.busy = slices.DeleteFunc(s.busy, func(one *portion) bool { return one == p })
	if len(s.busy) == 0 {
		last := c.busy[len(c.busy)-1]
		c.busy[s.index], last.index = last, s.index
		c.busy[len(c.busy)-1] = nil // its plane may be closed
		c.busy = c.busy[:len(c.busy)-1]
		c.wanted.Store(int32(len(c.busy)))
	}
}

// give gives seats back, and end ends a request. After them the caller calls serve, without locks.
func (p *portion) give(seats int) {
	s, c := p.share, p.share.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse -= seats
	s.inUse -= seats
	p.inUse -= seats
	if invariants.Enabled && (p.inUse < 0 || s.inUse < p.inUse || c.inUse < s.inUse) {
		invariants.Fail("fairness: %d seats of a level, %d of a plane and %d of all are in use", p.inUse, s.inUse, c.inUse)
	}
}

func (p *portion) end() {
	p.share.capacity.mu.Lock()
	defer p.share.capacity.mu.Unlock()
	p.share.requests--
}

// weigh sets the part of a level in the seats of its plane.
func (p *portion) weigh(weight int) {
	p.share.capacity.mu.Lock()
	defer p.share.capacity.mu.Unlock()
	p.weight = max(1, weight)
}

// beginWait says whether one more request of the plane may wait. If so, endWait is called when it does not any more.
func (p *portion) beginWait() bool {
	s, c := p.share, p.share.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.waiting >= c.room-c.waiting {
		return false
	}
	s.waiting++
	c.waiting++
	return true
}

func (p *portion) endWait() {
	c := p.share.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	p.share.waiting--
	c.waiting--
}

// serve tells those who are to have free seats. It is called without locks, when seats may have come free.
func (c *Capacity) serve() {
	for c.wanted.Load() > 0 {
		c.mu.Lock()
		p := c.next()
		c.mu.Unlock()
		if p == nil {
			return
		}
		p.level.offer()
		c.taken(p)
	}
}

// next returns the level that is to have the next seats, which is to be told; nil: there is none, or another call of
// serve is telling it, and goes on after that.
func (c *Capacity) next() *portion {
	var best *Share
	for _, s := range c.busy {
		if !s.full() && c.may(s) && (best == nil || s.before(best) ||
			!best.before(s) && s.busy[0].asked < best.busy[0].asked) {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	first := best.busy[0]
	for _, p := range best.busy[1:] {
		if p.before(first) || !first.before(p) && p.asked < first.asked {
			first = p
		}
	}
	if first.told {
		return nil
	}
	first.told = true
	return first
}

// Run divides the seats of the planes among their levels every ten seconds until ctx ends. It is one goroutine for all
// planes, and it looks at those alone that have served a request within the last minute.
func (c *Capacity) Run(ctx context.Context) {
	ticker := time.NewTicker(adjustment)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.adjust()
		}
	}
}

// restsAfter is after how many adjustments without a request a plane is not adjusted any more. Its levels keep their
// seats then until it is used again.
const restsAfter = 6

func (c *Capacity) adjust() {
	c.mu.Lock()
	var all []*Fairness
	c.active = slices.DeleteFunc(c.active, func(s *Share) bool {
		if s.idle++; s.used || s.requests > 0 {
			s.idle = 0
		}
		s.used = false
		if s.fairness == nil || s.idle >= restsAfter {
			s.listed, s.idle = false, 0
			return true
		}
		all = append(all, s.fairness)
		return false
	})
	c.mu.Unlock()
	for _, f := range all {
		f.now()
		f.mu.Lock()
		f.adjust()
		f.mu.Unlock()
	}
}

// attach makes a Fairness that of the plane; detach ends that.
func (s *Share) attach(f *Fairness) {
	s.capacity.mu.Lock()
	defer s.capacity.mu.Unlock()
	s.fairness = f
}

func (s *Share) detach(f *Fairness) {
	c := s.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.fairness != f { // another one has taken its place
		return
	}
	s.fairness = nil
	if s.listed {
		s.listed, s.idle = false, 0
		c.active = slices.DeleteFunc(c.active, func(one *Share) bool { return one == s })
	}
}
