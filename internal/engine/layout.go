package engine

import (
	"sync"
	"sync/atomic"

	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Layout is the engine's part of the sidecar of a stored version: data about its bytes as JSON. The store keeps it and
// does not look into it. All readers of the version share it, so the fields that change are atomic.
type Layout struct {
	object.Offsets // offsets into Data

	// Encoded has other encodings of the version than Data. Package wire makes them, chooses their slots, and empties
	// slots to bound the memory, so a slot may become empty at any time.
	Encoded [EncodedSlots]atomic.Pointer[Encoded]

	// origin is the value from which Data was printed, as long as Engine.recent keeps it; else nil.
	origin atomic.Pointer[origin]
}

// EncodedSlots is how many encoded forms of one version are kept.
const EncodedSlots = 2

// Encoded is a version as it was sent to a client.
type Encoded struct {
	Revision int64 // the resourceVersion in Bytes; 0: they have none
	By       any   // identifies the encoder, where the bytes depend on it (a Table's columns); nil: they do not
	Bytes    []byte
}

// origin is the value from which the bytes of a version were printed.
type origin struct {
	obj object.Value
	// settled is the type whose Decode and Settle returned obj; nil if that is not known.
	settled *schema.Type
}

// origins keeps the values from which the latest versions were printed, so that an object that is written repeatedly (a
// Lease, the status of a node) is not parsed each time.
//
// A map from keys to values would have to be kept in step with the store: an entry has to be removed when the object
// changes, and a reader has to compare revisions. Instead a version points to its origin (Layout.origin), so a look-up
// is one atomic load, and the origin cannot be that of another version. The ring here has the versions that have an
// origin, the oldest first, so that their number is bounded:
//
//	count ≤ keptOrigins ∧ bytes = Σ kept[i].bytes ≤ maxOriginBytes, except that a single longer version is kept
//
// An origin may be removed at any time, so readers load the pointer once and parse if it is nil. Versions of writes
// that were refused, or of dry runs, are in the ring, too; they leave it like all others.
//
// An origin must be equal to the result of parsing Data. object.AppendStored says whether it is (not for floats, nor
// for strings that are not valid UTF-8), and origin.check asserts it.
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

// keep gives a new version its origin, and removes those of the oldest versions while there are too many. Only the
// caller has the version yet, so its origin may be set before the lock is taken.
func (c *origins) keep(v *store.Version, o *origin) {
	current := originOf{layout: LayoutOf(v), bytes: v.Len()}
	current.layout.origin.Store(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count > 0 && (c.count == keptOrigins || c.bytes+current.bytes > maxOriginBytes) {
		oldest := &c.kept[c.first]
		oldest.layout.origin.Store(nil)
		c.bytes -= oldest.bytes
		*oldest = originOf{}
		c.first = (c.first + 1) % keptOrigins
		c.count--
	}
	c.kept[(c.first+c.count)%keptOrigins] = current
	c.count++
	c.bytes += current.bytes
	if invariants.Enabled {
		c.assertBounds()
	}
}

// forget removes the origins of all versions, which outlive the engine if they are those of a plane that is let go.
func (c *origins) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.count > 0; c.count-- {
		oldest := &c.kept[c.first]
		oldest.layout.origin.Store(nil)
		c.bytes -= oldest.bytes
		*oldest = originOf{}
		c.first = (c.first + 1) % keptOrigins
	}
}

// LayoutOf is the layout of a stored object. Every sidecar is made by this package, so each has one.
func LayoutOf(o *Object) *Layout { return o.Sidecar.Extra.(*Layout) }

// NewSidecar is a sidecar with only a layout. Both are one allocation: there is one pair for each version in memory.
func NewSidecar(at object.Offsets) *store.Sidecar {
	both := &struct {
		store.Sidecar
		Layout
	}{Layout: Layout{Offsets: at}}
	both.Sidecar.Extra = &both.Layout
	return &both.Sidecar
}

// unreadableSidecar is the sidecar of bytes that are not an object.
func unreadableSidecar(why error) *store.Sidecar {
	s := NewSidecar(object.Offsets{})
	s.Unreadable = why
	return s
}
