package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"plinth/object"
)

// origins says whether the version of a result still has its origin.
func (b *bench) origins(r *Result) bool { return LayoutOf(r.Object).origin.Load() != nil }

func TestOrigin(t *testing.T) {
	b := newBench(t)
	made := b.create(`{"metadata":{"name":"w"},"spec":{"n":1,"list":[{"a":null}]}}`)
	if !b.origins(made) {
		t.Fatal("the latest version has no origin")
	}
	obj, settled, err := b.widgets.live(context.Background(), made.Object)
	if err != nil || !settled || !object.Equal(obj, b.value(made)) {
		t.Errorf("the live object is %s, settled %v, %v", object.AppendObject(nil, obj), settled, err)
	}
	odd := b.create(`{"metadata":{"name":"odd"},"spec":{"n":1.5}}`)
	if b.origins(odd) {
		t.Error("an object with a float, which may parse as another number, has an origin")
	}
	if _, settled, err := b.widgets.live(context.Background(), odd.Object); settled || err != nil {
		t.Errorf("a parsed object is reported as settled: %v, %v", settled, err)
	}
}

// Origins are bounded in number and in bytes, and the oldest is removed first.
func TestOriginsAreBounded(t *testing.T) {
	b := newBench(t)
	var made []*Result
	of := func(size int) {
		made = append(made, b.create(fmt.Sprintf(`{"metadata":{"generateName":"w-"},"spec":{"text":%q}}`,
			strings.Repeat("x", size))))
	}
	check := func(when string) {
		t.Helper()
		kept, bytes := 0, 0
		for i := len(made) - 1; i >= 0; i-- {
			if !b.origins(made[i]) {
				continue
			}
			if i < len(made)-1 && !b.origins(made[i+1]) {
				t.Errorf("%s: an older version has an origin, and a newer one does not", when)
			}
			kept, bytes = kept+1, bytes+made[i].Object.Len()
		}
		if kept == 0 || kept > keptOrigins || kept > 1 && bytes > maxOriginBytes || kept > b.recent.count ||
			bytes > b.recent.bytes {
			t.Errorf("%s: %d versions of %d bytes have origins; counted are %d of %d bytes",
				when, kept, bytes, b.recent.count, b.recent.bytes)
		}
	}
	for range keptOrigins + 10 {
		of(10)
	}
	if check("small ones"); b.recent.count != keptOrigins {
		t.Errorf("%d origins are kept", b.recent.count)
	}
	for range 10 {
		of(maxOriginBytes / 4)
	}
	check("large ones")
	of(maxOriginBytes * 5 / 4)
	if check("one that is larger than all may be"); b.recent.count != 1 {
		t.Errorf("%d origins are kept", b.recent.count)
	}
}

// A write on top of an origin stores the same bytes as one on top of the value that was parsed from the stored bytes.
func TestOriginsChangeNothing(t *testing.T) {
	kept, parsed := newBench(t), newBench(t)
	random := rand.New(rand.NewPCG(1, 2))
	values := []string{`1`, `2`, `1.5`, `null`, `"x"`, `"é\u2028<"`, `[]`, `{}`, `[1,2.0,{"k":1e3}]`,
		`{"a":{"b":1},"c":null}`, `{"a":{"b":2}}`, `12345678901234567890`}
	found := 0
	for i := range 600 {
		field, value := string(rune('a'+random.IntN(4))), values[random.IntN(len(values))]
		manager, apply := fmt.Sprint("m", random.IntN(3)), random.IntN(3) > 0
		step := func(b *bench) string {
			var result *Result
			var err error
			if apply {
				result, err = b.apply(manager, "w", `,"spec":{"`+field+`":`+value+`}`, true)
			} else {
				rq := b.request("w")
				rq.FieldManager = manager
				result, err = b.Patch(b.Context(), rq, Patch{Type: MergePatch,
					Body: []byte(`{"spec":{"` + field + `":` + value + `}}`)})
			}
			if err != nil {
				return err.Error()
			}
			if b == kept && b.origins(result) {
				found++
			}
			return strings.ReplaceAll(string(result.Object.Data()), result.Object.Sidecar.UID, "UID")
		}
		got, want := step(kept), step(parsed)
		if got != want {
			t.Fatalf("step %d, %s: %s\nwith an origin: %s\nparsed:         %s", i, field, value, got, want)
		}
		if v, ok := parsed.store.Get(parsed.request("w").key()); ok {
			LayoutOf(v).origin.Store(nil)
		}
	}
	if found < 100 {
		t.Errorf("only %d of 600 versions had an origin", found)
	}
}
