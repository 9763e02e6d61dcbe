package schema

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	kjson "sigs.k8s.io/json"

	"plinth/conformance/internal/vectors"
	"plinth/internal/gotypes"
	"plinth/object"
	"plinth/schema"
)

// The markers' defaults are a part of upstream's defaulting functions: these fill in whatever Default fills in, with
// the same value, and Default does not change their result. Every marker has to take effect at least once.
//
// SPEC: VAL-4.
func TestMarkersDefaultAsUpstream(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	waiting := map[string]bool{}
	fired := map[string]bool{}
	for _, v := range vectors.All(t) {
		if !legacyscheme.Scheme.Recognizes(v.Kind) || strings.Contains(v.Kind.Version, "alpha") ||
			strings.Contains(v.Kind.Version, "beta") {
			continue
		}
		goType := v.Type
		typ := gotypes.OfType(goType)
		markers(typ, map[*schema.Type]bool{}, waiting)
		for range 40 {
			input := thin(random, parse(t, v.JSON))
			typed := reflect.New(goType).Interface().(runtime.Object)
			if err := kjson.UnmarshalCaseSensitivePreserveInts(object.AppendJSON(nil, input), typed); err != nil {
				t.Fatal(err)
			}
			decoded, err := typ.Decode(input)
			if err != nil {
				t.Fatal(err)
			}
			legacyscheme.Scheme.Default(typed)
			upstream := parse(t, []byte(sortedJSON(t, typed)))
			if again := typ.Default(upstream); again != upstream {
				t.Fatalf("%s: upstream leaves undone what we do:\n%s\n%s", v.Name, object.AppendJSON(nil, upstream),
					object.AppendJSON(nil, again))
			}
			checkFilled(t, v.Name, typ, decoded.Value, typ.Default(decoded.Value), upstream, fired)
		}
	}
	for marker := range fired {
		delete(waiting, marker)
	}
	if len(fired) < 15 || len(waiting) > 0 {
		t.Errorf("%d markers have fired, these have not: %q", len(fired), slices.Sorted(maps.Keys(waiting)))
	}
}

// markers collects the fields at or below a type that have a default other than their zero value.
func markers(t *schema.Type, seen map[*schema.Type]bool, found map[string]bool) {
	if t == nil || seen[t] {
		return
	}
	seen[t] = true
	for i := range t.Fields {
		f := &t.Fields[i]
		if !f.Default.IsNull() && (f.Pointer || !object.Equal(f.Default, f.Type.Zero())) {
			found[t.Name+"."+f.Name] = true
		}
		markers(f.Type, seen, found)
	}
	markers(t.Elem, seen, found)
}

// checkFilled compares the fields that were added to a value with upstream's.
func checkFilled(t *testing.T, at string, typ *schema.Type, before, after, upstream object.Value,
	fired map[string]bool) {
	t.Helper()
	if before == after {
		return
	}
	switch {
	case typ.Kind == schema.Struct && before.Kind() == object.Map:
		for i := range typ.Fields {
			f := &typ.Fields[i]
			old, new := before.At(f.Name), after.At(f.Name)
			if !object.Equal(old, new) && (old.IsNull() || old.Len() == 0 && f.Type.Kind == schema.String) {
				fired[typ.Name+"."+f.Name] = true
			}
			checkFilled(t, at+"."+f.Name, f.Type, old, new, upstream.At(f.Name), fired)
		}
	case typ.Kind == schema.List && before.Len() == upstream.Len():
		for i, item := range before.Items() {
			checkFilled(t, at+"[]", typ.Elem, item, after.Items()[i], upstream.Items()[i], fired)
		}
	case typ.Kind == schema.Map && before.Kind() == object.Map:
		for _, m := range before.Members() {
			checkFilled(t, at+"."+m.Key, typ.Elem, m.Value, after.At(m.Key), upstream.At(m.Key), fired)
		}
	default:
		if !object.Equal(after, upstream) {
			t.Fatalf("%s: ours %s, upstream %s", at, object.AppendJSON(nil, after), object.AppendJSON(nil, upstream))
		}
	}
}

// thin removes and empties members at random, at every depth.
func thin(random *rand.Rand, v object.Value) object.Value {
	switch v.Kind() {
	case object.Map:
		for _, m := range v.Members() {
			child := m.Value.Kind()
			switch {
			case m.Key == "apiVersion" || m.Key == "kind" && !v.At("apiVersion").IsNull():
			case child == object.Map || child == object.List:
				if random.IntN(20) > 0 {
					v = v.With(m.Key, thin(random, m.Value))
				} else {
					v = v.Without(m.Key)
				}
			case random.IntN(3) == 0:
				v = v.Without(m.Key)
			case random.IntN(10) == 0:
				v = v.With(m.Key, object.Nil)
			case random.IntN(10) == 0 && child == object.String && m.Key == "protocol":
				v = v.With(m.Key, object.StringOf(""))
			}
		}
	case object.List:
		for i, item := range v.Items() {
			v = v.WithItem(i, thin(random, item))
		}
	}
	return v
}
