package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/object"
)

// The objects of a page of a list, or of a batch of events, that need a conversion are converted in one call, up to a
// number of bytes.
//
// SPEC: EXT-1, LIST-1
func TestConversionsTogether(t *testing.T) {
	b := newBench(t)
	v1, v2 := colors("v1")
	kind, convert := v1.Stored, v1.Stored.Convert
	var calls []int
	var failing error
	kind.Convert = func(ctx context.Context, objects []object.Value, to *Version) ([]object.Value, error) {
		calls = append(calls, len(objects))
		if failing != nil {
			return nil, failing
		}
		return convert(ctx, objects, to)
	}
	in := func(r *Resource) *Request { return &Request{Resource: r, Namespace: "ns"} }
	for i := range 20 {
		b.must(b.Create(t.Context(), in(v1), b.parse(fmt.Sprintf(`{"metadata":{"name":"w-%02d"},"spec":{"color":"red"}}`,
			i))))
	}
	list := func(limit int64) (names []string, err error) {
		calls = nil
		c, err := b.List(t.Context(), in(v2), ListOptions{Limit: limit})
		if err != nil {
			return nil, err
		}
		for item := range c.Items {
			if !strings.Contains(string(item.Data()), `"paint":"red"`) {
				t.Errorf("the item was not converted: %s", item.Data())
			}
			names = append(names, item.Key.Name)
		}
		return names, nil
	}
	for limit, want := range map[int64]int{7: 7, 0: 20} {
		names, err := list(limit)
		if err != nil || len(names) != want || names[6] != "ns/w-06" || fmt.Sprint(calls) != fmt.Sprint([]int{want}) {
			t.Errorf("a list with limit %d: %v, converted in calls of %v objects: %v", limit, names, calls, err)
		}
	}

	calls = nil
	yes := true
	w, err := b.Watch(t.Context(), in(v2), WatchOptions{SendInitialEvents: &yes, Bookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	events, err := w.Next(t.Context())
	if err != nil || len(events) != 21 || events[20].Type != Bookmark || fmt.Sprint(calls) != "[20]" {
		t.Errorf("%d initial events, converted in calls of %v objects: %v", len(events), calls, err)
	}
	for i := range 3 {
		rq := in(v1)
		rq.Name = fmt.Sprintf("w-%02d", i)
		b.must(b.Patch(t.Context(), rq, Patch{Type: MergePatch, Body: []byte(`{"spec":{"size":"big"}}`)}))
	}
	calls = nil
	for told := 0; told < 3; told += len(events) {
		if events, err = w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type != Modified || e.Record != nil || !strings.Contains(string(e.Object.Data()),
				`"apiVersion":"test.example/v2"`) {
				t.Errorf("event %v: %s", e.Type, e.Object.Data())
			}
		}
		if last := calls[len(calls)-1]; last != len(events) {
			t.Errorf("%d events were converted in a call of %d objects", len(events), last)
		}
	}

	failing = &ConversionError{Index: 3, Err: errors.New("it broke")}
	if _, err := list(0); err == nil || !strings.Contains(err.Error(), "w-03: it broke") {
		t.Errorf("the object that failed is not named: %v", err)
	}
	failing = errors.New("nobody there")
	if _, err := list(0); err == nil || !strings.Contains(err.Error(), "w-00 and 19 others: nobody there") {
		t.Errorf("the objects that failed are not named: %v", err)
	}
	failing = nil

	long := strings.Repeat("x", 1<<20)
	for i := range 6 {
		b.must(b.Create(t.Context(), in(v1),
			b.parse(fmt.Sprintf(`{"metadata":{"name":"a-%d"},"spec":{"color":"red","size":%q}}`, i, long))))
	}
	if names, err := list(0); err != nil || len(names) != 26 || fmt.Sprint(calls) != "[4 22]" {
		t.Errorf("%d large objects, converted in calls of %v objects: %v", len(names), calls, err)
	}
}

// The context that ends the wait of a watch ends no conversion: neither that of a selection nor that of the events.
// What was taken from the history is returned, and the watch goes on.
//
// SPEC: WATCH-8, WATCH-1
func TestAWaitThatEndsDuringAConversion(t *testing.T) {
	b := newBench(t)
	v1, v2 := colors("v1")
	in := func(r *Resource, name string) *Request { return &Request{Resource: r, Namespace: "ns", Name: name} }
	paint := func(color string) int64 {
		return b.must(b.Patch(t.Context(), in(v1, "a"), Patch{Type: MergePatch,
			Body: fmt.Appendf(nil, `{"spec":{"color":%q}}`, color)})).Object.Revision
	}
	kind, convert := v1.Stored, v1.Stored.Convert
	interrupt := func() {}
	kind.Convert = func(ctx context.Context, objects []object.Value, to *Version) ([]object.Value, error) {
		interrupt()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return convert(ctx, objects, to)
	}
	b.must(b.Create(t.Context(), in(v1, ""), b.parse(`{"metadata":{"name":"a"},"spec":{"color":"red"}}`)))
	begin := func(color string) *Watch {
		selector := ListOptions{Fields: fields.OneTermEqualSelector("spec.paint", color)}
		w, err := b.Watch(t.Context(), in(v2, ""), WatchOptions{ListOptions: selector})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return w
	}
	next := func(w *Watch) (told string) {
		t.Helper()
		wait, cancel := context.WithCancel(t.Context())
		defer cancel()
		interrupt = cancel
		events, err := w.NextUntil(t.Context(), wait)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			told += e.Type.String() + " " + string(e.Object.Data())
		}
		return told
	}

	red, blue := begin("red"), begin("blue")
	if told := next(red); !strings.HasPrefix(told, "ADDED ") || !strings.Contains(told, `"paint":"red"`) {
		t.Errorf("the initial events of what is red: %q", told)
	}
	if told := next(blue); told != "" {
		t.Errorf("the initial events of what is blue: %q", told)
	}
	for _, c := range []struct{ color, red, blue string }{
		{"green", "DELETED ", ""}, {"black", "", ""}, {"blue", "", "ADDED "}, {"red", "ADDED ", "DELETED "},
	} {
		revision := paint(c.color)
		for w, want := range map[*Watch]string{red: c.red, blue: c.blue} {
			if told := next(w); !strings.HasPrefix(told, want) || (told == "") != (want == "") || w.Revision() != revision {
				t.Errorf("%s: a watch is at %d after the event %q, should be %d after %q", c.color, w.Revision(), told,
					revision, want)
			}
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	interrupt = cancel
	paint("blue")
	if events, err := blue.NextUntil(ctx, ctx); !errors.Is(err, context.Canceled) || len(events) > 0 {
		t.Errorf("a conversion whose context has ended: %d events, %v", len(events), err)
	}
}

// A version about which a selector cannot decide, because its conversion fails, is neither selected nor left out.
//
// SPEC: WATCH-8, LIST-7
func TestASelectionWhoseConversionFails(t *testing.T) {
	b := newBench(t)
	v1, v2 := colors("v1")
	rq := &Request{Resource: v2, Namespace: "ns"}
	b.must(b.Create(t.Context(), &Request{Resource: v1, Namespace: "ns"},
		b.parse(`{"metadata":{"name":"a"},"spec":{"color":"red"}}`)))
	kind, convert := v1.Stored, v1.Stored.Convert
	failures := 0
	kind.Convert = func(ctx context.Context, objects []object.Value, to *Version) ([]object.Value, error) {
		if failures--; failures >= 0 {
			return nil, errors.New("nobody there")
		}
		return convert(ctx, objects, to)
	}
	for _, color := range []string{"red", "blue"} {
		o := ListOptions{Fields: fields.OneTermEqualSelector("spec.paint", color)}
		for _, limit := range []int64{0, 1} {
			failures, o.Limit = 1, limit
			_, err := b.List(t.Context(), rq, o)
			b.wants(err, 500, "ns/a: nobody there")
		}
		o.Limit = 0
		w, err := b.Watch(t.Context(), rq, WatchOptions{ListOptions: o})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		failures = 1
		_, err = w.Next(t.Context())
		b.wants(err, 500, "ns/a: nobody there")
	}
}
