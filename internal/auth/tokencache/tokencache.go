// Package tokencache caches the results of verifying bearer tokens, because most requests come with tokens that were
// verified before.
//
// Keys are hashes, for two reasons: the cache holds no token that a memory dump would reveal, and the time of a
// look-up depends on the hash and not on how many bytes of a guessed token are right.
package tokencache

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// Key is the hash of a token and of the audiences that it was verified for.
type Key [sha256.Size]byte

// KeyOf hashes a token and audiences.
func KeyOf(token string, audiences []string) Key {
	if len(audiences) == 0 && len(token) <= 4096 {
		var stack [4096]byte
		return sha256.Sum256(stack[:copy(stack[:], token)])
	}
	h := sha256.New()
	h.Write([]byte(token))
	for _, a := range audiences { // the lengths follow, so that different lists have different hashes
		h.Write([]byte(a))
	}
	var length [8]byte
	for _, a := range audiences {
		binary.BigEndian.PutUint64(length[:], uint64(len(a)))
		h.Write(length[:])
	}
	binary.BigEndian.PutUint64(length[:], uint64(len(audiences)))
	h.Write(length[:])
	return Key(h.Sum(nil))
}

// Cache keeps values by keys. Its zero value keeps nothing. It may be used concurrently.
//
// Problem: strangers choose the tokens that they send, so the cache must be bounded, and a flood of new tokens must
// not evict those in use for long. A list in the order of use would need a lock for writing at every look-up.
//
// The values are in two generations. A value in the old generation that is used moves to the young one. When the young
// one is full it becomes the old one, and the previous old one is dropped. A value is dropped only if it was not used
// while a whole generation filled.
//
//	len(young) ≤ Size, len(old) ≤ Size
type Cache[V any] struct {
	Size int
	Life time.Duration // how long a value is kept; 0: until it is evicted

	mu         sync.RWMutex
	young, old map[Key]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time // zero: no end
}

// Get returns the value of a key.
func (c *Cache[V]) Get(key Key, now time.Time) (V, bool) {
	c.mu.RLock()
	e, ok := c.young[key]
	aged := false
	if !ok {
		e, aged = c.old[key]
	}
	c.mu.RUnlock()
	switch {
	case !ok && !aged, !e.until.IsZero() && !now.Before(e.until):
		var none V
		return none, false
	case aged:
		c.set(key, e)
	}
	return e.value, true
}

// Set sets the value of a key.
func (c *Cache[V]) Set(key Key, value V, now time.Time) {
	e := entry[V]{value: value}
	if c.Life > 0 {
		e.until = now.Add(c.Life)
	}
	c.set(key, e)
}

func (c *Cache[V]) set(key Key, e entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Size == 0 {
		return
	}
	if len(c.young) >= c.Size {
		c.old, c.young = c.young, nil
	}
	if c.young == nil {
		c.young = map[Key]entry[V]{}
	}
	c.young[key] = e
}
