package object

import (
	"bytes"
	"slices"
	"strconv"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

	"plinth/internal/invariants"
)

// This file cuts stored objects into parts without parsing them. A GET of a stored object is two copies with the
// resourceVersion between them; a list item omits the type; most clients that read only metadata omit managedFields,
// which are half of many objects. All functions work on canonical bytes that this package has printed, where the order
// of keys is known and there is no white space.

// Offsets are offsets into a stored object, at which it is cut to print it with its resourceVersion, without its type,
// or without its managedFields. Invariant: 0 < Item < Managed < ManagedEnd ≤ Splice < len, each of them at the quote
// of a key; or Managed = ManagedEnd = 0. In
//
//	{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[…],"name":"a","uid":"u"},"spec":{…}}
//
// Item is at "metadata", Managed at "managedFields", ManagedEnd at "name" and Splice at "uid".
type Offsets struct {
	// Item is the first key that is neither apiVersion nor kind: '{' and the bytes from here on are the object without
	// its type.
	Item int
	// Splice is where resourceVersion is inserted: the first key of the metadata that is greater.
	Splice int
	// Managed is the key managedFields, and ManagedEnd is behind its value and comma.
	Managed, ManagedEnd int
}

// Locate finds the places of a stored object. ok is false for bytes that are not a canonical object with a UID.
//
// It reads the object only up to the Splice, without parsing: in canonical form, metadata is at most the third member,
// and every stored object has a UID, whose key follows that of resourceVersion. So a read needs no parse, whatever the
// size of the object. It skips labels, annotations and managedFields by counting brackets.
func Locate(data []byte) (at Offsets, ok bool) {
	at, ok = locate(data)
	if invariants.Enabled && ok {
		at.check(data)
	}
	return at, ok
}

// locate is Locate without its check.
func locate(data []byte) (at Offsets, ok bool) {
	if len(data) == 0 || data[0] != '{' {
		return at, false
	}
	for pos := 1; pos < len(data) && data[pos] == '"'; {
		key, value := keyAt(data, pos)
		if value >= len(data) {
			return at, false
		}
		if at.Item == 0 && key != "apiVersion" && key != "kind" {
			at.Item = pos
		}
		if key == "metadata" {
			return at, at.inMetadata(data, value)
		}
		if pos = skip(data, value) + 1; pos > len(data) || data[pos-1] != ',' {
			return at, false
		}
	}
	return at, false
}

// inMetadata finds managedFields and the first key behind resourceVersion in the metadata that starts at pos. It is
// false if there is no such key.
func (at *Offsets) inMetadata(data []byte, pos int) bool {
	if data[pos] != '{' {
		return false
	}
	for pos++; pos < len(data) && data[pos] == '"'; pos++ {
		key, value := keyAt(data, pos)
		if key > "resourceVersion" {
			at.Splice = pos
			return true
		}
		start := pos
		if pos = skip(data, value); pos >= len(data) || data[pos] != ',' {
			return false
		}
		if key == "managedFields" {
			at.Managed, at.ManagedEnd = start, pos+1
		}
	}
	return false
}

// keyAt reads the key at pos and returns the offset of its value. If the data ends earlier, the offset is len(data).
// The keys that callers search have no escapes, so the text between the quotes is compared unchanged. The key is a part
// of data.
func keyAt(data []byte, pos int) (string, int) {
	end := skipString(data, pos)
	if invariants.Enabled {
		bytesPassed.Add(int64(end - pos))
	}
	if end >= len(data) || end-pos < 2 {
		return "", len(data)
	}
	key := data[pos+1 : end-1]
	return unsafe.String(unsafe.SliceData(key), len(key)), end + 1
}

// bytesPassed counts the bytes that skip and keyAt have passed, if invariants are on. Tests check with it that a search
// is linear, which measurements of time cannot show reliably.
var bytesPassed atomic.Int64

// skip returns the offset behind the value at pos. At the end of a container, where there is no value, it returns pos.
func skip(data []byte, pos int) int {
	end := skipValue(data, pos)
	if invariants.Enabled {
		mustHold(pos <= end && end <= len(data), "object: a value ends outside of the input")
		bytesPassed.Add(int64(end - pos))
	}
	return end
}

// skipValue counts brackets, but not those in strings. It does not validate the text, which is canonical or has been
// parsed before.
func skipValue(data []byte, pos int) int {
	for depth := 0; pos < len(data); {
		switch data[pos] {
		case '"':
			pos = skipString(data, pos)
		case '{', '[':
			depth++
			pos++
			continue
		case '}', ']':
			if depth == 0 {
				return pos
			}
			depth--
			pos++
		case ',':
			if depth == 0 {
				return pos
			}
			pos++
			continue
		default:
			pos++
			continue
		}
		if depth == 0 {
			return pos
		}
	}
	return len(data)
}

// skipString returns the offset behind the string whose quote is at pos. It passes a backslash together with the next
// character, so that the quote of \" does not end the string; the four digits of \u contain no quote.
func skipString(data []byte, pos int) int {
	for pos++; ; {
		switch pos = special(data, pos); {
		case pos >= len(data):
			return len(data)
		case data[pos] == '"':
			return pos + 1
		case data[pos] == '\\':
			pos += 2
		default: // a control character
			pos++
		}
	}
}

// AppendVersioned copies stored bytes with their resourceVersion inserted: revision 7 at the Splice of the object above
// gives …"name":"a","resourceVersion":"7","uid":"u"…, which is canonical again.
func AppendVersioned(dst, data []byte, splice int, revision int64) []byte {
	dst = append(dst, data[:splice]...)
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendInt(dst, revision, 10)
	dst = append(dst, `",`...)
	return append(dst, data[splice:]...)
}

// Skip returns the offset behind the value at pos of canonical JSON.
func Skip(data []byte, pos int) int { return skip(data, pos) }

// AppendOutline appends canonical JSON with null as the value of every member, at any depth, that has one of these
// keys. It takes one pass and no parse, for long objects of which a small part is needed: a definition without its
// schemas is 1 % of its size. Keys with escapes do not match.
func AppendOutline(dst, data []byte, without ...string) []byte {
	from := 0
	for pos := 0; pos < len(data); {
		if data[pos] != '"' {
			pos++
			continue
		}
		end := skipString(data, pos)
		// In canonical JSON, a colon follows a key directly, and no other string.
		if end < len(data) && data[end] == ':' && slices.Contains(without, string(data[pos+1:end-1])) {
			dst = append(append(dst, data[from:end+1]...), "null"...)
			end = skip(data, end+1)
			from = end
		}
		pos = end
	}
	return append(dst, data[from:]...)
}

// MemberText returns the text of the value of a member of a canonical object, as a part of data, or nil if there is no
// such member. It searches only the top level.
func MemberText(data []byte, key string) []byte {
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	for pos := 1; pos < len(data) && data[pos] == '"'; pos++ {
		end := skipString(data, pos)
		if end >= len(data) {
			return nil
		}
		found := string(data[pos+1:end-1]) == key
		if pos = skip(data, end+1); found {
			return data[end+1 : pos]
		}
		if pos >= len(data) {
			return nil
		}
	}
	return nil
}

// ItemTexts returns the texts of the items of a canonical list, as parts of data; nil if data is not one. It takes one
// pass over the list, unlike a search for each item.
func ItemTexts(data []byte) [][]byte {
	if len(data) == 0 || data[0] != '[' {
		return nil
	}
	var items [][]byte
	for pos := 1; pos < len(data); {
		if data[pos] == ']' {
			return items
		}
		end := skip(data, pos)
		items = append(items, data[pos:end])
		if pos = end; pos < len(data) && data[pos] == ',' {
			pos++
		} else if pos < len(data) && data[pos] != ']' {
			return nil
		}
	}
	return nil // the list does not end
}

// AppendUnescaped appends the content of a canonical JSON string, given without its quotes.
func AppendUnescaped(dst, text []byte) []byte {
	for len(text) > 0 {
		plain := bytes.IndexByte(text, '\\')
		if plain < 0 || plain+1 == len(text) {
			return append(dst, text...)
		}
		dst = append(dst, text[:plain]...)
		c := text[plain+1]
		text = text[plain+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			if len(text) < 4 {
				return dst
			}
			r, err := strconv.ParseUint(string(text[:4]), 16, 16)
			if err != nil {
				r = utf8.RuneError
			}
			dst, text = utf8.AppendRune(dst, rune(r)), text[4:]
			continue
		}
		dst = append(dst, c)
	}
	return dst
}
