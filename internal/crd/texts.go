package crd

import (
	"hash/maphash"
	"iter"
	"sync"

	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Texts has what servers of one process read from the same versions of definitions, those of an image: each of them is
// read once, and a schema that one server has compiled serves the others.
//
// The problem: a server reads the outline of each definition when it first needs its types, and compiles the schemas
// that are used. For one server that is little. But tests make thousands of servers with the same definitions, of a few
// megabytes, and take most of their time for that. A Version never changes, so whatever depends on it alone can be
// shared; what belongs to a server (engine.Kind with its Life, compiled rules) is made for each.
//
// A nil Texts has nothing. It does not change after NewTexts, apart from what its entries find out once.
type Texts struct {
	types     *types // bounds the compiled schemas of all servers together
	byVersion map[*store.Version]*definitionText
}

// definitionText is what was read from one version of a definition.
type definitionText struct {
	version *store.Version
	types   *types

	once    sync.Once
	outline object.Value
	spec    uint64      // see origin
	lazy    []*lazyType // of its versions
}

// NewTexts returns the Texts of these versions of definitions. Those that earlier has are shared with it.
func NewTexts(versions iter.Seq[*store.Version], metadata func() *schema.Type, earlier *Texts) *Texts {
	t := &Texts{byVersion: map[*store.Version]*definitionText{}}
	if earlier != nil {
		t.types = earlier.types
	} else {
		t.types = &types{metadata: metadata}
	}
	for v := range versions {
		if t.byVersion[v] = earlier.of(v); t.byVersion[v] == nil {
			t.byVersion[v] = &definitionText{version: v, types: t.types}
		}
	}
	return t
}

// of returns the text of a version, nil if there is none. The result was not read yet.
func (t *Texts) of(v *store.Version) *definitionText {
	if t == nil {
		return nil
	}
	return t.byVersion[v]
}

// read returns the text of a version: the shared one, or a new one for this server.
func (d *Definitions) read(v *store.Version) *definitionText {
	t := d.Texts.of(v)
	if t == nil {
		t = &definitionText{version: v, types: &d.types}
	}
	t.once.Do(func() {
		t.outline = outline(v)
		t.spec = maphash.Bytes(seed, object.MemberText(v.Data(), "spec"))
		lazyTypes := func(of *types, w *written) (all []*lazyType) {
			group := t.outline.At("spec", "group").Str()
			for i, version := range t.outline.At("spec", "versions").Items() {
				all = append(all, &lazyType{of: of, written: w, index: i, apiVersion: group + "/" + version.At("name").Str()})
			}
			return all
		}
		if d.Shared != nil {
			t.lazy = d.Shared.of(v, lazyTypes).lazy
			return
		}
		t.lazy = lazyTypes(t.types, &written{version: v})
	})
	return t
}
