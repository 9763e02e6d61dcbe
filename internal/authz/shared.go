package authz

import (
	"hash/maphash"
	"iter"
	"slices"
)

// shared is an immutable map. A changed map is made by edit and shares all unchanged parts with the old one.
//
// Requests that are being served use earlier values of a view, so a map cannot be changed in place. With thousands of
// bindings, to copy a whole map for each change would cost time and memory in proportion to all of them. A change
// copies 1/64 of the map (docs/decisions/0007 has figures). The hash has a random seed, so that no client can choose
// names that all fall into one part.
//
//	parts[hash(key) % len(parts)] has key  ⇔  the map has key
type shared[K comparable, V any] struct {
	parts [64]map[K]V
}

// seed is the seed of all hashes; it is constant while the process runs.
var seed = maphash.MakeSeed()

func part[K comparable](key K) int { return int(maphash.Comparable(seed, key) % 64) }

func (s *shared[K, V]) get(key K) (V, bool) {
	v, ok := s.parts[part(key)][key]
	return v, ok
}

// values are all values, in no order.
func (s *shared[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, part := range s.parts {
			for _, v := range part {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// edit builds a changed map. It copies a part when it first changes something there.
type edit[K comparable, V any] struct {
	next  shared[K, V]
	fresh [64]bool
}

func (e *edit[K, V]) writable(i int) map[K]V {
	if !e.fresh[i] {
		e.fresh[i] = true
		copied := make(map[K]V, len(e.next.parts[i])+1)
		for k, v := range e.next.parts[i] {
			copied[k] = v
		}
		e.next.parts[i] = copied
	}
	return e.next.parts[i]
}

func (e *edit[K, V]) set(key K, value V) { e.writable(part(key))[key] = value }
func (e *edit[K, V]) delete(key K)       { delete(e.writable(part(key)), key) }

// lists collects the changes of an index: a map from keys to lists, such as the bindings of each group.
//
// Problem: a list may be as long as its collection, and all of its values may change between two requests, such as when
// the index is first built, or after a deletecollection. To change a list for each value takes n² steps then. So
// the changes are collected first, and update builds each changed list once:
//
//	new list = (old list without gone) + added
type lists[K, V comparable] map[K]*listChange[V]

type listChange[V comparable] struct {
	gone  map[V]bool
	added []V
}

func (l lists[K, V]) of(key K) *listChange[V] {
	c := l[key]
	if c == nil {
		c = &listChange[V]{gone: map[V]bool{}}
		l[key] = c
	}
	return c
}

func (l lists[K, V]) remove(key K, value V) { l.of(key).gone[value] = true }

// add adds a value, which may be added to the same list several times in a row.
func (l lists[K, V]) add(key K, value V) {
	c := l.of(key)
	if n := len(c.added); n == 0 || c.added[n-1] != value {
		c.added = append(c.added, value)
	}
}

// update returns the changed index. Empty lists are not in it. compare is the order of the lists; nil: none.
func (l lists[K, V]) update(index shared[K, []V], compare func(a, b V) int) shared[K, []V] {
	e := edit[K, []V]{next: index}
	for key, c := range l {
		old, _ := index.get(key)
		next := make([]V, 0, len(old)+len(c.added))
		for _, v := range old {
			if !c.gone[v] {
				next = append(next, v)
			}
		}
		if next = append(next, c.added...); len(next) == 0 {
			e.delete(key)
			continue
		}
		if compare != nil {
			slices.SortFunc(next, compare)
		}
		e.set(key, slices.Clip(next))
	}
	return e.next
}
