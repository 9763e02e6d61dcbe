package object

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// Locate finds, in a stored object, the offset at which it goes on behind its leading apiVersion and kind (item: '{' and
// the bytes from there on are the object without its type), and the offset at which resourceVersion belongs (splice).
// ok is false for bytes that are no canonical object with a UID.
func Locate(data []byte) (item, splice int, ok bool) {
	if len(data) == 0 || data[0] != '{' {
		return 0, 0, false
	}
	for pos := 1; pos < len(data) && data[pos] == '"'; {
		key, value := keyAt(data, pos)
		if value >= len(data) {
			return 0, 0, false
		}
		if item == 0 && key != "apiVersion" && key != "kind" {
			item = pos
		}
		if key == "metadata" {
			splice = spliceIn(data, value)
			return item, splice, splice > 0
		}
		if pos = skip(data, value) + 1; pos > len(data) || data[pos-1] != ',' {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// spliceIn finds the first key behind resourceVersion in the metadata that starts at pos; 0 if there is none.
func spliceIn(data []byte, pos int) int {
	if data[pos] != '{' {
		return 0
	}
	for pos++; pos < len(data) && data[pos] == '"'; pos++ {
		key, value := keyAt(data, pos)
		if key > "resourceVersion" {
			return pos
		}
		if pos = skip(data, value); pos >= len(data) || data[pos] != ',' {
			return 0
		}
	}
	return 0
}

// keyAt reads the key at pos and returns the offset of its value.
func keyAt(data []byte, pos int) (string, int) {
	end := skipString(data, pos)
	if end > len(data) || end-pos < 2 {
		return "", len(data)
	}
	return string(data[pos+1 : end-1]), end + 1
}

// skip returns the offset behind the value at pos.
func skip(data []byte, pos int) int {
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

func skipString(data []byte, pos int) int {
	for pos++; pos < len(data); pos++ {
		switch data[pos] {
		case '\\':
			pos++
		case '"':
			return pos + 1
		}
	}
	return len(data)
}

// AppendVersioned writes stored bytes out with their resourceVersion spliced in.
func AppendVersioned(dst, data []byte, splice int, revision int64) []byte {
	dst = append(dst, data[:splice]...)
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendInt(dst, revision, 10)
	dst = append(dst, `",`...)
	return append(dst, data[splice:]...)
}

// Skip returns the offset behind the value at pos of canonical JSON.
func Skip(data []byte, pos int) int { return skip(data, pos) }

// AppendUnescaped appends what the inside of a string of canonical JSON says.
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
