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
// keeps it and does not look into it. All readers of the version share it, so what changes in it is atomic.
type Layout struct {
	object.Places // offsets into Data

	// Encoded has forms of the version other than Data. Package wire encodes them, chooses their slots, and empties
	// slots to bound the memory, so a slot may be empty at any time.
	Encoded [EncodedSlots]atomic.Pointer[Encoded]

	// origin is what Data was printed from, as long as Engine.recent keeps it; else nil.
	origin atomic.Pointer[origin]
}

// EncodedSlots is how many encoded forms of one version are kept.
const EncodedSlots = 2

// Encoded is a version as it was sent to a client.
type Encoded struct {
	Revision int64 // the resourceVersion in Bytes; 0: there is none in them
	By       any   // identifies the encoder, where the bytes depend on it (a Table's columns); nil: they do not
	Bytes    []byte
}

// origin is the value that a version was printed from.
type origin struct {
	obj object.Value
	// settled is the type whose Decode and Settle have given obj its form; nil if that is not known.
	settled *schema.Type
}

// origins keeps the values that the latest versions were printed from, so that an object that is written again and
// again (a Lease, the status of a node) is not parsed each time.
//
// The obvious way, a map from keys to values, has to be kept in step with the store: an entry has to go when the
// object changes, and a reader has to compare revisions. Instead an origin hangs at its version (Layout.origin), so
// to look it up is one atomic load, and it cannot be that of another version. The ring here has the versions that
// have an origin, the oldest first, so that there are never too many:
//
//	count ≤ keptOrigins ∧ bytes = Σ kept[i].bytes ≤ maxOriginBytes, except that a single longer version is kept
//
// An origin may be taken away at any time, so readers load the pointer once and parse if it is nil. Versions of
// writes that were refused, or of dry runs, take their place in the ring, too; they leave it like all others.
//
// An origin must be equal to what parsing gives, which object.AppendStored says (not for floats, nor for strings that
// are no Unicode) and origin.check asserts.
type origins struct {
	mu sync.Mutex
	// A ring: the oldest of count elements is at first.
	kept  [keptOrigins]originOf
	first int
	count int
	bytes int
}

// originOf is a version that has an origin, and the length of its data.
type originOf struct {
	layout *Layout
	bytes  int
}

// The bounds of origins, in versions and in bytes of their text. A parsed object takes about four times the memory of
// its text, so this is 4 MiB at most.
const (
	keptOrigins    = 128
	maxOriginBytes = 1 << 20
)

// keep gives a new version its origin, and takes those of the oldest versions away while there are too many. Nobody
// but the caller knows the version yet, so its origin may be set before the lock is taken.
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

// NewSidecar is a sidecar of which only the layout is known. Both are one allocation: there is one pair for each
// version in memory.
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
