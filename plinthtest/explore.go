package plinthtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Step is something that happens while Explore runs the code under test: f is called when the code has come to rest,
// and acts through Driver. After it the code gets time again. There may be several steps. Only Explore has them.
func Step(f func(ctx context.Context, p *Plane) error) Option {
	return func(o *options) { o.steps = append(o.steps, f) }
}

// Rest is how much virtual time the code under test gets after its start and after each Step; without it ten minutes.
// It has to be enough for what is tried again. Only Explore uses it.
func Rest(d time.Duration) Option { return func(o *options) { o.rest = d } }

// Explore looks for a fault after which the code under test does not do its work any more. It runs the code without a
// fault, and then again for each single fault at each request that the code made:
//
//   - a write is refused with 409 (where it can be: an update, a patch, a delete), refused with 503, or carried out and
//     answered with 504;
//   - a GET or a list is refused with 503, or shows the state before the last change;
//   - a watch is broken off before one of its events, or refused with 410;
//   - the code crashes when the request has been carried out: its context ends, and start is called again.
//
// Each run has a bubble and a plane of its own. start begins the code under test, which makes its requests through
// p.Transport or p.Transport(user). It may block, and has to end what it began when ctx ends. check says, after the
// code has come to rest, whether its work is done: nil, or what is wrong. Objects has the objects to work on, and
// Step what happens to them later.
//
// Explore fails the test if check fails without a fault, or after one. It reports the run with the fewest requests
// among those that failed. The environment variable PLINTHTEST_FAULT with the fault that it names runs that one
// alone.
func Explore(t *testing.T, start func(ctx context.Context, p *Plane), check func(p *Plane) error, o ...Option) {
	t.Helper()
	findings := Find(t, start, check, o...)
	if len(findings) == 0 {
		return
	}
	first := findings[0]
	t.Errorf("plinthtest: after one fault, %v\nthe fault: %s\n(%d faults lead to a failure; "+
		"PLINTHTEST_FAULT=%q runs this one again)\nthe requests:\n%s", first.Err, first.Fault, len(findings), first.Fault,
		first.trace())
}

// Finding is a fault after which the code under test does not do its work any more.
type Finding struct {
	Fault    string // names the fault and the request, for PLINTHTEST_FAULT
	Err      error  // of check
	Requests Log    // of the run
	at       int    // the number of the request to which the fault happened
}

// Find is Explore without failing the test: it returns the findings, those with the fewest requests first.
func Find(t *testing.T, start func(ctx context.Context, p *Plane), check func(p *Plane) error, o ...Option) []Finding {
	t.Helper()
	var all options
	for _, option := range o {
		option(&all)
	}
	x := &exploration{t: t, start: start, check: check, options: o, steps: all.steps, rest: all.rest}
	if x.rest == 0 {
		x.rest = 10 * time.Minute
	}
	x.limit = maxRequests
	healthy := x.run(nil)
	if healthy.err != nil {
		t.Fatalf("plinthtest: without a fault, %v\nthe requests:\n%s", healthy.err, healthy.trace())
	}
	candidates := candidatesOf(healthy.log)
	if only := os.Getenv("PLINTHTEST_FAULT"); only != "" {
		candidates = slices.DeleteFunc(candidates, func(c *candidate) bool { return c.String() != only })
		if len(candidates) == 0 {
			t.Fatalf("plinthtest: the code under test makes no request for PLINTHTEST_FAULT=%q", only)
		}
	}
	x.limit = min(maxRequests, 1000+20*len(healthy.log))
	var findings []Finding
	reached := 0
	for _, c := range candidates {
		run := x.run(c)
		if run.at > 0 {
			reached++
		}
		if run.err != nil {
			findings = append(findings, Finding{Fault: c.String(), Err: run.err, Requests: run.requests(), at: run.at})
		}
	}
	t.Logf("plinthtest: %d faults at %d requests, %d of them reached, %d led to a failure", len(candidates),
		len(healthy.log), reached, len(findings))
	if reached < len(candidates)/2 {
		t.Errorf("plinthtest: only %d of %d faults were reached: the requests of the code under test are not the same in "+
			"each run", reached, len(candidates))
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return len(a.Requests) - len(b.Requests) })
	return findings
}

// maxTrace is how many requests a trace prints at most.
const maxTrace = 60

// trace prints the requests, with a mark at the fault. Of many it prints those before and behind the fault.
func (f *Finding) trace() string {
	var text strings.Builder
	from := max(0, min(f.at-maxTrace/2, len(f.Requests)-maxTrace))
	if from > 0 {
		fmt.Fprintf(&text, "   … %d requests\n", from)
	}
	for i := range f.Requests[from:] {
		if i == maxTrace {
			fmt.Fprintf(&text, "   … %d requests\n", len(f.Requests)-from-maxTrace)
			break
		}
		q := &f.Requests[from+i]
		mark := "   "
		if q.number == f.at {
			mark = "-> "
		}
		fmt.Fprintf(&text, "%s%s %s\n", mark, q.Time.UTC().Format("15:04:05.000"), q)
	}
	return text.String()
}

// exploration is the runs of one scenario.
type exploration struct {
	t       *testing.T
	start   func(context.Context, *Plane)
	check   func(*Plane) error
	options []Option
	steps   []func(context.Context, *Plane) error
	rest    time.Duration
	limit   int // of requests in a run
}

// candidate is a fault at one request: the nth that is called so.
type candidate struct {
	fault   string
	effect  Effect
	crash   bool
	request string // as Request.String, without the answer
	nth     int
}

// String is "refused with 409: update widgets default/a (2nd)", for example.
func (c *candidate) String() string { return fmt.Sprintf("%s: %s #%d", c.fault, c.request, c.nth) }

// asked is the request without its answer.
func (q *Request) asked() string {
	same := *q
	same.Code = 0
	return same.String()
}

// maxRequests is how many requests a run may have. Code that makes more does not come to rest.
const maxRequests = 20_000

// maxEvents is before how many events of one watch it is broken off.
const maxEvents = 5

// candidatesOf lists the faults for the requests of a run, in the order of the requests.
func candidatesOf(log []*Request) (all []*candidate) {
	unavailable := Status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
	met := map[string]int{}
	for _, q := range log {
		if q.Resource == "" {
			continue
		}
		asked := q.asked()
		met[asked]++
		add := func(fault string, e Effect, crash bool) {
			all = append(all, &candidate{fault: fault, effect: e, crash: crash, request: asked, nth: met[asked]})
		}
		switch {
		case q.writes():
			if q.Verb == "update" || q.Verb == "patch" || q.Verb == "delete" {
				add("refused with 409", Conflict, false)
			}
			add("refused with 503", unavailable, false)
			add("carried out, answered with 504", CommitThenTimeout, false)
			add("crash after it", Effect{}, true)
		case q.Verb == "get" || q.Verb == "list":
			add("refused with 503", unavailable, false)
			add("a stale answer", StaleReads, false)
			add("crash after it", Effect{}, true)
		case q.Verb == "watch":
			add("refused with 410", Expire410, false)
			for n := range min(q.batches, maxEvents) {
				add(fmt.Sprintf("broken off before event %d", n+1), DropWatchAfter(n), false)
			}
		}
	}
	return all
}

// runResult is the result of a run.
type runResult struct {
	err error
	log []*Request
	at  int // the number of the request to which the fault happened; 0: to none
}

func (r *runResult) requests() Log {
	all := make(Log, len(r.log))
	for i, q := range r.log {
		all[i] = *q
	}
	return all
}

func (r *runResult) trace() string { return (&Finding{Requests: r.requests(), at: r.at}).trace() }

// run runs the scenario in a bubble, with a fault or without one.
func (x *exploration) run(c *candidate) (result runResult) {
	synctest.Test(x.t, func(t *testing.T) {
		p := New(t, x.options...)
		code := &incarnations{x: x, p: p, ctx: t.Context()}
		if c != nil {
			code.arm(c, &result)
		}
		p.front.limit, p.front.over = x.limit, code.stop
		code.begin()
		result.err = code.live(t.Context())
		if result.err == nil {
			result.err = x.check(p)
		}
		code.end()
		synctest.Wait() // watches have ended, so their events are counted
		p.front.mu.Lock()
		result.log = slices.Clone(p.front.log)
		p.front.mu.Unlock()
	})
	return result
}

// incarnations are the code under test: a crash ends one, and begins the next.
type incarnations struct {
	x   *exploration
	p   *Plane
	ctx context.Context

	mu      sync.Mutex
	cancel  context.CancelFunc
	ended   chan struct{} // closed when start has returned
	stopped bool          // it has made too many requests
	work    sync.WaitGroup
}

// begin calls start.
func (i *incarnations) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	ctx, cancel := context.WithCancel(i.ctx)
	ended := make(chan struct{})
	i.cancel, i.ended = cancel, ended
	i.work.Go(func() {
		defer close(ended)
		i.x.start(ctx, i.p)
	})
}

// crash ends the code, and begins it again after a second.
func (i *incarnations) crash() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel()
	ended := i.ended
	i.work.Go(func() {
		<-ended
		if wait(i.ctx, time.Second) == nil {
			i.begin()
		}
	})
}

// stop ends the code that makes too many requests.
func (i *incarnations) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
	i.cancel()
}

// arm lets the fault happen to its request.
func (i *incarnations) arm(c *candidate, result *runResult) {
	rule := i.p.Fault(On{}, c.effect)
	rule.matches = func(q *Request) bool { return q.asked() == c.request }
	rule.on.Nth = c.nth
	rule.effect.hit = func(q *Request) { result.at = q.number }
	if c.crash {
		rule.effect.done = i.crash
	}
}

// live gives the code its time, and lets the steps happen.
func (i *incarnations) live(ctx context.Context) error {
	rest := func() error {
		time.Sleep(i.x.rest)
		err := i.p.Settle(ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.stopped {
			return fmt.Errorf("the code does not come to rest: it has made %d requests", i.x.limit)
		}
		return err
	}
	if err := rest(); err != nil {
		return err
	}
	for n, step := range i.x.steps {
		if err := step(ctx, i.p); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
		if err := rest(); err != nil {
			return err
		}
	}
	return nil
}

// end ends the code for good.
func (i *incarnations) end() {
	i.mu.Lock()
	i.cancel()
	i.mu.Unlock()
	i.work.Wait()
}
