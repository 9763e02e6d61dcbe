package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/schema"
)

// definitions is a store with a collection whose objects define types: "GROUP PLURAL VERSION…", where the first version
// is the stored one.
type definitions struct {
	testing.TB
	*store.Store
	asked map[string]int // the number of calls of Define for each object
	mu    sync.Mutex
}

const definitionCollection = "test.example/definitions"

func newDefinitions(tb testing.TB) *definitions {
	d := &definitions{TB: tb, asked: map[string]int{}}
	var err error
	d.Store, err = store.Open(store.Config{Log: memlog.New(), Describe: func(_ store.Key, data []byte) *store.Sidecar {
		if string(data) == "unreadable" {
			return &store.Sidecar{Unreadable: fmt.Errorf("it is not readable")}
		}
		return &store.Sidecar{}
	}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.Close() })
	return d
}

// write stores definitions; the text "" removes one.
func (d *definitions) write(texts ...[2]string) {
	d.Helper()
	var changes []store.Change
	for _, t := range texts {
		c := store.Change{Key: store.Key{Resource: definitionCollection, Name: t[0]}}
		if t[1] != "" {
			c.Data = []byte(t[1])
		}
		changes = append(changes, c)
	}
	if _, err := d.Commit(context.Background(), nil, changes); err != nil {
		d.Error(err)
	}
}

func (d *definitions) define(v *store.Version, before []*Resource) []*Resource {
	if v == nil { // the definition was removed
		return nil
	}
	d.mu.Lock()
	d.asked[v.Key.Name]++
	d.mu.Unlock()
	words := strings.Fields(string(v.Data()))
	if len(words) < 3 {
		return nil
	}
	var all []*Resource
	for i, version := range words[2:] {
		r := &Resource{
			Naming: Naming{
				Group: words[0], Version: version, Name: words[1], Namespaced: true,
				Verbs: []string{"create", "get", "list"},
			},
			Schema: func() *schema.Type { panic("compiled without need") },
		}
		if i == 0 {
			r.StoredAlone(words[0] + "/" + words[1])
		} else {
			r.Served, r.Stored = VersionOf(r), all[0].Stored
			r.Stored.Versions = append(r.Stored.Versions, r.Served)
		}
		all = append(all, r)
	}
	same := func(a, b *Resource) bool {
		return a.Group == b.Group && a.Version == b.Version && a.Name == b.Name &&
			(a.Served == a.Stored.Storage) == (b.Served == b.Stored.Storage)
	}
	if slices.EqualFunc(all, before, same) {
		return before
	}
	return all
}

func builtinOf(texts ...string) []*Resource {
	var all []*Resource
	for _, text := range texts {
		words := strings.Fields(text)
		all = append(all, (&Resource{
			Naming: Naming{
				Group: words[0], Version: words[2], Name: words[1],
			},
		}).StoredAlone(words[0]+"/"+words[1]))
	}
	return all
}

// listing returns the types as texts, and checks on the way that all ways of looking them up agree.
func listing(t testing.TB, types *Types) []string {
	t.Helper()
	var all []string
	for r := range types.All() {
		text := r.Group + " " + r.Name + " " + r.Version
		if r.Served == r.Stored.Storage {
			text += " stored"
		}
		if types.Find(r.Group, r.Version, r.Name) != r || types.Kind(r.Stored.Path) != r.Stored {
			t.Errorf("%s: Find or Kind does not return it", text)
		}
		if gv := types.GroupVersion(r.Group, r.Version); gv == nil || !slices.Contains(gv.Resources, r) {
			t.Errorf("%s is not in the list of its group version", text)
		}
		if types.GroupVersion(r.Group, r.Version) == nil || types.GroupVersion(r.Group+"x", r.Version) != nil {
			t.Errorf("%s: GroupVersion does not return its group, or returns an unknown one", text)
		}
		all = append(all, text)
	}
	inGroups := 0
	sorted := slices.IsSortedFunc(types.GroupVersions(), func(a, b *GroupVersion) int {
		return strings.Compare(a.Group+" "+a.Version, b.Group+" "+b.Version)
	})
	for _, gv := range types.GroupVersions() {
		inGroups += len(gv.Resources)
		if len(gv.Resources) == 0 {
			t.Errorf("%s/%s is empty", gv.Group, gv.Version)
		}
		if !slices.IsSortedFunc(gv.Resources, func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }) {
			sorted = false
		}
	}
	if inGroups != len(all) || !sorted {
		t.Errorf("%d types are served, %d are in group versions; group versions are sorted: %v",
			len(all), inGroups, sorted)
	}
	return all
}

// SPEC: EXT-1
func TestTypesComeAndGoWithTheirDefinition(t *testing.T) {
	d := newDefinitions(t)
	registry := NewRegistry(builtinOf("apps deployments v1", "batch jobs v1"))
	registry.Define(d.Collection(definitionCollection), d.define)
	before := registry.Now()
	if got := listing(t, before); len(got) != 2 {
		t.Fatalf("the built-in types are %q", got)
	}
	d.write([2]string{"widgets.example.com", "example.com widgets v2 v1"})
	with := registry.Now()
	if with.Find("example.com", "v1", "widgets") == nil || len(with.Kind("example.com/widgets").Versions) != 2 ||
		len(with.Kind("apps/deployments").Versions) != 1 {
		t.Errorf("the types with a definition are %q", listing(t, with))
	}
	if before.Find("example.com", "v1", "widgets") != nil {
		t.Error("the Types from before the definition have changed")
	}
	d.write([2]string{"widgets.example.com", ""})
	if got := listing(t, registry.Now()); len(got) != 2 {
		t.Errorf("the types after the definition was deleted are %q", got)
	}
	// Two objects that define nothing, a definition of a built-in kind, and two definitions of one kind.
	d.write([2]string{"a", "nonsense"}, [2]string{"b", "unreadable"}, [2]string{"c", "apps deployments v2"},
		[2]string{"d", "example.com widgets v1"}, [2]string{"e", "example.com widgets v3"})
	want := []string{"apps deployments v1 stored", "batch jobs v1 stored", "example.com widgets v1 stored"}
	if got := listing(t, registry.Now()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	d.write([2]string{"d", ""})
	want[2] = "example.com widgets v3 stored"
	if got := listing(t, registry.Now()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// After any sequence of changes, the types are those of the definitions; and a group version has a new pointer only if
// its types have changed.
func TestTypesAreTheDefinitions(t *testing.T) {
	builtin := builtinOf("apps deployments v1", "g1 r1 v1", "batch jobs v1")
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := newDefinitions(t)
		registry := NewRegistry(builtin)
		registry.Define(d.Collection(definitionCollection), d.define)
		last := registry.Now()
		for range 200 {
			name, text := fmt.Sprint("d", rng.IntN(12)), ""
			if rng.IntN(4) > 0 {
				text = fmt.Sprintf("g%d r%d v%d v%d", rng.IntN(4), rng.IntN(4), 1+rng.IntN(2), 3+rng.IntN(2))
			}
			d.write([2]string{name, text})
			if rng.IntN(2) == 0 {
				continue
			}
			now := registry.Now()
			got, want := listing(t, now), d.model(d.Collection(definitionCollection).Snapshot(), builtin)
			if !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Fatalf("seed %d: %q, want %q", seed, got, want)
			}
			for _, gv := range now.GroupVersions() {
				if old := last.GroupVersion(gv.Group, gv.Version); old != nil &&
					(old == gv) != slices.Equal(old.Resources, gv.Resources) {
					t.Fatalf("seed %d: %s/%s kept its pointer: %v, should do so only with the same types",
						seed, gv.Group, gv.Version, old == gv)
				}
			}
			last = now
		}
	}
}

// model lists the types of the definitions at a snapshot, computed from scratch.
func (d *definitions) model(sn *store.Snapshot, builtin []*Resource) []string {
	kinds := map[string][]string{}
	for _, r := range builtin {
		kinds[r.Stored.Path] = []string{r.Group + " " + r.Name + " " + r.Version + " stored"}
	}
	sn.Ascend(definitionCollection, "", "", func(v *store.Version) bool {
		words := strings.Fields(string(v.Data()))
		path := words[0] + "/" + words[1]
		if kinds[path] == nil {
			for i, version := range words[2:] {
				kinds[path] = append(kinds[path], words[0]+" "+words[1]+" "+version+[...]string{" stored", ""}[min(i, 1)])
			}
		}
		return true
	})
	return slices.Sorted(func(yield func(string) bool) {
		for all := range maps.Values(kinds) {
			for _, text := range all {
				if !yield(text) {
					return
				}
			}
		}
	})
}

// A new version of a definition with the same types, as after a change of its status, changes no group version.
func TestTypesStayWhileTheDefinitionSaysTheSame(t *testing.T) {
	d := newDefinitions(t)
	registry := NewRegistry(builtinOf("apps deployments v1"))
	registry.Define(d.Collection(definitionCollection), d.define)
	d.write([2]string{"a", "example.com widgets v1"}, [2]string{"b", "example.com gadgets v1"})
	first := registry.Now().GroupVersion("example.com", "v1")
	d.write([2]string{"a", " example.com widgets v1 "})
	if registry.Now().GroupVersion("example.com", "v1") != first {
		t.Error("a definition of the same types made a new GroupVersion")
	}
	if d.asked["a"] != 2 || d.asked["b"] != 1 {
		t.Errorf("Define was called %v times for the definitions", d.asked)
	}
}

// Requests run while definitions are created and removed, and each sees those that existed before it.
func TestManyDefineAndAsk(t *testing.T) {
	d := newDefinitions(t)
	registry := NewRegistry(builtinOf("apps deployments v1"))
	registry.Define(d.Collection(definitionCollection), d.define)
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for i := range 100 {
				object, group := fmt.Sprintf("%d-%d", w, i%7), fmt.Sprintf("g%d", w)
				d.write([2]string{object, fmt.Sprintf("%s r%d v1", group, i)})
				if registry.Now().Find(group, "v1", fmt.Sprint("r", i)) == nil {
					t.Error("a type that was defined is not served")
				}
				d.write([2]string{object, ""})
				if registry.Now().Find(group, "v1", fmt.Sprint("r", i)) != nil {
					t.Error("a type is served whose definition was removed")
				}
			}
		})
	}
	wait.Wait()
}

// BenchmarkRegistry measures the cost of one more definition among many, and of finding a type.
func BenchmarkRegistry(b *testing.B) {
	d := newDefinitions(b)
	registry := NewRegistry(builtinOf("apps deployments v1"))
	registry.Define(d.Collection(definitionCollection), d.define)
	for i := range 2000 {
		d.write([2]string{fmt.Sprint("d", i), fmt.Sprintf("g%d.example.com r%d v1", i/4, i)})
	}
	b.Run("Define", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			d.write([2]string{"one", fmt.Sprintf("g1.example.com one v%d", 1+i%2)})
			registry.Now()
		}
	})
	b.Run("FindBuiltin", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			registry.Now().Find("apps", "v1", "deployments")
		}
	})
	b.Run("FindDefined", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			registry.Now().Find("g77.example.com", "v1", "r310")
		}
	})
}
