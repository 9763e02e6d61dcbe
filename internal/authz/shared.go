package authz

import "hash/maphash"

// shared is a map that is never changed: what follows a state is made from it, and shares with it all parts that stayed
// as they were. The views keep some earlier states, and a change of one of thousands of bindings is to cost a small
// part of what copying all would.
//
//	parts[hash(key) % len(parts)] has key  ⇔  the map has key
type shared[K comparable, V any] struct {
	parts [64]map[K]V
}

// seed is that of all maps: it is the same as long as the process lives.
var seed = maphash.MakeSeed()

func part[K comparable](key K) int { return int(maphash.Comparable(seed, key) % 64) }

func (s *shared[K, V]) get(key K) (V, bool) {
	v, ok := s.parts[part(key)][key]
	return v, ok
}

// edit is a state in the making. It copies a part the first time that it changes something there.
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
