package store

import "strings"

// Term is a label or a selectable field with its value, of which a cursor says that it wants nothing without it. The zero
// Term is none.
type Term struct {
	Label       bool // else a field
	Name, Value string
}

// has says whether a version has the term. One that cannot be read has all of them, so that nobody overlooks it.
func (v *Version) has(t Term) bool {
	if v == nil {
		return false
	}
	if v.Sidecar.Unreadable != nil {
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

// concerns says whether a record is one for cursors of a prefix and a term: that the object had the term before or has
// it now, for to leave a selection is an event, too.
func (r *Record) concerns(prefix string, t Term) bool {
	return strings.HasPrefix(r.Key.Name, prefix) && (t == Term{} || r.New.has(t) || r.Old.has(t))
}

// group is all cursors that wait for the next record under one prefix and term. One channel wakes them all.
type group struct {
	wake    chan struct{}
	waiters int
	first   int64 // revision of the record that woke it; 0 while it sleeps. Written before wake is closed.
}

// prefixes is groups by their prefix.
type prefixes map[string]*group

// fire takes the groups that wait for r out, and appends them to woken.
func (p prefixes) fire(r *Record, woken []*group) []*group {
	wake := func(prefix string, g *group) {
		delete(p, prefix)
		g.first = r.Revision
		woken = append(woken, g)
	}
	name := r.Key.Name
	if len(p) <= len(name) {
		for prefix, g := range p {
			if strings.HasPrefix(name, prefix) {
				wake(prefix, g)
			}
		}
		return woken
	}
	// With thousands of watchers of single objects, asking for each prefix of this one name is what does not thunder.
	for n := 0; n <= len(name); n++ {
		if g := p[name[:n]]; g != nil {
			wake(name[:n], g)
		}
	}
	return woken
}

// subject is what terms are about.
type subject struct {
	label bool
	name  string
}

// waiting is the groups of one resource, arranged so that a record finds those that it concerns without a look at the
// others: what it has leads to them.
//
// Invariant: no map below terms is empty.
type waiting struct {
	any   prefixes // those without a term
	terms map[subject]map[string]prefixes
}

func newWaiting() waiting {
	return waiting{any: prefixes{}, terms: map[subject]map[string]prefixes{}}
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

// fire takes the groups that wait for r out, and appends them to woken.
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
			for i := range v.Sidecar.Fields {
				woken = w.fireTerm(subject{false, v.Sidecar.Fields[i].Name}, v.Sidecar.Fields[i].Value, r, woken)
			}
			for i := range v.Sidecar.Labels {
				woken = w.fireTerm(subject{true, v.Sidecar.Labels[i].Name}, v.Sidecar.Labels[i].Value, r, woken)
			}
		}
	}
	return woken
}

func (w *waiting) fireTerm(about subject, value string, r *Record, woken []*group) []*group {
	p := w.terms[about][value]
	if p == nil {
		return woken
	}
	woken = p.fire(r, woken)
	w.drop(about, value, p)
	return woken
}

// drop lets go of the maps that led to p if nobody is there any more.
func (w *waiting) drop(about subject, value string, p prefixes) {
	if len(p) > 0 {
		return
	}
	values := w.terms[about]
	if delete(values, value); len(values) == 0 {
		delete(w.terms, about)
	}
}

// join returns the group of a prefix and a term with one waiter more.
func (w *waiting) join(prefix string, t Term) *group {
	p := w.any
	if t != (Term{}) {
		about := subject{t.Label, t.Name}
		values := w.terms[about]
		if values == nil {
			values = map[string]prefixes{}
			w.terms[about] = values
		}
		if p = values[t.Value]; p == nil {
			p = prefixes{}
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

// leave takes one waiter out of a group that did not wake it.
func (w *waiting) leave(prefix string, t Term, g *group) {
	if g.waiters--; g.waiters > 0 {
		return
	}
	about, p := subject{t.Label, t.Name}, w.any
	if t != (Term{}) {
		p = w.terms[about][t.Value]
	}
	if p[prefix] != g {
		return
	}
	if delete(p, prefix); t != (Term{}) {
		w.drop(about, t.Value, p)
	}
}
