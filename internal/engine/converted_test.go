package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/execution"
	"plinth/internal/store"
	"plinth/object"
)

// hooked is a kind whose conversion asks a webhook: v1 is stored, and v2 is converted. calls has the names of the
// objects of each call.
type hooked struct {
	*bench
	v1, v2 *Resource

	mu    sync.Mutex
	calls [][]string
	// answer runs in each call, before its conversion; an error is the webhook's.
	answer func(ctx context.Context, names []string) error
}

func newHooked(b *bench, limit int64) *hooked {
	v1, v2 := colors("v1")
	h := &hooked{bench: b, v1: v1, v2: v2}
	kind, convert := v1.Stored, v1.Stored.Convert
	kind.Converted, kind.Life = NewConverted(limit), NewLife(0)
	kind.Convert = func(ctx context.Context, objects []object.Value, to *Version) ([]object.Value, error) {
		var names []string
		for _, obj := range objects {
			if obj.At("apiVersion").Str() != to.APIVersion {
				names = append(names, obj.At("metadata", "name").Str())
			}
		}
		h.mu.Lock()
		h.calls = append(h.calls, names)
		h.mu.Unlock()
		if h.answer != nil {
			if err := h.answer(ctx, names); err != nil {
				return nil, err
			}
		}
		return convert(ctx, objects, to)
	}
	return h
}

func (h *hooked) in(r *Resource, name string) *Request {
	return &Request{Resource: r, Namespace: "ns", Name: name}
}

// write creates an object of v1, or changes its color.
func (h *hooked) write(name, color string) {
	h.Helper()
	h.must(h.Patch(context.Background(), h.in(h.v1, name), Patch{Type: MergePatch,
		Body: fmt.Appendf(nil, `{"spec":{"color":%q}}`, color)}))
}

func (h *hooked) create(names ...string) {
	h.Helper()
	for _, name := range names {
		h.must(h.Create(context.Background(), h.in(h.v1, ""),
			h.parse(fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"color":"red"}}`, name))))
	}
}

// list reads all objects of v2, and says what they are.
func (h *hooked) list(ctx context.Context, o ListOptions) (all []string, err error) {
	c, err := h.List(ctx, h.in(h.v2, ""), o)
	if err != nil {
		return nil, err
	}
	for item := range c.Items {
		obj := h.parse(string(item.Data())).Value
		all = append(all, obj.At("metadata", "name").Str()+" "+obj.At("spec", "paint").Str())
	}
	return all, c.Err()
}

// asked are the calls since the last time.
func (h *hooked) asked() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return fmt.Sprint(calls)
}

// A stored version is converted once, whoever reads it, and can be read while the webhook is away; what was not
// converted cannot. A failure is not kept.
//
// SPEC: EXT-1, LIST-1
func TestConvertedOnce(t *testing.T) {
	h := newHooked(newBench(t), 1<<20)
	h.create("a", "b", "c")
	lists := func(want string) {
		t.Helper()
		if all, err := h.list(t.Context(), ListOptions{}); err != nil || fmt.Sprint(all) != want {
			t.Errorf("listed %v, want %s: %v", all, want, err)
		}
	}
	asked := func(want string) {
		t.Helper()
		if got := h.asked(); got != want {
			t.Errorf("the webhook was asked for %s, want %s", got, want)
		}
	}
	byColor := func(color string) ListOptions {
		return ListOptions{Fields: fields.OneTermEqualSelector("spec.paint", color)}
	}
	red := byColor("red")
	if all, err := h.list(t.Context(), red); err != nil || len(all) != 3 {
		t.Errorf("listed %v by a field: %v", all, err)
	}
	asked("[[a b c]]") // and not one at a time
	lists("[a red b red c red]")

	away := errors.New("nobody there")
	h.answer = func(context.Context, []string) error { return &ConversionError{Index: EveryObject, Err: away} }
	lists("[a red b red c red]")
	for _, version := range []string{"", "0"} {
		got := string(h.must(h.Get(t.Context(), h.in(h.v2, "a"), version)).Object.Data())
		if !strings.Contains(got, `"paint":"red"`) {
			t.Errorf("get: %s", got)
		}
	}
	w, err := h.Watch(t.Context(), h.in(h.v2, ""), WatchOptions{ListOptions: ListOptions{ResourceVersion: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if events, err := w.Next(t.Context()); err != nil || len(events) != 3 {
		t.Errorf("%d initial events: %v", len(events), err)
	}
	if v, err := h.v2.Value(t.Context(), h.must(h.Get(t.Context(), h.in(h.v1, "b"), "")).Object); err != nil ||
		v.At("spec", "paint").Str() != "red" {
		t.Errorf("the value is %v: %v", v, err)
	}
	asked("[]")

	h.write("b", "blue")
	for range 2 {
		_, err = h.list(t.Context(), ListOptions{})
		h.wants(err, 500, "ns/b: nobody there")
	}
	_, err = h.list(t.Context(), byColor("green"))
	h.wants(err, 500, "ns/b: nobody there")
	asked("[[b] [b] [b]]")
	h.answer = nil
	events, err := w.Next(t.Context())
	if err != nil || len(events) != 1 || !strings.Contains(string(events[0].Object.Data()), `"paint":"blue"`) {
		t.Errorf("%d events of a change: %v", len(events), err)
	}
	lists("[a red b blue c red]")
	asked("[[b]]")
	h.must(h.Delete(t.Context(), h.in(h.v1, "c"), DeleteOptions{}))
	if events, err = w.Next(t.Context()); err != nil || len(events) != 1 || events[0].Type != Deleted {
		t.Errorf("the deletion: %v, %v", events, err)
	}
	asked("[]")
	if all, err := h.list(t.Context(), red); err != nil || fmt.Sprint(all) != "[a red]" {
		t.Errorf("red are %v: %v", all, err)
	}
	asked("[]")

	// A definition that is served in another form has nothing of this one.
	kind := *h.v1.Stored
	h.v1.Stored.Life.End()
	h.v1.Stored.Converted.Forget(h.v1.Stored.Life)
	lists("[a red b blue]")
	lists("[a red b blue]")
	asked("[[a b] [a b]]") // requests of the old definition, which are still running
	kind.Life = NewLife(0)
	h.v1.Stored, h.v2.Stored = &kind, &kind
	lists("[a red b blue]")
	lists("[a red b blue]")
	asked("[[a b]]")
}

// What is converted is bounded in bytes. Over the bound it is converted again, and answers are the same.
//
// SPEC: EXT-1
func TestConvertedIsBounded(t *testing.T) {
	const objects = 40
	h := newHooked(newBench(t), 10*1024)
	var names, want []string
	for i := range objects {
		names = append(names, fmt.Sprintf("w-%02d", i))
		want = append(want, names[i]+" red")
	}
	h.create(names...)
	kept := h.v1.Stored.Converted
	for range 5 {
		if all, err := h.list(t.Context(), ListOptions{}); err != nil || !slices.Equal(all, want) {
			t.Fatalf("listed %v: %v", all, err)
		}
		kept.mu.Lock()
		if n := len(kept.all); n < 5 || n >= objects || kept.bytes > kept.limit || len(kept.running) != 0 {
			t.Errorf("%d objects of %d bytes are kept, %d are being converted", n, kept.bytes, len(kept.running))
		}
		kept.mu.Unlock()
	}
	h.create("large")
	h.write("large", strings.Repeat("x", 20*1024))
	for range 2 {
		h.asked()
		if _, err := h.list(t.Context(), ListOptions{}); err != nil || !strings.Contains(h.asked(), "large") {
			t.Errorf("an object that is larger than the bound: %v", err)
		}
	}
}

// What is converted goes with the stored version that it was made of.
//
// SPEC: EXT-1
func TestConvertedGoesWithItsVersion(t *testing.T) {
	h := newHooked(newBench(t), 1<<20)
	h.create("a")
	stored := h.must(h.Get(t.Context(), h.in(h.v1, "a"), "")).Object
	func() {
		s := NewSidecar(LayoutOf(stored).Offsets)
		layout := s.Extra
		*s = *stored.Sidecar
		s.Extra = layout
		v := store.NewVersion(stored.Key, stored.Revision, stored.Data(), s)
		if _, err := h.v2.converted(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := h.v2.converted(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	kept := h.v1.Stored.Converted
	left := func() int {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		return len(kept.all)
	}
	for end := time.Now().Add(time.Minute); left() != 1; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d are kept", left())
		}
		runtime.GC()
	}
	runtime.KeepAlive(stored)
}

// inBubble runs a test with a hooked kind, all of whose goroutines are in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, h *hooked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHooked(newBench(t), 1<<20)) })
}

// Requests for what another one is converting wait for it, without a place, and get what it has made or the error of a
// webhook that is away.
//
// SPEC: EXT-1
func TestConversionIsShared(t *testing.T) {
	inBubble(t, func(t *testing.T, h *hooked) {
		h.create("a", "b")
		h.asked()
		for _, failure := range []error{&ConversionError{Index: EveryObject, Err: errors.New("nobody there")}, nil} {
			answer := make(chan struct{})
			h.answer = func(ctx context.Context, _ []string) error {
				execution.Outside(ctx, func() { <-answer })
				return failure
			}
			limiter := execution.New(1, 1)
			band := limiter.Share(1).Band()
			var all sync.WaitGroup
			for n := range 4 {
				all.Go(func() {
					place := new(execution.Place)
					defer place.Exit()
					ctx := execution.With(t.Context(), place)
					if err := place.Enter(ctx, band, uint64(n)); err != nil {
						t.Error(err)
					}
					var err error
					if n == 2 {
						_, err = h.Get(ctx, h.in(h.v2, "b"), "")
					} else {
						_, err = h.list(ctx, ListOptions{})
					}
					if told := fmt.Sprint(err); (err != nil) != (failure != nil) ||
						failure != nil && !strings.Contains(told, "nobody there") {
						t.Errorf("request %d: %s", n, told)
					}
				})
			}
			synctest.Wait()
			if held := limiter.Figures().Held; held != 0 {
				t.Errorf("%d places are held by requests that wait", held)
			}
			close(answer)
			all.Wait()
			if got := h.asked(); !strings.HasPrefix(got, "[[") || strings.Count(got, "a") != 1 || strings.Count(got, "b") != 1 {
				t.Errorf("the webhook was asked for %s", got)
			}
		}
	})
}

// When the request that converts is cancelled, another one takes over.
//
// SPEC: EXT-1
func TestConversionOfACancelledRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, h *hooked) {
		h.create("a")
		h.asked()
		first, cancel := context.WithCancel(t.Context())
		answer := make(chan struct{})
		h.answer = func(ctx context.Context, _ []string) error {
			select {
			case <-answer:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := h.list(first, ListOptions{}); !errors.Is(err, context.Canceled) {
				t.Errorf("the one that is cancelled: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				if made, err := h.list(t.Context(), ListOptions{}); err != nil || fmt.Sprint(made) != "[a red]" {
					t.Errorf("one of the others: %v, %v", made, err)
				}
			})
		}
		impatient, leave := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := h.list(impatient, ListOptions{}); !errors.Is(err, context.Canceled) {
				t.Errorf("the one that does not wait: %v", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(answer)
		all.Wait()
		if got := h.asked(); got != "[[a] [a]]" {
			t.Errorf("the webhook was asked for %s", got)
		}
	})
}

// Two lists that pass over the same objects do not wait for each other, and a conversion that fails because of another
// object fails no request that does not read that one.
//
// SPEC: EXT-1
func TestConversionThatFailsForAnotherObject(t *testing.T) {
	inBubble(t, func(t *testing.T, h *hooked) {
		h.create("a", "bad", "c")
		for name, failure := range map[string]error{
			"named":   &ConversionError{Index: 1, Err: errors.New("I will not")},
			"unnamed": errors.New("I will not"),
		} {
			h.asked()
			answer := make(chan struct{})
			h.answer = func(_ context.Context, names []string) error {
				if len(names) == 3 {
					<-answer
				}
				switch i := slices.Index(names, "bad"); {
				case i < 0:
					return nil
				case len(names) == 1:
					return errors.New("I will not")
				}
				return failure
			}
			var all sync.WaitGroup
			get := func(object string, fails bool) {
				all.Go(func() {
					if _, err := h.Get(t.Context(), h.in(h.v2, object), ""); (err != nil) != fails {
						t.Errorf("%s: get %s: %v", name, object, err)
					}
				})
			}
			all.Go(func() {
				_, err := h.list(t.Context(), ListOptions{})
				h.wants(err, 500, "I will not")
			})
			synctest.Wait()
			get("a", false)
			get("bad", true)
			get("c", false)
			synctest.Wait()
			close(answer)
			all.Wait()
			h.v1.Stored.Converted.Forget(h.v1.Stored.Life)
		}
	})
}

// The errors of conversions say how many other objects they are about.
//
// SPEC: EXT-1
func TestErrorsOfConversionsCount(t *testing.T) {
	h := newHooked(newBench(t), 1<<20)
	h.answer = func(context.Context, []string) error { return errors.New("nobody there") }
	for _, c := range []struct{ name, want string }{
		{"a", "ns/a: nobody there"}, {"b", "ns/a and 1 other: nobody there"}, {"c", "ns/a and 2 others: nobody there"},
	} {
		h.create(c.name)
		_, err := h.list(t.Context(), ListOptions{})
		h.wants(err, 500, c.want)
	}
}

// Many requests read, write and select objects while the webhook fails now and then: each answer is right, and nothing
// is being converted at the end.
//
// SPEC: EXT-1
func TestConvertedConcurrently(t *testing.T) {
	h := newHooked(newBench(t), 4*1024)
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("w-%02d", i))
	}
	h.create(names...)
	n := 0
	h.answer = func(_ context.Context, names []string) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		switch n++; n % 7 {
		case 0:
			return &ConversionError{Index: EveryObject, Err: errors.New("nobody there")}
		case 3:
			return &ConversionError{Index: len(names) - 1, Err: errors.New("not that one")}
		}
		return nil
	}
	var all sync.WaitGroup
	for r := range 8 {
		all.Go(func() {
			for i := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+r)%5 == 0 {
					go cancel()
				}
				switch name := names[(i*r)%len(names)]; {
				case r == 0:
					h.write(name, fmt.Sprintf("c%d", i))
				case i%3 == 0:
					_, _ = h.Get(ctx, h.in(h.v2, name), "") // it may fail
				default:
					if made, err := h.list(ctx, ListOptions{}); err == nil && len(made) != len(names) {
						t.Errorf("listed %v", made)
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	if kept := h.v1.Stored.Converted; len(kept.running) != 0 {
		t.Errorf("%d are being converted", len(kept.running))
	}
	h.answer = nil
	made, err := h.list(t.Context(), ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		stored := h.must(h.Get(t.Context(), h.in(h.v1, name), "")).Object
		if want := name + " " + h.parse(string(stored.Data())).Value.At("spec", "color").Str(); made[i] != want {
			t.Errorf("have %s, want %s", made[i], want)
		}
	}
}

// relabelled makes the webhook rename the label color of v1 to paint in v2, and back.
func (h *hooked) relabelled() {
	kind, convert := h.v1.Stored, h.v1.Stored.Convert
	kind.Convert = func(ctx context.Context, objects []object.Value, to *Version) ([]object.Value, error) {
		made, err := convert(ctx, objects, to)
		for i := range made {
			old := made[i].At("metadata", "labels")
			for from, name := range map[string]string{"color": "paint", "paint": "color"} {
				if v := old.At(from); !v.IsNull() && (name == "paint") == (to == h.v2.Served) {
					made[i] = made[i].WithAt(old.Without(from).With(name, v), "metadata", "labels")
				}
			}
		}
		return made, err
	}
}

// Label selectors select by the labels of the version that is asked for, which a webhook may have changed: in lists
// with and without a limit, in watches, also in those of the stored version, and in deletes of collections.
//
// SPEC: EXT-1, LIST-2
func TestSelectionByConvertedLabels(t *testing.T) {
	h := newHooked(newBench(t), 1<<20)
	h.relabelled()
	for _, name := range []string{"a", "b"} {
		h.must(h.Create(t.Context(), h.in(h.v1, ""), h.parse(fmt.Sprintf(
			`{"metadata":{"name":%q,"labels":{"color":%q,"all":"1"}},"spec":{"color":"red"}}`, name, "red-"+name))))
	}
	h.asked()
	options := func(selector string) ListOptions {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		return ListOptions{Labels: parsed}
	}
	for selector, want := range map[string]string{"paint=red-a": "[a red]", "color": "[]", "!color": "[a red b red]",
		"paint in (red-a,red-b),all=1": "[a red b red]", "paint=red-a,color=red-a": "[]"} {
		o := options(selector)
		for _, o.Limit = range []int64{0, 10} {
			if all, err := h.list(t.Context(), o); err != nil || fmt.Sprint(all) != want {
				t.Errorf("%s: listed %v, want %s: %v", selector, all, want, err)
			}
		}
	}
	both := options("paint=red-b")
	both.Fields = fields.OneTermEqualSelector("spec.paint", "red")
	if all, err := h.list(t.Context(), both); err != nil || fmt.Sprint(all) != "[b red]" {
		t.Errorf("listed %v by a label and a field: %v", all, err)
	}
	if got := h.asked(); got != "[[a b]]" {
		t.Errorf("the webhook was asked for %s", got)
	}

	changed, err := h.Watch(t.Context(), h.in(h.v2, ""), WatchOptions{ListOptions: options("paint=blue")})
	if err != nil {
		t.Fatal(err)
	}
	defer changed.Close()
	stored, err := h.Watch(t.Context(), h.in(h.v1, ""), WatchOptions{ListOptions: options("color=blue")})
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	for _, color := range []string{"blue", "green"} {
		h.must(h.Patch(t.Context(), h.in(h.v1, "a"), Patch{Type: MergePatch,
			Body: fmt.Appendf(nil, `{"metadata":{"labels":{"color":%q}}}`, color)}))
		for which, w := range map[string]*Watch{"v2": changed, "v1": stored} {
			want := map[string]EventType{"blue": Added, "green": Deleted}[color]
			events, err := w.Next(t.Context())
			for err == nil && len(events) == 0 {
				events, err = w.Next(t.Context())
			}
			if err != nil || len(events) != 1 || events[0].Type != want {
				t.Errorf("%s of %s: %v, %v", color, which, events, err)
			}
		}
	}

	for _, c := range []struct{ selector, left string }{{"color", "[a red b red]"}, {"paint=red-b", "[a red]"}} {
		if _, err := h.DeleteCollection(t.Context(), h.in(h.v2, ""), options(c.selector), DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if all, err := h.list(t.Context(), ListOptions{}); err != nil || fmt.Sprint(all) != c.left {
			t.Errorf("%s are left after the deletion of %s, want %s: %v", all, c.selector, c.left, err)
		}
	}
}
