// Package recent has a bounded cache: values by keys, of which those that were not used lately are forgotten.
//
// It is for caches that are asked on every request, and whose keys strangers may choose. It has no clock: a caller
// whose values expire keeps the time with the value and compares it.
package recent

import (
	"cmp"
	"sync"

	"plinth/internal/invariants"
)

// Cache keeps values by keys. It may be used concurrently. Limit is set before the first use.
//
// Problem: the cache must be bounded, and a flood of new keys must not evict those in use for long. A list in the order
// of use (LRU) would need a lock for writing at every look-up.
//
// The values are in two generations. A value in the old generation that is used moves to the young one. When the young
// one is full it becomes the old one, and the previous old one is dropped. With room for two values in each:
//
//	used     a    b      c      a      d
//	young    a    a b    c      c a    d
//	old                  a b    b      c a
//
// A value is dropped only if it was not used while a whole generation filled. A look-up in the young generation, which
// is nearly every one, takes a read lock.
//
//	weight of young = Σ weights of its values ≤ Limit, and so of old
//	no key is in both
type Cache[K comparable, V any] struct {
	Limit int // the weight of a generation; the cache weighs at most twice that. 0: DefaultLimit

	mu         sync.RWMutex
	young, old map[K]*weighed[V]
	weight     int // of young
}

// DefaultLimit is the limit of a cache that sets none.
const DefaultLimit = 4096

func (c *Cache[K, V]) limit() int { return cmp.Or(c.Limit, DefaultLimit) }

type weighed[V any] struct {
	value  V
	weight int
}

// Get returns the value of a key.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.RLock()
	v, young := c.young[key]
	old := false
	if !young {
		v, old = c.old[key]
	}
	c.mu.RUnlock()
	if old {
		c.renew(key, v)
	}
	if v == nil {
		return value, false
	}
	return v.value, true
}

// Set sets the value of a key. A value that weighs more than Limit is not kept: it would evict all others.
func (c *Cache[K, V]) Set(key K, value V, weight int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.young[key]; known != nil {
		c.weight -= known.weight
		delete(c.young, key)
	}
	delete(c.old, key)
	if weight <= c.limit() {
		c.add(key, &weighed[V]{value, weight})
	}
}

// renew moves a value from the old generation into the young one, unless another caller has changed it since.
func (c *Cache[K, V]) renew(key K, v *weighed[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.old[key] == v {
		delete(c.old, key)
		c.add(key, v)
	}
}

// add puts a value into the young generation, which does not have the key. The caller holds mu.
func (c *Cache[K, V]) add(key K, v *weighed[V]) {
	if c.young == nil || c.weight+v.weight > c.limit() {
		c.young, c.old, c.weight = map[K]*weighed[V]{}, c.young, 0
	}
	c.young[key] = v
	c.weight += v.weight
	if invariants.Enabled && c.weight > c.limit() {
		invariants.Fail("a generation weighs %d, more than %d", c.weight, c.limit())
	}
}

// Len returns how many values are kept.
func (c *Cache[K, V]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.young) + len(c.old)
}
