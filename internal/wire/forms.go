package wire

import (
	"math/rand/v2"
	"sync"
	"weak"

	"plinth/internal/engine"
)

// Forms keeps encoded forms of stored versions for whoever writes them out next. A form hangs at the version itself: to
// look for one costs a load, and what becomes of a version that nobody holds any more becomes of its forms, too. What is
// counted here is how much all of them take. It is safe for concurrent use; a nil Forms keeps nothing.
//
// Above the limit some go, any of them: with a list that is larger than the limit the oldest would be the next one to be
// read, and nothing would ever be found.
type Forms struct {
	limit int64

	mu    sync.Mutex
	held  []held
	bytes int64 // of held
}

// held is one form of a version that may be there no longer.
type held struct {
	of   weak.Pointer[engine.Layout]
	slot uint8
	size int32
}

// formOverhead is about what a form takes beside its bytes.
const formOverhead = 96

// NewForms keeps forms of up to so many bytes.
func NewForms(limit int64) *Forms { return &Forms{limit: limit} }

// The slots: messages, and rows of Tables.
const (
	formProtobuf = iota
	formRow
)

// kept is the form of an object in a slot, or nil.
func kept(o *engine.Object, slot int) []byte {
	if form := engine.LayoutOf(o).Forms[slot].Load(); form != nil && form.Revision == o.Revision {
		return form.Bytes
	}
	return nil
}

// keep keeps a form, which nobody may change from here on.
func (f *Forms) keep(o *engine.Object, slot int, b []byte) {
	if f == nil || o.Revision == 0 {
		return
	}
	f.put(o, slot, &engine.Form{Revision: o.Revision, Bytes: b})
}

// keptRow is the row of an object in the Tables of a type, or nil. It does not tell of a revision.
func keptRow(o *engine.Object, by *engine.Resource) []byte {
	if form := engine.LayoutOf(o).Forms[formRow].Load(); form != nil && form.By == by {
		return form.Bytes
	}
	return nil
}

// keepRow keeps a row. One of a type that has had other columns goes.
func (f *Forms) keepRow(o *engine.Object, by *engine.Resource, b []byte) {
	if f == nil {
		return
	}
	form := &engine.Form{By: by, Bytes: b}
	if old := engine.LayoutOf(o).Forms[formRow].Load(); old != nil {
		engine.LayoutOf(o).Forms[formRow].CompareAndSwap(old, form) // about as long, so it counts as much
		return
	}
	f.put(o, formRow, form)
}

func (f *Forms) put(o *engine.Object, slot int, form *engine.Form) {
	if !engine.LayoutOf(o).Forms[slot].CompareAndSwap(nil, form) {
		return
	}
	b := form.Bytes
	size := int32(len(b) + formOverhead)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = append(f.held, held{of: weak.Make(engine.LayoutOf(o)), slot: uint8(slot), size: size})
	f.bytes += int64(size)
	if f.bytes > f.limit {
		f.shrink()
	}
}

// shrink drops what is there no longer, and then any, until there is some room again.
func (f *Forms) shrink() {
	for i := 0; i < len(f.held); {
		if f.held[i].of.Value() == nil {
			f.drop(i)
		} else {
			i++
		}
	}
	for f.bytes > f.limit-f.limit/8 && len(f.held) > 0 {
		f.drop(rand.IntN(len(f.held)))
	}
}

func (f *Forms) drop(i int) {
	h := f.held[i]
	if s := h.of.Value(); s != nil {
		s.Forms[h.slot].Store(nil)
	}
	f.bytes -= int64(h.size)
	last := len(f.held) - 1
	f.held[i] = f.held[last]
	f.held = f.held[:last]
}
