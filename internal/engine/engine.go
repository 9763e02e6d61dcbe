package engine

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"plinth/internal/store"
)

// Config is what an Engine is made of.
type Config struct {
	Store    *store.Store
	Registry *Registry
	Now      Clock // nil: time.Now
}

// Engine does the verbs on the objects of a store. It has no state of its own.
type Engine struct {
	store    *store.Store
	registry *Registry
	now      Clock
}

// New makes an engine.
func New(c Config) *Engine {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Engine{store: c.Store, registry: c.Registry, now: c.Now}
}

// Registry is the table of served types. Reading it is free of locks; changing it replaces the table.
type Registry struct {
	table atomic.Pointer[table]
}

type table struct {
	byName   map[name]*Resource
	byStore  map[string]*Resource // the version of each kind that is stored
	versions map[string][]*Resource
	all      []*Resource
	revision int64
}

type name struct{ group, version, resource string }

// NewRegistry makes a registry of these types.
func NewRegistry(resources []*Resource) *Registry {
	r := &Registry{}
	r.Replace(resources)
	return r
}

// Replace puts other types in the place of all that are there.
func (r *Registry) Replace(resources []*Resource) {
	next := &table{
		byName:   make(map[name]*Resource, len(resources)),
		byStore:  make(map[string]*Resource, len(resources)),
		versions: make(map[string][]*Resource, len(resources)),
		all:      slices.Clone(resources),
	}
	if old := r.table.Load(); old != nil {
		next.revision = old.revision + 1
	}
	for _, res := range resources {
		next.byName[name{res.Group, res.Version, res.Name}] = res
		next.versions[res.Store] = append(next.versions[res.Store], res)
		if res.ToStored == nil {
			next.byStore[res.Store] = res
		}
	}
	r.table.Store(next)
}

// Find is the served type of this name, or nil.
func (r *Registry) Find(group, version, resource string) *Resource {
	return r.table.Load().byName[name{group, version, resource}]
}

// stored is the type in the version in which it is stored, or nil.
func (r *Registry) stored(resource string) *Resource { return r.table.Load().byStore[resource] }

// several says whether a stored kind is served in more than one version.
func (r *Registry) several(resource string) bool { return len(r.table.Load().versions[resource]) > 1 }

// version is a stored kind in one of the versions in which it is served, or nil.
func (r *Registry) version(resource, apiVersion string) *Resource {
	for _, res := range r.table.Load().versions[resource] {
		if res.APIVersion() == apiVersion {
			return res
		}
	}
	return nil
}

// All lists the served types in the order in which they were given. The slice is not to be changed. The revision is
// another one whenever the types are.
func (r *Registry) All() (all []*Resource, revision int64) {
	t := r.table.Load()
	return t.all, t.revision
}

// splitKey takes the name of a stored object apart.
func splitKey(name string) (namespace, base string) {
	if namespace, base, ok := strings.Cut(name, "/"); ok {
		return namespace, base
	}
	return "", name
}
