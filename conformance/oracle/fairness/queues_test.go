package fairness

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"

	"plinth/internal/fairness"
)

var (
	traces = flag.Int("traces", 400, "number of traces")
	seed   = flag.Uint64("seed", 1, "of the first trace")
)

var start = time.Unix(1_700_000_000, 0)

// step is one step of a trace. The requests are numbered in the order of their arrival.
type step struct {
	at     time.Duration
	kind   string // "arrive", "finish", "leave" or "configure"
	number int    // of the request that finishes or leaves, among those that can, modulo their number
	hash   uint64
	work   fairness.Work
	shape  fairness.Shape
	limit  int
}

// side is one of the two implementations.
type side interface {
	arrive(now time.Time, n int, s *step)
	finish(now time.Time, n int)
	leave(now time.Time, n int)
	configure(now time.Time, s *step)
	log() *history
}

// history is the log of a trace, and which requests wait and are executed.
type history struct {
	lines              []string
	waiting, executing []int
}

func (h *history) note(text string, n int) { h.lines = append(h.lines, fmt.Sprintf("%s %d", text, n)) }

func (h *history) dispatched(n int) {
	h.note("dispatched", n)
	h.waiting = slices.DeleteFunc(h.waiting, func(one int) bool { return one == n })
	h.executing = append(h.executing, n)
}

// ended removes a request that was dispatched or waits.
func (h *history) ended(n int) {
	is := func(one int) bool { return one == n }
	h.waiting, h.executing = slices.DeleteFunc(h.waiting, is), slices.DeleteFunc(h.executing, is)
}

// later is an event at a time, such as the end of a final time.
type later struct {
	at time.Time
	do func()
}

// agenda has events in the order of their times.
type agenda []later

func (a *agenda) add(at time.Time, do func()) {
	i := len(*a)
	for i > 0 && (*a)[i-1].at.After(at) {
		i--
	}
	*a = slices.Insert(*a, i, later{at, do})
}

func (a *agenda) next(until time.Time) (later, bool) {
	if len(*a) == 0 || (*a)[0].at.After(until) {
		return later{}, false
	}
	first := (*a)[0]
	*a = (*a)[1:]
	return first, true
}

// ours is plinth's side.
type ours struct {
	history
	queues  *fairness.Queues
	tickets []*fairness.Ticket
	agenda  agenda
}

func (o *ours) log() *history { return &o.history }

func (o *ours) note(all []*fairness.Ticket) {
	for _, t := range slices.Clone(all) {
		o.history.dispatched(slices.Index(o.tickets, t))
	}
}

func (o *ours) until(now time.Time) {
	for event, ok := o.agenda.next(now); ok; event, ok = o.agenda.next(now) {
		event.do()
	}
}

func (o *ours) arrive(now time.Time, n int, s *step) {
	t := &fairness.Ticket{Work: s.work}
	o.tickets = append(o.tickets, t)
	o.waiting = append(o.waiting, n)
	dispatched, ok := o.queues.Arrive(now, t, s.hash)
	if !ok {
		o.history.note("refused", n)
		o.ended(n)
		return
	}
	o.note(dispatched)
}

func (o *ours) finish(now time.Time, n int) {
	o.ended(n)
	dispatched, lingers := o.queues.Finish(now, o.tickets[n])
	if lingers != nil {
		at := now.Add(lingers.For)
		o.agenda.add(at, func() { o.note(o.queues.Release(at, lingers)) })
	}
	o.note(dispatched)
}

func (o *ours) leave(now time.Time, n int) {
	o.ended(n)
	o.queues.Leave(now, o.tickets[n])
}

func (o *ours) configure(now time.Time, s *step) { o.note(o.queues.Configure(now, s.shape, s.limit)) }

// theirs is upstream's side. It is its own clock.
type theirs struct {
	history
	t        *testing.T
	set      fairqueuing.QueueSet
	name     string // of its level, in metrics
	gauges   gauges
	requests []fairqueuing.Request
	cancel   []context.CancelFunc
	now      time.Time
	agenda   agenda
	leaving  bool
}

var _ eventclock.Interface = (*theirs)(nil)

func (u *theirs) Now() time.Time                   { return u.now }
func (u *theirs) Since(at time.Time) time.Duration { return u.now.Sub(at) }
func (u *theirs) Sleep(time.Duration)              { panic("a queue set does not sleep") }

func (u *theirs) EventAfterDuration(f eventclock.EventFunc, d time.Duration) {
	u.EventAfterTime(f, u.now.Add(d))
}

func (u *theirs) EventAfterTime(f eventclock.EventFunc, at time.Time) {
	u.agenda.add(at, func() { f(at) })
}

func (u *theirs) until(now time.Time) {
	for event, ok := u.agenda.next(now); ok; event, ok = u.agenda.next(now) {
		u.now = event.at
		event.do()
	}
	u.now = now
}

func (u *theirs) log() *history { return &u.history }

func (u *theirs) arrive(_ time.Time, n int, s *step) {
	ctx, cancel := context.WithCancel(u.t.Context())
	u.cancel = append(u.cancel, cancel)
	u.waiting = append(u.waiting, n)
	estimate := &request.WorkEstimate{InitialSeats: uint64(s.work.Seats), FinalSeats: uint64(s.work.FinalSeats),
		AdditionalLatency: s.work.FinalTime}
	queued := false
	one, _ := u.set.StartRequest(ctx, estimate, s.hash, "", "", nil, nil, func(inQueue bool) {
		queued = true
		if !inQueue && !u.leaving {
			u.dispatched(n)
		}
	})
	u.requests = append(u.requests, one)
	switch {
	case one == nil:
		u.note("refused", n)
		u.ended(n)
	case !queued:
		u.dispatched(n)
	}
}

func (u *theirs) finish(_ time.Time, n int) {
	u.ended(n)
	executed := false
	u.requests[n].Finish(func() { executed = true })
	if !executed {
		u.t.Fatalf("upstream does not execute request %d", n)
	}
}

func (u *theirs) leave(_ time.Time, n int) {
	u.ended(n)
	u.leaving = true
	u.cancel[n]()
	u.requests[n].Finish(func() { u.t.Fatalf("upstream executes request %d", n) })
	u.leaving = false
}

func (u *theirs) configure(_ time.Time, s *step) {
	completer, err := u.set.BeginConfigChange(configOf(u.name, &s.shape))
	if err != nil {
		u.t.Fatal(err)
	}
	completer.Complete(dispatching(s.limit, s.shape.Share))
	u.gauges.demand.SetDenominator(float64(dispatching(s.limit, s.shape.Share).ConcurrencyDenominator))
}

func dispatching(limit, share int) fairqueuing.DispatchingConfig {
	c := fairqueuing.DispatchingConfig{ConcurrencyLimit: limit, ConcurrencyDenominator: limit}
	if limit == 0 {
		c.ConcurrencyDenominator = share
	}
	return c
}

func configOf(name string, s *fairness.Shape) fairqueuing.QueuingConfig {
	return fairqueuing.QueuingConfig{
		Name: name, DesiredNumQueues: s.Queues, HandSize: s.HandSize, QueueLengthLimit: s.Length,
	}
}

// newSides returns both with the same queues.
func newSides(t *testing.T, name string, shape fairness.Shape, limit int) (*ours, *theirs) {
	u := &theirs{t: t, now: start, name: name}
	u.gauges = newGauges(u.Now)
	completer, err := queueset.NewQueueSetFactory(u).BeginConstruction(configOf(name, &shape),
		metrics.RatioedGaugePair{RequestsWaiting: u.gauges.waiting, RequestsExecuting: u.gauges.executing},
		u.gauges.seats, u.gauges.demand)
	if err != nil {
		t.Fatal(err)
	}
	u.set = completer.Complete(dispatching(limit, shape.Share))
	u.gauges.demand.SetDenominator(float64(dispatching(limit, shape.Share).ConcurrencyDenominator))
	return &ours{queues: fairness.NewQueues(start, shape, limit)}, u
}

func hasFinalSeats(s step) bool { return s.work.FinalSeats > 0 }

func randomShape(random *rand.Rand, least int) fairness.Shape {
	if least == 0 && random.IntN(8) == 0 {
		return fairness.Shape{Queues: -random.IntN(2), Share: 7}
	}
	queues := least + 1 + random.IntN(12)
	return fairness.Shape{Queues: queues, HandSize: 1 + random.IntN(min(queues, 6)), Length: 1 + random.IntN(8),
		Share: 7}
}

// randomTrace makes a trace, and the shape and the limit that it begins with.
func randomTrace(random *rand.Rand) (shape fairness.Shape, limit int, steps []step) {
	shape, limit = randomShape(random, 0), random.IntN(12)
	finals, shrinks := random.IntN(2) == 0, random.IntN(2) == 0
	busy := 4 + random.IntN(4) // of ten steps, how many are arrivals
	flows := make([]uint64, 1+random.IntN(5))
	for i := range flows {
		flows[i] = random.Uint64()
	}
	at, now := time.Duration(0), shape
	for range 50 + random.IntN(250) {
		if random.IntN(3) > 0 {
			at += time.Duration(random.IntN(4_000_000))
		}
		s := step{at: at, number: random.IntN(1 << 20)}
		switch n := random.IntN(10); {
		case n < busy:
			s.kind, s.hash = "arrive", flows[random.IntN(len(flows))]
			s.work.Seats = 1
			if random.IntN(3) == 0 {
				s.work.Seats += random.IntN(10)
			}
			if finals && random.IntN(4) == 0 {
				s.work.FinalSeats, s.work.FinalTime = 1+random.IntN(10), time.Duration(random.IntN(20_000_000))
			}
		case n == 9 && random.IntN(3) == 0:
			s.kind, s.limit = "configure", random.IntN(12)
			if s.shape = now; random.IntN(2) == 0 && now.Queues > 0 {
				if !finals && shrinks {
					s.shape = randomShape(random, 1)
				} else {
					s.shape = randomShape(random, now.Queues)
				}
			}
			now = s.shape
		case n == 9 && random.IntN(2) == 0:
			s.kind = "leave"
		default:
			s.kind = "finish"
		}
		steps = append(steps, s)
	}
	return shape, limit, steps
}

// SPEC: AUTH-6
// The same requests are refused, and the others are dispatched in the same order and at the same step, as upstream; at
// the end the metrics of the queues have the same values.
func TestTraces(t *testing.T) {
	counts := map[string]int{}
	for i := range *traces {
		number := *seed + uint64(i)
		shape, limit, steps := randomTrace(rand.New(rand.NewPCG(number, 0)))
		o, u := newSides(t, fmt.Sprint("trace", number), shape, limit)
		arrived := 0
		for at := range steps {
			s := &steps[at]
			now := start.Add(s.at)
			o.until(now)
			u.until(now)
			arrived += play(s, now, arrived, o, u)
			counts[s.kind]++
			compareDumps(t, number, at, s, o, u)
			if our, their := strings.Join(o.lines, ", "), strings.Join(u.lines, ", "); our != their {
				t.Fatalf("trace %d, %+v, limit %d, step %d %+v:\n   ours: %s\n theirs: %s", number, shape, limit, at, *s, our,
					their)
			}
			for _, line := range o.lines {
				counts[strings.Fields(line)[0]]++
			}
			o.lines, u.lines = nil, nil
		}
		end := start.Add(steps[len(steps)-1].at + time.Hour)
		o.until(end)
		u.until(end)
		compareFigures(t, o.queues.Figures(end), u, slices.ContainsFunc(steps, hasFinalSeats), counts)
	}
	t.Log(counts)
	for _, what := range []string{"arrive", "finish", "leave", "configure", "refused", "dispatched",
		"dispatch_r", "latest_s", "next_s_bounds", "next_discounted_s_bounds", "priority_level_request_utilization",
		"priority_level_seat_utilization", "demand_seats"} {
		if counts[what] < *traces/10 {
			t.Errorf("only %d times %s", counts[what], what)
		}
	}
}

// compareDumps compares the state of the queues.
func compareDumps(t *testing.T, number uint64, at int, s *step, o *ours, u *theirs) {
	t.Helper()
	our, their := o.queues.Dump(), u.set.Dump(false).Queues
	if len(our) != len(their) {
		t.Fatalf("trace %d, step %d %+v: %d queues, upstream has %d", number, at, *s, len(our), len(their))
	}
	for i := range our {
		a, b := &our[i], &their[i]
		if a.Pending != len(b.Requests) || a.Executing != b.ExecutingRequests || a.SeatsInUse != b.SeatsInUse ||
			a.NextR.String() != b.NextDispatchR || a.SeatsSum != b.QueueSum.InitialSeatsSum ||
			a.MaxSum != b.QueueSum.MaxSeatsSum || a.WorkSum.String() != b.QueueSum.TotalWorkSum {
			t.Fatalf("trace %d, step %d %+v, queue %d:\n   ours: %+v\n theirs: %d waiting, %d executing, next %s, %+v",
				number, at, *s, i, *a, len(b.Requests), b.ExecutingRequests, b.NextDispatchR, b.QueueSum)
		}
	}
}

// play makes a step on both sides, and returns how many requests arrive in it.
func play(s *step, now time.Time, arrived int, sides ...side) int {
	h := sides[0].log()
	for _, one := range sides {
		switch {
		case s.kind == "arrive":
			one.arrive(now, arrived, s)
		case s.kind == "configure":
			one.configure(now, s)
		}
	}
	switch {
	case s.kind == "arrive":
		return 1
	case s.kind == "finish" && len(h.executing) > 0:
		n := h.executing[s.number%len(h.executing)]
		for _, one := range sides {
			one.finish(now, n)
		}
	case s.kind == "leave" && len(h.waiting) > 0:
		n := h.waiting[s.number%len(h.waiting)]
		for _, one := range sides {
			one.leave(now, n)
		}
	}
	return 0
}
