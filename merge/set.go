package merge

import (
	"slices"
	"strings"
	"sync"

	"plinth/internal/invariants"
)

// Set is a set of paths, held as a trie. A path in the set implies neither those above it nor those below: a manager
// may own a list item but not all of its fields, or a field of it but not the item. A Set is immutable and shares its
// parts with others. The zero Set is empty.
//
// The paths .spec.replicas, .spec.containers[name="web"] and .spec.containers[name="web"].image are
//
//	.spec
//	  .containers
//	    [name="web"]      owned
//	      .image          owned
//	  .replicas           owned
//
// A hash set of the paths as text fails in three ways. "All paths below this one" needs a scan of the whole set. The
// common beginnings of paths, most of their text, would be kept and compared again for each path. And an empty
// difference can be recognised only by comparing all paths, while nearly all operations of an apply have one.
//
// All operations walk the sorted nodes of both tries in parallel, so that they are linear in the nodes of the levels
// that both have; a subtree that only one side has is reused or skipped as a whole. They reuse subtrees that they do
// not change, so that `s.identical(t)` shows at once that nothing has changed. Any two operands may share memory, or be
// the same set.
type Set struct {
	// Invariant: element(nodes[i]) < element(nodes[i+1]), by Element.Compare.
	nodes []node
}

// node is one element of a trie.
//
// Invariant: marks ≠ 0 ∨ below ≠ ∅. Without it, two tries of the same paths could differ, and neither Equal nor Empty
// would be a comparison of nodes. Together with the order of Set.nodes it makes a trie canonical: equal sets have equal
// tries.
type node struct {
	element Element
	marks   marks // of the path that ends here; 0 if the node only leads to those below
	below   Set   // the paths that go on from here
}

// marks say in what sense a path is in a trie. A plain Set has one sense only. The result of a comparison has two, and
// a path may have both: a value that is replaced by one of another kind is both removed and touched.
type marks uint8

const (
	owned   marks = 1 << iota // in a Set: the path is in it
	removed                   // in a comparison: the old object has it
	touched marks = owned     // in a comparison: it was added, or has another value
)

// SetOf is the set of these paths. An empty path is left out. It is for few paths: each one is united with the set so
// far.
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
		return Set{} // an object as such has no owner
	}
	n := node{element: p[0]}
	if len(p) == 1 {
		n.marks = owned
	} else {
		n.below = single(p[1:])
	}
	return Set{[]node{n}}
}

// Fields is the set of paths that consist of names only, written with dots between them: "metadata.name". No name may
// contain a dot. It is for constants in code, such as the fields that an endpoint resets.
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

// Len is the number of paths. It counts them: linear in the size of the trie.
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

// find is the position of the element on the first level, and true; or the position at which it would have to be
// inserted.
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

// seek is find by a linear search from a position on. It is for a parallel walk of two sets, whose elements ascend:
// since each search begins where the last one ended, all of them together take one pass, where binary searches would
// cost a logarithm each.
func (s Set) seek(from int, e Element) (int, bool) {
	for ; from < len(s.nodes); from++ {
		if c := s.nodes[from].element.Compare(e); c >= 0 {
			return from, c == 0
		}
	}
	return from, false
}

// at is the node of an element; the zero node if there is none.
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

// Each calls f for every path, a path before those below it. The path is valid during the call only: clone it to keep
// it.
func (s Set) Each(f func(Path)) { s.each(make(Path, 0, 16), f) }

// each is Each below the path at, whose memory it extends and reuses.
func (s Set) each(at Path, f func(Path)) {
	// All elements of a level precede anything below one of them, so that .a and .b precede .a.x: the reference lists
	// conflicts in this order. Hence two loops.
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

// Equal says whether two sets have the same paths. As tries are canonical, it compares them node by node.
func (s Set) Equal(t Set) bool {
	return slices.EqualFunc(s.nodes, t.nodes, func(a, b node) bool {
		return a.marks == b.marks && a.element.Compare(b.element) == 0 && a.below.Equal(b.below)
	})
}

// within says whether every path of s is in t, with all of its marks: s ⊆ t. It is s.Minus(t).Empty() without making
// the difference, and ends at the first path that is missing.
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

// identical says whether two sets are the same memory, which implies that they are equal. Operations return their
// operand where they change nothing, so that this is a cheap test of "unchanged"; a false result proves nothing.
func (s Set) identical(t Set) bool {
	return len(s.nodes) == len(t.nodes) && (len(s.nodes) == 0 || &s.nodes[0] == &t.nodes[0])
}

// Union is s ∪ t: all paths of both. Marks are united path by path, too. It returns an operand where the other one is
// empty, and else copies the levels that both have; what only one has below is shared.
func (s Set) Union(t Set) Set {
	u := s.union(t)
	if invariants.Enabled {
		checkUnion(s, t, u)
	}
	return u
}

// union is Union without its check.
func (s Set) union(t Set) Set {
	switch {
	case len(s.nodes) == 0:
		return t
	case len(t.nodes) == 0:
		return s
	}
	// Invariant: out holds the union of s.nodes[:i] and t.nodes[:j], in order.
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
			out = append(out, node{a.element, a.marks | b.marks, a.below.union(b.below)})
			i++
			j++
		}
	}
	out = append(out, s.nodes[i:]...)
	return Set{append(out, t.nodes[j:]...)}
}

// unionOf is the union of sets, which it may overwrite. It unites pairs, then pairs of pairs: each path is copied log k
// times, while adding k sets to one, one after the other, would copy the paths of the first of them k times.
func unionOf(sets []Set) Set {
	for len(sets) > 1 {
		half := (len(sets) + 1) / 2
		for i := half; i < len(sets); i++ {
			sets[i-half] = sets[i-half].Union(sets[i])
		}
		sets = sets[:half]
	}
	if len(sets) == 0 {
		return Set{}
	}
	return sets[0]
}

// Minus is s ∖ t: the paths of s that are not in t. Paths below a path of t stay: with .spec.containers[name="web"] in
// t, s keeps .spec.containers[name="web"].image. It returns s itself if it removes nothing.
func (s Set) Minus(t Set) Set { return s.minus(t, owned, false) }

// MinusAll is the paths of s that are neither in t nor below a path of t. It is for sets that name whole subtrees, such
// as "status": from {.spec.replicas, .status, .status.phase} with t = {.status}, MinusAll leaves .spec.replicas alone,
// while Minus would also leave .status.phase.
func (s Set) MinusAll(t Set) Set { return s.minus(t, owned, true) }

// minus removes the paths that have one of these marks in t, and with deep also all paths below those. t may be the
// result of a comparison, of which an update takes both marks at once.
func (s Set) minus(t Set, which marks, deep bool) Set {
	d := s.subtract(t, which, deep)
	if invariants.Enabled {
		checkMinus(s, t, which, deep, d)
	}
	return d
}

// subtract is minus without its check. It copies a level at its first change, and else returns s.
func (s Set) subtract(t Set, which marks, deep bool) Set {
	if len(s.nodes) == 0 || len(t.nodes) == 0 {
		return s
	}
	var out []node // nil until a path has been removed: otherwise s is returned unchanged
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
				rest.below = a.below.subtract(b.below, which, deep)
			case deep:
				rest = node{}
			default:
				rest.marks, rest.below = 0, a.below.subtract(b.below, which, deep)
			}
			changed = rest.marks != a.marks || !rest.below.identical(a.below)
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

// Intersect is s ∩ t: the paths that are in both. Its nodes are new: the results are small, conflicts mostly.
func (s Set) Intersect(t Set) Set { return s.intersect(t, owned) }

// intersect is the paths of s that have one of these marks in t. They keep the marks that they have in s.
func (s Set) intersect(t Set, which marks) Set {
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
			n := node{element: a.element, below: a.below.intersect(b.below, which)}
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
	if invariants.Enabled {
		checkLevel(out)
		for _, n := range out {
			mustHold(n.marks&^s.at(n.element).marks == 0 && (n.marks == 0 || t.at(n.element).marks&which != 0),
				"merge: (s ∩ t) ⊄ s or ⊄ t", n.element)
		}
	}
	return Set{out}
}

// only is the set of the paths that have this mark, as a plain Set: it makes one of the result of a comparison. A
// subtree in which all paths have it, and no other, is shared. The sets of a new object are of that sort, all touched,
// and are not copied.
func (s Set) only(which marks) Set {
	var out []node // nil until a path without the mark has been found
	for i := range s.nodes {
		n := node{element: s.nodes[i].element, below: s.nodes[i].below.only(which)}
		if s.nodes[i].marks&which != 0 {
			n.marks = owned
		}
		if out == nil {
			if n.marks == s.nodes[i].marks && n.below.identical(s.nodes[i].below) {
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
	if invariants.Enabled {
		checkLevel(out)
	}
	return Set{out}
}

// sortedSet makes a set of nodes in any order, which it may reorder in place; if two have the same element, the later
// one counts. Nodes are nearly always in order, which one pass finds out; only others are sorted. Out of order are list
// items whose order is not that of their identities, and elements of FieldsV1 whose text sorts differently than they
// do: as text, {"port":443} precedes {"port":80}.
func sortedSet(nodes []node) Set {
	for i := 1; i < len(nodes); i++ {
		if nodes[i-1].element.Compare(nodes[i].element) >= 0 {
			slices.SortStableFunc(nodes, func(a, b node) int { return a.element.Compare(b.element) })
			kept := nodes[:0]
			for k, n := range nodes {
				if k+1 == len(nodes) || n.element.Compare(nodes[k+1].element) != 0 {
					kept = append(kept, n)
				}
			}
			nodes = kept
			break
		}
	}
	if invariants.Enabled {
		checkLevel(nodes)
	}
	return Set{nodes}
}

// arena allocates the nodes of the sets of one operation: those that it reads from managedFields, and those of its
// comparisons. An operation makes hundreds of small slices of nodes, one per level of each trie; cut from few large
// ones they cost few allocations. The zero value is an arena whose memory the garbage collector frees.
//
// An arena of newArena is used by one operation after the other. Then no Set that was made in it may outlive the
// operation:
//
//	release(a) ⇒ no Set of a is reachable
//
// Operations keep this by returning values and texts (FieldsV1) only, never a Set. With invariants on, a released
// arena is overwritten and dropped, so that a Set that did outlive it fails the check of its order.
type arena struct {
	free []node // the rest of the current chunk; slices are cut off its front and never given back
	kept []node // the first chunk, which stays with the arena when it is released; nil in a zero arena
}

const (
	arenaChunk = 48  // nodes per further chunk
	arenaKept  = 160 // nodes of the first chunk, which suffices for most operations
)

var arenas = sync.Pool{New: func() any { return &arena{kept: make([]node, arenaKept)} }}

// newArena is an arena for an operation that lets no Set out. Call release at its end.
func newArena() *arena {
	a := arenas.Get().(*arena)
	a.free = a.kept
	return a
}

func (a *arena) release() {
	clear(a.kept) // the pool must not keep objects alive
	a.free = nil
	if invariants.Enabled {
		return // not into the pool: the zero nodes stay where a Set that outlives the operation finds them
	}
	arenas.Put(a)
}

// nodes is an empty slice with a capacity of n. Appending more than n nodes moves the slice out of the arena, which is
// correct and costs an allocation: callers that do not know n may estimate it.
func (a *arena) nodes(n int) []node {
	if len(a.free) < n {
		if n > arenaChunk/2 {
			return make([]node, 0, n) // the rest of the chunk is worth more than it would save
		}
		a.free = make([]node, arenaChunk)
	}
	out := a.free[:0:n]
	a.free = a.free[n:]
	return out
}
