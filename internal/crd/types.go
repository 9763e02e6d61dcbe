package crd

import (
	"fmt"
	"sync"
	"sync/atomic"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// keptTypes is how many compiled types are kept.
const keptTypes = 128

// types keeps the compiled schemas that were used last. A compiled schema takes several times the memory of its text, and most
// definitions of a large installation are not in use: so it is made on first use, from the bytes of the definition, and let go when
// others were used since. The one who holds it may go on with it.
//
// Which ones were used since is told by a mark for each (the clock algorithm): a use costs two atomic operations and takes no lock.
type types struct {
	metadata func() *schema.Type

	mu   sync.Mutex
	kept []*lazyType // those that are compiled
	hand int         // whom to look at next when one has to go
}

// lazyType is the schema of one version of a definition, compiled when it is asked for.
type lazyType struct {
	of         *types
	version    *store.Version // of the definition
	index      int            // of the version in spec.versions
	apiVersion string

	compiled atomic.Pointer[schema.Type]
	used     atomic.Bool
}

// get is the compiled type.
func (l *lazyType) get() *schema.Type {
	if t := l.compiled.Load(); t != nil {
		if !l.used.Load() {
			l.used.Store(true)
		}
		return t
	}
	return l.of.compile(l)
}

// source is the openAPIV3Schema of the version.
func (l *lazyType) source() object.Value {
	versions := object.MemberText(object.MemberText(l.version.Data, "spec"), "versions")
	parsed, err := object.ParseJSON(versions)
	if err != nil {
		panic(fmt.Sprintf("crd: %s cannot be read: %v", l.version.Key, err)) // its outline was
	}
	return parsed.Value.Items()[l.index].At("schema", "openAPIV3Schema")
}

// compile compiles a type, and lets one go that was not used lately, where there are too many.
func (c *types) compile(l *lazyType) *schema.Type {
	t, err := schema.Structural(l.source(), schema.StructuralOptions{Metadata: c.metadata()})
	if err != nil { // validation lets none in
		panic(fmt.Sprintf("crd: the schema of %s cannot be compiled: %v", l.version.Key, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := l.compiled.Load(); known != nil { // somebody else was faster
		return known
	}
	l.used.Store(true)
	l.compiled.Store(t)
	if len(c.kept) < keptTypes {
		c.kept = append(c.kept, l)
		return t
	}
	for c.kept[c.hand].used.Swap(false) {
		c.hand = (c.hand + 1) % keptTypes
	}
	c.kept[c.hand].compiled.Store(nil)
	c.kept[c.hand] = l
	c.hand = (c.hand + 1) % keptTypes
	return t
}

// decides are the keywords of a schema that decide the form of what is stored: which fields stay, in which form, and which are
// filled in.
var decides = map[string]bool{
	"type": true, "default": true, "nullable": true, "x-kubernetes-preserve-unknown-fields": true,
	"x-kubernetes-embedded-resource": true, "x-kubernetes-int-or-string": true,
}

// stamp is the stamp of the form in which objects are stored by this version of a definition (engine.Kind). Descriptions and what is only
// validated are left out.
func (l *lazyType) stamp() uint64 {
	return engine.Stamp(l.apiVersion, string(object.AppendJSON(nil, form(l.source()))))
}

// form is what of a schema decides the form of objects.
func form(s object.Value) object.Value {
	if s.Kind() != object.Map {
		return s // additionalProperties: true
	}
	var members []object.Member
	for _, m := range s.Members() {
		switch {
		case decides[m.Key]:
			members = append(members, m)
		case m.Key == "items", m.Key == "additionalProperties":
			members = append(members, object.Member{Key: m.Key, Value: form(m.Value)})
		case m.Key == "properties":
			properties := make([]object.Member, 0, m.Value.Len())
			for _, p := range m.Value.Members() {
				properties = append(properties, object.Member{Key: p.Key, Value: form(p.Value)})
			}
			members = append(members, object.Member{Key: m.Key, Value: object.MapOf(properties...)})
		}
	}
	return object.MapOf(members...)
}
