package crd

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"plinth/internal/store"
	"plinth/internal/view"
)

// claims is who has which names, over all definitions, and who waits for some. It never changes; with what comes after
// it, it shares what has not changed.
//
//	resources has (group, name, definition)  ⇔  name is the plural, the singular or a short name in
//	                                           definition's acceptedNames
//	kinds     has (group, name, definition)  ⇔  name is the kind or the listKind in definition's acceptedNames
//	waiting   has (group, definition)        ⇔  definition has not all the names that it asks for
type claims struct {
	byObject                  btree.Map[string, *claim]
	resources, kinds, waiting btree.Map[string, *claim]
}

// claim is the names of one definition.
type claim struct {
	version  *store.Version
	group    string
	accepted names
	waits    bool
}

func newClaim(v *store.Version) *claim {
	obj := outline(v)
	if obj.IsNull() {
		return nil
	}
	wanted := namesOf(obj.At("spec", "names"))
	c := &claim{version: v, group: obj.At("spec", "group").Str(), accepted: namesOf(obj.At("status", "acceptedNames"))}
	c.waits = !c.accepted.equal(&wanted)
	return c
}

func place(parts ...string) string { return strings.Join(parts, "\x00") }

// each yields the places that a claim has in the three indexes.
func (c *claim) each(in *claims, do func(index *btree.Map[string, *claim], key string)) {
	object := c.version.Key.Name
	for _, name := range append([]string{c.accepted.plural, c.accepted.singular}, c.accepted.short...) {
		if name != "" {
			do(&in.resources, place(c.group, name, object))
		}
	}
	for _, name := range []string{c.accepted.kind, c.accepted.listKind} {
		if name != "" {
			do(&in.kinds, place(c.group, name, object))
		}
	}
	if c.waits {
		do(&in.waiting, place(c.group, object))
	}
}

// compileClaims is view.Compile.
func compileClaims(before *claims, changes iter.Seq[view.Change]) *claims {
	next := &claims{}
	if before != nil {
		next.byObject, next.resources = *before.byObject.Copy(), *before.resources.Copy()
		next.kinds, next.waiting = *before.kinds.Copy(), *before.waiting.Copy()
	}
	for change := range changes {
		if old, ok := next.byObject.Delete(change.Name); ok {
			old.each(next, func(index *btree.Map[string, *claim], key string) { index.Delete(key) })
		}
		if change.Version == nil {
			continue
		}
		if c := newClaim(change.Version); c != nil {
			next.byObject.Set(change.Name, c)
			c.each(next, func(index *btree.Map[string, *claim], key string) { index.Set(key, c) })
		}
	}
	return next
}

// waiters are the definitions of a group, but one, that have not all their names, in the order of their own names.
func (c *claims) waiters(group, but string) []*claim {
	var all []*claim
	prefix := place(group, "")
	c.waiting.Ascend(prefix, func(key string, w *claim) bool {
		object, here := strings.CutPrefix(key, prefix)
		if here && object != but {
			all = append(all, w)
		}
		return here
	})
	return all
}
