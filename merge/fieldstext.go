package merge

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"plinth/object"
)

// AppendFieldsText appends FieldsV1, given as canonical JSON, as the reference writes it where managedFields hold text,
// in protobuf and therefore in etcd: elements in the order of [Element.Compare], where canonical JSON has them in the
// order of their text, and no escapes but those that JSON requires. Elements that cannot be parsed are last.
//
//	canonical   {"k:{\"port\":443}":{},"k:{\"port\":80}":{}}
//	reference   {"k:{\"port\":80}":{},"k:{\"port\":443}":{}}
//
// Both are the same for nearly all sets, which are therefore copied without being parsed (inReferenceOrder).
func AppendFieldsText(dst, text []byte) []byte {
	if inReferenceOrder(text) {
		return append(dst, text...)
	}
	if ordered, ok := appendOrdered(dst, text, compareKeys); ok {
		return ordered
	}
	parsed, err := object.ParseJSON(bytes.Clone(text))
	if err != nil {
		return append(dst, text...)
	}
	return appendFields(dst, parsed.Value)
}

// appendFields appends one level of a set.
func appendFields(dst []byte, v object.Value) []byte {
	if v.Kind() != object.Map {
		return object.AppendJSON(dst, v)
	}
	all := slices.Clone(v.Members())
	slices.SortStableFunc(all, func(a, b object.Member) int { return compareParsed(a.Key, b.Key) })
	dst = append(dst, '{')
	for i := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendPlainText(dst, all[i].Key), ':')
		dst = appendFields(dst, all[i].Value)
	}
	return append(dst, '}')
}

// compareParsed compares two keys as the reference orders them.
func compareParsed(a, b string) int {
	x, _, noX := parseElement(a)
	y, _, noY := parseElement(b)
	switch {
	case a == ".", b == ".", noX != nil && noY != nil:
		return strings.Compare(a, b)
	case noX == nil && noY == nil:
		return x.Compare(y)
	case noX == nil:
		return -1
	}
	return 1
}

// appendPlainText appends a JSON string as jsoniter's WriteString does: of the characters that JSON allows, only the
// quote and the backslash are escaped.
func appendPlainText(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < ' ':
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&0xf])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// maxFieldsDepth is the depth up to which inReferenceOrder follows a set.
const maxFieldsDepth = 32

// inReferenceOrder says whether canonical FieldsV1 is known to be what the reference writes. It takes one pass, and
// says no where it is not sure.
//
// The keys of each level ascend as text, so that only neighbours of the same kind can be out of order, and only keys
// and values: names are compared as text by both. Escapes other than \" and \\, and positions, do not occur in sets
// that servers have made.
func inReferenceOrder(text []byte) bool {
	var last [maxFieldsDepth][]byte // by depth, the last key
	depth := 0
	for pos := 0; pos < len(text); pos++ {
		switch text[pos] {
		case '{':
			if depth++; depth == maxFieldsDepth {
				return false
			}
			last[depth] = nil
		case '}':
			if depth--; depth < 0 {
				return false
			}
		case ',', ':':
		case '"':
			start := pos + 1
			for pos++; pos < len(text) && text[pos] != '"'; pos++ {
				if text[pos] != '\\' {
					continue
				}
				if pos++; pos == len(text) || text[pos] != '"' && text[pos] != '\\' {
					return false
				}
			}
			if pos >= len(text) {
				return false
			}
			key := text[start:pos]
			if before := last[depth]; before != nil && !isName(key) && !isName(before) {
				if c, sure := compareQuickly(before, key); !sure || c >= 0 {
					return false
				}
			}
			last[depth] = key
		default:
			return false
		}
	}
	return true
}

// CanonicalFieldsText appends FieldsV1 as canonical JSON, given as the reference writes it; the reverse of
// AppendFieldsText. ok is false for text with other escapes or white space, which has to be parsed.
func CanonicalFieldsText(dst, text []byte) (_ []byte, ok bool) {
	return appendOrdered(dst, text, compareKeyTexts)
}

// orderer brings the elements of each level into another order, in one pass. A level is appended as it is, element by
// element, and its parts are exchanged at its end if they turn out not to be in order, which few levels are. Sorting
// them before they are appended would take a search for the end of each element, on each level around it.
type orderer struct {
	compare func(a, b []byte) int
	text    []byte
	pos     int
	out     []byte
	parts   []fieldsPart // of the open levels
	tmp     []byte       // scratch buffer
}

// fieldsPart is an element in orderer.out: its key is in quotes at start, and ends with keyEnd.
type fieldsPart struct{ start, keyEnd, end int }

var orderers = sync.Pool{New: func() any { return new(orderer) }}

// appendOrdered appends FieldsV1 with its elements in the order of compare. ok is false for text that has white space,
// or keys that are not plain.
func appendOrdered(dst, text []byte, compare func(a, b []byte) int) (_ []byte, ok bool) {
	o := orderers.Get().(*orderer)
	defer orderers.Put(o)
	o.compare, o.text, o.pos, o.out, o.parts = compare, text, 0, dst, o.parts[:0]
	ok = o.level(0) && o.pos == len(text)
	out := o.out
	if o.text, o.out = nil, nil; cap(o.tmp) > 64<<10 {
		o.tmp = nil
	}
	if !ok {
		return dst, false
	}
	return out, true
}

// next passes one character.
func (o *orderer) next(c byte) bool {
	if o.pos < len(o.text) && o.text[o.pos] == c {
		o.pos++
		return true
	}
	return false
}

// level appends one level and those below it.
func (o *orderer) level(depth int) bool {
	if depth == maxFieldsDepth || !o.next('{') {
		return false
	}
	o.out = append(o.out, '{')
	if o.next('}') {
		o.out = append(o.out, '}')
		return true
	}
	base, start, sorted := len(o.parts), len(o.out), true
	for {
		part := fieldsPart{start: len(o.out)}
		length := plainKeyLength(o.text[o.pos:])
		if length == 0 {
			return false
		}
		o.out = append(o.out, o.text[o.pos:o.pos+length]...)
		o.pos += length
		part.keyEnd = len(o.out)
		if !o.next(':') {
			return false
		}
		o.out = append(o.out, ':')
		if n := len(o.parts); n > base && sorted {
			sorted = o.compare(o.key(o.parts[n-1]), o.key(part)) < 0
		}
		if !o.level(depth + 1) {
			return false
		}
		part.end = len(o.out)
		o.parts = append(o.parts, part)
		if o.next('}') {
			break
		}
		if !o.next(',') {
			return false
		}
		o.out = append(o.out, ',')
	}
	if !sorted && !o.sort(o.parts[base:], start) {
		return false
	}
	o.parts = o.parts[:base]
	o.out = append(o.out, '}')
	return true
}

// key is the key of a part, without its quotes.
func (o *orderer) key(p fieldsPart) []byte { return o.out[p.start+1 : p.keyEnd-1] }

// sort exchanges the parts of the level that begins at start. It is false if there are two of one key.
func (o *orderer) sort(parts []fieldsPart, start int) bool {
	slices.SortStableFunc(parts, func(a, b fieldsPart) int { return o.compare(o.key(a), o.key(b)) })
	o.tmp = o.tmp[:0]
	for i, p := range parts {
		if i > 0 {
			if bytes.Equal(o.key(parts[i-1]), o.key(p)) {
				return false
			}
			o.tmp = append(o.tmp, ',')
		}
		o.tmp = append(o.tmp, o.out[p.start:p.end]...)
	}
	copy(o.out[start:], o.tmp)
	return true
}

// plainKeyLength is the length of the key at the beginning of text, with its quotes, if canonical JSON and the
// reference write it in the same way; else 0.
func plainKeyLength(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c < ' ', c >= utf8.RuneSelf-1, c == '<', c == '>', c == '&':
			return 0
		case c == '\\':
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return 0
			}
		}
	}
	return 0
}

// compareKeyTexts compares plain keys, given with their escapes, as canonical JSON orders them: without the escapes.
func compareKeyTexts(a, b []byte) int {
	at, escaped := 0, false
	for at < len(a) && at < len(b) && a[at] == b[at] {
		escaped = a[at] == '\\' && !escaped
		at++
	}
	if at == len(a) || at == len(b) {
		return cmp.Compare(len(a), len(b))
	}
	x, y := a[at], b[at]
	if !escaped && x == '\\' {
		x = a[at+1]
	}
	if !escaped && y == '\\' {
		y = b[at+1]
	}
	return cmp.Compare(x, y)
}

// compareKeys compares plain keys, given with their escapes, as the reference orders them.
func compareKeys(a, b []byte) int {
	if isName(a) || isName(b) {
		return compareKeyTexts(a, b)
	}
	if c, sure := compareQuickly(a, b); sure {
		return c
	}
	return compareParsed(string(object.AppendUnescaped(nil, a)), string(object.AppendUnescaped(nil, b)))
}

// isName says whether a key is that of a name, or of the level itself: both are before all others, also as text.
func isName(key []byte) bool { return len(key) > 0 && (key[0] == 'f' || key[0] == '.') }

// IsFieldsText says whether text is FieldsV1 as both canonical JSON has it and the reference writes it, so that it can
// be copied either way. It takes one pass, and says no where it is not sure.
func IsFieldsText(text []byte) bool {
	end, ok := fieldsTextEnd(text, 0, 0)
	return ok && end == len(text)
}

// fieldsTextEnd returns the offset behind the level at pos, and whether it is as IsFieldsText says.
func fieldsTextEnd(text []byte, pos, depth int) (end int, ok bool) {
	if depth == maxFieldsDepth || pos+1 >= len(text) || text[pos] != '{' {
		return 0, false
	}
	if text[pos+1] == '}' {
		return pos + 2, true
	}
	for before := []byte(nil); ; {
		pos++
		length := plainKeyLength(text[pos:])
		if length == 0 {
			return 0, false
		}
		key := text[pos+1 : pos+length-1]
		if before != nil && !ascendsBothWays(before, key) {
			return 0, false
		}
		if pos += length; pos >= len(text) || text[pos] != ':' {
			return 0, false
		}
		before = key
		if pos, ok = fieldsTextEnd(text, pos+1, depth+1); !ok || pos >= len(text) {
			return 0, false
		}
		if text[pos] == '}' {
			return pos + 1, true
		}
		if text[pos] != ',' {
			return 0, false
		}
	}
}

// ascendsBothWays says whether two plain keys are known to ascend as text and as elements.
func ascendsBothWays(before, key []byte) bool {
	if compareKeyTexts(before, key) >= 0 || len(key) < 2 || key[1] != ':' {
		return false
	}
	if isName(before) || isName(key) {
		return true
	}
	c, sure := compareQuickly(before, key)
	return sure && c < 0
}

// compareQuickly compares two elements of a level, which are no names, as the reference orders them. They are given as
// text, with their escapes; sure is false if they have to be parsed.
//
// Where they differ within a string, the bytes decide, as the reference compares strings by their bytes. Where the
// string in one of them ends, that one is less. As text it may be the greater one, as it has a quote where the other
// one has a space. Natural numbers are compared by their length first: 80 is less than 443, but not as text.
func compareQuickly(a, b []byte) (c int, sure bool) {
	if len(a) < 2 || len(b) < 2 || a[0] != b[0] || a[1] != ':' || b[1] != ':' || a[0] == 'i' {
		return 0, false
	}
	at := 2
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	if at == len(a) || at == len(b) {
		return 0, false
	}
	start := at // of the number
	for isNumeric(a[start-1]) {
		start--
	}
	switch x, y := a[at], b[at]; {
	case a[start-1] == ':', a[start-1] == ',', a[start-1] == '[':
		m, n := digits(a[start:]), digits(b[start:])
		if m == 0 || n == 0 || a[start] == '0' && m > 1 || b[start] == '0' && n > 1 || m == n && at >= start+m {
			return 0, false
		}
		if m != n {
			return cmp.Compare(m, n), true
		}
		return cmp.Compare(x, y), true
	case a[at-1] == '\\': // the escaped characters differ
		return 0, false
	case x == '\\':
		return -1, endsAt(a, at)
	case y == '\\':
		return 1, endsAt(b, at)
	default: // a bracket or a comma may not belong to a string
		return cmp.Compare(x, y), x != ',' && x != '}' && y != ',' && y != '}'
	}
}

// endsAt says whether the backslash at pos belongs to the quote at the end of a string: only a comma, a colon or a
// bracket can follow.
func endsAt(key []byte, pos int) bool {
	if pos+1 >= len(key) || key[pos+1] != '"' {
		return false
	}
	rest := key[pos+2:]
	return len(rest) == 0 || rest[0] == ',' || rest[0] == '}' || rest[0] == ':'
}

func isNumeric(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// digits is the length of a natural number at the beginning of text; 0 if there is another number, or none.
func digits(text []byte) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	if n < len(text) && text[n] != ',' && text[n] != '}' {
		return 0
	}
	return n
}
