// Package tokencache caches the results of verifying bearer tokens, because most requests come with tokens that were
// verified before.
//
// Keys are hashes, for two reasons: the cache holds no token that a memory dump would reveal, and the time of a
// lookup depends on the hash and not on how many bytes of a guessed token are right.
package tokencache

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// DefaultSize is the size of a generation of a [Cache] that does not set one.
const DefaultSize = 4096

// Key is the hash of a token and of the audiences that it was verified for.
type Key [sha256.Size]byte

// KeyOf returns the key of a token and audiences. The hashed text can be parsed in only one way, from its end: the
// number of audiences, the length of each, their texts, and the token. Otherwise a client with a token for one audience
// could make a text that has the same key without audiences, and be authenticated with the cached result.
func KeyOf(token string, audiences []string) Key {
	var length [8]byte
	if len(audiences) == 0 && len(token) <= 4096 { // the usual case, without allocation
		var stack [4096 + len(length)]byte
		return sha256.Sum256(stack[:copy(stack[:], token)+len(length)])
	}
	h := sha256.New()
	h.Write([]byte(token))
	for _, a := range audiences {
		h.Write([]byte(a))
	}
	for _, a := range audiences {
		binary.BigEndian.PutUint64(length[:], uint64(len(a)))
		h.Write(length[:])
	}
	binary.BigEndian.PutUint64(length[:], uint64(len(audiences)))
	h.Write(length[:])
	return Key(h.Sum(nil))
}

// Cache keeps values by keys. A nil *Cache keeps nothing. It may be used concurrently; Size and Life are set before.
//
// Problem: strangers choose the tokens that they send, so the cache must be bounded, and a flood of new tokens must
// not evict those in use for long. A list in the order of use would need a lock for writing at every lookup.
//
// The values are in two generations. A value in the old generation that is used moves to the young one. When the young
// one is full it becomes the old one, and the previous old one is dropped. A value is dropped only if it was not used
// while a whole generation filled.
//
//	len(young) ≤ Size, len(old) ≤ Size
type Cache[V any] struct {
	Size int           // 0: DefaultSize
	Life time.Duration // how long a value is kept; 0: until it is evicted

	mu         sync.RWMutex // guards young and old
	young, old map[Key]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time // zero: no end
}

// Get returns the value of a key, unless its Life is over at now.
func (c *Cache[V]) Get(key Key, now time.Time) (V, bool) {
	var none V
	if c == nil {
		return none, false
	}
	c.mu.RLock()
	e, young := c.young[key]
	old := false
	if !young {
		e, old = c.old[key]
	}
	c.mu.RUnlock()
	switch {
	case !young && !old, !e.until.IsZero() && !now.Before(e.until):
		return none, false
	case old:
		c.set(key, e)
	}
	return e.value, true
}

// Set sets the value of a key; its Life begins now.
func (c *Cache[V]) Set(key Key, value V, now time.Time) {
	if c == nil {
		return
	}
	e := entry[V]{value: value}
	if c.Life > 0 {
		e.until = now.Add(c.Life)
	}
	c.set(key, e)
}

func (c *Cache[V]) set(key Key, e entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= cmp.Or(c.Size, DefaultSize) {
		c.old, c.young = c.young, nil
	}
	if c.young == nil {
		c.young = map[Key]entry[V]{}
	}
	c.young[key] = e
}
