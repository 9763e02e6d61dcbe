package steps

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Loops that wait have no goroutines; those that are woken together share a bounded number of them, and each has its
// step run.
//
// SPEC: BEY-11
func TestGoroutinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, share, groups, each = 12, 3, 10, 20
		p := NewPool(most)
		var running, peak, ran atomic.Int64
		block := make(chan struct{})
		close(block)
		var all []*Loop
		var made []*Group
		for range groups {
			g := p.Group(t.Context(), share)
			made = append(made, g)
			for range each {
				all = append(all, g.Loop(func(context.Context, *Loop) (never time.Time) {
					now := running.Add(1)
					for {
						before := peak.Load()
						if now <= before || peak.CompareAndSwap(before, now) {
							break
						}
					}
					<-block
					running.Add(-1)
					ran.Add(1)
					return never
				}, nil))
			}
		}
		synctest.Wait()
		if n := ran.Swap(0); n != groups*each {
			t.Fatalf("%d first steps were run", n)
		}
		before := runtime.NumGoroutine()
		block = make(chan struct{})
		peak.Store(0)
		for _, l := range all {
			l.Wake()
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n != most || peak.Load() != most {
			t.Errorf("there are %d goroutines, and %d steps at a time, of %d", n, peak.Load(), most)
		}
		p.mu.Lock()
		for i, g := range made {
			if g.running > share {
				t.Errorf("group %d has %d steps at a time", i, g.running)
			}
		}
		p.mu.Unlock()
		close(block)
		synctest.Wait()
		if n := ran.Load(); n != groups*each {
			t.Errorf("%d steps were run", n)
		}
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("%d goroutines are left, of %d", n, before)
		}
		for _, g := range made {
			g.Close()
		}
	})
}

// A group whose steps do not return leaves the others what is not its share.
//
// SPEC: BEY-11
func TestGroupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(4)
		ctx, cancel := context.WithCancel(t.Context())
		stuck := p.Group(ctx, 3)
		for range 10 {
			stuck.Loop(func(ctx context.Context, _ *Loop) (never time.Time) {
				<-ctx.Done()
				return never
			}, nil)
		}
		other, ran := p.Group(t.Context(), 3), 0
		for range 10 {
			other.Loop(func(context.Context, *Loop) (never time.Time) { ran++; return never }, nil)
		}
		synctest.Wait()
		if ran != 10 {
			t.Errorf("%d steps were run beside a group that is stuck", ran)
		}
		cancel()
		stuck.Close()
		other.Close()
	})
}

// A loop that is woken while its step runs, has it run again; one whose moment comes, then; and not after it was
// stopped.
//
// SPEC: BEY-11
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewPool(2).Group(t.Context(), 2)
		began := time.Now()
		var at []time.Duration
		ended := 0
		l := g.Loop(func(_ context.Context, l *Loop) (next time.Time) {
			at = append(at, time.Since(began))
			switch len(at) {
			case 1:
				l.Wake()
			case 2:
				next = time.Now().Add(time.Minute)
			case 3:
				next = time.Now() // at once
			}
			return next
		}, func() { ended++ })
		synctest.Wait()
		if due := g.Due(); !due.Equal(began.Add(time.Minute)) || g.Busy() {
			t.Errorf("it is due at %s", due)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, 0, time.Minute, time.Minute}; !slices.Equal(at, want) {
			t.Errorf("the step was run after %v, want %v", at, want)
		}
		if !g.Due().IsZero() {
			t.Error("it is due, and waits for nothing")
		}
		l.Wake()
		synctest.Wait()
		l.Stop()
		l.Wake()
		synctest.Wait()
		if len(at) != 5 || ended != 1 {
			t.Errorf("%d steps were run, and it has ended %d times", len(at), ended)
		}
		g.Close()
		runs := func(context.Context, *Loop) (never time.Time) { t.Error("it runs"); return never }
		if g.Loop(runs, func() { ended++ }); ended != 2 {
			t.Error("a loop of a closed group has not ended")
		}
	})
}

// Close waits for steps, which end with their context, and no step is run after it; whatever happens meanwhile.
//
// SPEC: BEY-11
func TestClose(t *testing.T) {
	p := NewPool(8)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		g := p.Group(ctx, 4)
		var closed atomic.Bool
		var ends atomic.Int64
		var wakers sync.WaitGroup
		for i := range 8 {
			l := g.Loop(func(ctx context.Context, l *Loop) (next time.Time) {
				if closed.Load() {
					t.Error("a step runs in a group that is closed")
				}
				if i == 7 {
					l.Stop()
				}
				runtime.Gosched()
				return time.Now().Add(time.Duration(i) * time.Microsecond)
			}, func() { ends.Add(1) })
			wakers.Go(func() {
				for range 20 {
					l.Wake()
					g.Do(func() { runtime.Gosched() })
				}
			})
		}
		cancel()
		g.Close()
		closed.Store(true)
		wakers.Wait()
		if n := ends.Load(); n != 8 {
			t.Fatal(fmt.Sprint(n, " of 8 loops have ended"))
		}
	}
}
