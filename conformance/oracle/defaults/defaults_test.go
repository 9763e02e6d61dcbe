package defaults

import (
	"flag"
	"hash/fnv"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/conformance/internal/scheme"
	"plinth/conformance/internal/valuediff"
	"plinth/internal/builtin"
	"plinth/internal/gotypes"
	"plinth/object"
	plinth "plinth/schema"
)

var (
	objects = flag.Int("objects", 2000, "how many variants of each kind that has defaults are compared")
	seed    = flag.Uint64("seed", 1, "which variants they are")
)

// filledByConversion are the kinds in which the conversion to the internal type and back fills in more than the
// defaults, which our function does, too: the member basic of the devices of v1beta1.
var filledByConversion = map[schema.GroupVersionKind]bool{
	devices("v1beta1", "ResourceSlice"): true,
}

// SPEC: VAL-4
func TestDefaultsAreUpstreams(t *testing.T) {
	for gvk, documents := range corpus(t) {
		t.Run(gvk.String(), func(t *testing.T) {
			t.Parallel()
			compareKind(t, gvk, documents)
		})
	}
}

func compareKind(t *testing.T, gvk schema.GroupVersionKind, documents []document) {
	fill := functionFor(gvk)
	count := *objects
	if fill == nil {
		fill = func(obj object.Value, _ time.Time) object.Value { return obj }
		count = min(count, 200)
	}
	compared, changed, told := 0, 0, 0
	for i := 0; compared < count; i++ {
		text := variant(t, gvk, documents, i)
		typed, err := scheme.Decode(gvk, text)
		if err != nil {
			continue // an emptied field that must not be empty: "" for a quantity
		}
		compared++
		decoded := marshal(t, typed)
		empty := emptyFields(t, typed, text)
		before := plinth.WithEmpty(parse(t, decoded), empty)
		now := time.Now()
		scheme.Scheme.Default(typed)
		filled := marshal(t, typed)
		if filledByConversion[gvk] {
			filled = upstreamConversion(t, gvk, filled, gvk)
		}
		want, got := parse(t, filled), fill(before, now)
		if got != before {
			changed++
		}
		if len(empty) > 0 {
			told++
		}
		if got = plinth.WithoutEmpty(got, empty); object.Equal(want, got) {
			continue
		}
		if functionIsTimed(gvk) { // the clock may have moved to the next second
			got = plinth.WithoutEmpty(fill(before, time.Now()), empty)
		}
		if d := valuediff.First(want, got); d != "" {
			t.Fatalf("variant %d: %s\nof %s", i, d, decoded)
		}
	}
	if functionFor(gvk) != nil && changed == 0 {
		t.Errorf("nothing was ever filled in")
	}
	t.Logf("%d compared, %d changed by defaults, %d with an empty value that is not an absent one", compared, changed,
		told)
}

// emptyFields are the empty lists and maps of a document that rules tell from absent ones.
func emptyFields(t testing.TB, typed runtime.Object, text []byte) []plinth.EmptyField {
	t.Helper()
	decoded, err := gotypes.OfType(reflect.TypeOf(typed).Elem()).Decode(parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Empty
}

// variant makes the i-th variant of a kind; the first ones are the unchanged documents.
func variant(t testing.TB, gvk schema.GroupVersionKind, documents []document, i int) []byte {
	doc := documents[i%len(documents)]
	if i >= len(documents) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(gvk.String())) // never fails
		doc = newMutator(h.Sum64() + *seed<<32 + uint64(i)).object(doc)
	}
	return marshal(t, doc)
}

func functionFor(gvk schema.GroupVersionKind) func(object.Value, time.Time) object.Value {
	return builtin.FunctionsOf(gvk.Group, gvk.Version, gvk.Kind).Defaults
}

func functionIsTimed(gvk schema.GroupVersionKind) bool {
	return builtin.FunctionsOf(gvk.Group, gvk.Version, gvk.Kind).Timed
}
