package crd

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"plinth/internal/store"
	"plinth/internal/view"
)

// nameIndex holds the accepted names of all definitions, and the definitions that wait for a name. It is immutable;
// the next index shares with it what has not changed.
//
// Invariants:
//
//	resources has (group, name, definition)  ⇔  name is the plural, the singular or a short name in
//	                                           definition's acceptedNames
//	kinds     has (group, name, definition)  ⇔  name is the kind or the listKind in definition's acceptedNames
//	waiting   has (group, definition)        ⇔  definition's acceptedNames are not all the names in its spec
type nameIndex struct {
	byObject                  btree.Map[string, *indexedNames]
	resources, kinds, waiting btree.Map[string, *indexedNames]
}

// indexedNames are the names of one definition.
type indexedNames struct {
	version  *store.Version
	group    string
	accepted names
	waits    bool
}

func newIndexedNames(v *store.Version) *indexedNames {
	obj := outline(v)
	if obj.IsNull() {
		return nil
	}
	wanted := namesOf(obj.At("spec", "names"))
	c := &indexedNames{version: v, group: obj.At("spec", "group").Str(),
		accepted: namesOf(obj.At("status", "acceptedNames"))}
	c.waits = !c.accepted.equal(&wanted)
	return c
}

func indexKey(parts ...string) string { return strings.Join(parts, "\x00") }

// each calls do for each key of the definition in the three indexes.
func (c *indexedNames) each(in *nameIndex, do func(index *btree.Map[string, *indexedNames], key string)) {
	object := c.version.Key.Name
	for _, name := range append([]string{c.accepted.plural, c.accepted.singular}, c.accepted.short...) {
		if name != "" {
			do(&in.resources, indexKey(c.group, name, object))
		}
	}
	for _, name := range []string{c.accepted.kind, c.accepted.listKind} {
		if name != "" {
			do(&in.kinds, indexKey(c.group, name, object))
		}
	}
	if c.waits {
		do(&in.waiting, indexKey(c.group, object))
	}
}

// compileNameIndex implements view.Compile.
func compileNameIndex(before *nameIndex, changes iter.Seq[view.Change]) *nameIndex {
	next := &nameIndex{}
	if before != nil {
		next.byObject, next.resources = *before.byObject.Copy(), *before.resources.Copy()
		next.kinds, next.waiting = *before.kinds.Copy(), *before.waiting.Copy()
	}
	for change := range changes {
		if old, ok := next.byObject.Delete(change.Name); ok {
			old.each(next, func(index *btree.Map[string, *indexedNames], key string) { index.Delete(key) })
		}
		if change.Version == nil {
			continue
		}
		if c := newIndexedNames(change.Version); c != nil {
			next.byObject.Set(change.Name, c)
			c.each(next, func(index *btree.Map[string, *indexedNames], key string) { index.Set(key, c) })
		}
	}
	return next
}

// waiters returns the definitions of a group that wait for a name, except the object but, sorted by the names of their
// objects.
func (c *nameIndex) waiters(group, but string) []*indexedNames {
	var all []*indexedNames
	prefix := indexKey(group, "")
	c.waiting.Ascend(prefix, func(key string, w *indexedNames) bool {
		object, here := strings.CutPrefix(key, prefix)
		if here && object != but {
			all = append(all, w)
		}
		return here
	})
	return all
}
