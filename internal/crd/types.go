package crd

import (
	"fmt"
	"sync"
	"sync/atomic"
	"weak"

	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// keptText bounds the text of the definitions whose compiled schemas are kept; a schema takes up to ten times its text.
const keptText = 2 << 20

// types keeps the compiled schemas that were used last. A compiled schema takes several times the memory of its text,
// and most definitions of a large installation are not in use: so it is made on first use, from the bytes of the
// definition, and let go when others were used since. Until the next garbage collection it can still be found; and the
// one who holds it may go on with it.
//
// Which ones were used since is told by a mark for each (the clock algorithm): a use costs two atomic operations and
// takes no lock.
//
//	text = Σ size of kept ≤ keptText, or one alone is kept
type types struct {
	metadata func() *schema.Type

	mu   sync.Mutex
	kept []*lazyType // those that are compiled and used
	text int
	hand int // whom to look at next when one has to go
}

// lazyType is the schema of one version of a definition, compiled when it is asked for.
type lazyType struct {
	of         *types
	version    *store.Version // of the definition
	index      int            // of the version in spec.versions
	apiVersion string

	compiled atomic.Pointer[schema.Type] // nil: it is not kept
	used     atomic.Bool
	last     atomic.Pointer[weak.Pointer[schema.Type]] // what was compiled last
}

// size is what a kept type counts for.
func (l *lazyType) size() int { return len(l.version.Data) }

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

// written is the version as the definition has it: an item of spec.versions.
func (l *lazyType) written() object.Value {
	versions := object.MemberText(object.MemberText(l.version.Data, "spec"), "versions")
	parsed, err := object.ParseJSON(versions)
	if err != nil {
		panic(fmt.Sprintf("crd: %s cannot be read: %v", l.version.Key, err)) // its outline was
	}
	return parsed.Value.Items()[l.index]
}

// source is the openAPIV3Schema of the version.
func (l *lazyType) source() object.Value { return l.written().At("schema", "openAPIV3Schema") }

// compile finds or compiles a type, and lets go of others that were not used lately, where there are too many.
func (c *types) compile(l *lazyType) *schema.Type {
	t := l.found()
	if t == nil {
		t = c.structural(l.source())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := l.compiled.Load(); known != nil { // somebody else was faster
		return known
	}
	for len(c.kept) > 0 && c.text+l.size() > keptText {
		c.drop()
	}
	c.kept, c.text = append(c.kept, l), c.text+l.size()
	l.used.Store(true)
	weakly := weak.Make(t)
	l.last.Store(&weakly)
	l.compiled.Store(t)
	return t
}

// structural compiles a schema. Validation lets none in that cannot be compiled; if one has come into the store all the
// same, its objects can be read and deleted, as they are.
func (c *types) structural(source object.Value) *schema.Type {
	options := schema.StructuralOptions{Metadata: c.metadata(), Inspect: objectmeta.Embedded}
	t, err := schema.Structural(source, options)
	if err != nil {
		t, err = schema.Structural(open, options)
	}
	if err != nil {
		panic("crd: " + err.Error()) // it is a constant
	}
	return t
}

// open is the schema of anything.
var open = object.Fields("type", object.StringOf("object"), "x-kubernetes-preserve-unknown-fields", object.BoolOf(true))

// found is the type as it was compiled last, if it is still there.
func (l *lazyType) found() *schema.Type {
	if last := l.last.Load(); last != nil {
		return last.Value()
	}
	return nil
}

// drop lets one type go. The caller holds mu, and there is one.
func (c *types) drop() {
	for {
		c.hand %= len(c.kept)
		if l := c.kept[c.hand]; !l.used.Swap(false) {
			l.compiled.Store(nil)
			c.text -= l.size()
			last := len(c.kept) - 1
			c.kept[c.hand], c.kept[last] = c.kept[last], nil
			c.kept = c.kept[:last]
			return
		}
		c.hand++
	}
}

// decides are the keywords of a schema that decide the form of what is stored: which fields stay, in which form, and
// which are filled in.
var decides = map[string]bool{
	"type": true, "default": true, "nullable": true, "x-kubernetes-preserve-unknown-fields": true,
	"x-kubernetes-embedded-resource": true, "x-kubernetes-int-or-string": true,
}

// stamp is the stamp of the form in which objects are stored by this version of a definition (engine.Kind).
// Descriptions and what is only validated are left out.
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
