package engine

import (
	"sync/atomic"
	"weak"

	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Layout is the engine's part of the sidecar of a stored version: what is known of its bytes as JSON. The store keeps it
// and does not look into it.
type Layout struct {
	object.Places // offsets into Data

	// Forms are kept here by whoever writes the version out otherwise than as Data has it. The slots, and how long their
	// forms stay, are their business.
	Forms [FormSlots]atomic.Pointer[Form]

	// origin is what Data was printed from, if that is worth finding again. It may be nil after any garbage collection.
	origin weak.Pointer[origin]
}

// FormSlots is how many encoded forms of one version can be kept.
const FormSlots = 2

// Form is an encoded form of a version.
type Form struct {
	Revision int64 // as which it was written; 0 where the form does not tell
	By       any   // whose form it is, where there are several ways to write it; nil: anybody's
	Bytes    []byte
}

// origin is what a version was printed from.
type origin struct {
	obj     object.Value
	settled *schema.Type // whose Decode and Settle have given obj its form; nil: nobody's
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
