package merge

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	histories = flag.Uint64("histories", 2000, "how many random histories to run")
	seed      = flag.Uint64("seed", 1, "what they are made from")
	only      = flag.Uint64("only", 0, "run the history of this number alone")
	length    = flag.Int("length", 12, "operations in a history")
	enough    = flag.Int64("enough", 5, "how many differences end the run")
	scattered = flag.Float64("scattered", 0, "how often an update scatters the managedFields that there are")
	alone     = flag.Bool("alone", false, "run the histories through upstream alone, values of wrong types among them")
)

// tally counts what histories consist of, so that a generator that no longer produces something is noticed.
type tally struct {
	steps, applies, conflicts, refused, internal, same, untracked, moody atomic.Int64

	mu        sync.Mutex
	explained map[string]int
}

func (c *tally) explain(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explained[name]++
}

func (c *tally) add(op step, o outcome) {
	c.steps.Add(1)
	if o.lost != nil {
		c.untracked.Add(1)
	}
	if op.verb == apply {
		c.applies.Add(1)
	}
	if r, ok := o.err.(*refusal); ok {
		switch r.kind {
		case "conflict":
			c.conflicts.Add(1)
		case "internal":
			c.internal.Add(1)
		default:
			c.refused.Add(1)
		}
	} else if o.same && op.verb != reschema {
		c.same.Add(1)
	}
}

func (c *tally) String() string {
	return fmt.Sprintf(
		"%d operations: %d applies, %d conflicts, %d failed, %d refused otherwise, %d without a change, %d updates not tracked, %d where upstream is of two minds",
		c.steps.Load(), c.applies.Load(), c.conflicts.Load(), c.internal.Load(), c.refused.Load(), c.same.Load(),
		c.untracked.Load(), c.moody.Load())
}

// SPEC: SSA-1 SSA-3 SSA-4 SSA-5 SSA-6 SSA-7 SSA-8 SSA-9 SSA-10 SSA-11 SSA-13 SSA-14 SSA-15 SSA-16
func TestHistories(t *testing.T) {
	builtinKinds()
	var next atomic.Uint64
	last := *histories
	if *only > 0 {
		next.Store(*only - 1)
		last = *only
	}
	var found atomic.Int64
	count := &tally{explained: map[string]int{}}
	t.Run("all", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					number := next.Add(1)
					if number > last || found.Load() >= *enough {
						return
					}
					var told string
					synctest.Test(t, func(*testing.T) { told = differs(number, count) })
					if told != "" {
						found.Add(1)
						t.Error(told)
					}
				}
			})
		}
	})
	t.Log(count)
	for _, name := range keysOf(count.explained) {
		t.Logf("%d times: %s", count.explained[name], name)
	}
	if *only > 0 || *alone || *scattered > 0 || *histories < 1000 || t.Failed() {
		return
	}
	// Minimum shares of the operations: without them, the comparison might have compared nothing.
	for _, c := range []struct {
		what  string
		n     int64
		share int64 // at least one operation in this many
	}{
		{"applies", count.applies.Load(), 4}, {"conflicts", count.conflicts.Load(), 20},
		{"operations without a change", count.same.Load(), 12}, {"applies that are refused", count.refused.Load(), 100},
		{"applies that fail", count.internal.Load(), 300}, {"updates that are not tracked", count.untracked.Load(), 300},
	} {
		if c.n < count.steps.Load()/c.share {
			t.Errorf("of %d operations only %d are %s", count.steps.Load(), c.n, c.what)
		}
	}
	// And maximum shares: an explanation that matches everything would pass for agreement.
	explained := 0
	for _, n := range count.explained {
		explained += n
	}
	if most := int(count.steps.Load() / 33); explained > most {
		t.Errorf("%d of %d operations differ and are explained", explained, count.steps.Load())
	}
	if most := int64(*histories / 50); count.moody.Load() > most {
		t.Errorf("upstream's outcome varies in %d of %d histories", count.moody.Load(), *histories)
	}
	for _, e := range explanations {
		if *histories >= 50_000 && count.explained[e.name] == 0 {
			t.Errorf("no history is explained by: %s", e.name)
		}
	}
}

// differs runs one history and reports a difference.
func differs(number uint64, count *tally) string {
	g := newGenerator(*seed, number)
	if *alone {
		g.wrong = 0.003
	}
	h, outcomes := g.history(*length, time.Now)
	for i, o := range outcomes {
		count.add(h.steps[i], o)
	}
	if *alone {
		return ""
	}
	d := h.difference(plinth{}, count.explain)
	if d == nil {
		return ""
	}
	if d.moody {
		count.moody.Add(1)
		return ""
	}
	h = h.minimised(plinth{}, d)
	if d = h.difference(plinth{}, nil); d == nil || d.moody {
		count.moody.Add(1)
		return ""
	}
	return fmt.Sprintf("history %d of seed %d:\n%s", number, *seed, h.scenario("a difference", d))
}

// difference is an operation for which an engine's outcome differs from upstream's.
type difference struct {
	at        int
	op        step
	want, got outcome
	kinds     *kind // the kind at that time
	moody     bool  // upstream's outcome varies between runs
}

// difference runs a history through upstream and another engine; nil if they agree, or if all differences are
// explained. After an explained difference both continue from upstream's outcome.
func (h *history) difference(e engine, explain func(string)) *difference {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // every run begins at a full second
	theirs, ours := &state{kind: h.kind}, &state{kind: h.kind}
	for i, op := range h.steps {
		if op.wait > 0 {
			time.Sleep(op.wait)
		}
		before := *theirs
		now := time.Now()
		want, got := theirs.do(upstream{}, op, now), ours.do(e, op, now)
		if want.String() == got.String() {
			continue
		}
		d := &difference{at: i, op: op, want: want, got: got, kinds: theirs.kind}
		if why := h.explanation(d); why != nil {
			if explain != nil {
				explain(why.name)
			}
			*ours = *theirs
			continue
		}
		for range 12 {
			again := before
			if other := again.do(upstream{}, op, now); other.String() != want.String() {
				d.moody = true
			}
		}
		return d
	}
	return nil
}
