package merge

import (
	"slices"
	"strings"
	"sync"
)

// Set is a set of paths, held as a trie. Having a path says nothing of those above and below it: a manager may own a list
// item and not all of its fields, or a field in it and not the item. A Set is immutable and shares its parts with others.
type Set struct {
	nodes []node // by element
}

// node is one element of a trie. Nothing marked, and nothing below that is, does not occur.
type node struct {
	element Element
	marks   marks
	below   Set
}

// marks say in what sense a path is in a trie. A plain Set knows only one.
type marks uint8

const (
	owned   marks = 1 << iota // in a Set: the path is in it
	removed                   // in a comparison: it was there
	touched marks = owned     // in a comparison: it was added, or has another value
)

// SetOf is the set of these paths.
func SetOf(paths ...Path) Set {
	var s Set
	for _, p := range paths {
		s = s.Union(single(p))
	}
	return s
}

// single is the set of one path.
func single(p Path) Set {
	if len(p) == 0 {
		return Set{} // nobody owns an object as such
	}
	n := node{element: p[0]}
	if len(p) == 1 {
		n.marks = owned
	} else {
		n.below = single(p[1:])
	}
	return Set{[]node{n}}
}

// Fields is the set of these members of the top, and of paths below them: "metadata.name".
func Fields(paths ...string) Set {
	all := make([]Path, len(paths))
	for i, text := range paths {
		for name := range strings.SplitSeq(text, ".") {
			all[i] = append(all[i], FieldElement(name))
		}
	}
	return SetOf(all...)
}

// Empty says whether no path is in the set.
func (s Set) Empty() bool { return len(s.nodes) == 0 }

// Len is the number of paths.
func (s Set) Len() int {
	n := 0
	for i := range s.nodes {
		n += s.nodes[i].below.Len()
		if s.nodes[i].marks&owned != 0 {
			n++
		}
	}
	return n
}

// find is where the element is or would be.
func (s Set) find(e Element) (int, bool) {
	lo, hi := 0, len(s.nodes)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := s.nodes[mid].element.Compare(e); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// seek is find for a walk down two sets at once: from a position on, and one by one.
func (s Set) seek(from int, e Element) (int, bool) {
	for ; from < len(s.nodes); from++ {
		if c := s.nodes[from].element.Compare(e); c >= 0 {
			return from, c == 0
		}
	}
	return from, false
}

// at is the node of an element; one without content if there is none.
func (s Set) at(e Element) node {
	if i, ok := s.find(e); ok {
		return s.nodes[i]
	}
	return node{}
}

// Has says whether the path is in the set.
func (s Set) Has(p Path) bool {
	for i, e := range p {
		n := s.at(e)
		if i == len(p)-1 {
			return n.marks&owned != 0
		}
		s = n.below
	}
	return false
}

// Each calls f for every path, in order, a path before those below it. The path is good for that call only.
func (s Set) Each(f func(Path)) { s.each(make(Path, 0, 16), f) }

func (s Set) each(at Path, f func(Path)) {
	// The members of a level come before what is below any of them: this is the order in which conflicts are told.
	for i := range s.nodes {
		if s.nodes[i].marks&owned != 0 {
			f(append(at, s.nodes[i].element))
		}
	}
	for i := range s.nodes {
		s.nodes[i].below.each(append(at, s.nodes[i].element), f)
	}
}

// String is one path a line.
func (s Set) String() string {
	var lines []string
	s.Each(func(p Path) { lines = append(lines, p.String()) })
	return strings.Join(lines, "\n")
}

// Equal says whether two sets have the same paths.
func (s Set) Equal(t Set) bool {
	return slices.EqualFunc(s.nodes, t.nodes, func(a, b node) bool {
		return a.marks == b.marks && a.element.Compare(b.element) == 0 && a.below.Equal(b.below)
	})
}

// within says whether every path of s is in t.
func (s Set) within(t Set) bool {
	j := 0
	for i := range s.nodes {
		a := &s.nodes[i]
		var found bool
		if j, found = t.seek(j, a.element); !found || a.marks&^t.nodes[j].marks != 0 || !a.below.within(t.nodes[j].below) {
			return false
		}
	}
	return true
}

// Union is all paths of both.
func (s Set) Union(t Set) Set {
	switch {
	case len(s.nodes) == 0:
		return t
	case len(t.nodes) == 0:
		return s
	}
	out := make([]node, 0, max(len(s.nodes), len(t.nodes)))
	i, j := 0, 0
	for i < len(s.nodes) && j < len(t.nodes) {
		a, b := &s.nodes[i], &t.nodes[j]
		switch c := a.element.Compare(b.element); {
		case c < 0:
			out = append(out, *a)
			i++
		case c > 0:
			out = append(out, *b)
			j++
		default:
			out = append(out, node{a.element, a.marks | b.marks, a.below.Union(b.below)})
			i++
			j++
		}
	}
	out = append(out, s.nodes[i:]...)
	return Set{append(out, t.nodes[j:]...)}
}

// Minus is the paths of s that are not in t. What is below a path of t stays.
func (s Set) Minus(t Set) Set { return s.minus(t, owned, false) }

// MinusAll is the paths of s that are neither in t nor below a path of t.
func (s Set) MinusAll(t Set) Set { return s.minus(t, owned, true) }

// minus takes away what bears one of these marks in t, and with deep what is below that.
func (s Set) minus(t Set, which marks, deep bool) Set {
	if len(s.nodes) == 0 || len(t.nodes) == 0 {
		return s
	}
	var out []node // nil for as long as nothing was taken away
	j := 0
	for i := range s.nodes {
		a := s.nodes[i]
		changed := false
		var found bool
		if j, found = t.seek(j, a.element); found {
			b := &t.nodes[j]
			rest := a
			switch {
			case b.marks&which == 0:
				rest.below = a.below.minus(b.below, which, deep)
			case deep:
				rest = node{}
			default:
				rest.marks, rest.below = 0, a.below.minus(b.below, which, deep)
			}
			changed = rest.marks != a.marks || !rest.below.is(a.below)
			a = rest
		}
		if changed && out == nil {
			out = append(make([]node, 0, len(s.nodes)), s.nodes[:i]...)
		}
		if (changed || out != nil) && (a.marks != 0 || len(a.below.nodes) > 0) {
			out = append(out, a)
		}
	}
	if out == nil {
		return s
	}
	return Set{out}
}

// is says whether two sets are one and the same in memory.
func (s Set) is(t Set) bool {
	return len(s.nodes) == len(t.nodes) && (len(s.nodes) == 0 || &s.nodes[0] == &t.nodes[0])
}

// Both is the paths that are in both sets.
func (s Set) Both(t Set) Set { return s.both(t, owned) }

// both is the paths of s that bear this mark in t.
func (s Set) both(t Set, which marks) Set {
	var out []node
	i, j := 0, 0
	for i < len(s.nodes) && j < len(t.nodes) {
		a, b := &s.nodes[i], &t.nodes[j]
		switch c := a.element.Compare(b.element); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			n := node{element: a.element, below: a.below.both(b.below, which)}
			if b.marks&which != 0 {
				n.marks = a.marks
			}
			if n.marks != 0 || len(n.below.nodes) > 0 {
				out = append(out, n)
			}
			i++
			j++
		}
	}
	return Set{out}
}

// only is the set of the paths that bear this mark. A part in which all do is shared.
func (s Set) only(which marks) Set {
	var out []node // nil for as long as all do
	for i := range s.nodes {
		n := node{element: s.nodes[i].element, below: s.nodes[i].below.only(which)}
		if s.nodes[i].marks&which != 0 {
			n.marks = owned
		}
		if out == nil {
			if n.marks == s.nodes[i].marks && n.below.is(s.nodes[i].below) {
				continue
			}
			out = append(make([]node, 0, len(s.nodes)), s.nodes[:i]...)
		}
		if n.marks != 0 || len(n.below.nodes) > 0 {
			out = append(out, n)
		}
	}
	if out == nil {
		return s
	}
	return Set{out}
}

// gather makes a set of nodes in any order; of two of one element, the later one counts.
func gather(nodes []node) Set {
	for i := 1; i < len(nodes); i++ {
		if nodes[i-1].element.Compare(nodes[i].element) >= 0 {
			slices.SortStableFunc(nodes, func(a, b node) int { return a.element.Compare(b.element) })
			kept := nodes[:0]
			for k, n := range nodes {
				if k+1 == len(nodes) || n.element.Compare(nodes[k+1].element) != 0 {
					kept = append(kept, n)
				}
			}
			return Set{kept}
		}
	}
	return Set{nodes}
}

// room is where the nodes of an operation are put: those of what it reads and compares. The zero value sets memory aside for
// many levels of a trie at once.
type room struct {
	free []node
	kept []node // used by one operation after the other
}

const (
	roomStep = 48  // how many nodes are set aside at a time
	roomKept = 160 // how many most operations do with
)

var rooms = sync.Pool{New: func() any { return &room{kept: make([]node, roomKept)} }}

// newRoom is for an operation of which no Set gets out. It gives the room back at its end.
func newRoom() *room {
	r := rooms.Get().(*room)
	r.free = r.kept
	return r
}

func (r *room) giveBack() {
	clear(r.kept) // it holds on to nothing
	r.free = nil
	rooms.Put(r)
}

// nodes is an empty slice that n of them fit into.
func (r *room) nodes(n int) []node {
	if len(r.free) < n {
		if n > roomStep/2 {
			return make([]node, 0, n)
		}
		r.free = make([]node, roomStep)
	}
	out := r.free[:0:n]
	r.free = r.free[n:]
	return out
}
