package authz

import "hash/maphash"

// shared is an immutable map. A changed map is made by edit and shares with the old one all parts in which nothing
// changed.
//
// Views keep some earlier states. With thousands of bindings, to copy a whole map for each change would cost time and
// memory in proportion to all of them. A change copies 1/64 of the map.
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
