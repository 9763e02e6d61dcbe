package object

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"plinth/internal/invariants"
)

// leading are the members that come first at the top level of an object. So readers that need only the beginning of
// stored bytes (Locate, the index of owners) find type and metadata there, whatever else the object contains.
var leading = [...]string{"apiVersion", "kind", "metadata"}

// AppendJSON prints a value, members in byte order. It appends to dst and allocates nothing else: the members of a map
// are already sorted, so it needs no scratch buffer.
func AppendJSON(dst []byte, v Value) []byte {
	var p printer
	return p.value(dst, v)
}

// AppendObject prints an object in canonical form: AppendJSON, but apiVersion, kind and metadata first.
func AppendObject(dst []byte, v Value) []byte {
	var p printer
	return p.object(dst, v)
}

// AppendLocated is AppendObject, with the places that Locate finds in what is appended. They are zero if it is no
// stored object.
func AppendLocated(dst []byte, v Value) (text []byte, at Offsets) {
	var p printer
	text = p.object(dst, v)
	return text, p.located(text[len(dst):])
}

// AppendStored is AppendLocated for a caller that keeps the value together with its text. exact says that a reader of
// the text gets the same value:
//
//	exact ⇒ ParseJSON(text) = v
//
// It is false if there is a Float, which is read as a Number or an Int, or a string that is not UTF-8.
func AppendStored(dst []byte, v Value) (text []byte, at Offsets, exact bool) {
	var p printer
	text = p.object(dst, v)
	if invariants.Enabled {
		checkExact(text[len(dst):], v, !p.changed)
	}
	return text, p.located(text[len(dst):]), !p.changed
}

// printer prints values. It is passed by pointer, and does not escape to the heap.
type printer struct {
	changed bool    // parsing the text gives another value
	at      Offsets // the places of the object, as far as it is printed
}

// located is where the places of the printed object are.
func (p *printer) located(text []byte) Offsets {
	at := p.at
	if at.Splice == 0 {
		at = Offsets{}
	}
	if invariants.Enabled {
		found, ok := locate(text)
		mustHold(ok == (at.Splice > 0) && (!ok || found == at), "object: an object is printed with places that are not its own")
	}
	return at
}

// value appends a value with its members in byte order.
func (p *printer) value(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(dst, "null"...)
	case Bool:
		return strconv.AppendBool(dst, v.n == 1)
	case Int:
		return strconv.AppendInt(dst, int64(v.n), 10)
	case Float:
		p.changed = true
		return appendFloat(dst, math.Float64frombits(v.n))
	case Number:
		return append(dst, v.text()...)
	case String:
		return p.text(dst, v.text())
	case List:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.value(dst, item)
		}
		return append(dst, ']')
	default:
		dst = append(dst, '{')
		for i, m := range v.Members() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.member(dst, m)
		}
		return append(dst, '}')
	}
}

// object appends a value in canonical form: first the leading members, and then the others. Below the top level,
// metadata is a member like any other.
func (p *printer) object(dst []byte, v Value) []byte {
	if v.kind != Map {
		return p.value(dst, v)
	}
	dst = append(dst, '{')
	start := len(dst)
	for _, key := range leading {
		value, ok := v.Get(key)
		if !ok {
			continue
		}
		dst = appendComma(dst, start)
		if key == "metadata" && value.kind == Map {
			dst = p.metadata(dst, start-1, value)
		} else {
			dst = p.member(dst, Member{Key: key, Value: value})
		}
	}
	for _, m := range v.Members() {
		if m.Key != leading[0] && m.Key != leading[1] && m.Key != leading[2] {
			dst = appendComma(dst, start)
			dst = p.member(dst, m)
		}
	}
	return append(dst, '}')
}

// metadata appends the metadata of the object that begins at start, and notes their places (Locate).
func (p *printer) metadata(dst []byte, start int, v Value) []byte {
	p.at.Item = len(dst) - start
	dst = append(dst, `"metadata":{`...)
	managed := 0
	for i, m := range v.Members() {
		if i > 0 {
			dst = append(dst, ',')
		}
		from := len(dst)
		dst = p.text(dst, m.Key)
		if p.at.Splice == 0 {
			if managed > 0 {
				p.at.Managed, p.at.ManagedEnd, managed = managed, from-start, 0
			}
			switch key := dst[from+1 : len(dst)-1]; { // as it is printed: Locate knows no escapes
			case string(key) > "resourceVersion":
				p.at.Splice = from - start
			case string(key) == "managedFields":
				managed = from - start
			}
		}
		dst = append(dst, ':')
		dst = p.value(dst, m.Value)
	}
	return append(dst, '}')
}

// appendComma appends a comma unless it would be the first byte behind start.
func appendComma(dst []byte, start int) []byte {
	if len(dst) == start {
		return dst
	}
	return append(dst, ',')
}

func (p *printer) member(dst []byte, m Member) []byte {
	dst = p.text(dst, m.Key)
	dst = append(dst, ':')
	return p.value(dst, m.Value)
}

// appendFloat prints as encoding/json does (ECMAScript's form): 1e+21 and 0.000001, but 1e-7 and not 1e-07. Numbers
// that JSON cannot express become null. 1.0 is printed as 1, which is read as an Int: see AppendStored.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// plain holds the ASCII characters that are printed without an escape. Like encoding/json, and therefore like the
// reference, the printer also escapes <, > and &.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// AppendString prints a JSON string, escaped as encoding/json does. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	var p printer
	return p.text(dst, s)
}

// text appends a string in quotes. Runs of bytes that need no escape, usually the whole string, are copied at once.
func (p *printer) text(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := afterPrintable(s, 0); i < len(s); i = afterPrintable(s, i) {
		c := s[i]
		if c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\ufffd`...)
			p.changed = true
			start = i + size
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[r&0xf])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// afterPrintable returns the offset of the first byte from pos on that needs an escape or is not ASCII. It tests eight
// bytes at a time, as afterPlain does. < and > differ in one bit, which is set in all bytes before the comparison, so
// that one term finds both.
func afterPrintable(s string, pos int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; pos+8 <= len(s); pos += 8 {
		w := eight(s[pos : pos+8])
		quote, backslash, and, angle := w^('"'*ones), w^('\\'*ones), w^('&'*ones), (w|('<'^'>')*ones)^('>'*ones)
		found := (w | (w - 0x20*ones) | (quote - ones) | (backslash - ones) | (and - ones) | (angle - ones)) & tops
		if found != 0 {
			return pos + bits.TrailingZeros64(found)/8
		}
	}
	for pos < len(s) && s[pos] < utf8.RuneSelf && plain[s[pos]] {
		pos++
	}
	return pos
}

// appendEscape appends the escape of an ASCII character, in its short form if JSON has one.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, `\u00`+string(hexDigits[c>>4])+string(hexDigits[c&0xf])...)
}
