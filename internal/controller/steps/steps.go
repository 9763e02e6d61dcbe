// Package steps runs the controllers of all planes of a process on a bounded number of goroutines.
//
// The problem: a controller waits nearly all the time, for a change of its objects or for a moment to come. With a
// goroutine for each thing that it waits for, a plane had fifty of them that did nothing, with a stack each, and a
// thousand planes fifty thousand.
//
// So a controller is one or several loops (Loop), and what is left of a loop between two rounds is a value: a watch
// that says when it has something (engine.Watch.Ready), and the moment at which the next round is due. A round is a
// step: a function that does what there is to do and returns. A loop that is woken, or whose moment has come, is ready,
// and its step is run by a goroutine of the Pool, which ends when no loop is ready:
//
//	goroutines ≤ most at all times; none while all loops wait
//	a loop is woken while its step runs  ⇒  the step runs again
//
// A Group has the loops that end together: those of a plane. Groups take turns, and none runs more than its share of
// steps at a time, so that a plane whose steps wait for a webhook that does not answer delays no other plane.
//
// A step may wait for the store, and for those whom its writes have to ask, but never for another step.
package steps

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Pool is the goroutines on which steps run.
type Pool struct {
	most int

	mu      sync.Mutex // guards all below, and the fields of groups and loops that say so. Nothing is locked under it.
	running int        // goroutines
	worker  func()     // work
	turns   []*Group   // those with something to run that run less than their share; who is first is next
}

// NewPool returns a pool of at most so many goroutines.
func NewPool(most int) *Pool {
	p := &Pool{most: most}
	p.worker = p.work
	return p
}

// Group is loops that end together.
//
//	inTurn ⇔ the group is in pool.turns;  ready ≠ ∅ and running < share  ⇒  inTurn
type Group struct {
	pool  *Pool
	share int // how many of its steps run at a time
	ctx   context.Context

	// Pool.mu guards the following.
	ready   []func() // what is to be run, oldest first
	running int
	inTurn  bool
	closed  bool
	loops   map[*Loop]struct{}
	idle    chan struct{} // closed when nothing runs; nil: nobody waits for that
}

// Group returns a group without loops, of whose steps share run at a time. Steps get a context that ends with ctx. The
// caller calls Close.
func (p *Pool) Group(ctx context.Context, share int) *Group {
	return &Group{pool: p, share: share, ctx: ctx, loops: map[*Loop]struct{}{}}
}

// Run runs the loops that start begins, until ctx ends.
func (p *Pool) Run(ctx context.Context, share int, start func(*Group)) {
	g := p.Group(ctx, share)
	start(g)
	<-ctx.Done()
	g.Close()
}

// Context ends no later than the group.
func (g *Group) Context() context.Context { return g.ctx }

// Do runs f once, soon. It is not run if the group is closed, or its context has ended.
func (g *Group) Do(f func()) {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	g.do(f)
}

// do is Do. The caller holds mu.
func (g *Group) do(f func()) {
	if g.closed {
		return
	}
	g.ready = append(g.ready, f)
	g.queue()
}

// queue gives the group a turn, if it has something to run and may. The caller holds mu.
func (g *Group) queue() {
	p := g.pool
	if !g.inTurn && len(g.ready) > 0 && g.running < g.share {
		g.inTurn = true
		p.turns = append(p.turns, g)
	}
	if len(p.turns) > 0 && p.running < p.most {
		p.running++
		go p.worker()
	}
}

// work runs what is ready, until nothing is.
func (p *Pool) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.turns) > 0 {
		g := p.turns[0]
		p.turns = slices.Delete(p.turns, 0, 1)
		g.inTurn = false
		if len(g.ready) == 0 { // it was closed
			continue
		}
		f := g.ready[0]
		g.ready = slices.Delete(g.ready, 0, 1)
		g.running++
		g.queue()
		p.mu.Unlock()
		if g.ctx.Err() == nil {
			f()
		}
		p.mu.Lock()
		g.running--
		g.queue()
		if g.running == 0 && g.idle != nil {
			close(g.idle)
			g.idle = nil
		}
	}
	p.running--
}

// Busy says whether a step of the group runs, or is to run now.
func (g *Group) Busy() bool {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	return g.running > 0 || len(g.ready) > 0
}

// Due is when the next step is due that waits for a moment; zero: none does.
func (g *Group) Due() (first time.Time) {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	for l := range g.loops {
		if first.IsZero() || !l.due.IsZero() && l.due.Before(first) {
			first = l.due
		}
	}
	return first
}

// Close ends the loops, and waits for the steps that run. They have to end with the context of the group.
func (g *Group) Close() {
	p := g.pool
	p.mu.Lock()
	g.closed, g.ready = true, nil
	var loops []*Loop
	for l := range g.loops {
		loops = append(loops, l)
	}
	var idle chan struct{}
	if g.running > 0 {
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle = g.idle
	}
	p.mu.Unlock()
	for _, l := range loops {
		l.Stop()
	}
	if idle != nil {
		<-idle
	}
}

// Step is one round of a loop. It is not called again before it has returned. next is when it is to be called at the
// latest; zero: when the loop is woken. If that moment has passed, it is called again at once, after others that wait.
type Step func(ctx context.Context, l *Loop) (next time.Time)

// Loop is a controller, or a part of one, that waits.
type Loop struct {
	group  *Group
	step   Step
	end    func()
	ctx    context.Context
	cancel context.CancelFunc
	// Wake and run, as functions that are made once: a loop is woken by each change of what it follows.
	waker, runner func()

	// Pool.mu guards the following.
	state state
	again bool      // woken while the step ran
	due   time.Time // while it waits; zero: for no moment
	timer *time.Timer
}

type state uint8

const (
	waits   state = iota
	ready         // its step is to be run
	runs          // its step is running
	ends          // its step is running for the last time
	stopped       // end was called, or is being called
)

// Loop begins a loop, whose first step is run soon. end is called once, when the loop was stopped or the group is
// closed, and no step runs; nil: there is nothing to end.
func (g *Group) Loop(step Step, end func()) *Loop {
	l := &Loop{group: g, step: step, end: end}
	l.ctx, l.cancel = context.WithCancel(g.ctx)
	l.waker, l.runner = l.Wake, l.run
	g.pool.mu.Lock()
	closed := g.closed
	if !closed {
		g.loops[l] = struct{}{}
		l.wake()
	}
	g.pool.mu.Unlock()
	if closed {
		l.Stop()
	}
	return l
}

// Wake makes the step run soon, or once more. It does not wait, and may be called with locks held.
func (l *Loop) Wake() {
	l.group.pool.mu.Lock()
	defer l.group.pool.mu.Unlock()
	l.wake()
}

// Waker is Wake as a function.
func (l *Loop) Waker() func() { return l.waker }

// wake is Wake. The caller holds mu.
func (l *Loop) wake() {
	switch l.state {
	case waits:
		l.state = ready
		l.schedule(time.Time{})
		l.group.do(l.runner)
	case runs:
		l.again = true
	}
}

// schedule sets the moment at which the loop is woken; zero: none. The caller holds mu.
func (l *Loop) schedule(due time.Time) {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.due = due; !due.IsZero() {
		l.timer = time.AfterFunc(time.Until(due), l.waker)
	}
}

// run runs the step.
func (l *Loop) run() {
	p := l.group.pool
	p.mu.Lock()
	if l.state != ready { // stopped meanwhile
		p.mu.Unlock()
		return
	}
	l.state, l.again = runs, false
	p.mu.Unlock()
	next := l.step(l.ctx, l)
	p.mu.Lock()
	if l.state == ends {
		l.state = stopped
		p.mu.Unlock()
		l.ended()
		return
	}
	l.state = waits
	switch {
	case l.again, !next.IsZero() && !next.After(time.Now()):
		l.wake()
	case !l.group.closed:
		l.schedule(next)
	}
	p.mu.Unlock()
}

// Stop ends the loop. It does not wait for a step that runs, whose context it cancels: the step itself may call it.
func (l *Loop) Stop() {
	p := l.group.pool
	p.mu.Lock()
	delete(l.group.loops, l)
	l.schedule(time.Time{})
	was := l.state
	switch was {
	case runs:
		l.state = ends
	case waits, ready:
		l.state = stopped
	}
	p.mu.Unlock()
	l.cancel()
	if was == waits || was == ready {
		l.ended()
	}
}

func (l *Loop) ended() {
	if l.end != nil {
		l.end()
	}
}
