package engine

import (
	"strings"
	"time"

	"plinth/internal/store"
)

// Config is what an Engine is made of.
type Config struct {
	Store    *store.Store
	Registry *Registry
	Now      Clock // nil: time.Now
	// AnyNamespace lets objects be created in namespaces that are not there, or are being emptied, and every
	// namespace be deleted: the admission plugin NamespaceLifecycle is off.
	AnyNamespace bool
	// KeepFinalizers has a delete leave the finalizers of an object alone, whatever its propagation: there is no
	// garbage collector that would take away what is added.
	KeepFinalizers bool
}

// Engine does the verbs on the objects of a store. It has no state of its own, but for what it need not parse again.
type Engine struct {
	store    *store.Store
	registry *Registry
	now      Clock
	recent   origins
	// anyNamespace is Config.AnyNamespace.
	anyNamespace bool
	// keepFinalizers is Config.KeepFinalizers.
	keepFinalizers bool
}

// New makes an engine.
func New(c Config) *Engine {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Engine{
		store: c.Store, registry: c.Registry, now: c.Now, anyNamespace: c.AnyNamespace, keepFinalizers: c.KeepFinalizers,
	}
}

// splitKey takes the name of a stored object apart.
func splitKey(name string) (namespace, base string) {
	if namespace, base, ok := strings.Cut(name, "/"); ok {
		return namespace, base
	}
	return "", name
}
