package fairness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
)

// process is a Capacity with planes, in a bubble, where time passes only while all requests wait.
type process struct {
	*testing.T
	*Capacity
	wait sync.WaitGroup
}

// tenant is a plane: users who are not system:masters have a level of their name with queues, or none (catch-all).
type tenant struct {
	*Fairness
	*Share
	process *process

	mu              sync.Mutex
	served, refused map[string]int // by user
	executing, most int
	end             chan struct{} // ends a request
}

// inProcess runs a test, and demands that nothing is held at its end.
func inProcess(t *testing.T, c CapacityConfig, test func(*process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &process{T: t, Capacity: NewCapacity(c)}
		test(p)
		p.wait.Wait()
		time.Sleep(time.Second) // requests that have ended hold seats in their final time
		p.nothingHeld()
	})
}

func (p *process) nothingHeld() {
	p.Helper()
	p.serve() // levels without requests may be listed
	p.Capacity.mu.Lock()
	defer p.Capacity.mu.Unlock()
	if len(p.busy) > 0 || p.inUse != 0 || p.Capacity.waiting != 0 || p.wanted.Load() != 0 {
		p.Errorf("at the end %d seats are in use, %d requests wait, of %d planes", p.inUse, p.Capacity.waiting, len(p.busy))
	}
}

func (p *process) plane(of ShareConfig) *tenant {
	schemas, levels := map[string]string{}, map[string]string{}
	for i, name := range []string{"high", "low"} {
		schemas[name] = fmt.Sprintf(`{"spec":{"matchingPrecedence":%d,"priorityLevelConfiguration":{"name":%q},
			"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"Group","group":{"name":%q}}],
			"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, 10+i, name, name)
		levels[name] = `{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":50,"limitResponse":{
			"type":"Queue","queuing":{"queues":16,"handSize":2,"queueLengthLimit":500}}}}}`
	}
	s := p.Share(of)
	f := configured(p.T, 0, schemas, levels, s)
	return &tenant{Fairness: f, Share: s, process: p, served: map[string]int{}, refused: map[string]int{},
		end: make(chan struct{})}
}

// start starts n requests of a user in a group. They execute until end receives, or for as long as takes.
func (t *tenant) start(n int, user, group string, takes time.Duration) {
	about := &access.Attributes{User: access.User{Name: user, Groups: []string{group, access.Authenticated}}, Verb: "get",
		Path: "/"}
	for range n {
		t.process.wait.Go(func() {
			one := &Ticket{Work: Work{Seats: 1}}
			class := t.Match(about)
			if class.Acquire(context.Background(), one, about, time.Now().Add(time.Hour)) > 0 {
				t.mu.Lock()
				t.refused[user]++
				t.mu.Unlock()
				return
			}
			t.mu.Lock()
			t.served[user]++
			t.executing++
			t.most = max(t.most, t.executing)
			t.mu.Unlock()
			if takes > 0 {
				time.Sleep(takes)
			} else {
				<-t.end
			}
			t.mu.Lock()
			t.executing--
			t.mu.Unlock()
			one.Release(false)
		})
	}
	synctest.Wait()
}

func (t *tenant) stop(n int) {
	for range n {
		t.end <- struct{}{}
		synctest.Wait()
	}
}

// has demands how many requests execute.
func (t *tenant) has(what string, executing int) {
	t.process.Helper()
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.executing != executing {
		t.process.Errorf("%s: %d requests execute, want %d", what, t.executing, executing)
	}
}

// SPEC: BEY-9
// One plane alone uses all seats. Another one gets a seat at once, although all are in use by requests that take long,
// and then each that comes free until it has as many; a third one with twice the weight gets twice as many.
func TestSeatsOfPlanes(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 16}, func(p *process) {
		a, b, c := p.plane(ShareConfig{}), p.plane(ShareConfig{}), p.plane(ShareConfig{Weight: 2})
		a.start(40, "jane", "low", 0)
		a.start(40, "jill", "high", 0)
		a.has("alone", 16)
		b.start(40, "jane", "low", 0)
		b.has("another one", 1)
		a.stop(8)
		a.has("beside another one", 8)
		b.has("beside a flood", 8)
		c.start(40, "jane", "low", 0)
		c.has("a third one", 1)
		for range 16 {
			if a.executing > 4 {
				a.stop(1)
			}
			if b.executing > 4 {
				b.stop(1)
			}
		}
		a.has("one of three", 4)
		b.has("one of three", 4)
		c.has("one of three with twice the weight", 8)
		if f := p.Capacity.Figures(); f.Seats != 16 {
			t.Errorf("%+v", f)
		}
		close(a.end)
		close(b.end)
		close(c.end)
	})
}

// SPEC: BEY-9
// A plane that wanted nothing has saved nothing: when it comes back it has its part, and not more.
func TestSeatsAreNotSaved(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 8, Waiting: 2000}, func(p *process) {
		a, b := p.plane(ShareConfig{}), p.plane(ShareConfig{})
		a.start(400, "jane", "low", time.Second)
		a.start(400, "jane", "high", time.Second)
		time.Sleep(50*time.Second + time.Millisecond)
		a.has("alone", 8)
		b.start(100, "jane", "low", time.Second)
		b.start(100, "jane", "high", time.Second)
		for range 10 {
			time.Sleep(time.Second)
			a.has("beside another one", 4)
			b.has("after a rest", 4)
		}
	})
}

// SPEC: BEY-10
// The limit of a plane's requests holds exactly, whoever sends them: users with queues wait, those of a level without
// are refused, and the plane's own masters wait, too, but come first. It can be raised and lowered.
func TestLimitOfPlane(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 100}, func(p *process) {
		a := p.plane(ShareConfig{Requests: 3})
		a.start(20, "jane", "low", 0)
		a.start(20, "jill", "high", 0)
		a.start(2, "nobody", "none", 0)
		a.start(1, "admin", access.Masters, 0)
		a.has("at its limit", 3)
		if a.refused["nobody"] != 2 || a.refused["jane"]+a.refused["jill"] > 0 || a.served["admin"] > 0 {
			t.Errorf("served %v, refused %v", a.served, a.refused)
		}
		a.stop(2)
		if a.served["admin"] != 1 {
			t.Errorf("after two have ended, the admin waits: %v", a.served)
		}
		a.SetRequests(5)
		a.has("with a higher limit", 5)
		a.SetRequests(1)
		a.stop(4)
		a.has("with a lower limit", 1)
		a.stop(1)
		a.has("with a lower limit", 1)
		a.SetRequests(0)
		p.Capacity.adjust()
		a.has("without a limit", 20+20+1-2-4-1)
		close(a.end)
	})
}

// SPEC: BEY-9
// Masters of the first plane need no seat; those of others need one, and the seats of their plane go to them first.
func TestMastersOfPlanes(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 8}, func(p *process) {
		first, other := p.plane(ShareConfig{Exempts: true}), p.plane(ShareConfig{})
		first.start(50, "admin", access.Masters, 0)
		first.has("masters of the first plane", 50)
		if f := p.Capacity.Figures(); f.Seats != 0 {
			t.Errorf("%+v", f)
		}
		other.start(50, "admin", access.Masters, 0)
		other.has("masters of another plane", 8)
		third := p.plane(ShareConfig{})
		third.start(1, "jane", "low", 0)
		third.has("beside them", 1)
		if !first.Match(&access.Attributes{User: access.User{Groups: []string{access.Masters}}}).Exempt() ||
			other.Match(&access.Attributes{User: access.User{Groups: []string{access.Masters}}}).Exempt() {
			t.Error("masters are exempt in the other plane")
		}
		close(first.end)
		close(other.end)
		close(third.end)
	})
}

// SPEC: BEY-9
// The requests that wait are bounded over all planes, and a plane that has none waiting has room for some.
func TestRoomToWait(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 8, Waiting: 100}, func(p *process) {
		var all []*tenant
		for i := range 6 {
			one := p.plane(ShareConfig{})
			all = append(all, one)
			one.start(300, "jane", "low", 0)
			f := one.Share.Figures()
			if i == 0 && f.Waiting != 50 || f.Waiting == 0 || f.Waiting+one.refused["jane"]+f.Requests != 300 {
				t.Errorf("plane %d: %+v, %v refused", i, f, one.refused)
			}
		}
		if f := p.Capacity.Figures(); f.Waiting > 100 || f.Seats != 9 {
			t.Errorf("%+v", f)
		}
		for _, one := range all {
			close(one.end)
		}
	})
}

// SPEC: BEY-9
// Where a plane has few seats, its levels get them by their parts, and one that floods does not keep out another one.
func TestLevelsOfSqueezedPlane(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 8}, func(p *process) {
		a, b := p.plane(ShareConfig{Weight: 3}), p.plane(ShareConfig{})
		a.start(400, "jane", "low", 0)
		a.start(400, "jane", "high", 0)
		b.start(400, "jane", "low", 0)
		a.stop(3)
		a.has("the heavy one", 6)
		b.has("the light one", 2)
		b.start(400, "jill", "high", 0)
		b.stop(1)
		if b.served["jill"] != 1 {
			t.Errorf("of a plane with two seats, %v were served", b.served)
		}
		close(a.end)
		close(b.end)
	})
}

// SPEC: BEY-11
// A plane that is closed leaves nothing in the process, and a thousand open ones have no goroutine. One goroutine
// divides the seats of those that are in use.
func TestPlanesComeAndGo(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 64}, func(p *process) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go p.Capacity.Run(ctx)
		synctest.Wait()
		before := runtime.NumGoroutine()
		s := p.Share(ShareConfig{})
		for range 1000 {
			one := configured(t, 0, nil, nil, s)
			two := &tenant{Fairness: one, Share: s, process: p, served: map[string]int{}, refused: map[string]int{},
				end: make(chan struct{})}
			two.start(3, "jane", "none", time.Millisecond)
			if two.served["jane"] == 0 || p.adjusted() != 1 {
				t.Fatalf("served %v, %d planes are adjusted", two.served, p.adjusted())
			}
			time.Sleep(time.Millisecond)
			one.Close()
			if p.adjusted() != 0 {
				t.Fatal("a closed plane is adjusted")
			}
		}
		used, unused := p.plane(ShareConfig{}), p.plane(ShareConfig{})
		p.wait.Wait()
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before {
			t.Errorf("%d goroutines, before %d", now, before)
		}
		used.start(60, "jane", "low", 11*time.Second)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		used.Fairness.mu.Lock()
		if wanted := used.levels["low"].last.highest; wanted != 60 {
			t.Errorf("at the adjustment, %v seats were wanted", wanted)
		}
		used.Fairness.mu.Unlock()
		time.Sleep(restsAfter*adjustment + 20*time.Second)
		if n := p.adjusted(); n != 0 {
			t.Errorf("%d planes that rest are adjusted", n)
		}
		used.start(1, "jane", "low", time.Millisecond)
		if n := p.adjusted(); n != 1 || len(unused.levels) != 0 {
			t.Errorf("%d planes are adjusted, and one without requests has %d levels", n, len(unused.levels))
		}
	})
}

// adjusted is how many planes are adjusted.
func (p *process) adjusted() int {
	p.Capacity.mu.Lock()
	defer p.Capacity.mu.Unlock()
	return len(p.active)
}

// SPEC: BEY-9
// Whatever requests do, the seats in use and the limits are bounded, every request ends, and nothing is left.
func TestAnyPlanes(t *testing.T) {
	for seed := range uint64(20) {
		inProcess(t, CapacityConfig{Seats: 20, Waiting: 60}, func(p *process) {
			began := time.Now()
			var planes []*tenant
			for i := range 5 {
				planes = append(planes, p.plane(ShareConfig{Weight: i, Requests: 3 * i, Exempts: i == 0}))
			}
			for i := range uint64(60) {
				r := rand.New(rand.NewPCG(seed, i))
				p.wait.Go(func() {
					for range 30 {
						anyWork(r, planes[r.IntN(len(planes))])
						time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
					}
				})
			}
			r := rand.New(rand.NewPCG(seed, 99))
			for range 50 {
				time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
				planes[r.IntN(5)].Share.SetWeight(r.IntN(5))
				p.Capacity.adjust()
				p.Capacity.mu.Lock()
				sum := 0
				for _, one := range planes {
					sum += one.Share.inUse
					if one.limit > 0 && one.requests > one.limit {
						t.Errorf("%d requests of a plane, the limit is %d", one.requests, one.limit)
					}
				}
				if sum != p.inUse || p.inUse > 20+20/beyondPart+4 || p.Capacity.waiting > 60 {
					t.Errorf("%d seats are in use, by the planes %d, and %d requests wait", p.inUse, sum, p.Capacity.waiting)
				}
				p.Capacity.mu.Unlock()
			}
			p.wait.Wait()
			if took := time.Since(began); took > time.Minute {
				t.Errorf("a request has waited for %s", took)
			}
		})
	}
}

// anyWork is a request of up to four seats, which may linger, give up, or be one of masters.
func anyWork(r *rand.Rand, t *tenant) {
	group := []string{"low", "high", "none", access.Masters}[r.IntN(4)]
	about := &access.Attributes{User: access.User{Name: fmt.Sprint(r.IntN(3)), Groups: []string{group,
		access.Authenticated}}, Verb: "get", Path: "/"}
	one := &Ticket{Work: Work{Seats: 1 + r.IntN(4), FinalSeats: r.IntN(5)}}
	if one.Work.FinalSeats > 0 {
		one.Work.FinalTime = time.Duration(r.IntN(4)) * time.Millisecond
	}
	class := t.Match(about)
	until := time.Now().Add(time.Hour)
	if r.IntN(2) == 0 {
		until = time.Now().Add(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	if class.Acquire(context.Background(), one, about, until) > 0 {
		return
	}
	time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
	one.Release(false)
}

// SPEC: BEY-9
// The queues of a plane that gets few seats have the length that its levels say, although those of the level itself are
// free.
func TestQueuesOfSqueezedPlane(t *testing.T) {
	inProcess(t, CapacityConfig{Seats: 8, Waiting: 10_000}, func(p *process) {
		a, b := p.plane(ShareConfig{}), p.plane(ShareConfig{})
		a.start(4, "jane", "low", 0)
		a.start(4, "jane", "high", 0)
		b.start(1500, "jane", "low", 0)
		if f := b.Share.Figures(); f.Seats != 1 || f.Waiting != 1000 || b.refused["jane"] != 499 {
			t.Errorf("two queues of 500: %+v, %v refused", f, b.refused)
		}
		close(a.end)
		close(b.end)
	})
}
