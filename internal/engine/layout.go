package engine

import (
	"sync"
	"sync/atomic"

	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Layout is the engine's part of the sidecar of a stored version: what is known of its bytes as JSON. The store keeps it
// and does not look into it.
type Layout struct {
	object.Places // offsets into Data

	// Encoded has forms of the version other than Data, kept by whoever encoded them (package wire), who also decides which slot is for what and
	// when a slot is emptied.
	Encoded [EncodedSlots]atomic.Pointer[Encoded]

	// origin is what Data was printed from, as long as Engine.recent keeps it; else nil.
	origin atomic.Pointer[origin]
}

// EncodedSlots is how many encoded forms of one version are kept.
const EncodedSlots = 2

// Encoded is a version as it was sent to a client.
type Encoded struct {
	Revision int64 // as which it was written; 0 where the form does not tell
	By       any   // whose form it is, where there are several ways to write it; nil: anybody's
	Bytes    []byte
}

// origin is what a version was printed from.
type origin struct {
	obj     object.Value
	settled *schema.Type // whose Decode and Settle have given obj its form; nil: nobody's
}

// origins keeps what the versions that were written last were printed from, so that an object that is written again and again
// is not parsed each time. What is kept hangs at the version itself: to find it costs a load. Here stands which versions
// have some, the oldest first, to take it from them when there are too many.
//
//	count ≤ keptOrigins ∧ bytes = Σ kept[i].bytes ≤ maxOriginBytes, but for one version that is longer
type origins struct {
	mu    sync.Mutex
	kept  [keptOrigins]originOf // a ring
	first int                   // the oldest
	count int
	bytes int
}

// originOf is a version that has its origin.
type originOf struct {
	layout *Layout
	bytes  int // of its data
}

// An object takes about four times the memory of its text, so this is 4 MiB at the most.
const (
	keptOrigins    = 128
	maxOriginBytes = 1 << 20
)

// keep has a version that is new remember what it was printed from.
func (c *origins) keep(v *store.Version, o *origin) {
	is := originOf{layout: LayoutOf(v), bytes: len(v.Data)}
	is.layout.origin.Store(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count > 0 && (c.count == keptOrigins || c.bytes+is.bytes > maxOriginBytes) {
		oldest := &c.kept[c.first]
		oldest.layout.origin.Store(nil)
		c.bytes -= oldest.bytes
		*oldest = originOf{}
		c.first = (c.first + 1) % keptOrigins
		c.count--
	}
	c.kept[(c.first+c.count)%keptOrigins] = is
	c.count++
	c.bytes += is.bytes
	if invariants.Enabled {
		c.assertBounds()
	}
}

// LayoutOf is the layout of a stored object. The engine makes all sidecars, so each has one.
func LayoutOf(o *Object) *Layout { return o.Sidecar.Extra.(*Layout) }

// NewSidecar is the sidecar of bytes in which things are at these places, and of which nothing else is known. Sidecar and
// layout are one allocation.
func NewSidecar(at object.Places) *store.Sidecar {
	both := &struct {
		store.Sidecar
		Layout
	}{Layout: Layout{Places: at}}
	both.Sidecar.Extra = &both.Layout
	return &both.Sidecar
}

// unreadableSidecar is the sidecar of bytes that do not make an object.
func unreadableSidecar(why error) *store.Sidecar {
	s := NewSidecar(object.Places{})
	s.Unreadable = why
	return s
}
