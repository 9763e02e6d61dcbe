package execution

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scene is a Limiter whose requests run in a bubble, where time passes only while all of them wait.
type scene struct {
	t     *testing.T
	l     *Limiter
	share *Share
	mu    sync.Mutex
	ran   []string // the requests that have got a place, in this order
	wait  sync.WaitGroup
}

// inScene runs a test, and demands that all places are free at its end.
func inScene(t *testing.T, places, most int, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, l: New(places, most)}
		s.share = s.l.Share(1)
		test(s)
		s.wait.Wait()
		if f := s.l.Figures(); f.Held != 0 || f.Waiting != 0 {
			t.Errorf("at the end %d places are held, and %d requests wait", f.Held, f.Waiting)
		}
	})
}

func (s *scene) note(name string) {
	s.mu.Lock()
	s.ran = append(s.ran, name)
	s.mu.Unlock()
}

// start starts a request, whose work is a function, and waits until it works or waits.
func (s *scene) start(name string, b *Band, key uint64, work func(ctx context.Context, p *Place)) {
	s.wait.Go(func() {
		p := new(Place)
		defer p.Exit()
		ctx := With(context.Background(), p)
		if err := p.Enter(ctx, b, key); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		s.note(name)
		work(ctx, p)
	})
	synctest.Wait()
}

// takes is work for so long.
func takes(d time.Duration) func(context.Context, *Place) {
	return func(context.Context, *Place) { time.Sleep(d) }
}

func (s *scene) wants(want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.ran, want) {
		s.t.Errorf("got places:  %s\nshould have: %s", strings.Join(s.ran, " "), strings.Join(want, " "))
	}
}

// SPEC: AUTH-8
// Of one flow, requests execute in the order in which they came; one that comes back goes before those that have not
// begun.
func TestOrderOfOneFlow(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		s.start("a", b, 1, func(ctx context.Context, _ *Place) {
			Outside(ctx, func() { time.Sleep(time.Millisecond) })
			s.note("a again")
			time.Sleep(time.Millisecond)
		})
		s.start("b", b, 1, takes(10*time.Millisecond))
		s.start("c", b, 1, takes(time.Millisecond))
		s.start("d", b, 1, takes(time.Millisecond))
		s.wait.Wait()
		s.wants("a", "b", "a again", "c", "d")
	})
}

// SPEC: AUTH-8
// A flow with one request does not wait for all those of a flow with many, and two flows with many get the same time,
// although the requests of one of them are longer.
func TestFlows(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		for i := range 8 {
			s.start(fmt.Sprint("long", i), b, 1, takes(4*time.Millisecond))
		}
		for i := range 32 {
			s.start(fmt.Sprint("short", i), b, 2, takes(time.Millisecond))
		}
		s.start("one", b, 3, takes(time.Millisecond))
		time.Sleep(24 * time.Millisecond)
		synctest.Wait()
		s.mu.Lock()
		ran := slices.Clone(s.ran)
		s.mu.Unlock()
		count := map[string]int{}
		for _, name := range ran {
			count[strings.TrimRight(name, "0123456789")]++
		}
		if at := slices.Index(ran, "one"); at < 0 || at > 3 {
			t.Errorf("the flow with one request is number %d of %v", at, ran)
		}
		if count["long"] < 3 || count["long"] > 4 || count["short"] < 10 || count["short"] > 14 {
			t.Errorf("in 24 ms %d requests of 4 ms and %d of 1 ms of another flow: %v", count["long"], count["short"], ran)
		}
	})
}

// SPEC: AUTH-8
// Bands get time in proportion to their weights, and one that has wanted nothing is not behind for that.
func TestBands(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		heavy, light := s.share.Band(), s.share.Band()
		heavy.SetWeight(3)
		for range 40 {
			s.start("light", light, 1, takes(time.Millisecond))
		}
		time.Sleep(8 * time.Millisecond)
		for range 40 {
			s.start("heavy", heavy, 2, takes(time.Millisecond))
		}
		s.mu.Lock()
		before := len(s.ran)
		s.mu.Unlock()
		time.Sleep(16 * time.Millisecond)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		turns, n := s.ran[before:], 0
		for _, name := range turns {
			if name == "heavy" {
				n++
			}
		}
		if part := float64(n) / float64(len(turns)); len(turns) < 16 || part < 0.7 || part > 0.8 {
			t.Errorf("the band of weight 3 had %d of %d turns beside one of weight 1: %v", n, len(turns), s.ran)
		}
	})
}

// SPEC: AUTH-8
// Requests that take long do not keep out those of another band: it has a place beyond the number, but one only, and
// not before its turn if it has spent more than its part.
func TestPlaceBeyond(t *testing.T) {
	inScene(t, 2, 2, func(s *scene) {
		low, high := s.share.Band(), s.share.Band()
		high.SetWeight(4)
		done := make(chan struct{})
		for i := range 4 {
			s.start(fmt.Sprint("low", i), low, uint64(i), func(context.Context, *Place) { <-done })
		}
		s.wants("low0", "low1")
		s.start("high0", high, 1, func(context.Context, *Place) { <-done })
		s.wants("low0", "low1", "high0")
		if f := s.l.Figures(); f.Held != 3 {
			t.Errorf("%+v", f)
		}
		s.start("high1", high, 2, takes(0))
		s.wants("low0", "low1", "high0")
		done <- struct{}{}
		done <- struct{}{}
		done <- struct{}{}
		synctest.Wait()
		s.mu.Lock()
		n := len(s.ran)
		s.mu.Unlock()
		if n < 5 {
			t.Errorf("three have ended, and only %d have begun", n)
		}
		close(done)
		s.wait.Wait()
		if len(s.ran) != 6 {
			t.Errorf("%v", s.ran)
		}
	})
	// A band that has spent more waits for a free place, or until it is its turn.
	inScene(t, 1, 1, func(s *scene) {
		low, high := s.share.Band(), s.share.Band()
		high.SetWeight(1000)
		s.start("high0", high, 1, takes(40*time.Millisecond))
		s.start("low0", low, 2, takes(20*time.Millisecond)) // beyond
		s.start("low1", low, 2, takes(0))
		time.Sleep(30 * time.Millisecond)
		s.wants("high0", "low0")
		time.Sleep(10 * time.Millisecond)
		s.wants("high0", "low0", "low1")
	})
	inScene(t, 1, 1, func(s *scene) {
		low, high := s.share.Band(), s.share.Band()
		s.start("high0", high, 1, takes(100*time.Millisecond))
		s.start("low0", low, 2, takes(20*time.Millisecond)) // both spend 20 ms
		s.start("low1", low, 2, takes(20*time.Millisecond))
		time.Sleep(30 * time.Millisecond)
		s.start("low2", low, 2, takes(0)) // has spent 40 ms of 100 that are not over
		s.wants("high0", "low0", "low1")
		time.Sleep(40 * time.Millisecond)
		s.wants("high0", "low0", "low1", "low2")
	})
}

// SPEC: AUTH-8
// A flow that has executed long has its turn again, although there are always requests of flows that have not executed
// at all.
func TestNobodyStarves(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		s.start("first", b, 1, takes(50*time.Millisecond))
		var done atomic.Bool
		s.start("second", b, 1, func(context.Context, *Place) { done.Store(true) })
		s.start("new", b, 9, takes(time.Millisecond))
		time.Sleep(50 * time.Millisecond)
		for i := range 200 {
			s.start("new", b, uint64(10+i), takes(time.Millisecond))
			time.Sleep(time.Millisecond)
			if done.Load() {
				return
			}
		}
		t.Error("a request waits while 200 flows come and go")
	})
}

// SPEC: AUTH-8
// A request whose context ends leaves the queue; one that has got its place at the same time gives it back.
func TestContextEnds(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		s.start("a", b, 1, takes(10*time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		p := new(Place)
		if err := p.Enter(ctx, b, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request whose time is over: %v", err)
		}
		if f := s.l.Figures(); f.Waiting != 0 || f.Held != 1 {
			t.Errorf("it has left %+v", f)
		}
		p.Exit() // has no effect
		returned := false
		s.wait.Go(func() {
			p := new(Place)
			defer p.Exit()
			if err := p.Enter(context.Background(), b, 2); err != nil {
				t.Error(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			if !p.Leave() {
				t.Error("a request in its place has none")
			}
			s.start("b", b, 1, takes(10*time.Millisecond))
			cancel()
			returned = errors.Is(p.Return(ctx), context.Canceled)
		})
		s.wait.Wait()
		if !returned {
			t.Error("a request without time has waited to return")
		}
	})
}

// SPEC: AUTH-8
// A request whose context ends when it gets its place does not lose it.
func TestContextEndsAtOnce(t *testing.T) {
	for range 2000 {
		l := New(1, 1)
		b := l.Share(1).Band()
		var first, second Place
		if err := first.Enter(t.Context(), b, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() {
			_ = second.Enter(ctx, b, 2) // may end in either way
			second.Exit()
		})
		wait.Go(cancel)
		wait.Go(first.Exit)
		wait.Wait()
		if f := l.Figures(); f.Held != 0 || f.Waiting != 0 {
			t.Fatalf("%+v", f)
		}
	}
}

// SPEC: AUTH-8
// A client that does not read holds the place of its request for a moment only, and only when others wait.
func TestSending(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		stuck := make(chan struct{})
		s.start("stuck", b, 1, func(ctx context.Context, _ *Place) {
			Sending(ctx, func() { <-stuck })
			s.note("sent")
		})
		time.Sleep(time.Second)
		if f := s.l.Figures(); f.Held != 1 {
			t.Errorf("nobody waits, and %d places are held", f.Held)
		}
		s.start("a", b, 2, takes(time.Second))
		s.wants("stuck")
		time.Sleep(patience)
		s.wants("stuck", "a")
		close(stuck)
		s.wants("stuck", "a")
		s.wait.Wait()
		s.wants("stuck", "a", "sent")
	})
}

// SPEC: AUTH-8
// A flow alone may have all places. While others come it has fewer, and the others have the rest at once.
func TestOneFlowBesideOthers(t *testing.T) {
	inScene(t, 4, 1, func(s *scene) {
		b := s.share.Band()
		held := func() int { return s.l.Figures().Held }
		end := make(chan struct{})
		for range 8 {
			s.start("flood", b, 1, func(context.Context, *Place) { <-end })
		}
		if held() != 4 {
			t.Errorf("a flow that is alone has %d places", held())
		}
		for range 4 {
			end <- struct{}{}
			synctest.Wait()
		}
		s.start("other", b, 2, func(context.Context, *Place) {})
		s.wants("flood", "flood", "flood", "flood", "flood", "flood", "flood", "flood")
		for range 3 {
			end <- struct{}{}
			synctest.Wait()
		}
		for range 3 {
			s.start("flood", b, 1, func(context.Context, *Place) { <-end })
		}
		if held() != 1 {
			t.Errorf("a flow beside another one has %d places", held())
		}
		s.mu.Lock()
		s.ran = nil
		s.mu.Unlock()
		s.start("other", b, 2, func(context.Context, *Place) {})
		s.wants("other")
		time.Sleep(memory)
		end <- struct{}{}
		synctest.Wait()
		if held() != 3 {
			t.Errorf("after %s without others it has %d places", memory, held())
		}
		close(end)
	})
}

// SPEC: AUTH-8
// Nothing is lost by panics, calls within calls, other goroutines and requests without a place.
func TestPlacesComeBack(t *testing.T) {
	for name, work := range map[string]func(ctx context.Context, p *Place){
		"panic":              func(context.Context, *Place) { panic("x") },
		"panic outside":      func(ctx context.Context, _ *Place) { Outside(ctx, func() { panic("x") }) },
		"panic of a write":   func(ctx context.Context, _ *Place) { Sending(ctx, func() { panic("x") }) },
		"twice":              func(_ context.Context, p *Place) { p.Exit(); p.Exit() },
		"outside of outside": func(ctx context.Context, _ *Place) { Outside(ctx, func() { Outside(ctx, func() {}) }) },
		"a write outside":    func(ctx context.Context, _ *Place) { Outside(ctx, func() { Sending(ctx, func() {}) }) },
		"outside in a write": func(ctx context.Context, _ *Place) { Sending(ctx, func() { Outside(ctx, func() {}) }) },
		"outside after the end": func(ctx context.Context, p *Place) {
			p.Exit()
			Outside(ctx, func() {})
			Sending(ctx, func() {})
		},
		"without": func(ctx context.Context, _ *Place) { Outside(With(ctx, nil), func() {}) },
		"another goroutine's wait": func(ctx context.Context, _ *Place) {
			go Outside(ctx, func() {})
			Outside(ctx, func() {})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := New(1, 1)
			func() {
				var p Place
				defer func() { _ = recover() }()
				defer p.Exit()
				ctx := With(t.Context(), &p)
				if err := p.Enter(ctx, l.Share(1).Band(), 1); err != nil {
					t.Error(err)
				}
				work(ctx, &p)
			}()
			synctest.Wait()
			if f := l.Figures(); f.Held != 0 || f.Waiting != 0 {
				t.Errorf("%s: %+v", name, f)
			}
		})
	}
	Outside(t.Context(), func() {})
	Sending(t.Context(), func() {})
	var none Place
	none.Exit()
	if err := none.Yield(t.Context()); err != nil || none.Leave() || none.BeginSend() {
		t.Error("a request that has not entered has a place")
	}
}

// SPEC: AUTH-8
// A long request lets others go first on its way, but not those of its own flow that have not begun.
func TestYield(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		b := s.share.Band()
		s.start("long", b, 1, func(ctx context.Context, p *Place) {
			for i := range 3 {
				time.Sleep(time.Millisecond)
				_ = p.Yield(ctx) // it does not end
				s.note(fmt.Sprint("part ", i))
			}
		})
		s.start("own", b, 1, takes(0))
		s.start("other", b, 2, takes(0))
		s.wait.Wait()
		s.wants("long", "other", "part 0", "part 1", "part 2", "own")
	})
}

// SPEC: AUTH-8
// Whatever requests do, no more of them execute than there are places and one for the other band of a lone share, or
// those beyond for shares; the assertions check all else.
func TestAnyRequests(t *testing.T) {
	const places = 3
	for shares, bound := range map[int]int64{1: places + 1, 5: places + bandsBeyond + places} {
		l := New(places, 2)
		var all []*Share
		var bands []*Band
		for range shares {
			s := l.Share(1)
			all, bands = append(all, s), append(bands, s.Band(), s.Band())
			bands[len(bands)-1].SetWeight(5)
		}
		var executing, most atomic.Int64
		var wait sync.WaitGroup
		for i := range 40 {
			wait.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				for range 200 {
					anyRequest(r, bands[r.IntN(len(bands))], uint64(r.IntN(4)), &executing, &most)
				}
			})
		}
		for range 20 {
			bands[0].SetWeight(rand.IntN(10))
			all[0].SetWeight(rand.IntN(10))
			time.Sleep(time.Millisecond)
		}
		wait.Wait()
		if f := l.Figures(); f.Held != 0 || f.Waiting != 0 || f.HandedOver == 0 ||
			most.Load() < places || most.Load() > bound {
			t.Errorf("%d shares: %+v, at most %d executed at one time", shares, f, most.Load())
		}
		if len(l.busy) != 0 || len(l.senders) != 0 || l.clock.weights != 0 {
			t.Errorf("%d shares of the weight %d, and %d writes are left", len(l.busy), l.clock.weights, len(l.senders))
		}
		for _, b := range bands {
			if s := b.share; len(b.flows) != 0 || len(s.busy) != 0 || s.held != 0 || s.began != 0 || s.clock.weights != 0 {
				t.Errorf("of a share %+v is left, with %d flows", s.account, len(b.flows))
			}
		}
	}
}

func anyRequest(r *rand.Rand, b *Band, key uint64, executing, most *atomic.Int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
	defer cancel()
	var p Place
	defer p.Exit()
	ctx = With(ctx, &p)
	if p.Enter(ctx, b, key) != nil {
		return
	}
	work := func() {
		n := executing.Add(1)
		for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
		}
		runtime.Gosched()
		executing.Add(-1)
	}
	for range r.IntN(5) {
		work()
		switch r.IntN(4) {
		case 0:
			Outside(ctx, func() { time.Sleep(time.Duration(r.IntN(100)) * time.Microsecond) })
		case 1:
			Sending(ctx, func() { time.Sleep(time.Duration(r.IntN(400)) * time.Microsecond) })
		default:
			_ = p.Yield(ctx) // that its context has ended is seen below
		}
		if ctx.Err() != nil {
			return
		}
	}
}
