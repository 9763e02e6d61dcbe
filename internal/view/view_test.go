package view_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/internal/view"
)

const collection = "test.example/things"

func open(tb testing.TB, c store.Config) *store.Store {
	tb.Helper()
	c.Log = memlog.New()
	c.Describe = func(_ store.Key, data []byte) *store.Sidecar {
		if string(data) == "broken" {
			return &store.Sidecar{Unreadable: errors.New("broken")}
		}
		return &store.Sidecar{}
	}
	s, err := store.Open(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func commit(tb testing.TB, s *store.Store, changes ...store.Change) int64 {
	tb.Helper()
	revisions, err := s.Commit(context.Background(), nil, changes)
	if err != nil {
		tb.Error(err)
	}
	return revisions.Of(len(changes) - 1)
}

func set(name, text string) store.Change {
	return store.Change{Key: store.Key{Resource: collection, Name: name}, Data: []byte(text)}
}

func remove(name string) store.Change {
	return store.Change{Key: store.Key{Resource: collection, Name: name}}
}

// texts compiles a collection to the data of its objects, by name, and counts the changes that it receives.
type texts struct {
	calls, whole, changes atomic.Int64
}

func (c *texts) compile(before map[string]string, changes iter.Seq[view.Change]) map[string]string {
	c.calls.Add(1)
	if before == nil {
		c.whole.Add(1)
	}
	after := map[string]string{}
	maps.Copy(after, before)
	for ch := range changes {
		c.changes.Add(1)
		if ch.Version == nil {
			delete(after, ch.Name)
		} else {
			after[ch.Name] = string(ch.Version.Data())
		}
	}
	return after
}

// first is the value of a view, also if an object is unreadable.
func first[T any](value T, _ error) T { return value }

// model is the value of a view as a reader of the snapshot sees it.
func model(sn *store.Snapshot) map[string]string {
	all := map[string]string{}
	sn.Ascend(collection, "", "", func(v *store.Version) bool {
		all[v.Key.Name] = string(v.Data())
		return true
	})
	return all
}

// unreadable are the names of the objects of a collection that an error of its view names.
func unreadable[T any](_ T, err error) []string {
	of := (*view.UnreadableError)(nil)
	if errors.As(err, &of) {
		return slices.Sorted(maps.Keys(of.Why))
	}
	return nil
}

// The value of a view equals one made from the whole collection, and its error names all objects that are unreadable,
// however many changes the view has not seen.
func TestViewIsTheCollection(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		config := store.Config{}
		if seed%2 == 1 {
			config.MemoryHistoryBytes = 4 << 10 // memory forgets changes that the view has not seen
		}
		s := open(t, config)
		v := view.New(s.Collection(collection), new(texts).compile)
		found := 0
		for step := range 400 {
			changes := []store.Change{}
			for range rng.IntN(3) {
				name := fmt.Sprint(rng.IntN(12))
				changes = append(changes[:0:0], set(name, fmt.Sprintf("%s at %d", name, step)))
				switch rng.IntN(9) {
				case 0, 1, 2:
					changes = []store.Change{remove(name)}
				case 3:
					changes = []store.Change{set(name, "broken")}
				}
			}
			if rng.IntN(3) == 0 {
				other := set("x", fmt.Sprint(step))
				other.Key.Resource = "test.example/others"
				changes = append(changes, other)
			}
			commit(t, s, changes...)
			if rng.IntN(2) == 0 {
				continue
			}
			if got, want := first(v.Now()), model(s.Collection(collection).Snapshot()); !maps.Equal(got, want) {
				t.Fatalf("seed %d, step %d: the view is %v, should be %v", seed, step, got, want)
			}
			var broken []string
			for name, text := range model(s.Collection(collection).Snapshot()) {
				if text == "broken" {
					broken = append(broken, name)
				}
			}
			slices.Sort(broken)
			if got := unreadable(v.Now()); !slices.Equal(got, broken) {
				t.Fatalf("seed %d, step %d: %q are unreadable, should be %q", seed, step, got, broken)
			}
			found += len(broken)
		}
		if found < 20 {
			t.Errorf("seed %d: only %d objects were unreadable", seed, found)
		}
	}
}

// The error of unreadable objects names one of them and how many others there are. It stays the same one while others
// change, and there is none when all can be read.
func TestErrorOfUnreadableObjects(t *testing.T) {
	s := open(t, store.Config{})
	v := view.New(s.Collection(collection), new(texts).compile)
	expect := func(want string) error {
		t.Helper()
		_, err := v.Now()
		if got := fmt.Sprint(err); got != want {
			t.Errorf("the error is %q, should be %q", got, want)
		}
		return err
	}
	expect("<nil>")
	commit(t, s, set("ns/b", "broken"), set("whole", "1"))
	one := expect(`things.test.example "ns/b" cannot be read`)
	commit(t, s, set("whole", "2"), set("other", "1"))
	if same := expect(`things.test.example "ns/b" cannot be read`); same != one {
		t.Error("the error is another one although no unreadable object has changed")
	}
	commit(t, s, set("ns/a", "broken"), set("ns/c", "broken"))
	expect(`things.test.example "ns/a" cannot be read (nor can 2 more)`)
	commit(t, s, set("ns/b", "1"), set("ns/c", "2"))
	expect(`things.test.example "ns/a" cannot be read`)
	commit(t, s, remove("ns/a"))
	expect("<nil>")
	core := &view.UnreadableError{Resource: "/secrets", Why: map[string]error{"a": nil, "b": nil}}
	if got := core.Error(); got != `secrets "a" cannot be read (nor can 1 more)` {
		t.Errorf("the error of a resource without a group is %q", got)
	}
}

// A Compile need not read all changes, and a view that has not changed costs nothing.
func TestWhatIsNotNeeded(t *testing.T) {
	s := open(t, store.Config{})
	v := view.New(s.Collection(collection), func(n int, changes iter.Seq[view.Change]) int {
		for range changes {
			return n + 1
		}
		return n
	})
	for i := range 3 {
		commit(t, s, set("a", fmt.Sprint(i)), set("b", fmt.Sprint(i)))
		if got := first(v.Now()); got != i+1 {
			t.Errorf("after %d changes of two objects the value is %d", i+1, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { v.Now() }); n != 0 {
		t.Errorf("%v allocations for a value that has not changed", n)
	}
}

// A change is visible to every request after the write, however many requests there are.
func TestManyReaders(t *testing.T) {
	s := open(t, store.Config{})
	v := view.New(s.Collection(collection), new(texts).compile)
	var wait sync.WaitGroup
	for w := range 3 {
		wait.Go(func() {
			mine := fmt.Sprint("mine ", w)
			for i := range 200 {
				text := fmt.Sprint(i)
				commit(t, s, set(mine, text))
				if got := first(v.Now())[mine]; got != text {
					t.Errorf("%s was written and the view has %q", text, got)
					return
				}
				if i%10 == 9 {
					commit(t, s, remove(mine))
				}
			}
		})
	}
	wait.Wait()
}

// A change compiles only the changed object; objects are compiled on request only, and once.
func TestWorkIsProportionalToChanges(t *testing.T) {
	s := open(t, store.Config{})
	for i := range 1000 {
		commit(t, s, set(fmt.Sprint(i), "first"))
	}
	work := &texts{}
	v := view.New(s.Collection(collection), work.compile)
	expect := func(when string, calls, changes int64) {
		t.Helper()
		if c, n := work.calls.Swap(0), work.changes.Swap(0); c != calls || n != changes {
			t.Errorf("%s: compiled %d times, %d changes; want %d and %d", when, c, n, calls, changes)
		}
	}
	expect("before anybody asks", 0, 0)
	v.Now()
	expect("the first time", 1, 1000)
	commit(t, s, set("7", "second"))
	commit(t, s, set("7", "third"))
	commit(t, s, remove("8"))
	expect("after writes that nobody asks about", 0, 0)
	v.Now()
	v.Now()
	expect("after three writes to two objects", 1, 2)
	other := set("x", "")
	other.Key.Resource = "test.example/others"
	commit(t, s, other)
	v.Now()
	expect("after a write to another collection", 0, 0)
}

// One caller compiles, the others wait for it.
func TestOneCompilesForAll(t *testing.T) {
	s := open(t, store.Config{})
	commit(t, s, set("a", "1"))
	var calls atomic.Int64
	v := view.New(s.Collection(collection), func(int, iter.Seq[view.Change]) int {
		calls.Add(1)
		time.Sleep(20 * time.Millisecond) // long enough for the others to arrive
		return 42
	})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if got := first(v.Now()); got != 42 {
				t.Errorf("got %d", got)
			}
		})
	}
	wait.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("compiled %d times", n)
	}
}

// An object that cannot be parsed is an error only for requests that need it; the others are parsed on first use, once
// per version.
func TestObjectsAreParsedWhenAsked(t *testing.T) {
	s := open(t, store.Config{})
	var parsed atomic.Int64
	parse := func(v *store.Version) (int, error) {
		parsed.Add(1)
		if string(v.Data()) == "bad" {
			return 0, errors.New("bad")
		}
		return v.Len(), nil
	}
	type things map[string]*view.Parsed[int]
	v := view.New(s.Collection(collection), func(before things, changes iter.Seq[view.Change]) things {
		after := things{}
		maps.Copy(after, before)
		for ch := range changes {
			if ch.Version == nil {
				delete(after, ch.Name)
			} else {
				after[ch.Name] = view.Parse(ch.Version, parse)
			}
		}
		return after
	})
	commit(t, s, set("good", "12345"), set("bad", "bad"), set("broken", "broken"))
	now := first(v.Now())
	if n := parsed.Load(); n != 0 || len(now) != 3 {
		t.Fatalf("%d of %d are parsed before anybody asks", n, len(now))
	}
	for range 2 {
		if got, err := now["good"].Get(); got != 5 || err != nil {
			t.Errorf("good: %d, %v", got, err)
		}
		if _, err := now["bad"].Get(); err == nil || err.Error() != "bad" {
			t.Errorf("bad: %v", err)
		}
		if _, err := now["broken"].Get(); err == nil || err.Error() != "broken" {
			t.Errorf("broken: %v", err)
		}
	}
	commit(t, s, set("bad", "1"))
	later := first(v.Now())
	if later["good"] != now["good"] {
		t.Error("an object that has not changed is forgotten")
	}
	if got, err := later["bad"].Get(); got != 1 || err != nil {
		t.Errorf("mended: %d, %v", got, err)
	}
	if n := parsed.Load(); n != 3 {
		t.Errorf("%d were parsed, want 3", n)
	}
}

func BenchmarkUnchanged(b *testing.B) {
	s := open(b, store.Config{})
	for i := range 1000 {
		commit(b, s, set(fmt.Sprint(i), "text"))
	}
	for i := range 60 { // as many collections as built-in types have
		commit(b, s, store.Change{Key: store.Key{Resource: fmt.Sprintf("group%d/things",
			i), Name: "x"}, Data: []byte("{}")})
	}
	v := view.New(s.Collection(collection), new(texts).compile)
	b.ReportAllocs()
	for b.Loop() {
		v.Now()
	}
}

// One more object in a collection of many.
func BenchmarkChange(b *testing.B) {
	s := open(b, store.Config{})
	work := &texts{}
	v := view.New(s.Collection(collection), func(n int, changes iter.Seq[view.Change]) int {
		for range changes {
			n++
		}
		return n
	})
	for i := range 2000 {
		commit(b, s, set(fmt.Sprint(i), "text"))
	}
	for b.Loop() {
		commit(b, s, set("one", "text"))
		v.Now()
	}
	_ = work
}

// With concurrent readers and writers, each value that Now returns was compiled from the value before it, so that the
// values of all readers are one chain. A value that is compiled separately, for one reader, would have separate types,
// whose watches would never end.
func TestValuesAreOneChain(t *testing.T) {
	s := open(t, store.Config{})
	work := &texts{}
	v := view.New(s.Collection(collection), work.compile)
	v.Now()
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := range 500 {
				commit(t, s, set(fmt.Sprint("mine ", w), fmt.Sprint(i)))
				v.Now()
			}
		})
	}
	wait.Wait()
	if n := work.whole.Load(); n != 1 {
		t.Errorf("%d values are compiled from all objects, should be 1", n)
	}
	if got, want := first(v.Now()), model(s.Collection(collection).Snapshot()); !maps.Equal(got, want) {
		t.Errorf("now the view is %v, should be %v", got, want)
	}
}
