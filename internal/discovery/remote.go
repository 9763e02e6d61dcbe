package discovery

import "plinth/object"

// Remote is a group version that a backend serves in place of the engine, with that backend's documents of it. It does
// not change: for other documents another Remote takes its place.
type Remote struct {
	Group, Version string
	// GroupPriority and VersionPriority are those of its APIService: the place of the group among all groups, and of the
	// version in it. A higher one comes first.
	GroupPriority, VersionPriority int
	// Discovery is its entry in aggregated discovery (an APIVersionDiscovery), which also says how fresh it is.
	Discovery object.Value
	// OpenAPI3 is its OpenAPI v3 document, as JSON. Nil: it has none.
	OpenAPI3 []byte
	// Paths and Definitions are members of the maps paths and definitions of the OpenAPI v2 document. A name that the
	// document has already is left out, so a definition that differs from the one of this name has to have another name.
	Paths, Definitions []object.Member
}

func newRemoteVersion(r *Remote) *groupVersion {
	gv := &groupVersion{remote: r, group: r.Group, version: r.Version}
	if r.OpenAPI3 != nil {
		gv.openAPI = newV3Document(gv)
	}
	return gv
}

// once returns an emit that leaves out the names that were emitted before.
func once(emit func(name string, v object.Value)) func(name string, v object.Value) {
	emitted := map[string]bool{}
	return func(name string, v object.Value) {
		if !emitted[name] {
			emitted[name] = true
			emit(name, v)
		}
	}
}

func emitAll(emit func(name string, v object.Value), members []object.Member) {
	for _, m := range members {
		emit(m.Key, m.Value)
	}
}
