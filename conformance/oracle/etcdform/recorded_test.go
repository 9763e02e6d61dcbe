package etcdform

import (
	"bytes"
	"context"
	"plinth/conformance/internal/stubs"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"plinth/conformance/internal/valuediff"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/object"
)

// prefix is that of all keys but compact_rev_key.
const prefix = "/registry/"

// notObjects are the keys that are no objects.
var notObjects = []string{"masterleases/", "peerserverleases/", "ranges/"}

// defaulted are the kinds of which the reference stores an object without a field that has a default, since it removes
// the field after it has set the defaults. Its next read sets the default again, and its next write stores it, even if
// that changes nothing else. Plinth stores what is read.
var defaulted = map[string]string{"/persistentvolumeclaims": "status.phase"}

// Every key that a running reference has written into etcd is that of the object in it, and every value is read as its
// API shows the object, and written with the same bytes. Among them are all objects of Kubernetes' own test of storage
// paths whose types are served by default. SPEC: STORE-3
func TestRecordedValues(t *testing.T) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	form := etcdform.New(registry, runtime.ContentTypeProtobuf)
	paths, met, shown := map[string]bool{}, map[string]bool{}, 0
	for _, r := range recorded(t) {
		path, ok := strings.CutPrefix(r.Key, prefix)
		if !ok {
			if r.Key != "compact_rev_key" {
				t.Errorf("key %s", r.Key)
			}
			continue
		}
		paths[r.Key] = true
		key, ok := form.Key(path)
		if other := slices.ContainsFunc(notObjects, func(p string) bool { return strings.HasPrefix(path, p) }); ok == other {
			t.Errorf("%s is an object: %v", path, ok)
		}
		if !ok {
			continue
		}
		if back, ok := form.Path(key); !ok || back != path {
			t.Errorf("%s is %s, whose path is %q", path, key, back)
		}
		data, sidecar, exact, err := form.Decode(key, r.Value)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		back, err := form.Encode(key, data)
		if defaulted[key.Resource] != "" && err == nil && !exact && !bytes.Equal(back, r.Value) {
			met[key.Resource] = true
		} else if err != nil || !bytes.Equal(back, r.Value) || !exact {
			t.Errorf("%s: exact is %v; %v\nhave %q\nwant %q\nof   %s", path, exact, err, back, r.Value, data)
		}
		kind := registry.Now().Kind(key.Resource)
		if kind != nil && sidecar.Form != kind.Stamp {
			t.Errorf("%s: the stamp is %d", path, sidecar.Form)
		}
		for _, text := range r.Objects {
			compareShown(t, path, registry.Now(), kind, data, text)
			shown++
		}
	}
	for _, s := range stubs.All(t, namespace) {
		if r := registry.Now().Find(s.Resource.Group, s.Resource.Version, s.Resource.Resource); r != nil && !paths[s.Path] {
			t.Errorf("%s is not recorded", s.Path)
		}
	}
	for resource := range defaulted {
		if !met[resource] {
			t.Errorf("all values of %s are written as the reference writes them", resource)
		}
	}
	if len(paths) < 280 || shown < 280 {
		t.Errorf("%d keys and %d objects are recorded", len(paths), shown)
	}
}

// compareShown compares a stored form with the object that the reference shows: the engine shows the same, in the same
// version, and would store the same bytes for it.
func compareShown(t *testing.T, path string, types *engine.Types, kind *engine.Kind, data, text []byte) {
	t.Helper()
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	want := parsed.Value.WithoutAt("metadata", "resourceVersion")
	have, err := object.ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if kind == nil { // the versions of a custom kind differ in their names
		want, err := want.With("apiVersion", have.Value.At("apiVersion")).Untyped()
		if err != nil {
			t.Fatal(err)
		}
		if d := firstDifference(t, want, have.Value); d != "" {
			t.Errorf("%s: %s", path, d)
		}
		return
	}
	to := kind.Version(want.At("apiVersion").Str())
	obj := have.Value
	if to != kind.Storage {
		converted, err := kind.Convert(context.Background(), []object.Value{obj}, to)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := to.Schema().Decode(converted[0])
		if err != nil {
			t.Fatal(err)
		}
		obj = decoded.Value
	}
	decoded, err := to.Schema().Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	want = decoded.Value
	if d := firstDifference(t, want, obj); d != "" {
		t.Errorf("%s as %s: %s", path, to.APIVersion, d)
	}
	if to == kind.Storage && !bytes.Equal(object.AppendObject(nil, to.Schema().Settle(want)), data) {
		t.Errorf("%s: another form is stored: %s", path, data)
	}
}

// firstDifference compares what is printed for two values: a float is read as another kind of value.
func firstDifference(t *testing.T, want, got object.Value) string {
	t.Helper()
	var printed [2]object.Value
	for i, v := range []object.Value{want, got} {
		parsed, err := object.ParseJSON(object.AppendObject(nil, v))
		if err != nil {
			t.Fatal(err)
		}
		printed[i] = parsed.Value
	}
	return valuediff.First(printed[0], printed[1])
}
