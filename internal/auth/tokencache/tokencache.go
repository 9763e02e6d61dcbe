// Package tokencache remembers for a while what was found out about bearer tokens, because most requests come with the
// same ones.
//
// A [Cache] is bounded, and keeps tokens by their hashes: it holds no token, and how long a look-up takes tells nothing
// of one.
package tokencache

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// Key is the hash of a token and of what it was asked about.
type Key [sha256.Size]byte

// KeyOf hashes a token, and the audiences that it was asked about.
func KeyOf(token string, audiences []string) Key {
	if len(audiences) == 0 && len(token) <= 4096 {
		var stack [4096]byte
		return sha256.Sum256(stack[:copy(stack[:], token)])
	}
	h := sha256.New()
	h.Write([]byte(token))
	for _, a := range audiences { // the lengths come last, so that no two lists are hashed alike
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

// Cache keeps values by keys. Its zero value keeps nothing; it may be used by many at the same time.
//
// The values are in two generations. What is used of the older one moves to the younger one; when that is full, the
// older one is forgotten and the younger one becomes it. So what is in use stays, at the cost of a map and no list:
//
//	len(young) ≤ Size, len(old) ≤ Size
type Cache[V any] struct {
	Size int
	Life time.Duration // how long a value is kept; 0: as long as there is room

	mu         sync.RWMutex
	young, old map[Key]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time // zero: for ever
}

// Get is the value of a key, if it is still kept.
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

// Set keeps a value.
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
