package fairness

import (
	"fmt"
	"math"
	"time"

	"plinth/internal/access"
	"plinth/internal/invariants"
)

// SeatSeconds is an amount of work, in units of 1e-8 seat-seconds. Differences may be negative: they wrap around, and
// adding them wraps back.
type SeatSeconds uint64

const seatSecondScale = 1e8

// work is the amount of work of so many seats in a duration.
func work(seats float64, d time.Duration) SeatSeconds {
	return SeatSeconds(int64(math.Round(seats * float64(d) / (1e9 / seatSecondScale))))
}

// per is the duration in which so many seats do this work.
func (s SeatSeconds) per(seats int) time.Duration {
	return time.Duration(float64(s) / float64(seats) * (float64(time.Second) / seatSecondScale))
}

func (s SeatSeconds) float() float64 { return float64(s) / seatSecondScale }

// String is the amount with its unit, in the form of the reference's dumps.
func (s SeatSeconds) String() string {
	return fmt.Sprintf("%d.%08dss", uint64(s)/seatSecondScale, uint64(s)%seatSecondScale)
}

// serviceTime is how long a request is assumed to take until it has ended.
const serviceTime = 3 * time.Millisecond

// Work is an estimate of what a request needs.
type Work struct {
	Seats int // while it is served; at least 1
	// FinalSeats are occupied after the answer for FinalTime: for the watches that the request has woken.
	FinalSeats int
	FinalTime  time.Duration

	// For metrics: how many watches may be interested, if it is a write that watches may see.
	watched  bool
	watchers int
}

// Max is how many seats are reserved for the request, from its dispatch to the end of its final time.
func (w *Work) Max() int { return max(w.Seats, w.FinalSeats) }

// total is the estimate of all its work.
func (w *Work) total() SeatSeconds {
	return work(float64(w.Seats), serviceTime) + w.final()
}

func (w *Work) final() SeatSeconds { return work(float64(w.FinalSeats), w.FinalTime) }

// Shape is how the requests of a level wait.
type Shape struct {
	Queues   int // 0: requests do not wait, those for which there is no seat are refused; -1: no limit
	HandSize int
	Length   int // how many requests may wait in one queue
	Kept     int // seats of the limit for queues that have none, see Queues
	Share    int // what the seats in use are a part of, in metrics, when the limit is 0
}

func (s *Shape) check() error {
	if s.Queues <= 0 {
		return nil
	}
	return checkHand(s.Queues, s.HandSize)
}

// Ticket is one request in Queues. Its zero value is ready for Arrive. It is linked into lists, and must not be copied
// between Arrive and Finish or Leave.
type Ticket struct {
	Work Work

	state      ticketState
	total      SeatSeconds // of Work as it was on arrival
	estimated  int         // Work.Max() on arrival
	queue      *queue      // nil: it did not pass through a queue
	kept       bool        // it has seats that are kept, see Queues
	arrived    time.Time
	started    time.Time
	arrivalR   SeatSeconds // R when it arrived
	length     int         // how many waited in its queue when it arrived, with it
	next, prev *Ticket     // in a list of queue, or in Queues.unqueued

	// Fields of Level: wake is closed when a ticket that waits is dispatched; level is the one that has admitted it.
	wake     chan struct{}
	level    *Level
	use      *use
	mutating bool
	flow     string             // the distinguisher
	hash     uint64             // of the flow
	about    *access.Attributes // for dumps
}

type ticketState uint8

const (
	idle ticketState = iota
	waiting
	executing
)

// Executing says whether the request may be served now.
func (t *Ticket) Executing() bool { return t.state == executing }

// tickets is a list, oldest first.
type tickets struct {
	first, last *Ticket
	n           int
}

func (l *tickets) push(t *Ticket) {
	t.prev, t.next = l.last, nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.n++
}

func (l *tickets) remove(t *Ticket) {
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.next, t.prev = nil, nil
	l.n--
}

// queue is one of the queues of a level.
type queue struct {
	waiting, executing tickets
	index              int  // in Queues.all
	backlog            int  // its index in Queues.backlogs while tickets wait
	removed            bool // from Queues.all
	seats              int  // in use, by requests executing and in their final time
	// Sums over the tickets that wait:
	waitingSeats, waitingMax int
	waitingWork              SeatSeconds
	// nextR is the virtual time at which its next request is dispatched.
	nextR SeatSeconds
}

func (q *queue) active() bool { return q.waiting.n > 0 || q.executing.n > 0 }

// Queues are the seats of one level and the requests that wait for them.
//
// The problem: seats are to be divided equally among the queues that want them, whatever the number and the size of
// their requests. As in fair queuing of packets, a virtual time R runs at the rate at which one queue would get
// seat-seconds if all that want some were served at the same time (rate). Each queue has the virtual time at which its
// next request begins (nextR), which advances by the work of each request. The next request to be dispatched is the one
// that would be the first to end. Different from a packet, the length of a request is not known when it begins. It is
// assumed to be serviceTime, and nextR is corrected when it has ended.
//
// A queue cannot save up what it did not use: nextR is at least the arrival of its oldest waiting request (bound).
//
// That is the reference's algorithm, and its weakness is long requests. When one flow has taken all seats for lists of
// a second, another flow's first request waits until one of them ends, and then its turn may not have come: nextR of
// the flood's queues is behind until their requests end. So a part of the seats is kept (Shape.Kept; 0 is the
// reference): only queues without any seat take them, each for one short request. The order of all other requests does
// not change: both parts are counted separately, so that none of the others waits for a request with a kept seat.
//
//	keptInUse     = the part of seatsInUse of the tickets with kept seats
//	open()        = limit − kept ≥ seatsInUse − keptInUse, unless a request is too wide, see accommodates
//	seatsInUse    = Σ Work.Max() of the tickets that execute or are in their final time
//	seatsWaiting  = Σ Work.Max() of the tickets that wait
//	waiting       = Σ waiting.n of the queues
//	active        = number of queues in all that are active
//	queuedSeats   = Σ seats + waitingMax of the queues in all
//	q in backlogs ⇔ q.waiting.n > 0
//
// The reference computes the sums from all queues each time, of which there are often 128. Here a request that does not
// wait costs the same for any number of queues.
type Queues struct {
	shape   Shape
	limit   int      // of seats
	portion *portion // of the seats of a process, which a request needs, too; nil: it needs none

	// all has the queues, by index; nil: one that has never had a ticket, as most of the hundreds in a plane that is used
	// little. It may be longer than shape.Queues until the others are empty.
	all      []*queue
	backlogs []*queue // those in which tickets wait, in no order
	unqueued tickets  // those that execute and did not pass through a queue

	r    SeatSeconds
	last time.Time // when r was computed

	robin    int // index of the queue that was last dispatched from
	enqueued int // how many tickets have ever been given to a queue, or refused by one

	waiting, executing       int
	seatsInUse, seatsWaiting int
	keptInUse, keptExecuting int
	active, queuedSeats      int
	demand                   demand

	dispatched []*Ticket // by the operation under way

	// Counts since the start, for dumps and metrics.
	refused, timedOut, rewound int
	waitRatio, executeRatio    ratio // of requests
	seatRatio, demandRatio     ratio // of seats in use, and of those in use or wanted
	latest                     dispatchFigures
}

// dispatchFigures are virtual times at the last dispatch from a queue: R, the start of the dispatched request, and the
// earliest and latest nextR of all queues in which requests wait (next). expected has the same bounds after the work
// that each queue's executing requests are assumed to need was subtracted.
type dispatchFigures struct {
	some           bool // there was one
	r, start       SeatSeconds
	next, expected bounds
}

// bounds are the least and the largest of some times.
type bounds struct{ least, largest SeatSeconds }

func (b *bounds) add(s SeatSeconds) { b.least, b.largest = min(b.least, s), max(b.largest, s) }

// noBounds has no times yet.
var noBounds = bounds{least: math.MaxUint64}

// NewQueues returns the queues of a level. The shape must be valid.
func NewQueues(now time.Time, shape Shape, limit int) *Queues {
	q := &Queues{last: now, demand: demand{last: now}, waitRatio: newRatio(requestRatios),
		executeRatio: newRatio(requestRatios), seatRatio: newRatio(seatRatios), demandRatio: newRatio(demandRatios)}
	q.Configure(now, shape, limit)
	return q
}

// Configure changes the shape and the number of seats, and returns the tickets that are dispatched by that. Tickets
// that wait stay in their queues. Queues in excess are removed when they are empty.
func (q *Queues) Configure(now time.Time, shape Shape, limit int) []*Ticket {
	q.advance(now)
	for i := len(q.all); i < shape.Queues; i++ {
		q.all = append(q.all, nil)
	}
	if shape.Queues <= 0 { // tickets may still wait: the other parameters remain
		shape.HandSize, shape.Length = q.shape.HandSize, q.shape.Length
	}
	q.shape, q.limit = shape, limit
	q.waitRatio.setLimit(max(1, shape.Length) * max(1, shape.Queues))
	seats := limit
	if seats <= 0 {
		seats = shape.Share
	}
	q.executeRatio.setLimit(seats)
	q.seatRatio.setLimit(seats)
	q.demandRatio.setLimit(seats)
	return q.dispatch(now)
}

// Arrive adds a ticket. It is refused (ok is false), waits, or is dispatched: then it is among those returned, perhaps
// with others.
func (q *Queues) Arrive(now time.Time, t *Ticket, hash uint64) (dispatched []*Ticket, ok bool) {
	q.advance(now)
	t.arrived, t.arrivalR = now, q.r
	t.total, t.estimated = t.Work.total(), t.Work.Max()
	if q.shape.Queues < 1 {
		if !q.accommodates(t.Work.Max()) || !q.take(t.Work.Max(), false) {
			q.refused++
			return nil, false
		}
		q.dispatched = q.dispatched[:0]
		q.unqueued.push(t)
		q.start(now, t)
		q.noteDemand(now)
		return q.dispatched, true
	}
	to := q.choose(hash)
	// What waits in a portion waits for its seats, although those of the limit may be free.
	if to.waiting.n >= q.shape.Length && (q.seatsInUse-q.keptInUse >= q.open() || q.portion != nil) {
		q.bound(to)
		q.refused++
		return nil, false
	}
	q.enqueue(t, to)
	q.bound(to)
	q.noteDemand(now)
	return q.dispatch(now), true
}

// Leave removes a ticket that waits, because it has waited too long or its client is gone.
func (q *Queues) Leave(now time.Time, t *Ticket) {
	q.advance(now)
	if invariants.Enabled && t.state != waiting {
		invariants.Fail("fairness: a ticket leaves that does not wait")
	}
	from := t.queue
	q.dequeue(t)
	t.state = idle
	q.refused++
	q.timedOut++
	q.noteDemand(now)
	q.bound(from)
}

// Finish ends the execution of a ticket, and returns the tickets that are dispatched by that. If it has a final time
// (lingers is not nil), its seats stay in use until lingers is passed to Release.
func (q *Queues) Finish(now time.Time, t *Ticket) (dispatched []*Ticket, lingers *Lingering) {
	q.advance(now)
	if invariants.Enabled && t.state != executing {
		invariants.Fail("fairness: a ticket finishes that does not execute")
	}
	q.executing--
	t.state = idle
	if q.portion != nil {
		q.portion.end()
	}
	held := Lingering{queue: t.queue, seats: t.Work.Max(), kept: t.kept, For: t.Work.FinalTime}
	if t.kept {
		q.keptExecuting--
	}
	if from := t.queue; from != nil {
		before := from.active()
		from.executing.remove(t)
		q.noteActive(from, before)
		// The request has taken another time than was assumed.
		from.nextR -= work(float64(t.Work.Seats), serviceTime-now.Sub(t.started))
		q.bound(from)
	} else {
		q.unqueued.remove(t)
	}
	if held.For <= 0 {
		q.free(now, &held)
	} else {
		lingers = new(held)
	}
	return q.dispatch(now), lingers
}

// Offer returns the tickets that are dispatched because there are seats in the portion.
func (q *Queues) Offer(now time.Time) []*Ticket {
	q.advance(now)
	return q.dispatch(now)
}

// take takes seats out of the portion, and says whether there are any. If a ticket waits for them, Offer is called when
// there are.
func (q *Queues) take(seats int, waits bool) bool {
	return q.portion == nil || q.portion.take(seats, waits)
}

// Lingering is the seats of a ticket in its final time.
type Lingering struct {
	queue *queue
	seats int
	kept  bool
	For   time.Duration
}

// Release frees the seats of a ticket whose final time is over.
func (q *Queues) Release(now time.Time, l *Lingering) []*Ticket {
	q.advance(now)
	q.free(now, l)
	return q.dispatch(now)
}

func (q *Queues) free(now time.Time, l *Lingering) {
	q.seatsInUse -= l.seats
	if q.portion != nil {
		q.portion.give(l.seats)
	}
	if l.kept {
		q.keptInUse -= l.seats
	}
	q.noteDemand(now)
	from := l.queue
	if from == nil {
		return
	}
	from.seats -= l.seats
	if !from.removed {
		q.queuedSeats -= l.seats
		q.removeEmpty(from)
	}
}

// exempt says whether there is no limit.
func (q *Queues) exempt() bool { return q.shape.Queues < 0 }

// Idle says whether no ticket waits or executes.
func (q *Queues) Idle() bool { return q.waiting == 0 && q.executing == 0 }

// advance computes R. It comes first in each operation: the state so far has lasted until now.
//
//	R += min(queuedSeats, limit) / active · elapsed
//
// That is what each active queue has got since, if all were served equally.
func (q *Queues) advance(now time.Time) {
	since := now.Sub(q.last)
	q.last = now
	q.waitRatio.elapse(q.waiting, since)
	q.executeRatio.elapse(q.executing, since)
	q.seatRatio.elapse(q.seatsInUse, since)
	q.demandRatio.elapse(q.seatsInUse+q.seatsWaiting, since)
	if q.active == 0 {
		return
	}
	rate := min(float64(q.queuedSeats), float64(q.limit)) / float64(q.active)
	if q.r += work(rate, since); q.r >= epoch+epoch/2 {
		q.rewind()
	}
}

// epoch is what is subtracted from all virtual times before R overflows.
const epoch = SeatSeconds(math.MaxUint64 / 2)

// rewind subtracts epoch from all virtual times. Only their differences matter, and those stay: an active queue's nextR
// is no older than the arrival of a request that waits or executes. An epoch is 29 years of a hundred seats.
func (q *Queues) rewind() {
	q.r -= epoch
	q.rewound++
	for _, one := range q.all {
		if one == nil {
			continue
		}
		if !one.active() { // its time may be old, and is set when a ticket arrives
			one.nextR = 0
			continue
		}
		one.nextR -= epoch
		for t := one.waiting.first; t != nil; t = t.next {
			t.arrivalR -= epoch
		}
	}
}

// choose returns the queue of a flow's hand in which the least work waits. Flows whose hands overlap begin at different
// cards.
func (q *Queues) choose(hash uint64) *queue {
	var cards [maxHandSize]int
	hand := cards[:q.shape.HandSize]
	deal(hash, q.shape.Queues, hand)
	offset := q.enqueued % len(hand)
	q.enqueued++
	best, least := 0, SeatSeconds(0)
	for i := range hand {
		at, waits := hand[(offset+i)%len(hand)], SeatSeconds(0)
		if one := q.all[at]; one != nil {
			waits = one.waitingWork
		}
		if i == 0 || waits < least {
			best, least = at, waits
		}
	}
	if q.all[best] == nil {
		q.all[best] = &queue{index: best}
	}
	return q.all[best]
}

func (q *Queues) enqueue(t *Ticket, to *queue) {
	before := to.active()
	if !before {
		to.nextR = q.r
	}
	if to.waiting.n == 0 {
		to.backlog = len(q.backlogs)
		q.backlogs = append(q.backlogs, to)
	}
	t.queue, t.state = to, waiting
	to.waiting.push(t)
	t.length = to.waiting.n
	q.noteActive(to, before)
	seats := t.Work.Max()
	to.waitingSeats += t.Work.Seats
	to.waitingMax += seats
	to.waitingWork += t.total
	q.queuedSeats += seats
	q.waiting++
	q.seatsWaiting += seats
}

// dequeue takes a ticket out of its queue.
func (q *Queues) dequeue(t *Ticket) {
	from := t.queue
	before := from.active()
	from.waiting.remove(t)
	if from.waiting.n == 0 {
		last := q.backlogs[len(q.backlogs)-1]
		q.backlogs[from.backlog], last.backlog = last, from.backlog
		q.backlogs = q.backlogs[:len(q.backlogs)-1]
	}
	q.noteActive(from, before)
	seats := t.Work.Max()
	from.waitingSeats -= t.Work.Seats
	from.waitingMax -= seats
	from.waitingWork -= t.total
	q.queuedSeats -= seats
	q.waiting--
	q.seatsWaiting -= seats
}

// noteActive counts a queue that has become active or inactive.
func (q *Queues) noteActive(one *queue, before bool) {
	switch holds := one.active(); {
	case holds && !before:
		q.active++
	case before && !holds:
		q.active--
	}
}

func (q *Queues) noteDemand(now time.Time) { q.demand.set(now, float64(q.seatsInUse+q.seatsWaiting)) }

// dispatch begins as many requests as there are seats.
func (q *Queues) dispatch(now time.Time) []*Ticket {
	q.dispatched = q.dispatched[:0]
	for q.waiting > 0 && q.seatsInUse < q.limit && q.dispatchOne(now) {
	}
	if invariants.Enabled {
		q.check()
	}
	return q.dispatched
}

// dispatchOne dispatches the ticket that would end first in virtual time. If there are not enough seats for it, none is
// dispatched but those that may have kept seats, so that a wide request does not wait forever for narrow ones.
func (q *Queues) dispatchOne(now time.Time) bool {
	figures := dispatchFigures{some: true, r: q.r, next: noBounds, expected: noBounds}
	best, kept := q.next(false, &figures), false
	if !q.accommodates(best.waiting.first.Work.Max()) {
		if u := best.waiting.first.use; u != nil {
			u.tight++
		}
		if q.keptInUse >= q.shape.Kept {
			return false
		}
		best, kept = q.next(true, nil), true
		if best == nil {
			return false
		}
	}
	t := best.waiting.first
	if !q.take(max(t.Work.Seats, min(t.Work.FinalSeats, q.limit)), true) {
		return false
	}
	figures.start = best.nextR
	q.latest = figures
	q.robin = best.index
	q.dequeue(t)
	if t.Work.FinalSeats > q.limit { // the same work on fewer seats
		final := t.Work.final()
		t.Work.FinalSeats = q.limit
		t.Work.FinalTime = final.per(q.limit)
	}
	if t.kept = kept; kept {
		q.keptExecuting++
		q.keptInUse += t.Work.Max()
	}
	before := best.active()
	best.executing.push(t)
	q.noteActive(best, before)
	q.start(now, t)
	q.noteDemand(now)
	best.seats += t.Work.Max()
	q.queuedSeats += t.Work.Max()
	best.nextR += t.total
	q.bound(best)
	return true
}

// next returns the queue whose first ticket would end first, of all, or of those that may take kept seats; nil: there
// is none. Among equals, the one that comes first after the last one dispatched wins. figures, if not nil, gets the
// bounds of the virtual times.
func (q *Queues) next(kept bool, figures *dispatchFigures) *queue {
	var best *queue
	var bestEnd SeatSeconds
	bestAfter := 0
	for _, one := range q.backlogs {
		if kept && !q.mayKeep(one) {
			continue
		}
		if figures != nil {
			figures.next.add(one.nextR)
			figures.expected.add(one.nextR - work(float64(one.seats), serviceTime))
		}
		end := one.nextR + one.waiting.first.total
		after := one.index - q.robin - 1
		if after < 0 {
			after += len(q.all)
		}
		if best == nil || end < bestEnd || end == bestEnd && after < bestAfter {
			best, bestEnd, bestAfter = one, end, after
		}
	}
	return best
}

// shortest is the part of the kept seats that a request may take, or one.
const shortest = 4

// mayKeep says whether a queue has no seats, and its first ticket may take kept ones.
func (q *Queues) mayKeep(one *queue) bool {
	seats := one.waiting.first.Work.Max()
	return one.seats == 0 && seats <= max(1, q.shape.Kept/shortest) && q.keptInUse+seats <= q.shape.Kept
}

// open is the seats that are not kept.
func (q *Queues) open() int { return q.limit - q.shape.Kept }

// start begins the execution of a ticket.
func (q *Queues) start(now time.Time, t *Ticket) {
	t.state, t.started = executing, now
	q.executing++
	q.seatsInUse += t.Work.Max()
	q.dispatched = append(q.dispatched, t)
}

// accommodates says whether there are so many free seats, without those that are kept. A request that needs more than
// there are at all begins when no other one executes.
func (q *Queues) accommodates(seats int) bool {
	switch {
	case q.exempt():
		return true
	case seats > q.open():
		return q.executing == q.keptExecuting
	}
	return q.seatsInUse-q.keptInUse+seats <= q.open()
}

// bound raises nextR of a queue to the arrival of its next request. Otherwise a queue that was empty for an hour would
// be an hour behind all others, and its requests alone be dispatched until it has caught up.
//
//	first ticket t waits in q  ⇒  q.nextR ≥ t.arrivalR
func (q *Queues) bound(one *queue) {
	if t := one.waiting.first; t != nil && one.nextR < t.arrivalR {
		one.nextR = t.arrivalR
	}
}

// removeEmpty removes a queue without requests if there are more than there should be.
func (q *Queues) removeEmpty(one *queue) {
	if len(q.all) <= q.shape.Queues || one.active() {
		return
	}
	one.removed = true
	q.queuedSeats -= one.seats // of other requests in their final time
	q.all = append(q.all[:one.index], q.all[one.index+1:]...)
	for _, later := range q.all[one.index:] {
		if later != nil {
			later.index--
		}
	}
	if q.robin >= one.index {
		q.robin--
	}
}

// check computes the sums from scratch.
func (q *Queues) check() {
	waits, seats, active := 0, 0, 0
	for i, one := range q.all {
		if one == nil {
			continue
		}
		waits += one.waiting.n
		seats += one.seats + one.waitingMax
		if one.active() {
			active++
		}
		if one.index != i || one.removed || one.waiting.n > 0 && q.backlogs[one.backlog] != one {
			invariants.Fail("fairness: queue %d is not where it should be", i)
		}
	}
	if waits != q.waiting || seats != q.queuedSeats || active != q.active || q.seatsInUse < 0 || q.executing < 0 ||
		q.keptInUse < 0 || q.keptExecuting < 0 || q.keptInUse > q.seatsInUse {
		invariants.Fail("fairness: %d waiting, %d seats, %d active; should be %d, %d, %d", q.waiting, q.queuedSeats,
			q.active, waits, seats, active)
	}
}
