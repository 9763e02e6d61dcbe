package fairness

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// arrive adds a request of a flow, of so many seats.
func arrive(t *testing.T, q *Queues, ms int, hash uint64, seats int) *Ticket {
	t.Helper()
	one := &Ticket{Work: Work{Seats: seats}}
	if _, ok := q.Arrive(at(ms), one, hash); !ok {
		t.Fatalf("refused at %d ms", ms)
	}
	return one
}

// SPEC: AUTH-6
// A hand has different queues, and depends on the hash alone; each queue is dealt as often as another.
func TestHands(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dealt := make([]int, 64)
	for range 20_000 {
		hash := random.Uint64()
		hand, again := make([]int, 6), make([]int, 6)
		deal(hash, len(dealt), hand)
		deal(hash, len(dealt), again)
		if !slices.Equal(hand, again) {
			t.Fatalf("%v and %v for the same hash", hand, again)
		}
		for i, card := range hand {
			if slices.Contains(hand[:i], card) || card < 0 || card >= len(dealt) {
				t.Fatalf("the hand %v", hand)
			}
			dealt[card]++
		}
	}
	if low, high := slices.Min(dealt), slices.Max(dealt); low < 1600 || high > 2200 { // 1875 on average
		t.Errorf("queues were dealt %d to %d times", low, high)
	}
	for _, bad := range [][2]int{{0, 1}, {1, 0}, {4, 5}, {1<<26 + 1, 1}, {1024, 7}} {
		if checkHand(bad[0], bad[1]) == nil {
			t.Errorf("a hand of %d out of %d is accepted", bad[1], bad[0])
		}
	}
}

// SPEC: AUTH-6
// A flow that has sent a hundred requests does not hold up another one: they take turns.
func TestTurns(t *testing.T) {
	q := NewQueues(start, Shape{Queues: 8, HandSize: 1, Length: 1000}, 1)
	first := arrive(t, q, 0, 0, 1)
	var calm []*Ticket
	for range 100 {
		arrive(t, q, 1, 0, 1)
	}
	for range 3 {
		calm = append(calm, arrive(t, q, 2, 1, 1))
	}
	if !first.Executing() {
		t.Fatal("the first request waits although there is a seat")
	}
	var order string
	now, running := 3, first
	for range 6 {
		dispatched, _ := q.Finish(at(now), running)
		if len(dispatched) != 1 {
			t.Fatalf("%d were dispatched", len(dispatched))
		}
		if running = dispatched[0]; slices.Contains(calm, running) {
			order += "c"
		} else {
			order += "f"
		}
		now += 3
	}
	if order != "cfcfcf" && order != "fcfcfc" {
		t.Errorf("the order was %s", order)
	}
}

// SPEC: AUTH-6
// A flood of long lists does not take all seats: the short request of a flow without seats is dispatched at once, its
// second one waits for its turn, and so does a wide one. No list waits for the kept seats.
func TestKeptSeats(t *testing.T) {
	q := NewQueues(start, Shape{Queues: 64, HandSize: 1, Length: 1000, Kept: 4}, 64)
	var lists []*Ticket
	for range 20 {
		lists = append(lists, arrive(t, q, 0, 0, 10))
	}
	for i, list := range lists {
		if list.Executing() != (i < 6) {
			t.Fatalf("of 64 seats, ten for each list, list %d has seats: %t", i, list.Executing())
		}
	}
	short := arrive(t, q, 1, 1, 1)
	second, wide := arrive(t, q, 1, 1, 1), arrive(t, q, 1, 2, 10)
	if !short.Executing() || second.Executing() || wide.Executing() {
		t.Fatalf("beside the flood: short %t, second %t, wide %t", short.Executing(), second.Executing(), wide.Executing())
	}
	if got, _ := q.Finish(at(2), short); len(got) != 1 || got[0] != second {
		t.Errorf("when the first one has ended, %v were dispatched", got)
	}
	for hash := uint64(3); hash < 6; hash++ {
		if !arrive(t, q, 3, hash, 1).Executing() {
			t.Errorf("there are four kept seats, and flow %d waits", hash)
		}
	}
	if arrive(t, q, 4, 7, 1).Executing() {
		t.Error("more seats were taken than are kept")
	}
	got, _ := q.Finish(at(1000), lists[0])
	if len(got) == 0 || q.keptInUse != 4 || q.seatsInUse > 64 {
		t.Errorf("a list has ended beside four kept seats: %d dispatched, %d seats", len(got), q.seatsInUse)
	}
	for _, c := range []struct {
		shape       Shape
		seats, want int
	}{
		{Shape{Queues: 128, HandSize: 6}, 245, 15},
		{Shape{Queues: 128, HandSize: 6}, 15, 0},
		{Shape{Queues: 6, HandSize: 6}, 245, 0},
		{Shape{Queues: -1}, 245, 0},
		{Shape{}, 245, 0},
	} {
		if got := withKept(c.shape, c.seats).Kept; got != c.want {
			t.Errorf("%+v of %d seats keeps %d", c.shape, c.seats, got)
		}
	}
}

// SPEC: AUTH-6
// A request that is wider than all seats but the kept ones begins alone, whatever has kept seats.
func TestWideBesideKept(t *testing.T) {
	q := NewQueues(start, Shape{Queues: 64, HandSize: 1, Length: 9, Kept: 4}, 64)
	first := arrive(t, q, 0, 0, 60)
	wide := arrive(t, q, 0, 1, 62)
	if !arrive(t, q, 0, 2, 1).Executing() || wide.Executing() {
		t.Fatal("the short one has a kept seat, and the wide one waits")
	}
	if q.Finish(at(9), first); !wide.Executing() {
		t.Error("the wide one waits for a kept seat")
	}
}

// SPEC: AUTH-6
// Without queues a request is refused when there is no seat; with queues, when the queue is full, too.
func TestRefusals(t *testing.T) {
	q := NewQueues(start, Shape{}, 2)
	one := arrive(t, q, 0, 0, 1)
	arrive(t, q, 0, 0, 1)
	if _, ok := q.Arrive(at(0), &Ticket{Work: Work{Seats: 1}}, 0); ok {
		t.Error("a third request got one of two seats")
	}
	q.Finish(at(1), one)
	arrive(t, q, 1, 0, 1)

	q = NewQueues(start, Shape{Queues: 2, HandSize: 1, Length: 1}, 1)
	arrive(t, q, 0, 0, 1)
	waits := arrive(t, q, 0, 0, 1)
	if _, ok := q.Arrive(at(0), &Ticket{Work: Work{Seats: 1}}, 0); ok {
		t.Error("two requests wait in a queue of length 1")
	}
	arrive(t, q, 0, 1, 1) // in the other queue
	q.Leave(at(1), waits)
	arrive(t, q, 1, 0, 1)

	q = NewQueues(start, Shape{Queues: -1}, 0)
	for range 1000 {
		if one := arrive(t, q, 0, 0, 10); !one.Executing() {
			t.Fatal("an exempt request waits")
		}
	}
}

// SPEC: AUTH-6
// A request for more seats than there are begins alone, and the seats of a final time are freed at its end.
func TestSeats(t *testing.T) {
	q := NewQueues(start, Shape{Queues: 4, HandSize: 2, Length: 9}, 4)
	narrow := arrive(t, q, 0, 0, 1)
	wide := arrive(t, q, 0, 1, 9)
	if wide.Executing() {
		t.Fatal("nine of four seats were taken beside another request")
	}
	if got, _ := q.Finish(at(1), narrow); len(got) != 1 || got[0] != wide {
		t.Fatalf("%v was dispatched", got)
	}
	q.Finish(at(2), wide)
	wakes := &Ticket{Work: Work{Seats: 1, FinalSeats: 4, FinalTime: 10 * time.Millisecond}}
	q.Arrive(at(3), wakes, 0)
	next := arrive(t, q, 4, 0, 1)
	got, lingers := q.Finish(at(5), wakes)
	if len(got) != 0 || lingers == nil || lingers.For != 10*time.Millisecond || next.Executing() {
		t.Fatalf("%v were dispatched, %v", got, lingers)
	}
	if got := q.Release(at(15), lingers); len(got) != 1 || got[0] != next {
		t.Fatalf("%v was dispatched", got)
	}
}

// SPEC: AUTH-6
// Whatever happens, no seats are lost and no request is forgotten, also while the shape and the limit change and
// virtual time is wound back. With the tag invariants the sums are checked after each step.
func TestAnyHistory(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		q := NewQueues(start, Shape{Queues: 5, HandSize: 2, Length: 4}, 6)
		q.r = epoch + epoch/2 - 1000
		now := 0
		var waits, runs []*Ticket
		var linger []*Lingering
		moved := func(dispatched []*Ticket) {
			for _, one := range dispatched {
				runs = append(runs, one)
				waits = slices.DeleteFunc(waits, func(w *Ticket) bool { return w == one })
			}
		}
		take := func(from *[]*Ticket) *Ticket {
			i := random.IntN(len(*from))
			one := (*from)[i]
			*from = slices.Delete(*from, i, i+1)
			return one
		}
		for range 400 {
			now += random.IntN(4)
			switch n := random.IntN(12); {
			case n < 6:
				one := &Ticket{Work: Work{Seats: 1 + random.IntN(3)}}
				if random.IntN(3) == 0 {
					one.Work.FinalSeats, one.Work.FinalTime = random.IntN(9), time.Duration(random.IntN(9))*time.Millisecond
				}
				dispatched, ok := q.Arrive(at(now), one, random.Uint64())
				if ok {
					waits = append(waits, one)
				}
				moved(dispatched)
			case n < 10 && len(runs) > 0:
				dispatched, l := q.Finish(at(now), take(&runs))
				if l != nil {
					linger = append(linger, l)
				}
				moved(dispatched)
			case n == 10 && len(waits) > 0:
				q.Leave(at(now), take(&waits))
			case n == 11 && len(linger) > 0:
				moved(q.Release(at(now), linger[0]))
				linger = linger[1:]
			case n == 11:
				limit := random.IntN(8)
				moved(q.Configure(at(now), Shape{Queues: random.IntN(7), HandSize: 1, Length: 3, Kept: random.IntN(limit + 1)},
					limit))
			}
		}
		moved(q.Configure(at(now), Shape{Queues: 1, HandSize: 1, Length: 3}, 8))
		for len(runs) > 0 || len(linger) > 0 {
			if len(linger) > 0 {
				moved(q.Release(at(now), linger[0]))
				linger = linger[1:]
				continue
			}
			dispatched, l := q.Finish(at(now), take(&runs))
			if l != nil {
				linger = append(linger, l)
			}
			moved(dispatched)
		}
		if len(waits) != 0 || !q.Idle() || q.seatsInUse != 0 || q.seatsWaiting != 0 || q.queuedSeats != 0 || q.active != 0 ||
			q.keptInUse != 0 || q.keptExecuting != 0 {
			t.Fatalf("seed %d: %d wait, %d seats in use, %d wanted, %d active", seed, len(waits), q.seatsInUse,
				q.seatsWaiting, q.active)
		}
	}
}

// SPEC: AUTH-6
// Seats are divided in proportion to the targets, within the bounds, and none is lost.
func TestDivision(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		wants := make([]want, 1+random.IntN(7))
		var low, high float64
		for i := range wants {
			w := &wants[i]
			w.low = float64(random.IntN(20))
			w.target = w.low + float64(random.IntN(30))
			w.high = w.low + float64(random.IntN(60))
			low, high = low+w.low, high+w.high
		}
		sum := int(low) + random.IntN(int(high-low)+1)
		parts, f, err := divide(sum, wants)
		if err != nil {
			t.Fatalf("%v of %v: %v", sum, wants, err)
		}
		total := 0.0
		for i, p := range parts {
			w := wants[i]
			total += p
			fair := max(w.low, min(w.high, f*max(w.target, smallestTarget)))
			if p < w.low-1e-6 || p > w.high+1e-6 || sum > 0 && math.Abs(p-fair) > 1e-4 && total != low && sum != int(high) {
				t.Fatalf("%d of %v: %v with the factor %v", sum, wants, parts, f)
			}
		}
		if math.Abs(total-float64(sum)) > 1e-4 {
			t.Fatalf("%d of %v: %v", sum, wants, parts)
		}
	}
	if _, _, err := divide(10, []want{{1, 1, 3}}); err == nil {
		t.Error("ten seats were given to a level that takes three")
	}
}

func BenchmarkUncontended(b *testing.B) {
	for _, queues := range []int{-1, 128} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			q := NewQueues(start, Shape{Queues: queues, HandSize: 6, Length: 50}, 100)
			var one Ticket
			b.ReportAllocs()
			for i := range b.N {
				one.Work.Seats = 1
				q.Arrive(at(i), &one, 0x123456789abcdef)
				q.Finish(at(i), &one)
			}
		})
	}
}
