package builtin

import (
	"slices"
	"testing"

	"plinth/internal/engine"
	"plinth/internal/features"
)

// The names that documents have before a schema is compiled are those that the schemas have. Documents find the types
// by them, and not those that requests use.
func TestModelNames(t *testing.T) {
	checked, find := 0, Models()
	for _, r := range Resources(Config{}) {
		if got := r.Schema().Name; got != r.Model {
			t.Errorf("%s is %s, not %s", r.Type(), got, r.Model)
		}
		if found := find(r.Model); found == nil || found.Name != r.Model || found == r.Schema() {
			t.Errorf("%s: the model of documents is %v", r.Type(), found)
		}
		for _, s := range r.Subresources {
			if (s.Schema == nil) != (s.Model == "") {
				t.Errorf("%s/%s: the model is %q", r.Type(), s.Name, s.Model)
			} else if s.Schema != nil && (s.Schema().Name != s.Model || find(s.Model) == nil) {
				t.Errorf("%s/%s is %s, not %s", r.Type(), s.Name, s.Schema().Name, s.Model)
			}
		}
		checked++
	}
	if checked < 60 {
		t.Errorf("only %d types were looked at", checked)
	}
}

// Every type that can be listed has a list type, with the name by which documents look it up.
func TestLists(t *testing.T) {
	there := 0
	find := Models()
	all := func(_, _, _ string, _ bool) bool { return true }
	served := Resources(Config{Serves: all}.Every())
	before := Config{Serves: all, Versions: features.Versions{Emulated: features.Release{Major: 1, Minor: 36}}}
	for _, r := range Resources(before.Every()) { // what this release does not serve any more
		same := func(o *engine.Resource) bool { return o.Type() == r.Type() && o.Version == r.Version }
		if !slices.ContainsFunc(served, same) {
			served = append(served, r)
		}
	}
	for _, r := range served {
		name := r.Model + "List"
		list := find(name)
		if (list != nil) != slices.Contains(r.Verbs, "list") {
			t.Errorf("%s: it has a list: %v; its verbs are %v", r.Type(), list != nil, r.Verbs)
		}
		if list == nil {
			continue
		}
		there++
		if list.Name != name || list.Field("items").Type.Elem.Name != r.Model {
			t.Errorf("the list of %s is %s", r.Type(), list.Name)
		}
	}
	if lists := len(slices.DeleteFunc(slices.Clone(models()), func(m model) bool {
		return find(m.name).Field("items") == nil || find(m.name).Field("metadata") == nil
	})); there < 55 || there != lists {
		t.Errorf("%d of %d lists were looked at", there, lists)
	}
	if find("none") != nil {
		t.Error("a model of nothing")
	}
}
