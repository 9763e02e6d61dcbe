//go:build mutants

package defaults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/conformance/internal/recorder"
	"plinth/conformance/internal/scheme"
	"plinth/internal/mutants"
	"plinth/object"
)

// recorded is the table that TestRecord writes: a line each for the kind, an object, and the object with upstream's
// defaults.
const recorded = "../../../internal/builtin/defaults/testdata/recorded.txt"

// TestRecord searches for objects for which our defaults give the same result as upstream and a mutant of them does
// not, and writes those that notice a mutant which no other has noticed into the table of package defaults:
//
//	go run ./mutants/overlay internal/builtin/defaults DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/defaults -run TestRecord
func TestRecord(t *testing.T) {
	r, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.NewBufferString("# What upstream makes of objects, each of which notices a mutant of the defaults: " +
		"found by TestRecord of conformance/oracle/defaults.\n")
	kinds := corpus(t)
	for _, gvk := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionKind) int {
		return bytes.Compare([]byte(a.String()), []byte(b.String()))
	}) {
		if functionFor(gvk) == nil || functionIsTimed(gvk) {
			continue
		}
		r.Reset()
		var samples []*mutants.Sample
		var pool []*compared
		try := func(text []byte) *compared {
			c := compare(t, r, gvk, text)
			if c == nil {
				return nil
			}
			if mutant := r.First(c.Sample); mutant > 0 {
				c.minimise(t, r, mutant).record(out, r)
			}
			return c
		}
		for i := range *objects {
			if c := try(variant(t, gvk, kinds[gvk], i)); c != nil && i%100 == 0 {
				samples, pool = append(samples, c.Sample), append(pool, c)
			}
		}
		if gvk.Kind == "Pod" {
			r.Reset()
			rng := rand.New(rand.NewPCG(*seed, 1))
			for range 10 * *objects {
				try(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"image":%q}]}}`, imageName(rng)))
			}
		}
		r.CloseGlobals(samples, func(i, mutant int) *mutants.Sample {
			c := pool[i].minimise(t, r, mutant)
			c.record(out, r)
			return c.Sample
		})
	}
	t.Logf("%d of %d mutants are left", len(r.Open), mutants.Count)
	if err := os.WriteFile(recorded, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compared is an object for which upstream and we give the same result.
type compared struct {
	*mutants.Sample
	gvk schema.GroupVersionKind
	in  string
}

// compare returns an object that can notice mutants; nil if the results differ.
func compare(t *testing.T, r *mutants.Recorder, gvk schema.GroupVersionKind, text []byte) *compared {
	typed, err := scheme.Decode(gvk, text)
	if err != nil {
		return nil
	}
	decoded := marshal(t, typed)
	before := parse(t, decoded)
	scheme.Scheme.Default(typed)
	want := string(object.AppendJSON(nil, parse(t, marshal(t, typed))))
	s, err := r.Sample(func() (string, error) {
		fill := functionFor(gvk)
		if fill == nil {
			return "no defaults", nil
		}
		return string(object.AppendJSON(nil, fill(before, time.Time{}))), nil
	})
	if err != nil || s.Says != want {
		return nil
	}
	return &compared{s, gvk, string(object.AppendJSON(nil, before))}
}

// minimise removes the parts without which the object still notices a mutant.
func (c *compared) minimise(t *testing.T, r *mutants.Recorder, mutant int) *compared {
	for n := 0; ; {
		var doc map[string]any
		if err := json.Unmarshal([]byte(c.in), &doc); err != nil {
			t.Fatal(err)
		}
		smaller, ok := recorder.Without(doc, n, "apiVersion", "kind")
		if !ok {
			return c
		}
		less := compare(t, r, c.gvk, marshal(t, smaller))
		if less != nil && len(less.in) < len(c.in) && less.Notices(mutant) {
			c = less
		} else {
			n++
		}
	}
}

func (c *compared) record(out *bytes.Buffer, r *mutants.Recorder) {
	r.Close(c.Sample)
	fmt.Fprintf(out, "%s %s\n%s\n%s\n", c.gvk.GroupVersion(), c.gvk.Kind, c.in, c.Says)
}
