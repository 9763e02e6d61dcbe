package wire

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"weak"

	"plinth/internal/engine"
	"plinth/internal/invariants"
)

// EncodedCache keeps versions of objects in the form in which they were sent, for the next client that requests the
// same form: protobuf messages and rows of Tables. It is safe for concurrent use; a nil cache is always empty.
//
// The encoded bytes are attached to the version itself (engine.Layout.Encoded), and the cache only counts them:
//
//	bytes = Σ entries[i].size
//	bytes ≤ limit, whenever mu is free
//	entries[i].size = len(the bytes put into the slot first) + entryOverhead (keepRow may replace them)
//
// Why not a map from (key, revision, media type) to bytes: it costs a lock and a hash per item of every list, and needs
// its own rule for when to drop a version. Here a look-up is one atomic load, and the garbage collector frees the bytes
// together with the version; entries hold their versions by weak pointers.
//
// Above the limit, random entries are dropped. The oldest would be the wrong ones: while a list that is larger than
// the limit is read again and again, the oldest entry is always the one that is needed next, and no look-up would
// ever succeed.
type EncodedCache struct {
	limit int64

	mu      sync.Mutex
	entries []entry
	bytes   int64
}

// entry is one filled slot of a version that may have been collected since.
type entry struct {
	of   weak.Pointer[engine.Layout]
	slot uint8
	size int32
}

// entryOverhead is the approximate memory of an entry in addition to its bytes.
const entryOverhead = 96

// NewEncodedCache is a cache of at most limit bytes.
func NewEncodedCache(limit int64) *EncodedCache { return &EncodedCache{limit: limit} }

// The slots of engine.Layout.Encoded.
const (
	slotMessage = iota // the object as a protobuf message
	slotRow            // its row in a Table
)

// encoded is the content of a slot of an object, or nil. Bytes that contain a revision are valid for that revision
// only: a removed object is sent with the revision of its removal, but shares the layout of its last version.
func encoded(o *engine.Object, slot int) []byte {
	if e := engine.LayoutOf(o).Encoded[slot].Load(); e != nil && e.Revision == o.Revision {
		return e.Bytes
	}
	return nil
}

// keep fills a slot. b must not be changed afterwards.
func (c *EncodedCache) keep(o *engine.Object, slot int, b []byte) {
	if c == nil || o.Revision == 0 {
		return
	}
	c.put(o, slot, &engine.Encoded{Revision: o.Revision, Bytes: b})
}

// encodedRow is the row of an object in the Tables of a resource, or nil. A row contains no revision.
func encodedRow(o *engine.Object, by *engine.Resource) []byte {
	if e := engine.LayoutOf(o).Encoded[slotRow].Load(); e != nil && e.By == by {
		return e.Bytes
	}
	return nil
}

// keepRow keeps a row. It replaces a kept row of a resource with other columns. The replacement is counted with the
// size of the old row: rows of one object are about equally long.
func (c *EncodedCache) keepRow(o *engine.Object, by *engine.Resource, b []byte) {
	if c == nil {
		return
	}
	e := &engine.Encoded{By: by, Bytes: b}
	if old := engine.LayoutOf(o).Encoded[slotRow].Load(); old != nil {
		engine.LayoutOf(o).Encoded[slotRow].CompareAndSwap(old, e)
		return
	}
	c.put(o, slotRow, e)
}

func (c *EncodedCache) put(o *engine.Object, slot int, e *engine.Encoded) {
	if !engine.LayoutOf(o).Encoded[slot].CompareAndSwap(nil, e) {
		return // another goroutine was faster, and has counted its bytes
	}
	size := int32(len(e.Bytes) + entryOverhead)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, entry{of: weak.Make(engine.LayoutOf(o)), slot: uint8(slot), size: size})
	c.bytes += int64(size)
	if c.bytes > c.limit {
		c.shrink()
	}
	if invariants.Enabled {
		c.check()
	}
}

// shrink drops the entries of collected versions, and then random ones until an eighth of the limit is free, so that
// a full cache does not shrink again at the next put.
func (c *EncodedCache) shrink() {
	for i := 0; i < len(c.entries); {
		if c.entries[i].of.Value() == nil {
			c.drop(i)
		} else {
			i++
		}
	}
	for c.bytes > c.limit-c.limit/8 && len(c.entries) > 0 {
		c.drop(rand.IntN(len(c.entries)))
	}
}

func (c *EncodedCache) drop(i int) {
	e := c.entries[i]
	if layout := e.of.Value(); layout != nil {
		layout.Encoded[e.slot].Store(nil)
	}
	c.bytes -= int64(e.size)
	last := len(c.entries) - 1
	c.entries[i] = c.entries[last]
	c.entries = c.entries[:last]
}

// check panics if the bytes are miscounted or above the limit.
func (c *EncodedCache) check() {
	sum := int64(0)
	for i := range c.entries {
		sum += int64(c.entries[i].size)
	}
	if sum != c.bytes || c.bytes > c.limit {
		panic(fmt.Sprintf("wire: the cache counts %d bytes of %d, limit %d", c.bytes, sum, c.limit))
	}
}
