package discovery

import (
	"slices"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
)

// Priorities that somebody has edited change the order of the documents that are not aggregated, and of those alone.
//
// SPEC: URI-8, EXT-2
func TestEditedPriorities(t *testing.T) {
	var edited *Edited
	d := New(Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})), Version: testVersion,
		Remotes: func() []*Remote {
			return []*Remote{remote("b.example.com", "v1", "Thing"), remote("a.example.com", "v2", "Thing")}
		},
		Edited: func() *Edited { return edited }})
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
	edited = &Edited{By: map[[2]string]Priority{{"batch", "v1"}: {17900, 15}, {"autoscaling", "v1"}: {17500, 31},
		{"apps", "v1"}: {1, 1}}}
	after := groups()
	if after[0] != ownGroup || after[1] != "batch" || after[len(after)-1] != "apps" || preferred() != "v1" {
		t.Errorf("%v, %s", after, preferred())
	}
	if got := aggregated(); !slices.Equal(got, old) {
		t.Errorf("aggregated: %v, want %v", got, old)
	}
	edited = nil
	if got := groups(); !slices.Equal(got, before) || preferred() != "v2" {
		t.Errorf("%v, want %v", got, before)
	}
}
