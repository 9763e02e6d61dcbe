package wire

import (
	"plinth/internal/engine"
	"plinth/object"
)

// Parts is a text that is about to be written to a client. Its short pieces are copied into a buffer, and its long ones
// are referred to.
//
// A write waits for its client. A client can open thousands of watches of one large object and read none of them; then
// thousands of writes wait, each for as long as a slow client may take. If each had a copy of the text, that client
// would decide about the memory of the server:
//
//	copies:  Σ Len()      over the writes that wait
//	parts:   Σ Private()  over the writes that wait, and each version that they send once
//
// The long pieces are bytes of stored versions, and messages that the cache or the history keeps: all readers share
// them, and nothing changes them. Pieces of a text that no other client gets are private, even if they are not copied.
type Parts struct {
	Buf []byte // the short pieces, one after the other

	long    []longPiece
	length  int // of the long pieces
	private int // of those long pieces that are not shared

	read, next int // Next has returned Buf[:read], and the long pieces before next
}

// longPiece is a piece that was not copied. It follows Buf[:at].
type longPiece struct {
	at    int
	bytes []byte
}

const (
	// longObject is the length from which on an object is sent in parts. Copying a shorter one costs less than the
	// additional writes.
	longObject = 32 << 10
	// copied is the length up to which a piece is copied.
	copied = 4 << 10
	// pieceSize bounds one write: net/http copies what an HTTP/2 client lets it send at once into a buffer of the
	// connection, and keeps that.
	pieceSize = 64 << 10
)

// Long says whether an object is long enough to be sent in parts.
func Long(o *engine.Object) bool { return o.Len() > longObject }

// Len is the length of the text.
func (p *Parts) Len() int { return len(p.Buf) + p.length }

// Private is how many bytes the text keeps in memory that no other reader shares.
func (p *Parts) Private() int { return cap(p.Buf) + p.private }

// Reset empties the text, of which the buffer remains.
func (p *Parts) Reset() {
	clear(p.long)
	*p = Parts{Buf: p.Buf[:0], long: p.long[:0]}
}

// Next returns the next piece to write; none at the end of the text.
func (p *Parts) Next() []byte {
	if p.next == len(p.long) {
		rest := p.Buf[p.read:]
		p.read = len(p.Buf)
		return rest
	}
	piece := &p.long[p.next]
	if p.read < piece.at {
		short := p.Buf[p.read:piece.at]
		p.read = piece.at
		return short
	}
	if len(piece.bytes) > pieceSize {
		first := piece.bytes[:pieceSize]
		piece.bytes = piece.bytes[pieceSize:]
		return first
	}
	p.next++
	return piece.bytes
}

// add appends a piece that nothing changes from now on. shared says that other readers have the same bytes.
func (p *Parts) add(b []byte, shared bool) {
	if len(b) <= copied {
		p.Buf = append(p.Buf, b...)
		return
	}
	p.long = append(p.long, longPiece{len(p.Buf), b})
	p.length += len(b)
	if !shared {
		p.private += len(b)
	}
}

// Object is AppendObject in parts. The bytes of the object count as shared; if they are not, the caller knows
// (engine.Result.Made).
func (p *Parts) Object(o *engine.Object, lean bool) { p.part(o, 0, lean) }

// part is appendPart in parts, from an offset to the end.
func (p *Parts) part(o *engine.Object, from int, lean bool) {
	at := engine.LayoutOf(o)
	if lean && at.ManagedEnd > 0 {
		p.add(o.Data()[from:at.Managed], true)
		from = at.ManagedEnd
	}
	if o.Revision != 0 { // a dry run has none
		p.add(o.Data()[from:at.Splice], true)
		p.Buf = object.AppendVersioned(p.Buf, nil, 0, o.Revision)
		from = at.Splice
	}
	p.add(o.Data()[from:], true)
}
