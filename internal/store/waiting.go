package store

import (
	"strings"

	"plinth/internal/invariants"
)

// Term is a label or a selectable field with its value. A cursor with a Term reads only the records of objects that
// have it or had it before. The zero Term is no restriction.
type Term struct {
	Label       bool // else a field
	Name, Value string
	// Form and Selection, of a field, are those of the sidecars whose Fields show whether a version has it. In any
	// other sidecar the field may be missing, or have its value by an older definition.
	Form, Selection uint64
}

// has says whether a version has the term, or may have it: a version that cannot be read, or whose fields were
// computed by another definition, counts as having it, so that no watch misses a record. The reader of the record
// decides with the object itself.
func (v *Version) has(t Term) bool {
	if v == nil {
		return false
	}
	if v.Sidecar.Unreadable != nil || t.attribute().outdated(v.Sidecar) {
		return true
	}
	pairs := v.Sidecar.Fields
	if t.Label {
		pairs = v.Sidecar.Labels
	}
	for i := range pairs {
		if pairs[i].Name == t.Name {
			return pairs[i].Value == t.Value
		}
	}
	return false
}

// concerns says whether a cursor with this prefix and term reads the record. The old version counts, too: an object
// that leaves a selection is an event for the watch.
func (r *Record) concerns(prefix string, t Term) bool {
	return strings.HasPrefix(r.Key.Name, prefix) && (t == Term{} || r.New.has(t) || r.Old.has(t))
}

// group is all cursors that wait for the next record with one prefix and term. Closing one channel wakes those that
// wait in Next; those of Ready are called, one after another.
//
// A group is in the index of a feed until a record removes it, and never returns to it. Cursors that wait again after
// that make a new one. The feed's mu guards waiters, and calls while the group is in the index; first is written under
// it before wake is closed, and may be read after that without a lock, or before with the state's mu held.
type group struct {
	wake    chan struct{}
	waiters int   // > 0 while the group is in the index
	first   int64 // revision of the record that removed it; 0 before. Written before wake is closed.
	calls   []call
}

// call is what a cursor that waits in Ready wants to be called.
type call struct {
	cursor *Cursor
	wake   func()
}

// call wakes the waiters of a group that is not in the index any more. No lock is held.
func (g *group) call() {
	close(g.wake)
	for _, c := range g.calls {
		c.wake()
	}
}

// groupsByPrefix is the groups of one term.
type groupsByPrefix map[string]*group

// fire removes the groups that wait for r, and appends them to woken. Of the two ways to find them it uses the one with
// fewer steps: comparing every prefix with the name, or looking up every prefix of the name. The second keeps a change
// of one object cheap when thousands of watches wait for one object each.
//
//	steps ≤ min(groups, length of the name + 1)
func (p groupsByPrefix) fire(r *Record, woken []*group) []*group {
	wake := func(prefix string, g *group) {
		delete(p, prefix)
		g.first = r.Revision
		woken = append(woken, g)
	}
	// A prefix of the name of any length may be that of a group, the empty one and the name itself included.
	name := r.Key.Name
	if len(p) <= len(name) {
		for prefix, g := range p {
			if strings.HasPrefix(name, prefix) {
				wake(prefix, g)
			}
		}
		return woken
	}
	for n := 0; n <= len(name); n++ {
		if g := p[name[:n]]; g != nil {
			wake(name[:n], g)
		}
	}
	return woken
}

// attribute is a label, or a field of sidecars with this Form and Selection: a term without its value.
type attribute struct {
	label           bool
	name            string
	form, selection uint64
}

// attribute is the term without its value.
func (t Term) attribute() attribute { return attribute{t.Label, t.Name, t.Form, t.Selection} }

// outdated says whether a sidecar cannot show that its version has a term of this attribute. Labels do not depend on
// definitions.
func (a attribute) outdated(s *Sidecar) bool {
	return !a.label && (s.Form != a.form || s.Selection != a.selection)
}

// waiting is the index of the groups of one feed. The feed's mu guards it.
//
// The problem: on a large cluster each of a thousand kubelets watches the Pods of its own node, and a record about one
// Pod concerns one of them. Waking all watches of a resource, and letting each one look at the record, costs a thousand
// wake-ups for each change. So groups are indexed by attribute, value and prefix, and the labels and fields of the old
// and the new version lead to the groups that the record concerns. The cost of a record depends on the number of groups
// that it concerns and on the number of its labels, and not on how many groups wait:
//
//	g is in the index at (t, prefix)  ⇔  g.waiters > 0 and no record since the join concerned (prefix, t)
//	no map below terms is empty
//
// Example: 1,000 kubelets wait with the term spec.nodeName=n1 to n1000, and a scheduler without a term. When a Pod is
// bound to n7, its new version has the field spec.nodeName=n7, the old one does not have it. fire removes the group
// without a term and that of n7: two look-ups, and two wake-ups.
//
// Two sorts of versions cost more, as it is not known which terms they have: an unreadable version visits all groups,
// and one whose fields were computed by another definition all groups with a field as their term. The opposite error,
// leaving a group asleep, would lose an event.
type waiting struct {
	any   groupsByPrefix // the groups without a term
	terms map[attribute]map[string]groupsByPrefix
}

// newWaiting is an empty index.
func newWaiting() waiting {
	return waiting{any: groupsByPrefix{}, terms: map[attribute]map[string]groupsByPrefix{}}
}

// all yields every group.
func (w *waiting) all(yield func(*group) bool) {
	for _, g := range w.any {
		if !yield(g) {
			return
		}
	}
	for _, values := range w.terms {
		for _, p := range values {
			for _, g := range p {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// check fails where an invariant of the index does not hold. It takes time in the number of groups.
func (w *waiting) check() {
	for g := range w.all {
		if g.waiters <= 0 || g.first != 0 {
			invariants.Fail("store: a group of %d, woken by %d, is in the index", g.waiters, g.first)
		}
	}
	for about, values := range w.terms {
		for value, p := range values {
			if len(p) == 0 {
				invariants.Fail("store: nobody waits for %v = %q, which is in the index", about, value)
			}
		}
		if len(values) == 0 {
			invariants.Fail("store: nobody waits for %v, which is in the index", about)
		}
	}
}

// fire removes the groups that wait for r, and appends them to woken. Both versions count; a group that was removed for
// the new version is not found again for the old one.
func (w *waiting) fire(r *Record, woken []*group) []*group {
	woken = w.any.fire(r, woken)
	if len(w.terms) == 0 {
		return woken
	}
	for _, v := range [...]*Version{r.New, r.Old} {
		switch {
		case v == nil:
		case v.Sidecar.Unreadable != nil:
			for about, values := range w.terms {
				for value := range values {
					woken = w.fireTerm(about, value, r, woken)
				}
			}
		default:
			woken = w.fireTerms(v.Sidecar, r, woken)
		}
	}
	return woken
}

// fireTerms is fire for the terms that a version has by its sidecar, or may have.
func (w *waiting) fireTerms(s *Sidecar, r *Record, woken []*group) []*group {
	for i := range s.Fields {
		about := attribute{name: s.Fields[i].Name, form: s.Form, selection: s.Selection}
		woken = w.fireTerm(about, s.Fields[i].Value, r, woken)
	}
	for i := range s.Labels {
		woken = w.fireTerm(attribute{label: true, name: s.Labels[i].Name}, s.Labels[i].Value, r, woken)
	}
	// The number of attributes is that of the names by which clients select, which is small; values are not looked at
	// here unless the sidecar is of another definition.
	for about, values := range w.terms {
		if about.outdated(s) {
			for value := range values {
				woken = w.fireTerm(about, value, r, woken)
			}
		}
	}
	return woken
}

// fireTerm is fire for the groups of one term.
func (w *waiting) fireTerm(about attribute, value string, r *Record, woken []*group) []*group {
	p := w.terms[about][value]
	if p == nil {
		return woken
	}
	woken = p.fire(r, woken)
	w.dropEmpty(about, value, p)
	return woken
}

// dropEmpty removes the maps that led to p if p is empty.
func (w *waiting) dropEmpty(about attribute, value string, p groupsByPrefix) {
	if len(p) > 0 {
		return
	}
	values := w.terms[about]
	if delete(values, value); len(values) == 0 {
		delete(w.terms, about)
	}
}

// join returns the group of a prefix and a term, with one more waiter. The first waiter makes it.
func (w *waiting) join(prefix string, t Term) *group {
	p := w.any
	if t != (Term{}) {
		about := t.attribute()
		values := w.terms[about]
		if values == nil {
			values = map[string]groupsByPrefix{}
			w.terms[about] = values
		}
		if p = values[t.Value]; p == nil {
			p = groupsByPrefix{}
			values[t.Value] = p
		}
	}
	g := p[prefix]
	if g == nil {
		g = &group{wake: make(chan struct{})}
		p[prefix] = g
	}
	g.waiters++
	return g
}

// leave removes one waiter from a group. It returns false if the group is not in the index any more: it was woken, and
// another one may be in its place.
func (w *waiting) leave(prefix string, t Term, g *group) bool {
	about, p := t.attribute(), w.any
	if t != (Term{}) {
		p = w.terms[about][t.Value]
	}
	if p[prefix] != g {
		return false
	}
	if g.waiters--; g.waiters > 0 {
		return true
	}
	if delete(p, prefix); t != (Term{}) {
		w.dropEmpty(about, t.Value, p)
	}
	return true
}
