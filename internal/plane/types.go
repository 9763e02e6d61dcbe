package plane

import "plinth/internal/engine"

// Type is where the objects of a kind are served.
type Type struct {
	Path       string // of the collection, without namespaces: "/apis/apps/v1"
	Resource   string // "deployments"
	Namespaced bool
	Status     bool   // it has the subresource status
	Key        string // the resource part of the keys of its objects in the store; "": nothing is stored
}

// OfKind returns where a kind is served.
func (p *Plane) OfKind(apiVersion, kind string) (Type, bool) {
	if r := p.Registry.Now().OfKind(apiVersion, kind); r != nil {
		return servedType(r), true
	}
	return Type{}, false
}

// OfResource returns what a resource serves in a version, or in any of its versions if version is "".
func (p *Plane) OfResource(group, version, resource string) (Type, bool) {
	types := p.Registry.Now()
	if version != "" {
		if r := types.Find(group, version, resource); r != nil {
			return servedType(r), true
		}
		return Type{}, false
	}
	for r := range types.All() {
		if r.Group == group && r.Name == resource {
			return servedType(r), true
		}
	}
	return Type{}, false
}

func servedType(r *engine.Resource) Type {
	t := Type{Path: "/apis/" + r.APIVersion(), Resource: r.Name, Namespaced: r.Namespaced,
		Status: r.Subresource("status") != nil}
	if r.Group == "" {
		t.Path = "/api/" + r.APIVersion()
	}
	if r.Stored != nil {
		t.Key = r.Stored.Path
	}
	return t
}
