package plinthtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// Owns fails the test unless a manager owns fields of an object, as metadata.managedFields says: each path is that of
// a field or of an item of a list, such as "spec.replicas" or `spec.containers[name="web"].image`. A path above
// fields is owned if all fields below it are that have an owner.
func (p *Plane) Owns(t testing.TB, o Ref, manager string, paths ...string) {
	t.Helper()
	for _, wrong := range p.notOwned(o, manager, paths) {
		t.Errorf("plinthtest: %s", wrong)
	}
}

// notOwned says what is wrong with the ownership of an object.
func (p *Plane) notOwned(o Ref, manager string, paths []string) (wrong []string) {
	if _, ok := p.key(o); !ok {
		return []string{fmt.Sprintf("there is no type of %s", o)}
	}
	v := p.live(o)
	if v == nil {
		return []string{fmt.Sprintf("there is no %s", o)}
	}
	owners, err := merge.Owners(parse(v), nil)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", o, err)}
	}
	for _, path := range paths {
		if why := notOwned(owners, manager, "."+strings.TrimPrefix(path, ".")); why != "" {
			wrong = append(wrong, fmt.Sprintf("%s does not own %s of %s: %s", manager, path, o, why))
		}
	}
	return wrong
}

// notOwned says why a manager does not own a path; "" if it does.
func notOwned(owners *merge.Ownership, manager, path string) string {
	present, owns := false, false
	for i := range owners.Locations {
		place := &owners.Locations[i]
		at := place.Path.String()
		below, isBelow := strings.CutPrefix(at, path)
		if !isBelow || below != "" && below[0] != '.' && below[0] != '[' || place.System {
			continue
		}
		present = true
		switch all := names(owners, place); {
		case slices.Contains(all, manager):
			if below == "" {
				return ""
			}
			owns = true
		case len(all) > 0:
			return at + " is owned by " + strings.Join(all, ", ")
		}
	}
	switch {
	case !present:
		return "there is no such field"
	case !owns:
		return "nobody owns it"
	}
	return ""
}

// names are the managers that own a place, each once.
func names(owners *merge.Ownership, place *merge.Location) []string {
	var all []string
	for _, i := range place.Owners {
		if name := owners.Managers[i].Manager; !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// fightLength is how many changes of a field by two managers in turn are a fight: each has overwritten the other, and
// one of them twice.
const fightLength = 4

// NoFights fails the test if two managers have overwritten the same field again and again, in turn: its four last
// changes or more were by one, the other, the one, the other. It names the object, the field, the managers and the
// values.
func (p *Plane) NoFights(t testing.TB) {
	t.Helper()
	for _, fight := range p.fights() {
		t.Errorf("plinthtest: %s", fight)
	}
}

// fights describes what NoFights looks for.
func (p *Plane) fights() (all []string) {
	changes := map[store.Key]*disputes{}
	for _, r := range p.past().all() {
		if r.New == nil {
			delete(changes, r.Key) // a new object of the name is another one
			continue
		}
		d := changes[r.Key]
		if d == nil {
			d = &disputes{fields: map[string][]fieldChange{}}
			changes[r.Key] = d
			d.add(r.Old)
		}
		d.add(r.New)
	}
	keys := slices.SortedFunc(maps.Keys(changes), func(a, b store.Key) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, k := range keys {
		for _, path := range slices.Sorted(maps.Keys(changes[k].fights)) {
			all = append(all, fmt.Sprintf("%s: two managers fight about %s: %s", k, path, changes[k].fights[path]))
		}
	}
	return all
}

// fieldChange is a change of a field: by whom, and to which value.
type fieldChange struct{ manager, value string }

// disputes are the changes of the fields of one object.
type disputes struct {
	values map[string]string        // by path, in the version before; nil: there was none
	fields map[string][]fieldChange // the last changes that were by two managers in turn
	fights map[string]string        // the text of each
}

// add compares a version with the one before. Whoever owns a changed field in the new version has changed it: a write
// that changes a field takes its ownership, and an apply of another value takes it from all others.
func (d *disputes) add(v *store.Version) {
	if v == nil {
		return
	}
	now, err := merge.Owners(parse(v), nil)
	if err != nil {
		return // nobody can be named
	}
	values := map[string]string{}
	for i := range now.Locations {
		place := &now.Locations[i]
		if !place.Leaf || place.System {
			continue
		}
		path, value := place.Path.String(), string(object.AppendJSON(nil, place.Value))
		values[path] = value
		if old, ok := d.values[path]; ok && old == value {
			continue
		}
		d.changed(path, strings.Join(names(now, place), " and "), value)
	}
	d.values = values
}

// changed records a change, and recognizes a fight.
func (d *disputes) changed(path, manager, value string) {
	if manager == "" {
		return
	}
	all := append(d.fields[path], fieldChange{manager, value})
	switch n := len(all); {
	case n > 1 && all[n-2].manager == manager:
		all = all[n-1:]
	case n > 2 && all[n-3].manager != manager:
		all = all[n-2:]
	}
	d.fields[path] = all
	if len(all) < fightLength {
		return
	}
	if d.fights == nil {
		d.fights = map[string]string{}
	}
	var text []string
	for _, c := range all {
		text = append(text, fmt.Sprintf("%s sets %s", c.manager, c.value))
	}
	if over := len(text) - 2*fightLength; over > 0 {
		text = append([]string{fmt.Sprintf("… %d changes", over)}, text[over:]...)
	}
	d.fights[path] = strings.Join(text, ", ")
}
