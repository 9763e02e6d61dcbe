package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/version"

	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/internal/view"
)

// Registry has the served types: the built-in ones, made once, and those that the objects of a collection define
// (CustomResourceDefinitions), which are a view of that collection. A request calls Now once and uses the result to its
// end: a definition that changes meanwhile does not change the type under a request.
//
// The problem: the served types change by writes, since a definition is an object like others, and every request reads
// them. The reference follows definitions by an informer, so that for some time after the create of a definition is
// answered, requests for its objects are 404, and clients have to poll until it is Established. Here the types are
// computed from the store when they are needed:
//
//	a definition was accepted by a commit that was answered before the request  ⇒  the request finds its types
//
// As long as no definition changes, that costs an atomic load and a comparison of revisions (view.View.Now). The first
// request after a change computes the new Types on its own goroutine, while others wait; Types.with keeps that short.
//
// alone and defined are set before the first request, so they need no lock; the view has its own.
type Registry struct {
	alone   *Types             // the built-in types alone
	defined *view.View[*Types] // nil: no collection defines types
}

// NewRegistry makes a registry of the built-in types.
func NewRegistry(builtin []*Resource) *Registry {
	return &Registry{alone: &Types{builtin: newBuiltin(builtin), groups: groupVersions(builtin)}}
}

// Define adds the types that the objects of a collection define. It is called before the registry is used.
//
// The first request after a definition was written waits for define, and the first after a restart for that of all
// definitions; define reads names and compiles schemas only on their first use. A kind is identified by its path: of
// two definitions of one kind, the one whose name is first in byte order is served, and a built-in kind takes
// precedence over both.
func (r *Registry) Define(collection *store.Collection, define Define) {
	r.defined = view.New(collection, func(before *Types, changes iter.Seq[view.Change]) *Types {
		if before == nil {
			before = &Types{builtin: r.alone.builtin, groups: r.alone.groups}
		}
		return before.with(changes, define)
	})
}

// Define returns the types that a version of a definition defines: those of one kind, a Resource for each served
// version, all with the same Kind; none if the definition is not accepted yet. before is the result for the last
// version of the same object; if the types are the same, Define returns before itself, which keeps everything that was
// derived from them (documents, compiled schemas), and running watches continue. A nil object means that the definition
// was removed or is unreadable.
//
// After a change of a status or of an annotation, Define returns before; a new printer column makes new Resources of a
// Kind with the same Life; a new default in the schema, or another conversion, ends the Life. Define itself ends the
// Life, so it must see the versions of an object in their order, each at most once. The view guarantees that: under its
// lock, it compiles each value from the one before.
type Define func(object *store.Version, before []*Resource) []*Resource

// Now returns the types that are served now: those of every definition that was durable before the call.
func (r *Registry) Now() *Types {
	if r.defined == nil {
		return r.alone
	}
	types, _ := r.defined.Now() // Types.Unreadable has the definitions that cannot be read
	return types
}

// Builtin returns the built-in types alone.
func (r *Registry) Builtin() *Types { return r.alone }

// Types is the types that are served at one moment. It never changes, so it needs no lock. Successive Types share
// what has not changed, so a new definition costs its own group version and a copy of the list of group versions.
//
// Each way of looking up a type has an index:
//
//	by URL: group, version, resource   builtin.byName, then groups, both searched without an allocation (Find)
//	by the kind in the store           builtin.kinds, then byKind (Kind, OfPath)
//	by apiVersion and kind             groups (OfKind)
//	all, for discovery                 groups, in order (GroupVersions)
//
// Built-in types are in maps: every request tries them first, and they never change. The others are in trees and sorted
// lists, whose copies share memory: byObject and byKind are copied in constant time (copy on write).
type Types struct {
	builtin *builtinTypes
	// The definitions, by the name of their object, and by the kind that they define. The first one of a kind is served,
	// unless the kind is built in.
	//
	//	byKind has kindKey(d.kind.Path, name) → d  ⇔  byObject has name → d
	byObject, byKind btree.Map[string, *definition]
	groups           []*GroupVersion // all of them, sorted by group, then version
	// unreadable are the definitions that cannot be read, by the name of their object; nil: there are none.
	unreadable map[string]error
}

// builtinTypes are the built-in types, with indexes of them. All Types of a registry share one.
type builtinTypes struct {
	all    []*Resource
	byName map[name]*Resource
	kinds  map[string]*served
	groups map[string]bool
}

// name identifies a type in URLs.
type name struct{ group, version, resource string }

// served has the served versions of one kind.
type served struct {
	kind     *Kind
	versions []*Resource
}

// definition has the types that one object of the collection defines.
type definition struct{ served }

// kindKey orders the definitions of one kind by the names of their objects. A path has no zero byte, so the definitions
// of one kind are adjacent.
func kindKey(path, object string) string { return path + "\x00" + object }

// GroupVersion has the types of one group version. While they are the same, so is the pointer, and documents that are
// made from it (discovery) can be kept by that pointer. The types of a kind in other group versions change only
// together with those here: a definition has one Kind, and a change that makes a new one makes new Resources of all
// versions.
type GroupVersion struct {
	Group, Version string
	Resources      []*Resource // sorted by name
}

// newBuiltin makes the indexes of the built-in types.
func newBuiltin(all []*Resource) *builtinTypes {
	b := &builtinTypes{
		all: slices.Clone(all), byName: make(map[name]*Resource, len(all)),
		kinds: make(map[string]*served, len(all)), groups: map[string]bool{},
	}
	for _, r := range all {
		b.groups[r.Group] = true
		b.byName[name{r.Group, r.Version, r.Name}] = r
		if r.Stored == nil {
			continue
		}
		kind := b.kinds[r.Stored.Path]
		if kind == nil {
			kind = &served{kind: r.Stored}
			b.kinds[r.Stored.Path] = kind
		}
		kind.versions = append(kind.versions, r)
	}
	return b
}

// groupVersions sorts types into group versions.
func groupVersions(resources []*Resource) []*GroupVersion {
	sorted := slices.Clone(resources)
	slices.SortFunc(sorted, func(a, b *Resource) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version),
			strings.Compare(a.Name, b.Name))
	})
	var all []*GroupVersion
	for len(sorted) > 0 {
		gv := &GroupVersion{Group: sorted[0].Group, Version: sorted[0].Version}
		n := 1
		for n < len(sorted) && sorted[n].Group == gv.Group && sorted[n].Version == gv.Version {
			n++
		}
		gv.Resources, sorted = sorted[:n:n], sorted[n:]
		all = append(all, gv)
	}
	return all
}

// with returns the types after changes of definitions. t is not changed. changes has the last change of each object, in
// no order, and the result must not depend on an order: if two definitions of one kind are created in one batch, their
// names decide which one is served, and not their order in changes.
//
// Building all types again would read every definition for each change: with 2,000 definitions, an operator that
// installs its 50 would cost 100,000 readings. Instead, with looks at the changed objects, at the kinds that they
// defined or define now, and at the group versions in which those are served; everything else is shared with t. Only
// the list of group versions is copied as a whole. The two indexes of definitions, by object and by kind, agree
// afterwards (assertIndexes).
//
// It has two steps. First the indexes follow the objects. Then, for each kind of a changed object, the served types
// before and after are compared: a definition that was served may be replaced by another one of the same kind. If
// objects a and b both define widgets, a is served; when a is deleted, b is served although b has not changed, so the
// first step alone would not add its Resources.
func (t *Types) with(changes iter.Seq[view.Change], define Define) *Types {
	next := &Types{builtin: t.builtin, byObject: *t.byObject.Copy(), byKind: *t.byKind.Copy(), groups: t.groups,
		unreadable: t.unreadable}
	kinds := map[string]bool{}
	for change := range changes {
		var before, resources []*Resource
		old, defined := next.byObject.Get(change.Name)
		if defined {
			before = old.versions
		}
		object := change.Version
		var why error
		if object != nil && object.Sidecar.Unreadable != nil {
			object, why = nil, object.Sidecar.Unreadable
		}
		next.setUnreadable(change.Name, why)
		if object != nil || defined {
			resources = define(object, before)
		}
		// Define has returned before itself, or there were no types and there still are none.
		if slices.Equal(before, resources) {
			continue
		}
		if defined {
			next.byObject.Delete(change.Name)
			next.byKind.Delete(kindKey(old.kind.Path, change.Name))
			kinds[old.kind.Path] = true
		}
		if len(resources) == 0 {
			continue
		}
		d := &definition{served{kind: resources[0].Stored, versions: resources}}
		next.byObject.Set(change.Name, d)
		next.byKind.Set(kindKey(d.kind.Path, change.Name), d)
		kinds[d.kind.Path] = true
	}
	gone, come := map[*Resource]bool{}, []*Resource{}
	for path := range kinds {
		// Compared by pointer: the definition that is served is still the same.
		previous, now := t.kind(path), next.kind(path)
		if previous == now {
			continue
		}
		if previous != nil {
			for _, r := range previous.versions {
				gone[r] = true
			}
		}
		if now != nil {
			come = append(come, now.versions...)
		}
	}
	if len(gone)+len(come) > 0 {
		next.groups = t.regroup(gone, come)
	}
	if invariants.Enabled {
		next.assertIndexes()
	}
	return next
}

// setUnreadable records why a definition cannot be read; nil: it can be, or is gone. It is part of with, which begins
// with the map of earlier Types.
func (t *Types) setUnreadable(name string, why error) {
	if why == nil && t.unreadable[name] == nil {
		return
	}
	next := maps.Clone(t.unreadable)
	if next == nil {
		next = map[string]error{}
	}
	if delete(next, name); why != nil {
		next[name] = why
	}
	t.unreadable = next
	if len(next) == 0 {
		t.unreadable = nil
	}
}

// Unreadable returns the definitions that cannot be read, with the reasons, by the name of their object: that of the
// resource, a dot, and the group. Their types are not served as long as that lasts, but they exist: nobody may be told
// that they do not, and nothing may be done that holds only without them.
func (t *Types) Unreadable() map[string]error { return t.unreadable }

// regroup returns the group versions of t without the types in gone and with those in come. Group versions that have
// neither keep their pointers. Both lists, those kept and those made, are sorted, and are merged.
func (t *Types) regroup(gone map[*Resource]bool, come []*Resource) []*GroupVersion {
	type groupVersion struct{ group, version string }
	touched := map[groupVersion]bool{}
	for _, r := range come {
		touched[groupVersion{r.Group, r.Version}] = true
	}
	for r := range gone {
		touched[groupVersion{r.Group, r.Version}] = true
	}
	var changed []*Resource
	kept := make([]*GroupVersion, 0, len(t.groups)+len(touched))
	for _, gv := range t.groups {
		if !touched[groupVersion{gv.Group, gv.Version}] {
			kept = append(kept, gv)
			continue
		}
		for _, r := range gv.Resources {
			if !gone[r] {
				changed = append(changed, r)
			}
		}
	}
	made := groupVersions(append(changed, come...))
	all := make([]*GroupVersion, 0, len(kept)+len(made))
	for len(kept) > 0 && len(made) > 0 {
		if compareGroupVersions(kept[0], made[0]) < 0 {
			all, kept = append(all, kept[0]), kept[1:]
		} else {
			all, made = append(all, made[0]), made[1:]
		}
	}
	return append(append(all, kept...), made...)
}

func compareGroupVersions(a, b *GroupVersion) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version))
}

// kind returns the served versions of a kind, by the resource part of its keys; nil if there are none. If there are
// several definitions, it is the first one behind kindKey(path, ""), which is smaller than the keys of all of them.
func (t *Types) kind(path string) *served {
	if kind := t.builtin.kinds[path]; kind != nil {
		return kind
	}
	var first *served
	prefix := kindKey(path, "")
	t.byKind.Ascend(prefix, func(key string, d *definition) bool {
		if strings.HasPrefix(key, prefix) {
			first = &d.served
		}
		return false
	})
	return first
}

// Find returns the served type of this name, or nil. It is called for every request, some of which are answered in
// microseconds, so a built-in type costs one look-up in a map, and a custom one two binary searches.
func (t *Types) Find(group, version, resource string) *Resource {
	if r := t.builtin.byName[name{group, version, resource}]; r != nil {
		return r
	}
	// There are no definitions: a type that is not built in is not served.
	if t.byObject.Len() == 0 {
		return nil
	}
	gv := t.GroupVersion(group, version)
	if gv == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(gv.Resources, resource, func(r *Resource, name string) int {
		return strings.Compare(r.Name, name)
	})
	if !found {
		return nil
	}
	return gv.Resources[i]
}

// Named returns the type of this name in the version of the group that clients prefer by its name, or nil.
func (t *Types) Named(group, resource string) (preferred *Resource) {
	from, _ := slices.BinarySearchFunc(t.groups, group, func(gv *GroupVersion, group string) int {
		return strings.Compare(gv.Group, group)
	})
	for _, gv := range t.groups[from:] {
		if gv.Group != group {
			break
		}
		r := t.Find(group, gv.Version, resource)
		if r != nil && (preferred == nil || version.CompareKubeAwareVersionStrings(r.Version, preferred.Version) > 0) {
			preferred = r
		}
	}
	return preferred
}

// GroupVersion returns the group version of this name, or nil.
func (t *Types) GroupVersion(group, version string) *GroupVersion {
	i, found := slices.BinarySearchFunc(t.groups, version, func(gv *GroupVersion, version string) int {
		return cmp.Or(strings.Compare(gv.Group, group), strings.Compare(gv.Version, version))
	})
	if !found {
		return nil
	}
	return t.groups[i]
}

// HasBuiltinKind says whether a built-in kind has keys with this resource part.
func (t *Types) HasBuiltinKind(path string) bool { return t.builtin.kinds[path] != nil }

// HasBuiltinGroup says whether any built-in type is of a group.
func (t *Types) HasBuiltinGroup(group string) bool { return t.builtin.groups[group] }

// GroupVersions lists the group versions, sorted by group and version. The slice must not be changed.
func (t *Types) GroupVersions() []*GroupVersion { return t.groups }

// Builtin lists the built-in types in the order of their table. They are the same in all Types of a registry. The
// slice must not be changed.
func (t *Types) Builtin() []*Resource { return t.builtin.all }

// All yields the types: the built-in ones in the order of their table, and then the others by kind.
func (t *Types) All() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		for _, r := range t.builtin.all {
			if !yield(r) {
				return
			}
		}
		// Definitions of one kind are adjacent; only the first is served.
		last := ""
		t.byKind.Scan(func(_ string, d *definition) bool {
			if d.kind.Path == last || t.builtin.kinds[d.kind.Path] != nil {
				return true
			}
			last = d.kind.Path
			for _, r := range d.versions {
				if !yield(r) {
					return false
				}
			}
			return true
		})
	}
}

// Defined says whether the object of this name defines types, served or hidden behind those of another one.
func (t *Types) Defined(object string) bool {
	_, ok := t.byObject.Get(object)
	return ok
}

// Kind returns the kind whose objects have keys with this resource part, or nil.
func (t *Types) Kind(path string) *Kind {
	if kind := t.kind(path); kind != nil {
		return kind.kind
	}
	return nil
}
