package crd

import (
	"fmt"
	"sync"
	"sync/atomic"
	"weak"

	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/invariants"
	"plinth/internal/objectmeta"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// keptText limits the total text of definitions whose compiled schemas are kept. A compiled schema takes up to ten
// times the memory of its text.
const keptText = 2 << 20

// types is a bounded cache of compiled schemas.
//
// Problem: a compiled schema takes several times the memory of its text, and a large installation has thousands of
// definitions of which few are used. So a schema is compiled on first use and dropped when others have been used
// since. A caller may continue to use a schema that was dropped; a weak pointer finds it again until the garbage
// collector has freed it.
//
// Which schemas were used is recorded by a mark for each (the clock algorithm): a use costs two atomic operations and
// no lock. A list in the order of last use would need a lock for every use of a schema.
//
// Invariant: text = Σ size of kept ≤ keptText, or only one is kept.
type types struct {
	metadata func() *schema.Type

	mu   sync.Mutex
	kept []*lazyType // the compiled ones
	text int
	hand int // index in kept at which drop continues
}

// lazyType is the schema of one version of a definition, compiled on first use.
type lazyType struct {
	of         *types
	written    *written // the definition
	index      int      // of the version in spec.versions
	apiVersion string
	rules      *cel.Rules // nil: each server has its own

	compiled atomic.Pointer[schema.Type] // nil: not in kept
	used     atomic.Bool
	last     atomic.Pointer[weak.Pointer[schema.Type]] // the last compiled type
}

// written is a stored definition, of whose versions one at a time is parsed.
//
// Problem: a definition may have thousands of versions, and most uses of it need all of them, one after the other: to
// compare their forms, or to describe them in a document. Parsing the definition for each would take versions × text.
// Keeping the parsed versions would take ten times the memory of the text, for types of which few are used. So the text
// is cut into that of each version once, and only this is parsed:
//
//	Σ text parsed for all versions, once each  ≤  text of the definition
type written struct {
	version *store.Version

	once  sync.Once
	texts [][]byte // parts of version.Data
}

// text is the text of a version: an item of spec.versions.
func (w *written) text(index int) []byte {
	w.once.Do(func() {
		w.texts = object.ItemTexts(object.MemberText(object.MemberText(w.version.Data(), "spec"), "versions"))
	})
	return w.texts[index]
}

// textParsed counts the bytes of versions that were parsed, if invariants are on. Tests check with it that uses of a
// definition are linear, which measurements of time cannot show reliably.
var textParsed atomic.Int64

// size is the weight of a kept type.
func (l *lazyType) size() int { return len(l.written.text(l.index)) }

// get returns the compiled type.
func (l *lazyType) get() *schema.Type {
	if t := l.compiled.Load(); t != nil {
		if !l.used.Load() {
			l.used.Store(true)
		}
		return t
	}
	return l.of.compile(l)
}

// parse is the version as it is written in the definition.
func (l *lazyType) parse() object.Value {
	text := l.written.text(l.index)
	if invariants.Enabled {
		textParsed.Add(int64(len(text)))
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		panic(fmt.Sprintf("crd: %s cannot be read: %v", l.written.version.Key, err)) // its outline was
	}
	return parsed.Value
}

// source is the openAPIV3Schema of the version.
func (l *lazyType) source() object.Value { return l.parse().At("schema", "openAPIV3Schema") }

// compile finds or compiles a type and keeps it. It drops others if there are too many.
func (c *types) compile(l *lazyType) *schema.Type {
	t := l.found()
	if t == nil {
		t = c.structural(l.source())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := l.compiled.Load(); known != nil { // another caller was faster
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

// structural compiles a schema. Validation accepts no schema that does not compile. If one is in the store
// nevertheless, its objects can be read and deleted as they are stored.
func (c *types) structural(source object.Value) *schema.Type {
	options := schema.StructuralOptions{Metadata: c.metadata(), Inspect: objectmeta.Embedded}
	t, err := schema.Structural(source, options)
	if err != nil {
		t, err = schema.Structural(open, options)
	}
	if err != nil {
		panic("crd: " + err.Error()) // cannot happen: it is a constant
	}
	return t
}

// open is the schema that allows everything.
var open = object.Fields("type", object.StringOf("object"), "x-kubernetes-preserve-unknown-fields", object.BoolOf(true))

// found returns the last compiled type if the garbage collector has not freed it.
func (l *lazyType) found() *schema.Type {
	if last := l.last.Load(); last != nil {
		return last.Value()
	}
	return nil
}

// drop drops one type. The caller holds mu, and kept is not empty.
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

// decides are the keywords of a schema that determine the stored form of objects: which fields are kept, in which
// form, and which are defaulted.
var decides = map[string]bool{
	"type": true, "default": true, "nullable": true, "x-kubernetes-preserve-unknown-fields": true,
	"x-kubernetes-embedded-resource": true, "x-kubernetes-int-or-string": true,
}

// stamp is the stamp of objects that are stored in this version (engine.Kind). Descriptions and keywords that only
// validate do not change it.
func (l *lazyType) stamp() uint64 {
	return engine.Stamp(l.apiVersion, string(object.AppendJSON(nil, form(l.source()))))
}

// form returns the part of a schema that determines the form of objects.
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
