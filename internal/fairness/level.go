package fairness

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"plinth/internal/execution"
)

// Level is a priority level: Queues with a lock, in which requests wait.
//
// Fairness.mu is locked before mu, and kinds.mu and Capacity.mu after it. No lock is held while a request waits or
// executes.
type Level struct {
	Name string

	mu      sync.Mutex
	queues  *Queues
	uses    map[string]*use // by flow schema
	band    *execution.Band
	kinds   *kinds
	portion *portion // what it has of the plane's Share; nil: there is none, or it is outside
	refusal refusals

	// Guarded by Fairness.mu:
	spec                          *levelSpec
	nominal, least, most, current int // seats
	target, smoothed              float64
	last                          period
	quiescing                     bool // it has no object any more, and ends when it is idle
	uidHeader                     []string
	widest                        int // seats that one request may be estimated at; 0: no limit
}

// use counts the requests of one flow schema at a level, under the lock of the level.
type use struct {
	schema           string
	executed         uint64
	refused          [3]uint64 // by refusalReasons
	waiting          int
	waitingSeats     int
	executing, seats int
	tight            uint64       // how often its request was next, and there were not enough seats for it
	waits            [2]histogram // of refused and of executed requests
	regular, watches histogram    // durations of execution
	estimates        histogram
	lengths          histogram // of queues when a request has come into them
	watchers         histogram // that are interested in writes
}

// The reasons of refusals, as the reference's metric names them.
const (
	queueFull = iota
	noSeat
	timeOut
)

var refusalReasons = [...]string{"queue-full", "concurrency-limit", "time-out"}

// Buckets of the histograms, as in the reference.
var (
	secondBuckets = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	seatBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 100}
	lengthBuckets = []float64{0, 10, 25, 50, 100, 250, 500, 1000}
	watchBuckets  = []float64{0, 1, 10, 100, 1000, 10000}
)

// histogram counts values. Its zero value has no buckets until the first one.
type histogram struct {
	counts [14]uint64 // not cumulative; the last one is of those above all bounds
	sum    float64
	n      uint64
}

func (h *histogram) add(bounds []float64, value float64) {
	i := 0
	for i < len(bounds) && value > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += value
	h.n++
}

// newLevel makes a level without seats: Fairness.assign sets them. Its plane may have a Share.
func newLevel(now time.Time, spec *levelSpec, band *execution.Band, k *kinds, share *Share) *Level {
	l := &Level{Name: spec.Name, uses: map[string]*use{}, band: band, kinds: k, refusal: refusals{after: 1}, spec: spec,
		current: -1}
	if share != nil && !(spec.exempt && share.exempts) {
		l.portion = &portion{share: share, level: l, weight: 1}
	}
	l.queues = NewQueues(now, l.shape(), 0)
	l.queues.portion = l.portion
	return l
}

// unbounded says whether requests of the level need no seats: it is exempt, and the plane has no Share, or one that
// exempts.
func (l *Level) unbounded() bool { return l.spec.exempt && l.portion == nil }

// exemptShape is how requests of the exempt level wait in a plane whose share does not exempt. There are few schemas
// for it, and their requests are of one flow each.
var exemptShape = Shape{Queues: 16, HandSize: 2, Length: 50}

// shape is that of its object. An exempt level in a share has queues.
func (l *Level) shape() Shape {
	if l.spec.exempt && !l.unbounded() {
		return exemptShape
	}
	return l.spec.shape
}

// weigh sets the part that the level has of the places and seats of its plane, while others of the plane want them.
func (l *Level) weigh(weight int) {
	l.band.SetWeight(weight)
	if l.portion != nil {
		l.portion.weigh(weight)
	}
}

// serve tells other planes and levels of seats that this one has left. It is called without locks.
func (l *Level) serve() {
	if l.portion != nil {
		l.portion.share.capacity.serve()
	}
}

// offer begins what may begin, when the plane has been told that there are seats.
func (l *Level) offer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.wake(now, l.queues.Offer(now))
}

// forget drops the counts of flow schemas that do not send requests to the level any more, once it has none of theirs:
// otherwise memory would grow with every name that a schema has ever had. A schema that comes back counts from 0.
func (l *Level) forget(used map[*use]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.uses, func(_ string, u *use) bool {
		return !used[u] && u.waiting == 0 && u.executing == 0 && u.seats == 0
	})
}

// useOf returns the counts of a flow schema.
func (l *Level) useOf(schema string) *use {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.uses[schema]
	if u == nil {
		u = &use{schema: schema}
		l.uses[schema] = u
	}
	return u
}

// acquire waits until the request has seats, at most until the given time. If it is refused, retryAfter is the number
// of seconds after which the client should try again; otherwise it is 0, and the caller has to call Release.
func (l *Level) acquire(ctx context.Context, t *Ticket, u *use, hash uint64, until time.Time) (retryAfter int) {
	t.use = u
	defer l.serve()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	seats := t.Work.Max()
	u.estimates.add(seatBuckets, float64(seats))
	if t.Work.watched {
		u.watchers.add(watchBuckets, float64(t.Work.watchers))
	}
	u.waiting++
	u.waitingSeats += seats
	dispatched, ok := l.queues.Arrive(now, t, hash)
	if !ok {
		reason := queueFull
		if l.queues.shape.Queues < 1 {
			reason = noSeat
		}
		return l.refuse(now, t, reason)
	}
	if t.queue != nil {
		u.lengths.add(lengthBuckets, float64(t.length))
	}
	l.wake(now, dispatched)
	if t.state == waiting {
		if l.portion != nil && !l.portion.beginWait() {
			l.queues.Leave(now, t)
			return l.refuse(now, t, queueFull)
		}
		l.wait(ctx, t, until.Sub(now))
		if l.portion != nil {
			l.portion.endWait()
		}
		if t.state == waiting {
			now = time.Now()
			l.queues.Leave(now, t)
			return l.refuse(now, t, timeOut)
		}
		now = t.started
	}
	if !l.queues.exempt() {
		u.waits[1].add(secondBuckets, now.Sub(t.arrived).Seconds())
	}
	t.level = l
	return 0
}

// wait waits until the ticket is dispatched. It gives the lock back meanwhile.
func (l *Level) wait(ctx context.Context, t *Ticket, limit time.Duration) {
	t.wake = make(chan struct{})
	l.kinds.add(t.arrived, phaseWaiting, t, 1)
	l.mu.Unlock()
	timer := time.NewTimer(limit)
	select {
	case <-t.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
	timer.Stop()
	l.mu.Lock()
	t.wake = nil
	l.kinds.add(time.Now(), phaseWaiting, t, -1)
}

// refuse counts a refusal.
func (l *Level) refuse(now time.Time, t *Ticket, reason int) (retryAfter int) {
	t.use.waiting--
	t.use.waitingSeats -= t.Work.Max()
	t.use.refused[reason]++
	if !l.queues.exempt() {
		t.use.waits[0].add(secondBuckets, now.Sub(t.arrived).Seconds())
	}
	return l.refusal.add(now.Unix())
}

// wake wakes the requests that were dispatched.
func (l *Level) wake(now time.Time, dispatched []*Ticket) {
	for _, t := range dispatched {
		l.kinds.add(now, phaseExecuting, t, 1)
		u := t.use
		u.waiting--
		u.waitingSeats -= t.estimated
		u.executing++
		u.executed++
		u.seats += t.Work.Max()
		if t.wake != nil {
			close(t.wake)
		}
	}
}

// Release gives the seats back, if the ticket has any. watch says whether the request is a watch, for the metrics.
func (t *Ticket) Release(watch bool) {
	l := t.level
	if l == nil {
		return
	}
	t.level = nil
	defer l.serve()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	u := t.use
	took := now.Sub(t.started).Seconds()
	if watch {
		u.watches.add(secondBuckets, took)
	} else {
		u.regular.add(secondBuckets, took)
	}
	seats := t.Work.Max()
	dispatched, lingers := l.queues.Finish(now, t)
	u.executing--
	l.kinds.add(now, phaseExecuting, t, -1)
	t.about = nil
	if lingers == nil {
		u.seats -= seats
	} else {
		time.AfterFunc(lingers.For, func() { l.free(u, lingers) })
	}
	l.wake(now, dispatched)
}

// free frees the seats of a request whose final time is over.
func (l *Level) free(u *use, lingers *Lingering) {
	defer l.serve()
	l.mu.Lock()
	defer l.mu.Unlock()
	u.seats -= lingers.seats
	now := time.Now()
	l.wake(now, l.queues.Release(now, lingers))
}

// configure changes the shape and the number of seats.
func (l *Level) configure(shape Shape, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.wake(now, l.queues.Configure(now, shape, limit))
}

// idle says whether the level has no requests.
func (l *Level) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues.Idle()
}

// observe returns the demand since the last call.
func (l *Level) observe() period {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues.demand.reset(time.Now())
}

// refusals finds after how many seconds refused clients should try again. As TCP does with its window, it doubles the
// time while many are refused, and lowers it in steps of a second when few are.
//
// A fixed time would either keep clients away from a level that has room again, or, while many are refused, have them
// all come back each second, to be refused again.
//
//	1 ≤ after ≤ longestRetry
//	seconds has the refusals of the seconds before second, oldest first
type refusals struct {
	seconds []secondCount
	second  int64
	count   int64
	after   int64
	raised  int64 // the second of the last increase
}

type secondCount struct{ second, count int64 }

// longestRetry is the longest Retry-After, in seconds.
const longestRetry = 32

// add counts a refusal, and returns the Retry-After.
func (r *refusals) add(second int64) int {
	if second == r.second {
		r.count++
		return int(r.after)
	}
	r.seconds = append(r.seconds, secondCount{r.second, r.count})
	keep := min(2*r.after, longestRetry)
	last := r.second
	r.seconds = slices.DeleteFunc(r.seconds, func(c secondCount) bool { return last-c.second > keep })
	r.second, r.count = second, 1
	var recent int64
	for _, c := range r.seconds {
		if second-c.second <= r.after && c.second < second {
			recent += c.count
		}
	}
	switch {
	case second-r.raised >= r.after && recent >= 3*r.after:
		r.after = min(2*r.after, longestRetry)
		r.raised = second
	case recent < r.after && r.after > 1:
		r.after--
	}
	return int(r.after)
}
