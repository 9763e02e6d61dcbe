package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sort"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/version"

	"plinth/internal/engine"
)

// catalog holds what is served at one moment, in the order of discovery.
type catalog struct {
	types           *engine.Types
	remotes         []*Remote
	core            *group   // nil where the core group is not served
	groups          []*group // the named ones
	byName          map[string]*group
	representations representations

	local  *Local // for legacyGroups
	legacy func() *legacyGroups
}

// group is one API group with its versions, the preferred one first.
type group struct {
	name         string // "" is the core group
	versions     []*groupVersion
	pathDocument *v3Document // its OpenAPI document; nil for the core group and for groups that definitions alone make
}

// groupVersion is one version of a group with its documents. Later catalogs use it too, as long as its types or its
// Remote are the same.
type groupVersion struct {
	types          *engine.GroupVersion // nil if remote is set
	remote         *Remote              // nil: the engine serves it
	group, version string
	resources      []*engine.Resource // sorted by name

	openAPI         *v3Document // nil: a backend serves it, and has none
	sections        [2]section  // of OpenAPI v2, as JSON and as protobuf, if all types are custom
	representations representations

	aggregateOnce sync.Once
	aggregated    []byte // see aggregate
}

// storageVersion is the group, version and kind in which objects are stored. storageVersionHash is its hash. It is
// zero for types that are not stored.
type storageVersion struct{ group, version, kind string }

// newCatalog sorts the types of the engine and the group versions of backends. It takes what is unchanged from the old
// catalog.
func newCatalog(types *engine.Types, remotes []*Remote, local *Local, old *catalog) *catalog {
	c := &catalog{types: types, remotes: remotes, local: local, byName: map[string]*group{}}
	c.legacy = sync.OnceValue(c.legacyOrder)
	for _, r := range remotes {
		gv := old.find(r.Group, r.Version)
		if gv == nil || gv.remote != r {
			gv = newRemoteVersion(r)
		}
		c.add(gv, old)
	}
	for _, served := range types.GroupVersions() {
		if c.find(served.Group, served.Version) != nil || len(listed(served.Resources)) == 0 {
			continue // a backend serves it, or discovery shows none of its types
		}
		gv := old.find(served.Group, served.Version)
		if gv == nil || gv.types != served {
			gv = newGroupVersion(served)
		}
		c.add(gv, old)
	}
	sort.Slice(c.groups, func(i, j int) bool {
		a, b := c.groups[i], c.groups[j]
		if p, q := a.priority(), b.priority(); p != q {
			return p > q
		}
		return a.name < b.name
	})
	for _, g := range c.byName {
		// Versions of one priority are sorted as kubectl sorts them: GA before beta before alpha, then the highest number.
		// The first is preferred.
		sort.Slice(g.versions, func(i, j int) bool {
			a, b := g.versions[i], g.versions[j]
			_, p := a.priorities()
			_, q := b.priorities()
			if p != q {
				return p > q
			}
			return version.CompareKubeAwareVersionStrings(a.version, b.version) > 0
		})
	}
	return c
}

// add adds a group version to its group, which it makes if it is the first one.
func (c *catalog) add(gv *groupVersion, old *catalog) {
	g := c.byName[gv.group]
	if g == nil {
		g = &group{name: gv.group}
		c.byName[g.name] = g
		if g.name == "" {
			c.core = g
		} else {
			c.groups = append(c.groups, g)
		}
	}
	g.versions = append(g.versions, gv)
	if g.pathDocument == nil && g.name != "" && (gv.remote != nil || !gv.isCustom()) {
		if known := old.group(g.name); known != nil && known.pathDocument != nil {
			g.pathDocument = known.pathDocument
		} else {
			g.pathDocument = groupPathDocument(g.name)
		}
	}
}

func newGroupVersion(served *engine.GroupVersion) *groupVersion {
	gv := &groupVersion{types: served, group: served.Group, version: served.Version, resources: listed(served.Resources)}
	gv.openAPI = newV3Document(gv)
	return gv
}

// listed returns the types that discovery lists. Custom types in a built-in group version are served but not listed:
// in the reference different servers produce these documents, and only the one of the built-in types answers here.
func listed(resources []*engine.Resource) []*engine.Resource {
	if unlisted := func(r *engine.Resource) bool { return r.Unlisted }; slices.ContainsFunc(resources, unlisted) {
		resources = slices.DeleteFunc(slices.Clone(resources), unlisted)
	}
	custom := func(r *engine.Resource) bool { return r.Stored != nil && r.Stored.Custom }
	builtin := func(r *engine.Resource) bool { return !custom(r) }
	if !slices.ContainsFunc(resources, custom) || !slices.ContainsFunc(resources, builtin) {
		return resources
	}
	return slices.DeleteFunc(slices.Clone(resources), custom)
}

// priority is the highest one of the group's versions.
func (g *group) priority() (highest int64) {
	for _, gv := range g.versions {
		ofGroup, _ := gv.priorities()
		highest = max(highest, ofGroup)
	}
	return highest
}

// priorities are those of the APIService of a group version.
func (gv *groupVersion) priorities() (ofGroup, ofVersion int64) {
	if gv.remote != nil {
		return int64(gv.remote.GroupPriority), int64(gv.remote.VersionPriority)
	}
	p := DefaultPriority(gv.group, gv.version)
	return p.Group, p.Version
}

// find returns the group version of this name, or nil. c may be nil.
func (c *catalog) find(group, version string) *groupVersion {
	g := c.group(group)
	if g == nil {
		return nil
	}
	for _, gv := range g.versions {
		if gv.version == version {
			return gv
		}
	}
	return nil
}

// group returns the group of this name, or nil. c may be nil.
func (c *catalog) group(name string) *group {
	if c == nil {
		return nil
	}
	return c.byName[name]
}

// all returns all group versions, those of the core group first.
func (c *catalog) all() []*groupVersion {
	var all []*groupVersion
	if c.core != nil {
		all = append(all, c.core.versions...)
	}
	for _, g := range c.groups {
		all = append(all, g.versions...)
	}
	return all
}

func storageVersionOf(r *engine.Resource) storageVersion {
	if !r.Has("create") || r.Stored == nil { // it is not stored
		return storageVersion{}
	}
	group, version, core := strings.Cut(r.Stored.Storage.APIVersion, "/")
	if !core {
		group, version = "", group
	}
	return storageVersion{group, cmp.Or(r.Stored.ReferenceStorage, version), r.Kind}
}

// hash is the storageVersionHash of discovery. Clients may only compare it: it is equal for equal storage versions.
func (s storageVersion) hash() string {
	if s.kind == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.group + "/" + s.version + "/" + s.kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// name is the group version as an apiVersion: "apps/v1", or "v1" in the core group.
func (gv *groupVersion) name() string {
	if gv.group == "" {
		return gv.version
	}
	return gv.group + "/" + gv.version
}

// path is the URL prefix of the group version: "/apis/apps/v1".
func (gv *groupVersion) path() string {
	if gv.group == "" {
		return "/api/" + gv.version
	}
	return "/apis/" + gv.group + "/" + gv.version
}
