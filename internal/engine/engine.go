package engine

import (
	"strings"
	"time"

	"plinth/internal/store"
)

// Config has the parts of an Engine. Store and Registry are required.
type Config struct {
	Store    *store.Store
	Registry *Registry
	Now      Clock // nil: time.Now
	// Admission may change or refuse writes; its zero value admits all of them.
	Admission Admission
	// KeepFinalizers makes deletes add no finalizers for their propagation. It is set when no garbage collector runs,
	// since those finalizers would never be removed.
	KeepFinalizers bool
	// Elsewhere are the stores of kinds whose objects are in another one than Store, by path (Kind.Path).
	Elsewhere map[string]*store.Store
}

// Engine implements the verbs on the objects of a store. All methods may be called concurrently: the store orders
// commits, the registry returns immutable Types, and recent, which only saves work, is safe for concurrent use.
type Engine struct {
	store    *store.Store
	registry *Registry
	now      Clock
	recent   origins
	// admission and keepFinalizers are as in Config.
	admission      Admission
	keepFinalizers bool
	// first is the engine of the first store, nil: it is this one, and elsewhere are those of the others (elsewhere.go).
	first     *Engine
	elsewhere map[string]*Engine
}

// New makes an engine.
func New(c Config) *Engine {
	if c.Now == nil {
		c.Now = time.Now
	}
	e := &Engine{
		store: c.Store, registry: c.Registry, now: c.Now, admission: c.Admission, keepFinalizers: c.KeepFinalizers,
	}
	e.addElsewhere(c.Elsewhere)
	return e
}

// splitKey splits the name in a key into namespace and name. A name cannot contain "/", so one without it is that of a
// cluster-scoped object. In a store of all planes (store.Across) the name of the plane is behind it, which is left out.
func splitKey(name string) (namespace, base string) {
	if i := strings.IndexByte(name, '/'); i >= 0 {
		namespace, name = name[:i], name[i+1:]
	}
	if i := strings.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return namespace, name
}

// Close lets go what the engine keeps of versions, which may outlive it. Nobody uses the engine any more.
func (e *Engine) Close() { e.recent.forget() }
