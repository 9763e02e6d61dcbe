package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// instant is a log that forgets everything at once.
type instant struct{}

func (instant) Append([]*Commit) error           { return nil }
func (instant) Checkpoint() (*Checkpoint, error) { return EmptyCheckpoint(), nil }
func (instant) Replay(context.Context, int64, []string, func(*Commit) error) error {
	return nil
}
func (instant) Compact(int64, *Checkpoint) error { return nil }
func (instant) Close() error                     { return nil }

// testCharge reads a charge from bytes: "rule LIMIT" is a rule, and "CLASS AMOUNT [SECONDS]" counts an amount, until a
// time in seconds if there is one, and then 1.
func testCharge(v *Version) *Charge {
	words := strings.Fields(string(v.Data()))
	if v.Key.Resource == "rules" {
		return &Charge{Rule: words[1]}
	}
	c := &Charge{Class: words[0], Amounts: []Amount{{"size", resource.MustParse(words[1])}}}
	if len(words) > 2 {
		seconds, _ := strconv.Atoi(words[2])
		c.Until, c.After = time.Unix(int64(seconds), 0), []Amount{{"size", resource.MustParse("1")}}
	}
	return c
}

func openLimited(t *testing.T, log Log, now func() time.Time) *Store {
	return openCharged(t, log, now, testCharge)
}

func openCharged(t *testing.T, log Log, now func() time.Time, charge func(*Version) *Charge) *Store {
	s, err := Open(Config{Log: log, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} },
		Charge: charge, Rules: "rules", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Store) put(t *testing.T, resource, name, data string) {
	t.Helper()
	ch := Change{Key: Key{resource, name}, Data: []byte(data)}
	if data == "" {
		ch.Data = nil
	}
	if _, err := s.Commit(t.Context(), nil, []Change{ch}); err != nil {
		t.Fatal(err)
	}
}

// within makes limits from the rules of a namespace: all of their texts bound the size of the class, "": of all.
func (s *Store) atMost(t testing.TB, namespace, class string, add int64) *Limits {
	rules, generation, err := s.Rules(context.Background(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	p := &Limits{Namespace: namespace, Generation: generation}
	for _, r := range rules {
		limit := Limit{Name: "size", Add: *resource.NewQuantity(add, resource.DecimalSI), Most: resource.MustParse(r.Text)}
		if class != "" {
			limit.Counts = func(c string) bool { return c == class }
		}
		p.Each = append(p.Each, limit)
	}
	return p
}

func (s *Store) size(t *testing.T, namespace, class string) string {
	t.Helper()
	used, ok := s.Used(s.atMost(t, namespace, class, 0))
	if !ok {
		return "no ledger"
	}
	return used[0].String()
}

// SPEC: AUTH-5
func TestLedger(t *testing.T) {
	var now atomic.Int64 // in seconds; the alarm of the store reads it, too
	now.Store(1000)
	s := openLimited(t, instant{}, func() time.Time { return time.Unix(now.Load(), 0) })
	defer s.Close()
	s.put(t, "a", "n/1", "red 2")
	s.put(t, "a", "other/1", "red 100")
	s.put(t, "b", "n/1", "blue 1500m")
	s.put(t, "b", "n", "blue 77") // has no namespace
	if rules, _, _ := s.Rules(t.Context(), "n"); len(rules) > 0 {
		t.Fatalf("rules %v", rules)
	}
	s.put(t, "rules", "n/r", "rule 5")
	expect := func(step, red, blue, all string) {
		t.Helper()
		got := [3]string{s.size(t, "n", "red"), s.size(t, "n", "blue"), s.size(t, "n", "")}
		if want := [3]string{red, blue, all}; got != want {
			t.Errorf("%s: got %v, want %v", step, got, want)
		}
	}
	expect("what was there", "2", "1500m", "3500m")
	s.put(t, "a", "n/2", "red 1")
	s.put(t, "b", "n/1", "red 1")
	expect("written", "4", "0", "4")
	s.put(t, "a", "n/1", "")
	s.put(t, "a", "other/1", "")
	expect("deleted", "2", "0", "2")
	s.put(t, "a", "n/3", "blue 3 1500")
	expect("ends later", "2", "3", "5")
	var over *OverError
	if err := s.Within(s.atMost(t, "n", "", 1)); !errors.As(err, &over) || over.Over[0].Used.String() != "5" {
		t.Errorf("got %v", err)
	}
	_, seen, next := s.Limited(0)
	if !next.Equal(time.Unix(1500, 0)) {
		t.Errorf("the next end is %v", next)
	}
	now.Store(1501)
	if err := s.Within(s.atMost(t, "n", "", 2)); err != nil {
		t.Errorf("after its end: %v", err)
	}
	expect("ended", "2", "1", "3")
	if changed, _, next := s.Limited(seen); len(changed) != 1 || !next.IsZero() {
		t.Errorf("changed %v, next %v", changed, next)
	}
	s.put(t, "a", "n/3", "blue 3 1600")
	expect("ends later again", "2", "3", "5")
	s.put(t, "a", "n/3", "")
	expect("deleted before its end", "2", "0", "2")

	old := s.atMost(t, "n", "", 1)
	s.put(t, "rules", "n/r", "rule 5 of a changed object")
	if err := s.Within(old); err != nil {
		t.Errorf("a rule that says the same: %v", err)
	}
	s.put(t, "rules", "n/r", "rule 2")
	var conflict *ConflictError
	if _, err := s.Commit(t.Context(), []Precondition{Within(old)}, nil); !errors.As(err, &conflict) ||
		conflict.Type != WithinLimits {
		t.Errorf("by an old rule: %v", err)
	}
	s.put(t, "rules", "n/r", "")
	if changed, _, _ := s.Limited(0); len(changed) > 0 || len(s.ledgers.of) > 0 {
		t.Errorf("without rules there is %v", changed)
	}
	if err := s.Within(old); !errors.As(err, &conflict) {
		t.Errorf("without rules: %v", err)
	}
}

// What changes while the sums are built is in them: few changes, and more than are added under one lock.
//
// SPEC: AUTH-5
func TestLedgerIsBuiltBesideWrites(t *testing.T) {
	for _, changes := range []int{1, 1000} {
		building, goOn := make(chan struct{}), make(chan struct{})
		s := openCharged(t, instant{}, time.Now, func(v *Version) *Charge {
			if v.Key.Name == "n/slow" {
				close(building)
				<-goOn
			}
			return testCharge(v)
		})
		s.put(t, "a", "n/slow", "red 1")
		s.put(t, "a", "n/gone", "red 10")
		s.put(t, "a", "n/changed", "red 20")
		s.put(t, "rules", "n/r", "rule 5000")
		done := make(chan string)
		go func() { done <- s.size(t, "n", "") }()
		<-building
		s.put(t, "a", "n/gone", "")
		s.put(t, "a", "n/changed", "red 2")
		for i := range changes {
			s.put(t, "a", fmt.Sprintf("n/%d", i), "red 1")
		}
		close(goOn)
		if got := <-done; got != resource.NewQuantity(int64(3+changes), resource.DecimalSI).String() {
			t.Errorf("%d changes: the size is %s", changes, got)
		}
		_ = s.Close()
	}
}

// A commit that is refused because of one that is not durable waits for it, and holds if that fails.
//
// SPEC: AUTH-5
func TestLimitsCountWhatIsPending(t *testing.T) { synctest.Test(t, testLimitsCountWhatIsPending) }

func testLimitsCountWhatIsPending(t *testing.T) {
	g := newGate()
	s := openLimited(t, g, time.Now)
	write := func(p *Limits, resource, name, data string) <-chan error {
		var pre []Precondition
		if p != nil {
			pre = []Precondition{Within(p)}
		}
		ch := Change{Key: Key{resource, name}, Data: []byte(data)}
		if data == "" {
			ch.Data = nil
		}
		done := s.commit(pre, ch)
		synctest.Wait()
		return done
	}
	durable := func(done <-chan error) error {
		select {
		case <-g.arrived:
			g.answer <- nil
		case <-time.After(time.Second):
		}
		return <-done
	}
	if err := durable(write(nil, "rules", "n/r", "rule 5")); err != nil {
		t.Fatal(err)
	}
	first := write(s.atMost(t, "n", "", 4), "a", "n/1", "red 4")
	second := write(s.atMost(t, "n", "", 2), "a", "n/2", "red 2")
	select {
	case err := <-second:
		t.Fatalf("answered before the first is durable: %v", err)
	default:
	}
	var over *OverError
	if err := durable(first); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.As(err, &over) || over.Over[0].Used.String() != "4" {
		t.Errorf("got %v", err)
	}
	// What a pending deletion gives back can be taken.
	first = write(nil, "a", "n/1", "")
	second = write(s.atMost(t, "n", "", 5), "a", "n/3", "red 5")
	if err := errors.Join(durable(first), durable(second)); err != nil {
		t.Error(err)
	}
	// A rule that is pending is not passed over.
	p := s.atMost(t, "n", "", 0)
	first = write(nil, "rules", "n/r", "rule 1")
	second = write(p, "a", "n/4", "red 0")
	if err := durable(first); err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	if err := <-second; !errors.As(err, &conflict) {
		t.Errorf("got %v", err)
	}
	// A commit that is refused because of one that fails is not refused: it gets the reason of the failure.
	first = write(nil, "a", "n/3", "")
	<-g.arrived
	third := write(s.atMost(t, "n", "", 1), "a", "n/5", "red 1")
	fourth := write(s.atMost(t, "n", "", 1), "a", "n/6", "red 1")
	g.answer <- ErrNoRoom
	for i, done := range []<-chan error{first, third, fourth} {
		if err := <-done; !errors.Is(err, ErrNoRoom) {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	if got := s.size(t, "n", ""); got != "5" {
		t.Errorf("after a failure the size is %s", got)
	}
	_ = s.Close()
}

// A charge that has ended by the clock is not taken back a second time by a deletion that is pending.
//
// SPEC: AUTH-5
func TestEndedChargeThatIsPending(t *testing.T) { synctest.Test(t, testEndedChargeThatIsPending) }

func testEndedChargeThatIsPending(t *testing.T) {
	g, now := newGate(), time.Unix(900, 0)
	s := openLimited(t, g, func() time.Time { return now })
	durable := func(done <-chan error) {
		t.Helper()
		<-g.arrived
		g.answer <- nil
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	durable(s.commit(nil, Change{Key: Key{"rules", "n/r"}, Data: []byte("rule 5")}))
	durable(s.commit(nil, Change{Key: Key{"a", "n/1"}, Data: []byte("red 3 1000")}))
	p := s.atMost(t, "n", "", 6)
	now = time.Unix(1100, 0)
	deleted := s.commit(nil, Change{Key: Key{"a", "n/1"}})
	<-g.arrived
	refused := s.commit([]Precondition{Within(p)}, Change{Key: Key{"a", "n/2"}, Data: []byte("red 6")})
	synctest.Wait()
	g.answer <- nil
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	var over *OverError
	select {
	case err := <-refused:
		if !errors.As(err, &over) || !over.Over[0].Used.IsZero() {
			t.Errorf("got %v", err)
		}
	case <-g.arrived:
		g.answer <- nil
		t.Errorf("6 of 5 are taken: %v", <-refused)
	}
	_ = s.Close()
}

// Many writers never pass a limit, and what is counted is right after any history of rules that come and go.
//
// SPEC: AUTH-5
func TestLedgerOfManyWriters(t *testing.T) {
	s := openLimited(t, instant{}, time.Now)
	defer s.Close()
	const most = 40
	s.put(t, "rules", "n1/r", "rule "+strconv.Itoa(most))
	// create and remove objects at random; the namespace n1 has a rule all the time.
	step := func(w, i int, r *rand.Rand) error {
		namespace := "n" + strconv.Itoa(r.IntN(2))
		k := Key{"a", fmt.Sprintf("%s/%d-%d", namespace, w, r.IntN(20))}
		live, _ := s.Get(k)
		pre, ch := []Precondition{Absent(k)}, Change{Key: k}
		if live != nil {
			pre[0] = At(live)
		} else {
			add := r.IntN(4)
			ch.Data = []byte("red " + strconv.Itoa(add))
			pre = append(pre, Within(s.atMost(t, namespace, "", int64(add))))
		}
		if rule := (Key{"rules", "n0/r"}); w == 0 && i%25 == 24 {
			pre, ch = nil, Change{Key: rule}
			if _, ok := s.Get(rule); !ok {
				ch.Data = []byte("rule 10")
			}
		}
		_, err := s.Commit(context.Background(), pre, []Change{ch})
		return err
	}
	var work sync.WaitGroup
	var refused atomic.Int64
	for w := range 8 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 625 { // an odd number of changes of the rule
				var over *OverError
				var conflict *ConflictError
				switch err := step(w, i, r); {
				case errors.As(err, &over):
					refused.Add(1)
				case err != nil && !errors.As(err, &conflict):
					t.Error(err)
				}
				if used, ok := s.Used(s.atMost(t, "n1", "", 0)); !ok || used[0].CmpInt64(most) > 0 {
					t.Errorf("used %v, limit %d", used, most)
				}
			}
		})
	}
	work.Wait()
	s.mu.Lock()
	s.checkLedgers()
	if len(s.ledgers.of) != 2 {
		t.Errorf("%d ledgers are left to check", len(s.ledgers.of))
	}
	s.mu.Unlock()
	if n := refused.Load(); n < 100 {
		t.Errorf("%d refusals, want some", n)
	}
	for i := 0; ; i++ { // never stuck below the limit
		ch := Change{Key: Key{"a", fmt.Sprintf("n1/last-%d", i)}, Data: []byte("red 1")}
		if _, err := s.Commit(t.Context(), []Precondition{Within(s.atMost(t, "n1", "", 1))}, []Change{ch}); err != nil {
			break
		}
	}
	if got := s.size(t, "n1", ""); got != strconv.Itoa(most) {
		t.Errorf("no more is taken at %s of %d", got, most)
	}
}
