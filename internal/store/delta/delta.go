// Package delta stores a text as what differs from another one, its base.
//
// The problem: thousands of objects are made from one template, and each of them keeps all bytes of it. Compression
// finds what they have in common, too, but every read would pay for it: unpacking takes longer than all else that a
// list does with an object. A delta is unpacked by a few copies, of a hundred bytes and more, at the speed of memory.
//
// A delta is its text's length and then pieces, until the text is complete: bytes of its own, and bytes of the base.
//
//	length, { n, n bytes, m, offset in the base }      all numbers unsigned varints; m is 0 in the last piece at most
//
// To find the pieces, the base is cut into windows of eight bytes, and a table has for each hash of a window where it
// is. The text is searched byte by byte for windows of the base; where one is found, the piece is extended to both
// sides as far as both texts agree. So every common piece of 15 bytes is found unless its windows are somewhere else in
// the base, too, and no common piece of less than 8. Most differences are names, UIDs and times, of which many are as
// long in the base: so after a piece the base is compared first where the text would go on if nothing was longer or
// shorter, without the table.
package delta

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	// MaxLength is that of the longest text and base.
	MaxLength = 32 << 10

	window    = 8
	tableBits = 12
	// shortest is the length of a piece of the base below which it saves nothing.
	shortest = 12
)

// table has where a window of the base is, in windows and counted from 1, by hash; 0: nowhere. It is large enough for
// the windows of the longest base.
type table [1 << tableBits]uint16

// hash is that of a window.
func hash(w uint64) uint64 { return w * 0x9E3779B97F4A7C15 >> (64 - tableBits) }

// Append appends the delta of a text to dst. ok is false if it would be longer than limit, or one of the texts is
// longer than MaxLength; then dst is returned as it was, though bytes behind its end may have been written.
func Append(dst, base, text []byte, limit int) (delta []byte, ok bool) {
	if len(base) > MaxLength || len(text) > MaxLength {
		return dst, false
	}
	var windows table
	// The last is the first one, so that of equal windows the table has the first: behind it most is to come.
	for at := len(base)/window*window - window; at >= 0; at -= window {
		windows[hash(binary.LittleEndian.Uint64(base[at:]))] = uint16(at/window + 1)
	}
	begin := len(dst)
	delta = binary.AppendUvarint(dst, uint64(len(text)))
	// text[:done] is in delta, and the rest up to at is of its own; base[next] follows the last piece of the base.
	done, next := 0, 0
	for at := 0; at+window <= len(text); {
		w := binary.LittleEndian.Uint64(text[at:])
		found := next + at - done
		if found+window > len(base) || binary.LittleEndian.Uint64(base[found:]) != w {
			found = (int(windows[hash(w)]) - 1) * window
			if found < 0 || binary.LittleEndian.Uint64(base[found:]) != w {
				at++
				continue
			}
		}
		back := CommonSuffix(base[:found], text[done:at])
		length := back + CommonPrefix(base[found:], text[at:])
		if length < shortest {
			at++
			continue
		}
		delta = appendPiece(delta, text[done:at-back], length, found-back)
		done = at - back + length
		at, next = done, found-back+length
		if len(delta)-begin > limit {
			return dst, false
		}
	}
	if done < len(text) {
		delta = appendPiece(delta, text[done:], 0, 0)
	}
	if len(delta)-begin > limit {
		return dst, false
	}
	return delta, true
}

// appendPiece appends bytes of the text's own, and how many bytes of the base follow, from where on.
func appendPiece(delta, own []byte, length, offset int) []byte {
	delta = binary.AppendUvarint(delta, uint64(len(own)))
	delta = append(delta, own...)
	delta = binary.AppendUvarint(delta, uint64(length))
	if length > 0 {
		delta = binary.AppendUvarint(delta, uint64(offset))
	}
	return delta
}

// CommonPrefix is the number of bytes with which a and b begin alike. It compares eight bytes at a time: the first
// difference is where the XOR of two words has its first set bit. Words are read as little-endian, so the first byte of
// a prefix is in the lowest bits, and the last byte of a suffix (CommonSuffix) in the highest ones.
func CommonPrefix(a, b []byte) int {
	n, most := 0, min(len(a), len(b))
	for ; n+8 <= most; n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// CommonSuffix is the number of bytes with which a and b end alike.
func CommonSuffix(a, b []byte) int {
	n, most := 0, min(len(a), len(b))
	for ; n+8 <= most; n += 8 {
		if x := binary.LittleEndian.Uint64(a[len(a)-n-8:]) ^ binary.LittleEndian.Uint64(b[len(b)-n-8:]); x != 0 {
			return n + bits.LeadingZeros64(x)/8
		}
	}
	for n < most && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// Len is the length of the text of a delta.
func Len(delta []byte) int {
	n, _ := binary.Uvarint(delta)
	return int(n)
}

// AppendRange appends a part of the text of a delta to dst, from one offset to another, which is at most Len. base is
// that of which the delta was made.
func AppendRange(dst, base, delta []byte, from, to int) []byte {
	number := func() int {
		n, size := binary.Uvarint(delta)
		delta = delta[size:]
		return int(n)
	}
	number()
	// The next piece is text[at:].
	for at := 0; at < to; {
		n := number()
		dst = appendPart(dst, delta[:n], from-at, to-at)
		at, delta = at+n, delta[n:]
		m := number()
		if m == 0 {
			break
		}
		offset := number()
		dst = appendPart(dst, base[offset:offset+m], from-at, to-at)
		at += m
	}
	return dst
}

// Equal says whether the text of a delta is this one, without putting it together: it compares piece by piece, up to
// the first difference.
func Equal(base, delta, text []byte) bool {
	ok := true
	number := func() int {
		n, size := binary.Uvarint(delta)
		delta = delta[size:]
		return int(n)
	}
	piece := func(p []byte) {
		var rest []byte
		rest, ok = bytes.CutPrefix(text, p)
		text = rest
	}
	if number() != len(text) {
		return false
	}
	for ok && len(text) > 0 {
		n := number()
		piece(delta[:n])
		if delta = delta[n:]; !ok || len(text) == 0 {
			break
		}
		m := number()
		offset := number()
		piece(base[offset : offset+m])
	}
	return ok
}

// appendPart appends the part of a piece between two offsets, which may be outside of it.
func appendPart(dst, piece []byte, from, to int) []byte {
	from, to = max(from, 0), min(to, len(piece))
	if from >= to {
		return dst
	}
	return append(dst, piece[from:to]...)
}
