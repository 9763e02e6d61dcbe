package etcdform

import (
	"slices"
	"strings"

	"plinth/internal/engine"
	"plinth/internal/store"
)

// JSON is the storage media type of JSON (--storage-media-type); every other one means protobuf.
const JSON = "application/json"

// Form converts between stored objects and etcd's keys and values. It has no state that changes.
type Form struct {
	registry *engine.Registry
	byPath   map[string]*kindForm // by the resource part of keys
	byEtcd   map[string]*kindForm // by the resource path in etcd
}

// kindForm is where the objects of a built-in kind are in etcd, and how they are written.
type kindForm struct {
	path, etcd string // the resource part of keys, and that of paths
	namespaced bool
	values     values
	kind       string       // "Pod"
	stored     *engine.Kind // nil: Plinth has no such kind
}

// values is the form of values.
type values uint8

const (
	protobuf   values = iota // the message in its envelope
	goJSON                   // JSON in the order of the fields of Go types
	definition               // a definition in v1beta1, in the order of the fields of Go types
	sorted                   // JSON in the order of names: custom resources
)

// renamed are the built-in kinds whose resource path is not their name.
var renamed = map[string]string{
	"/nodes":                      "minions",
	"/services":                   "services/specs",
	"/endpoints":                  "services/endpoints",
	"/replicationcontrollers":     "controllers",
	"networking.k8s.io/ingresses": "ingress",
	definitions:                   definitions,
	apiServices:                   apiServices,
}

const (
	definitions = "apiextensions.k8s.io/customresourcedefinitions"
	apiServices = "apiregistration.k8s.io/apiservices"
)

// New returns the Form for the kinds of a registry. mediaType is that of the values of built-in kinds.
func New(registry *engine.Registry, mediaType string) *Form {
	f := &Form{registry: registry, byPath: map[string]*kindForm{}, byEtcd: map[string]*kindForm{}}
	for _, r := range registry.Builtin().Builtin() {
		if r.Stored == nil || f.byPath[r.Stored.Path] != nil {
			continue
		}
		p := &kindForm{path: r.Stored.Path, namespaced: r.Namespaced, kind: r.Kind, stored: r.Stored}
		switch {
		case p.path == definitions:
			p.values = definition
		case r.Stored.Custom:
			p.values = sorted
		case mediaType == JSON, p.path == apiServices: // the reference stores APIServices as JSON in any case
			p.values = goJSON
		}
		f.add(p)
	}
	if f.byPath[apiServices] == nil {
		f.add(&kindForm{path: apiServices, kind: "APIService", values: goJSON})
	}
	return f
}

func (f *Form) add(p *kindForm) {
	p.etcd = renamed[p.path]
	if p.etcd == "" {
		_, p.etcd, _ = strings.Cut(p.path, "/")
	}
	f.byPath[p.path], f.byEtcd[p.etcd] = p, p
}

// Path returns the path of an object. ok is false for a key that has no place in Kubernetes' layout: that of a claim.
func (f *Form) Path(k store.Key) (path string, ok bool) {
	etcd := k.Resource
	if p := f.byPath[k.Resource]; p != nil {
		etcd = p.etcd
	} else if !isCustom(k.Resource) {
		return "", false
	}
	return etcd + "/" + k.Name, true
}

// Key returns the key of the object at a path. ok is false for paths that are no objects, such as those of allocators
// and masterleases, or objects of built-in kinds that are not served.
//
// A resource path with a dot in its first segment is that of a custom kind, whether or not its definition is known.
func (f *Form) Key(path string) (k store.Key, ok bool) {
	segments := strings.Split(path, "/")
	if slices.ContainsFunc(segments, func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return k, false
	}
	of := 1 // segments of the resource path
	if strings.Contains(segments[0], ".") || segments[0] == "services" {
		of = 2
	}
	names := len(segments) - of
	if names != 1 && names != 2 {
		return k, false
	}
	resource, name := strings.Join(segments[:of], "/"), strings.Join(segments[of:], "/")
	p := f.byEtcd[resource]
	switch {
	case p != nil:
		return store.Key{Resource: p.path, Name: name}, p.namespaced == (names == 2)
	// Nothing here is an object of a built-in kind, whose path is elsewhere.
	case isCustom(resource) && f.byPath[resource] == nil:
		return store.Key{Resource: resource, Name: name}, true
	}
	return k, false
}

// isCustom says whether the resource part of a key can be that of a custom kind: their groups have a dot.
func isCustom(resource string) bool {
	group, plural, _ := strings.Cut(resource, "/")
	return strings.Contains(group, ".") && plural != ""
}
