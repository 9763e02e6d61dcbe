package store

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"
)

// origin is content with which planes have begun. It never changes.
//
// The problem: ten thousand planes begin with the objects of a new server, and a plane may begin with another one that
// has a hundred thousand. In memory they share nodes of trees; a checkpoint has to share, too, or its size and the time
// of a restart would be the number of planes times the size of each. But what a plane has begun with changes: the other
// plane goes on, or ends. So the moment at which a plane begins is kept as an origin, which both of them then have in
// common, and a checkpoint has each plane, and each origin, as the difference from its own origin:
//
//	before    A: o1 + a                       o1 is what A has begun with, and a its changes since
//	B begins  o2 = o1 + a;  A: o2;  B: o2
//	later     o2 = o1 + a;  A: o2 + a';  B: o2 + b
//
// An origin that only one plane, or only one other origin, begins with is skipped: then nothing is shared by it
// (compress). The difference of two contents is found by walking both (difference): collections that are the same one
// are passed by, and of others the versions are compared by their addresses.
type origin struct {
	collections *collections
	since       int64
	revision    int64
	bytes       int64
	parent      *origin // what it is the difference from; nil: it is everything
}

// originOf is the content as it is now as the origin of another plane. parent is that of the content itself. The caller
// may change the content: freezing it begins a new epoch.
func originOf(c *content, revision int64, parent *origin) *origin {
	frozen := c.live.freeze()
	if parent != nil && parent.collections == frozen {
		return parent // nothing has changed since
	}
	return &origin{collections: frozen, since: c.live.since, revision: revision, bytes: c.live.bytes,
		parent: parent}
}

// moment is what a plane has at one moment, for a checkpoint.
type moment struct {
	plane                    string
	collections              *collections
	origin                   *origin
	revision, begun, resting int64
	since                    int64
}

// compress skips the origins that only one of the planes, or only one other origin, begins with. It changes the origins
// of moments, and the parents of origins, and returns the remaining ones, each after its parent.
func compress(moments []*moment) (remaining []*origin) {
	users := map[*origin]int{}
	for _, m := range moments {
		for o := m.origin; o != nil; o = o.parent {
			if users[o]++; users[o] > 1 {
				break // its parents have counted it already
			}
		}
	}
	shared := func(o *origin) *origin {
		for o != nil && users[o] == 1 {
			o = o.parent
		}
		return o
	}
	seen := map[*origin]bool{}
	var keep func(o *origin)
	keep = func(o *origin) {
		if o == nil || seen[o] {
			return
		}
		seen[o] = true
		o.parent = shared(o.parent)
		keep(o.parent)
		remaining = append(remaining, o)
	}
	for _, m := range moments {
		m.origin = shared(m.origin)
		keep(m.origin)
	}
	return remaining
}

// layers yields the layers of planes: their origins first. It ends with an error when quit says so.
func layers(moments []*moment, origins []*origin, quit <-chan struct{}) iter.Seq2[*Layer, error] {
	return func(yield func(*Layer, error) bool) {
		number := map[*origin]int{nil: 0}
		for _, o := range origins {
			l := layerOf(o.collections, o.parent, quit)
			l.Number, l.Origin, l.Revision, l.Since = len(number), number[o.parent], o.revision, o.since
			number[o] = l.Number
			if !yield(l, nil) {
				return
			}
		}
		for i, m := range moments {
			l := layerOf(m.collections, m.origin, quit)
			l.Number, l.Origin, l.Plane = len(origins)+1+i, number[m.origin], m.plane
			l.Revision, l.Begun, l.Resting, l.Since = m.revision, m.begun, m.resting, m.since
			if !yield(l, nil) {
				return
			}
		}
	}
}

// layerOf is the difference between collections and an origin.
func layerOf(now *collections, o *origin, quit <-chan struct{}) *Layer {
	before := btree.NewMap[string, *collection](degree)
	if o != nil {
		before = o.collections
	}
	l := &Layer{}
	now.Scan(func(resource string, t *collection) bool {
		if was, _ := before.Get(resource); was != t {
			l.Collections = append(l.Collections, LayerCollection{resource, t.changed})
		}
		return true
	})
	l.Versions = func(yield func(*Version, error) bool) {
		n := 0
		difference(before, now, func(k Key, _, v *Version) bool {
			if n++; n%256 == 0 && isClosing(quit) {
				yield(nil, ErrClosed)
				return false
			}
			if v == nil {
				v = &Version{Key: k}
			}
			return yield(v, nil)
		})
	}
	return l
}

// difference yields the keys whose version differs, ordered by resource and name: with the version before, and the one
// now; nil: there is none. It takes time in the number of versions in collections that are not the same one.
func difference(before, now *collections, yield func(k Key, before, now *Version) bool) {
	var resources []string
	for _, all := range [...]*collections{before, now} {
		resources = append(resources, all.Keys()...)
	}
	slices.Sort(resources)
	for _, resource := range slices.Compact(resources) {
		a, _ := before.Get(resource)
		b, _ := now.Get(resource)
		if a == b {
			continue
		}
		was, is := newNames(), newNames()
		if a != nil {
			was = a.names
		}
		if b != nil {
			is = b.names
		}
		if !differenceOf(resource, was, is, yield) {
			return
		}
	}
}

// differenceOf is difference for one collection; it says whether yield wants more.
func differenceOf(resource string, before, now *names, yield func(k Key, before, now *Version) bool) bool {
	a, b := before.Iter(), now.Iter()
	hasA, hasB := a.First(), b.First()
	for hasA || hasB {
		order := 0
		switch {
		case !hasB:
			order = -1
		case !hasA:
			order = 1
		default:
			order = cmp.Compare(a.Key(), b.Key())
		}
		var was, is *Version
		name := ""
		if order <= 0 {
			name, was = a.Key(), a.Value()
			hasA = a.Next()
		}
		if order >= 0 {
			name, is = b.Key(), b.Value()
			hasB = b.Next()
		}
		if was != is && !yield(Key{resource, name}, was, is) {
			return false
		}
	}
	return true
}
