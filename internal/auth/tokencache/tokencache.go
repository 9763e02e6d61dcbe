// Package tokencache caches the results of verifying bearer tokens, because most requests come with tokens that were
// verified before.
//
// Keys are hashes, for two reasons: the cache holds no token that a memory dump would reveal, and the time of a
// lookup depends on the hash and not on how many bytes of a guessed token are right.
package tokencache

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"plinth/internal/recent"
)

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

// Cache keeps values by keys. A nil *Cache keeps nothing. It may be used concurrently; Life is set before. It is
// bounded, and forgets values that were not used lately: strangers choose the tokens that they send.
type Cache[V any] struct {
	Life time.Duration // how long a value is kept; 0: until it is evicted

	values recent.Cache[Key, entry[V]]
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
	e, ok := c.values.Get(key)
	if !ok || !e.until.IsZero() && !now.Before(e.until) {
		return none, false
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
	c.values.Set(key, e, 1)
}
