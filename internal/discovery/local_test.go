package discovery

import (
	"maps"
	"slices"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
)

// Priorities that somebody has edited change the order of the documents that are not aggregated, and of those alone.
//
// SPEC: URI-8, EXT-2
func TestEditedPriorities(t *testing.T) {
	var local *Local
	d := New(Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})), Version: testVersion,
		Remotes: func() []*Remote {
			return []*Remote{remote("b.example.com", "v1", "Thing"), remote("a.example.com", "v2", "Thing")}
		},
		Local: func() *Local { return local }})
	get := getter(t, d)
	groups := func() (names []string) {
		for _, g := range get("/apis", mediaJSON).At("groups").Items() {
			names = append(names, g.At("name").Str())
		}
		return names
	}
	aggregated := func() (names []string) {
		for _, g := range get("/apis", aggregatedJSON).At("items").Items() {
			names = append(names, g.At("metadata", "name").Str(), g.At("versions").Items()[0].At("version").Str())
		}
		return names
	}
	preferred := func() string { return get("/apis/autoscaling", "").At("preferredVersion", "version").Str() }
	before, old := groups(), aggregated()
	if before[0] != ownGroup || before[1] != "apps" || preferred() != "v2" {
		t.Fatalf("%v, %s", before, preferred())
	}
	// Of one priority, the APIService whose name is first is first: v1.b before v2.a.
	if n := len(before); before[n-2] != "b.example.com" || before[n-1] != "a.example.com" {
		t.Errorf("%v", before)
	}
	local = localServices()
	maps.Copy(local.By, map[[2]string]Priority{{"batch", "v1"}: {17900, 15}, {"autoscaling", "v1"}: {17500, 31},
		{"apps", "v1"}: {1, 1}})
	after := groups()
	if after[0] != ownGroup || after[1] != "batch" || after[len(after)-1] != "apps" || preferred() != "v1" {
		t.Errorf("%v, %s", after, preferred())
	}
	if got := aggregated(); !slices.Equal(got, old) {
		t.Errorf("aggregated: %v, want %v", got, old)
	}
	local = nil
	if got := groups(); !slices.Equal(got, before) || preferred() != "v2" {
		t.Errorf("%v, want %v", got, before)
	}
}

// localServices are the APIServices of all built-in group versions.
func localServices() *Local {
	l := &Local{By: map[[2]string]Priority{}}
	for _, gv := range engine.NewRegistry(builtin.Resources(builtin.Config{})).Now().GroupVersions() {
		if _, _, ok := Priorities(gv.Group, gv.Version); ok {
			l.By[[2]string{gv.Group, gv.Version}] = DefaultPriority(gv.Group, gv.Version)
		}
	}
	return l
}

// A built-in group version whose APIService is deleted is not in the list of groups, and one that nobody serves is if
// it has an APIService. The document of a group whose APIServices are all gone is the server's own.
//
// SPEC: URI-8, EXT-2
func TestDeletedLocalAPIServices(t *testing.T) {
	local := localServices()
	d := New(Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})), Version: testVersion,
		Local: func() *Local { return local }})
	get := getter(t, d)
	versions := func() map[string]string {
		all := map[string]string{}
		for _, g := range get("/apis", mediaJSON).At("groups").Items() {
			for _, v := range g.At("versions").Items() {
				all[g.At("name").Str()] += v.At("version").Str() + " "
			}
		}
		return all
	}
	of := func(group string) (all string) {
		for _, v := range get("/apis/"+group, "").At("versions").Items() {
			all += v.At("version").Str() + " "
		}
		return all
	}
	aggregated := get("/apis", aggregatedJSON).At("items").Len()
	want := versions()
	if len(want) != aggregated || want["autoscaling"] != "v2 v1 " || want["batch"] != "v1 " {
		t.Fatalf("%v", want)
	}
	without := func(keys ...[2]string) {
		local = &Local{By: maps.Clone(local.By)}
		for _, key := range keys {
			delete(local.By, key)
		}
	}
	without([2]string{"batch", "v1"}, [2]string{"autoscaling", "v2"}, [2]string{"", "v1"})
	local.By[[2]string{"none.example.com", "v1"}] = Priority{17450, 5}
	delete(want, "batch")
	want["autoscaling"], want["none.example.com"] = "v1 ", "v1 "
	if got := versions(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := []string{of("batch"), of("autoscaling"), of("none.example.com")}; !slices.Equal(got,
		[]string{"v1 ", "v1 ", "v1 "}) {
		t.Errorf("%v", got)
	}
	without([2]string{"autoscaling", "v1"})
	delete(want, "autoscaling")
	if got := versions(); !maps.Equal(got, want) || of("autoscaling") != "v2 v1 " {
		t.Errorf("%v, want %v; %s", got, want, of("autoscaling"))
	}
	for _, path := range []string{"/apis/none.example.com/v1", "/apis/none"} {
		if _, ok, _ := d.Get(path, ""); ok {
			t.Errorf("%s is served", path)
		}
	}
	if got := get("/apis", aggregatedJSON).At("items").Len(); got != aggregated {
		t.Errorf("%d groups in the aggregated document, %d before", got, aggregated)
	}
}
