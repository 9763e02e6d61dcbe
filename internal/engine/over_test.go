package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/store"
)

// asked is a context that ends after a number of calls of Err.
type asked struct {
	context.Context
	left int
}

func (a *asked) Err() error {
	if a.left--; a.left < 0 {
		return context.Canceled
	}
	return nil
}

const many = 20 * askEvery

// manyWidgets writes objects into the store without the engine.
func manyWidgets(t *testing.T, b *bench) {
	t.Helper()
	var changes []store.Change
	for i := range many {
		key := store.Key{Resource: b.widgets.Stored.Path, Name: fmt.Sprintf("ns/w%05d", i)}
		data := fmt.Appendf(nil,
			`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"w%05d","namespace":"ns","uid":"u%d"},"spec":{"color":"red"}}`, i, i)
		changes = append(changes, store.Change{Key: key, Data: data})
	}
	if _, err := b.store.Commit(t.Context(), nil, changes); err != nil {
		t.Fatal(err)
	}
}

// A list whose context has ended reads at most a few further objects, in every loop over objects, and its result is
// never taken for a complete one.
//
// SPEC: LIST-6
func TestListsEndWithTheirContext(t *testing.T) {
	b := newBench(t)
	manyWidgets(t, b)
	blue := fields.OneTermEqualSelector("spec.color", "blue")
	for name, o := range map[string]ListOptions{
		"everything": {}, "a page": {Limit: many - 1}, "selected": {Fields: blue},
		"a selected page": {Fields: blue, Limit: 5},
	} {
		for left := range 10 { // fewer than a complete list takes
			ctx := &asked{t.Context(), left}
			if _, err := b.List(ctx, b.request(""), o); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, a context that ends after %d calls of Err: %v, should be context.Canceled",
					name, left, err)
			}
		}
	}
	for name, o := range map[string]ListOptions{"everything": {}, "a page": {Limit: many - 1}} {
		ctx, cancel := context.WithCancel(t.Context())
		list, err := b.List(ctx, b.request(""), o)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range list.Items {
			n++
		}
		if err := list.Err(); err != nil || n < many-1 {
			t.Errorf("%s, without a cancel: %d items, %v", name, n, err)
		}
		n = 0
		for range list.Items {
			if n++; n == 10 {
				cancel()
			}
		}
		if err := list.Err(); !errors.Is(err, context.Canceled) || n > 10+askEvery {
			t.Errorf("%s: %d items after the cancel, %v", name, n-10, err)
		}
		cancel()
	}
}

// SPEC: LIST-6, DEL-4
func TestDeleteCollectionEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	manyWidgets(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deleted, reads := 0, 0
	b.Engine.now = func() time.Time { // every delete reads the clock
		if reads++; reads == 3 {
			cancel()
		}
		return b.now
	}
	_, err := b.DeleteCollection(ctx, b.request(""), ListOptions{}, DeleteOptions{})
	b.wants(err, 504, "request did not complete within")
	left, err := b.List(t.Context(), b.request(""), ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range left.Items {
		deleted--
	}
	if deleted += many; deleted == 0 || deleted == many {
		t.Errorf("%d of %d were deleted", deleted, many)
	}
}

// Initial events that were interrupted by the end of a context continue at the same object, and each object is returned
// once.
//
// SPEC: WATCH-2, WATCH-6
func TestInitialEventsEndWithTheirContext(t *testing.T) {
	b := newBench(t)
	manyWidgets(t, b)
	w, err := b.Watch(t.Context(), b.request(""),
		WatchOptions{ListOptions: ListOptions{Fields: fields.OneTermNotEqualSelector("spec.color", "blue")}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	received := map[string]int{}
	for calls := 0; w.initial != nil; calls++ {
		events, err := w.Next(over)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) > askEvery || calls > 2*many/askEvery {
			t.Fatalf("call %d: %d events after the cancel", calls, len(events))
		}
		for _, e := range events {
			received[e.Object.Key.Name]++
		}
	}
	for name, n := range received {
		if n != 1 {
			t.Errorf("%s was received %d times, should be once", name, n)
		}
	}
	if len(received) != many {
		t.Errorf("%d of %d objects were received", len(received), many)
	}
}
