package engine

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
)

// Registry knows the served types. Who serves a request asks it once, with Now, and goes by that answer to the end.
type Registry struct {
	types atomic.Pointer[Types]
}

// NewRegistry makes a registry of these types.
func NewRegistry(resources []*Resource) *Registry {
	r := &Registry{}
	r.Replace(resources)
	return r
}

// Now is the types that are served at this moment.
func (r *Registry) Now() *Types { return r.types.Load() }

// Replace puts other types in the place of all that are there.
func (r *Registry) Replace(resources []*Resource) {
	r.types.Store(newTypes(resources, r.types.Load()))
}

// Types is the types that are served at one moment. It never changes.
type Types struct {
	byName map[name]*Resource
	kinds  map[string]*served // by the resource part of store keys
	groups []*GroupVersion    // sorted by group, then version
	all    []*Resource
}

type name struct{ group, version, resource string }

// served is the versions in which one stored kind is served.
type served struct {
	stored   *Resource // the one in which it is stored
	versions []*Resource
}

// GroupVersion is the types of one group version. While they are the same ones, so is the GroupVersion: what is made of
// it can be kept by its pointer.
type GroupVersion struct {
	Group, Version string
	Resources      []*Resource // sorted by name
}

// newTypes indexes types; group versions of before that have the same ones go on.
func newTypes(resources []*Resource, before *Types) *Types {
	t := &Types{
		byName: make(map[name]*Resource, len(resources)),
		kinds:  make(map[string]*served, len(resources)),
		all:    slices.Clone(resources),
	}
	sorted := slices.Clone(resources)
	slices.SortFunc(sorted, func(a, b *Resource) int {
		return cmp.Or(compareNames(a.Group, a.Version, b.Group, b.Version), strings.Compare(a.Name, b.Name))
	})
	for len(sorted) > 0 {
		gv := &GroupVersion{Group: sorted[0].Group, Version: sorted[0].Version}
		n := slices.IndexFunc(sorted, func(r *Resource) bool { return r.Group != gv.Group || r.Version != gv.Version })
		if n < 0 {
			n = len(sorted)
		}
		gv.Resources, sorted = sorted[:n:n], sorted[n:]
		if known := before.GroupVersion(gv.Group, gv.Version); known != nil && slices.Equal(known.Resources, gv.Resources) {
			gv = known
		}
		t.groups = append(t.groups, gv)
	}
	for _, r := range resources {
		t.byName[name{r.Group, r.Version, r.Name}] = r
		if r.Store == "" {
			continue
		}
		kind := t.kinds[r.Store]
		if kind == nil {
			kind = &served{}
			t.kinds[r.Store] = kind
		}
		kind.versions = append(kind.versions, r)
		if r.ToStored == nil {
			kind.stored = r
		}
	}
	return t
}

func compareNames(group, version, otherGroup, otherVersion string) int {
	return cmp.Or(strings.Compare(group, otherGroup), strings.Compare(version, otherVersion))
}

// Find is the served type of this name, or nil.
func (t *Types) Find(group, version, resource string) *Resource {
	return t.byName[name{group, version, resource}]
}

// GroupVersion is the group version of this name, or nil.
func (t *Types) GroupVersion(group, version string) *GroupVersion {
	if t == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(t.groups, version, func(gv *GroupVersion, version string) int {
		return compareNames(gv.Group, gv.Version, group, version)
	})
	if !found {
		return nil
	}
	return t.groups[i]
}

// HasGroup says whether any type of a group is served.
func (t *Types) HasGroup(group string) bool {
	i, _ := slices.BinarySearchFunc(t.groups, group, func(gv *GroupVersion, group string) int {
		return strings.Compare(gv.Group, group)
	})
	return i < len(t.groups) && t.groups[i].Group == group
}

// GroupVersions lists the group versions, sorted by group and version. The slice is not to be changed.
func (t *Types) GroupVersions() []*GroupVersion { return t.groups }

// All lists the types: built-in ones in the order of their table. The slice is not to be changed.
func (t *Types) All() []*Resource { return t.all }

// Stored is the type in whose version the objects of a kind are stored, by the resource part of their keys; or nil.
func (t *Types) Stored(resource string) *Resource {
	if kind := t.kinds[resource]; kind != nil {
		return kind.stored
	}
	return nil
}

// several says whether a stored kind is served in more than one version.
func (t *Types) several(resource string) bool {
	kind := t.kinds[resource]
	return kind != nil && len(kind.versions) > 1
}

// version is a stored kind in one of the versions in which it is served, or nil.
func (t *Types) version(resource, apiVersion string) *Resource {
	if kind := t.kinds[resource]; kind != nil {
		for _, r := range kind.versions {
			if r.APIVersion() == apiVersion {
				return r
			}
		}
	}
	return nil
}
