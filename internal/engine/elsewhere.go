package engine

import "plinth/internal/store"

// A server may have the objects of some kinds in a store of their own, whose revisions are others (Config.Elsewhere).
// There is an engine for each store, and each verb goes on with that of its resource (of). All other engines know the
// first one, whose store has what an object of theirs depends on: its namespace, and the quotas of that. No commit
// spans two stores, so
//
//	the namespace     is looked at before the commit; there is no fence
//	a quota           is written before the object (transaction.split)
//
// which is what a kube-apiserver does for every object. What follows all objects at once (Changes, Dependents) follows
// those of the first store.

// addElsewhere makes the engines for other stores.
func (e *Engine) addElsewhere(stores map[string]*store.Store) {
	for path, s := range stores {
		if e.elsewhere == nil {
			e.elsewhere = map[string]*Engine{}
		}
		e.elsewhere[path] = &Engine{
			store: s, registry: e.registry, now: e.now, admission: e.admission, keepFinalizers: e.keepFinalizers, first: e,
		}
	}
}

// main is the engine of the first store.
func (e *Engine) main() *Engine {
	if e.first != nil {
		return e.first
	}
	return e
}

// of is the engine of the store that has the objects of a resource.
func (e *Engine) of(r *Resource) *Engine {
	e = e.main()
	if e.elsewhere == nil || r.Stored == nil {
		return e
	}
	return e.at(r.Stored.Path)
}

// at is the engine of the store that has the objects at a path.
func (e *Engine) at(path string) *Engine {
	e = e.main()
	if other := e.elsewhere[path]; other != nil {
		return other
	}
	return e
}
