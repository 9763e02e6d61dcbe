package merge

import (
	"fmt"
	"slices"
	syncatomic "sync/atomic"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// The checks of this file run where invariants.Enabled is set: in every test, and in no release. Each is stated as a
// formula beside the type or function that keeps it; this file tests it. A failed check ends the process: a merge that
// violates an invariant would give a field to a manager that did not write it, or remove one that has an owner, without
// any visible error.
//
// A check must not repeat the code that it checks. Each tests the result by a property: looking a path up instead of
// walking, counting instead of enumerating, parsing the printed text. It may cost as much as the checked code, but not
// more than a logarithm above it, so that tests with large objects end.

// comparisons counts comparisons of elements, values and managers where assertions are on. Tests use it to distinguish
// linear from quadratic work without a clock.
var comparisons syncatomic.Int64

// mustHold fails with the formula that does not hold, and with the values for which it does not. Those are printed only
// then: pass values, and shown for objects.
func mustHold(ok bool, formula string, of ...any) {
	if !ok {
		invariants.Fail("%s: %s", formula, fmt.Sprint(of...))
	}
}

// shown is an object that is printed as JSON, but not before a check has failed.
type shown struct{ object.Value }

func (v shown) String() string { return string(object.AppendJSON(nil, v.Value)) }

// checkLevel checks one level of a trie: elements strictly ascend, and no node is empty. The levels below have been
// checked when they were made.
func checkLevel(nodes []node) {
	for i := range nodes {
		n := &nodes[i]
		mustHold(n.marks != 0 || len(n.below.nodes) > 0, "merge: a node with neither marks nor nodes below", n.element)
		if i > 0 {
			mustHold(nodes[i-1].element.Compare(n.element) < 0, "merge: elements out of order", nodes[i-1].element,
				" ", n.element)
		}
	}
}

// check checks all levels.
func (s Set) check() {
	checkLevel(s.nodes)
	for i := range s.nodes {
		s.nodes[i].below.check()
	}
}

// checkUnion: s ⊆ u ∧ t ⊆ u ∧ |u| ≤ |s| + |t|. The last part excludes paths that are in neither; it counts owned paths
// only, which is all of them in the sets that are united here, or the result of a comparison.
func checkUnion(s, t, u Set) {
	u.check()
	mustHold(s.within(u) && t.within(u), "merge: s ∪ t lacks a path", s, "\n∪\n", t)
	mustHold(u.Len() <= s.Len()+t.Len(), "merge: |s ∪ t| > |s| + |t|", s, "\n∪\n", t)
}

// checkMinus: d ⊆ s ∧ d ∩ t = ∅ ∧ |s| = |d| + |s ∩ t|. With deep, the paths below a path of t are missing from d as
// well, so that only |s| ≥ |d| + |s ∩ t| holds.
func checkMinus(s, t Set, which marks, deep bool, d Set) {
	d.check()
	common := s.intersect(t, which)
	mustHold(d.within(s), "merge: s ∖ t ⊄ s", s, "\n∖\n", t)
	mustHold(d.intersect(t, which).Empty(), "merge: (s ∖ t) ∩ t ≠ ∅", s, "\n∖\n", t)
	mustHold(d.Len()+common.Len() == s.Len() || deep && d.Len()+common.Len() < s.Len(), "merge: |s ∖ t| + |s ∩ t| ≠ |s|",
		s, "\n∖\n", t)
}

// check: sorted holds every position once, ordered by identity and then by position. See itemIndex.
func (x *itemIndex) check() {
	for i := 1; i < len(x.sorted); i++ {
		a, b := x.sorted[i-1], x.sorted[i]
		c := compareValues(x.ids[a], x.ids[b])
		mustHold(c < 0 || c == 0 && a < b, "merge: an index of items out of order at", i)
	}
	mustHold(x.sorted == nil || len(x.sorted) == len(x.ids), "merge: an index of items without some of them")
}

// check: the items of the result have the identities of live and intent, no others, and those of the intent stand in
// its order. See listJoiner.
func (z *listJoiner) check() {
	out := newItemIndex()
	defer out.free()
	if err := out.build(z.t, z.out); err != nil {
		mustHold(false, "merge: joined items without identity", err)
	}
	for _, id := range out.ids {
		mustHold(z.olds.first(id) >= 0 || z.wants.first(id) >= 0, "merge: a joined list has an item that neither side has",
			id)
	}
	for _, id := range z.olds.ids {
		mustHold(out.first(id) >= 0, "merge: a joined list lacks an item of live", id)
	}
	last := -1
	for _, id := range z.wants.ids {
		at := out.first(id)
		mustHold(at > last, "merge: a joined list lacks an item of the intent, or has it out of order", id)
		last = at
	}
}

// checkDiff: touched(diff) ⊆ fields(is) ∧ removed(diff) ⊆ fields(was), where a removed or added value includes every
// existing container above it. A path that is in neither object would be owned by the manager of the next update, and
// an apply that gave it up would search for it in vain.
func checkDiff(before, now object.Value, t *schema.Type, diff Set) {
	diff.check()
	present := func(v object.Value, s Set, what string) {
		in := newFinder(v, t)
		s.Each(func(p Path) {
			_, ok := in.at(p)
			mustHold(ok, "merge: a path is "+what+" that is not there", p, " in ", shown{v})
		})
	}
	present(now, diff.only(touched), "touched")
	present(before, diff.only(removed), "removed")
}

// checkPruned: no leaf of fields is in lost ∩ owned(m), for any manager m. See prune. Containers are excepted: a struct
// or map in which only empty lists are left has no path in it any more, and is removed, even if a manager owns the
// container itself. The reference does the same. It is not checked for a kind with several versions, as a conversion on
// the way may drop a field.
func (o *operation) checkPruned(fields, lost Set) {
	if o.kind.Versions != nil {
		return
	}
	for _, e := range o.entries {
		checkNoLeaf(fields, lost.Intersect(e.set), e)
	}
}

// checkNoLeaf checks that no path of common, which is lost and owned by e, is a leaf of fields.
func checkNoLeaf(fields, common Set, e *entry) {
	for i := range common.nodes {
		n := &common.nodes[i]
		below := fields.at(n.element).below
		mustHold(n.marks == 0 || !below.Empty(), "merge: a field is removed that is owned by "+e.Manager, n.element)
		checkNoLeaf(below, n.below, e)
	}
}

// checkEntries: no two entries are of the same manager, and no entry is empty.
func checkEntries(entries []*entry) {
	ids := make(map[managerID]bool, len(entries))
	for _, e := range entries {
		e.set.check()
		mustHold(!e.set.Empty(), "merge: a manager that owns nothing", e.Manager)
		mustHold(!ids[e.id()], "merge: a manager with two entries", e.Manager)
		ids[e.id()] = true
	}
}

// checkApplied: for every path p of the intent, p ∈ fields(merged), and where p is a leaf of the intent, merged[p] =
// intent[p]. And owned(M) ⊆ fields(intent), owned(M) ∩ unowned = ∅; so what M owns exists.
//
// There is one exception, as in the reference: a container that is empty in the intent may become null, or be removed,
// if it loses its last field to pruning. And a kind with several versions is not checked: its conversions may lose a
// field on the way to the version of another manager and back.
func (o *operation) checkApplied(merged, intent object.Value, fields Set, me *entry) {
	mustHold(me.set.within(fields), "merge: a manager owns what it has not applied", me.set, "\napplied\n", fields)
	mustHold(me.set.Intersect(unowned).Empty(), "merge: a manager owns what nobody may own", me.set)
	if o.kind.Versions == nil {
		checkContains(newFinder(merged, o.kind.Type), newFinder(intent, o.kind.Type), fields, nil)
	}
}

// checkContains checks the paths s of the intent, which are below the path at.
func checkContains(merged, intent *finder, s Set, at Path) {
	for i := range s.nodes {
		n := &s.nodes[i]
		p := append(slices.Clip(at), n.element)
		want, _ := intent.at(p)
		if want.IsNull() || want.Len() == 0 && (want.Kind() == object.Map || want.Kind() == object.List) {
			continue
		}
		got, ok := merged.at(p)
		mustHold(ok, "merge: a field of the intent is not in the result", p)
		if len(n.below.nodes) > 0 {
			checkContains(merged, intent, n.below, p)
			continue
		}
		container := want.Kind() == object.Map || want.Kind() == object.List // one of empty lists has no paths below, either
		mustHold(container || same(got, want), "merge: a field of the intent has another value in the result", p, " in ",
			shown{merged.root})
	}
}
