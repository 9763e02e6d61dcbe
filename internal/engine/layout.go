package engine

import (
	"sync"
	"sync/atomic"

	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Layout is the engine's part of the sidecar of a stored version: what is known about its bytes as JSON. The store
// keeps it and does not look into it.
type Layout struct {
	object.Places // offsets into Data

	// Encoded has forms of the version other than Data, kept by whoever encoded them (package wire), who also decides
	// which slot is for what and when a slot is emptied.
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

// origin is the value that a version was printed from.
type origin struct {
	obj     object.Value
	settled *schema.Type // whose Decode and Settle have given obj its form; nil: nobody's
}

// origins keeps the values that the latest versions were printed from, so that an object that is written again and
// again is not parsed each time. An origin hangs at its version (Layout.origin), so that to look it up is one atomic
// load and no map has to be kept in step with the store. The ring here has the versions that have one, the oldest
// first, so that there are never too many:
//
//	count ≤ keptOrigins ∧ bytes = Σ kept[i].bytes ≤ maxOriginBytes, but for one version that alone is longer
//
// An origin must be equal to what parsing gives, which object.AppendStored says (not for floats, nor for strings that
// are no Unicode) and origin.check asserts.
type origins struct {
	mu    sync.Mutex
	kept  [keptOrigins]originOf // a ring
	first int                   // the oldest
	count int
	bytes int
}

// originOf is a version that has an origin.
type originOf struct {
	layout *Layout
	bytes  int // of its data
}

// An object takes about four times the memory of its text, so this is 4 MiB at the most.
const (
	keptOrigins    = 128
	maxOriginBytes = 1 << 20
)

// keep gives a new version its origin, and takes those of the oldest versions away while there are too many.
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

// LayoutOf is the layout of a stored object. Every sidecar is made by this package, so each has one.
func LayoutOf(o *Object) *Layout { return o.Sidecar.Extra.(*Layout) }

// NewSidecar is a sidecar of which only the layout is known. Both are one allocation.
func NewSidecar(at object.Places) *store.Sidecar {
	both := &struct {
		store.Sidecar
		Layout
	}{Layout: Layout{Places: at}}
	both.Sidecar.Extra = &both.Layout
	return &both.Sidecar
}

// unreadableSidecar is the sidecar of bytes that are no object.
func unreadableSidecar(why error) *store.Sidecar {
	s := NewSidecar(object.Places{})
	s.Unreadable = why
	return s
}
