package discovery

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
	"plinth/schema"
)

// defined is a store with a collection that defines types: each of its objects represents a list of types that the test
// keeps.
type defined struct {
	testing.TB
	store *store.Store
	mu    sync.Mutex
	types map[string][]*engine.Resource // by the data of the objects
}

const definedCollection = "test.example/definitions"

func newDefined(tb testing.TB) *defined {
	d := &defined{TB: tb, types: map[string][]*engine.Resource{}}
	var err error
	d.store, err = store.Open(store.Config{Log: memlog.New(),
		Describe: func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.store.Close() })
	return d
}

func (d *defined) registry(builtin []*engine.Resource) *engine.Registry {
	r := engine.NewRegistry(builtin)
	r.Define(d.store.Collection(definedCollection), func(v *store.Version, _ []*engine.Resource) []*engine.Resource {
		if v == nil {
			return nil
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.types[string(v.Data())]
	})
	return r
}

// set makes the object of this name define these types, or removes it if the list is empty.
func (d *defined) set(name string, types ...*engine.Resource) {
	d.Helper()
	change := store.Change{Key: store.Key{Resource: definedCollection, Name: name}}
	if len(types) > 0 {
		d.mu.Lock()
		change.Data = fmt.Appendf(nil, "%s %d", name, len(d.types))
		d.types[string(change.Data)] = types
		d.mu.Unlock()
	}
	if _, err := d.store.Commit(d.Context(), nil, []store.Change{change}); err != nil {
		d.Fatal(err)
	}
}

// synthetic is a custom type, whose definition counts how often it is read, and whose schema must not be compiled.
func synthetic(group, version string, n int, read *int) *engine.Resource {
	kind := fmt.Sprintf("Kind%04d", n)
	model := "com.example." + group + "." + version + "." + kind
	r := &engine.Resource{
		Naming: engine.Naming{
			Group: group, Version: version, Name: strings.ToLower(kind) + "s", Singular: strings.ToLower(kind),
			Kind: kind, ListKind: kind + "List", Namespaced: true,
			Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		},
		Model:  model,
		Schema: func() *schema.Type { panic(model + " is compiled") },
		Written: func() object.Value {
			*read++
			text := func(s string) object.Value { return object.StringOf(s) }
			return object.Fields("schema", object.Fields("openAPIV3Schema", object.Fields(
				"type", text("object"), "properties", object.Fields("spec", object.Fields(
					"type", text("object"), "additionalProperties", object.Fields("type", text("string")),
				)),
			)))
		},
	}
	return r.StoredAlone(group + "/" + r.Name)
}

// When one of thousands of types is added, changed or removed, only the documents of its group version are printed
// again; the definitions of other types are not even read.
//
// SPEC: URI-8
func TestATypeCostsItsOwnGroupVersion(t *testing.T) {
	const groups, each = 250, 6
	defined, read := newDefined(t), 0
	d := New(Config{Registry: defined.registry(builtin.Resources(builtin.Config{})), Version: testVersion,
		Models: builtin.Models})
	for n := range groups * each {
		group := fmt.Sprintf("g%03d.example.com", n/each)
		defined.set(fmt.Sprint(n), synthetic(group, "v1", n, &read), synthetic(group, "v2", n, &read))
	}
	ask := func() {
		for _, accept := range []string{mediaJSON, aggregatedJSON} {
			plain(t, d, "/apis", accept)
			plain(t, d, "/api", accept)
		}
		for g := range groups {
			plain(t, d, fmt.Sprintf("/apis/g%03d.example.com/v1", g), "")
			plain(t, d, fmt.Sprintf("/apis/g%03d.example.com/v2", g), "")
		}
		plain(t, d, "/openapi/v3", "")
		plain(t, d, "/openapi/v3/apis/g007.example.com/v1", "")
		plain(t, d, "/openapi/v3/apis/g008.example.com/v1", "")
		plain(t, d, "/openapi/v2", mediaJSON)
		plain(t, d, "/openapi/v2", mediaOpenAPI2)
	}
	expect := func(when string, lists, aggregated, printed, sections, definitions int64) {
		t.Helper()
		got := [5]int64{
			d.counters.lists.Swap(0), d.counters.aggregated.Swap(0), d.counters.openAPI.Swap(0), d.counters.sections.Swap(0),
			int64(read),
		}
		if read = 0; got != [5]int64{lists, aggregated, printed, sections, definitions} {
			t.Errorf(
				"%s: %d resource lists, %d parts of aggregated discovery, %d OpenAPI v3 documents, %d parts of v2, %d definitions; "+
					"want %d, %d, %d, %d, %d", when, got[0], got[1], got[2], got[3], got[4], lists, aggregated, printed, sections,
				definitions)
		}
	}
	expect("before anybody asks", 0, 0, 0, 0, 0)
	plain(t, d, "/apis/g007.example.com/v1", "")
	plain(t, d, "/openapi/v3/apis/g007.example.com/v1", "")
	expect("one group version", 1, 0, 1, 0, each)
	ask()
	d.counters.lists.Store(0)
	d.counters.aggregated.Store(0)
	d.counters.openAPI.Store(0)
	d.counters.sections.Store(0)
	read = 0
	ask()
	expect("the same again", 0, 0, 0, 0, 0)

	// Documents that are requested themselves are printed twice: for their hash, and to be kept.
	defined.set("one", synthetic("g007.example.com", "v1", 9999, &read))
	ask()
	expect("one type more", 1, 1, 1+1, 2, (1+1+2)*(each+1))
	defined.set("one", synthetic("g007.example.com", "v1", 9998, &read))
	ask()
	expect("another one in its place", 1, 1, 1+1, 2, (1+1+2)*(each+1))
	defined.set("one")
	ask()
	expect("one type less", 1, 1, 1+1, 2, (1+1+2)*each)
	defined.set("one", synthetic("new.example.com", "v1", 9999, &read))
	ask()
	expect("a new group", 0, 1, 1, 2, 1+2)
}

// Aggregated discovery is assembled from printed parts, with the same bytes as if it were printed as a whole.
//
// SPEC: URI-8
func TestAggregatedDiscoveryIsTheSumOfItsParts(t *testing.T) {
	read := 0
	defined := newDefined(t)
	for _, builtin := range [][]*engine.Resource{nil, builtin.Resources(builtin.Config{})} {
		d := New(Config{Registry: defined.registry(builtin), Version: testVersion})
		for _, root := range []string{"api", "apis"} {
			text, whole := plain(t, d, "/"+root, aggregatedJSON), object.AppendJSON(nil, d.catalog().groupDiscovery(root))
			if string(text) != string(whole) {
				t.Errorf("%s: %.300s\nwant %.300s", root, text, whole)
			}
		}
		defined.set("a", synthetic("example.com", "v1", 1, &read), synthetic("example.com", "v2beta1", 1, &read))
	}
}

// Documents that are not requested take almost no memory: none for a type, and an entry of the list for a group
// version.
func TestTypesThatNobodyAsksForTakeNoMemory(t *testing.T) {
	const groups, each, limit = 500, 10, 128
	read := 0
	var all []*engine.Resource
	for n := range groups * each {
		all = append(all, synthetic(fmt.Sprintf("g%03d.example.com", n/each), "v1", n, &read))
	}
	registry := engine.NewRegistry(all)
	d := New(Config{Registry: registry, Version: testVersion, Models: builtin.Models})
	before := heap()
	plain(t, d, "/version", "")
	if _, ok, err := d.Get("/apis/g007.example.com/v1", ""); !ok || err != nil {
		t.Fatal(ok, err)
	}
	perType := (heap() - before) / (groups * each)
	t.Logf("%d bytes a type", perType)
	if perType > limit {
		t.Errorf("%d bytes a type that nobody asks for, want at most %d", perType, limit)
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(all)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
