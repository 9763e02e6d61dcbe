package object

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"plinth/internal/invariants"
)

// MaxDepth is how deep lists and maps may be nested (WRITE-6). encoding/json has the same limit.
const MaxDepth = 10_000

// Parsed is the result of a parse.
type Parsed struct {
	Value Value
	// Duplicates holds the path of every key that occurs twice in its map (`spec.replicas`), in the order of the text, or
	// the message of the YAML parser about it. Value has the last occurrence. At most maxDuplicates are listed, and fewer
	// if their paths are long.
	Duplicates []string

	text string // the input, if it was JSON; else ""
}

// These bound the work and memory that duplicates in a hostile body can cost.
const (
	maxDuplicates = 100
	maxReported   = 64 << 10 // bytes and elements of paths; the last path may exceed it
)

// SyntaxError is text that is not JSON. Offset counts the bytes read before it.
type SyntaxError struct {
	Message string
	Offset  int
}

func (e *SyntaxError) Error() string { return e.Message }

// ParseJSON parses one JSON document. Strings of the result point into the input, which must not change afterwards.
// Errors are *SyntaxError, worded as those of encoding/json.
//
// One pass finds all errors of a document and everything that its readers need to know: syntax errors with their
// offsets, nesting beyond MaxDepth, duplicate keys with their paths. The reference uses a separate pass for each, and
// so reads every body three times.
//
// It accepts and refuses exactly what encoding/json does, the depth included, and gives strings the same content: bytes
// that are not UTF-8 and halves of surrogate pairs become U+FFFD. The last one of several equal keys counts.
func ParseJSON(data []byte) (Parsed, error) { return parse(data, nil) }

// ParseMembers is ParseJSON of an object of which only these members are kept. The whole text is checked, but the other
// members take no memory, and half the time. Controllers read the metadata of stored objects with it.
func ParseMembers(data []byte, only ...string) (Parsed, error) { return parse(data, only) }

// parse is ParseJSON, or ParseMembers if only is not nil.
func parse(data []byte, only []string) (Parsed, error) {
	st := pooledStacks.Get().(*stacks)
	p := parser{in: unsafe.String(unsafe.SliceData(data), len(data)), stacks: st, only: only}
	defer st.free()
	p.next()
	v, err := p.value()
	if err != nil {
		return Parsed{}, err
	}
	p.next()
	if p.pos < len(p.in) {
		return Parsed{}, p.unexpected("after top-level value")
	}
	if invariants.Enabled {
		p.check()
	}
	parsed := Parsed{Value: v, Duplicates: p.duplicates, text: p.in}
	if len(p.duplicates) > 1 {
		parsed.Duplicates = parsed.inOrder()
	}
	return parsed, nil
}

// parser is the state of one pass.
//
// The number of items of a list is known only at its end. Growing a slice for each container would allocate several
// times per container and leave half of that as garbage. So the items of all open containers are collected on one
// stack, those of the innermost one on top (and members on another stack), and copied to memory of the exact size when
// their container ends:
//
//	members[base:] are those of the innermost open map, where base was len(members) when it was opened
//
// While {"a": [1, [2, 3]], "b": 4} is parsed, the stacks are, from bottom to top,
//
//	at the 3    items: 1 2          members:            the inner list has begun at len(items) = 1
//	at the b    items:              members: a          both lists have ended, and have been copied out
//
// Both stacks are empty again at the end, and are reused for the next document.
type parser struct {
	in  string
	pos int // 0 ≤ pos ≤ len(in); the text before it has been read
	*stacks
	duplicates     []string
	duplicatesSize int // total length of the paths of duplicates, listed or not

	only []string // the members of the top level that are kept; nil: all
	skim bool     // the current value is checked, but not kept

	// Small containers are cut from these slabs: an allocation for each would cost more than the rest of the parse. So a
	// small part of a value keeps its neighbours in memory, as its strings keep the input.
	itemSlab   []Value
	memberSlab []Member
}

// stacks is the scratch memory of a parser. It belongs to one parse at a time, whose result does not share it.
type stacks struct {
	items   []Value
	members []Member
	path    []step // a step per open container; where makes text of it for duplicates only
}

var pooledStacks = sync.Pool{New: func() any {
	return &stacks{items: make([]Value, 0, slabSize/4), members: make([]Member, 0, slabSize), path: make([]step, 0, 16)}
}}

// free returns the stacks to the pool, unless a document has made them large. They are cleared up to their capacity,
// even after an error, when they are not empty: otherwise their strings would keep the input of a whole request in
// memory as long as the pool keeps the stacks.
func (s *stacks) free() {
	if cap(s.items)+cap(s.members)+cap(s.path) > maxPooled {
		return
	}
	clear(s.items[:cap(s.items)])
	clear(s.members[:cap(s.members)])
	s.items, s.members, s.path = s.items[:0], s.members[:0], s.path[:0]
	pooledStacks.Put(s)
}

// maxPooled is the total capacity up to which stacks are pooled: clearing longer ones takes too long.
const maxPooled = 1024

// slabSize is how many items or members a slab has; larger containers than a quarter of that are allocated separately.
// A slab is 1.5 kB of items or 2.5 kB of members. Most containers of an object are small: those of a Pod have two to
// ten members.
const slabSize = 64

// step is an element of the path from the root to the value being parsed: the index of an item or, for a member, index
// -1 and the offset of its key in the input.
type step struct{ index, key int }

// value parses the value at pos, where there is no white space, and leaves pos behind it. While skim is set, it returns
// containers empty. It is recursive; enter bounds the depth, and so the stack of the goroutine.
func (p *parser) value() (Value, error) {
	if p.pos == len(p.in) {
		return Nil, p.end()
	}
	switch c := p.in[p.pos]; {
	case c == '"':
		s, err := p.str()
		return StringOf(s), err
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return BoolOf(true), p.literal("true")
	case c == 'f':
		return BoolOf(false), p.literal("false")
	case c == 'n':
		return Nil, p.literal("null")
	}
	return Nil, p.unexpected("looking for beginning of value")
}

// object parses a map, whose brace is at pos. Most clients print keys sorted, so object compares each key with the
// previous one, and sorts the members only if they are not strictly ascending. Equal keys count as unsorted, because
// order finds the duplicates.
func (p *parser) object() (Value, error) {
	if err := p.enter(-1); err != nil {
		return Nil, err
	}
	base := len(p.members)
	sorted, last, first := true, "", true
	for c := p.next(); ; c = p.next() {
		if c == '}' && first {
			break
		}
		first = false
		if c != '"' {
			return Nil, p.wanted("looking for beginning of object key string")
		}
		p.path[len(p.path)-1].key = p.pos
		key, err := p.str()
		if err != nil {
			return Nil, err
		}
		if p.next() != ':' {
			return Nil, p.wanted("after object key")
		}
		p.pos++
		p.next()
		passed := p.only != nil && len(p.path) == 1 && !slices.Contains(p.only, key)
		p.skim = p.skim || passed
		v, err := p.value()
		if err != nil {
			return Nil, err
		}
		if p.skim {
			p.skim = !passed
			if c = p.next(); c == '}' {
				break
			}
			if c != ',' {
				return Nil, p.wanted("after object key:value pair")
			}
			p.pos++
			continue
		}
		sorted = sorted && (ascend(last, key) || len(p.members) == base)
		last = key
		p.members = append(p.members, Member{Key: key, Value: v})
		if c = p.next(); c == '}' {
			break
		}
		if c != ',' {
			return Nil, p.wanted("after object key:value pair")
		}
		p.pos++
	}
	p.pos++
	members := p.members[base:]
	if !sorted {
		members = p.order(members)
	}
	v := mapOf(keep(&p.memberSlab, members, len(p.in)-p.pos))
	p.members = p.members[:base]
	p.path = p.path[:len(p.path)-1]
	return v, nil
}

// keep copies the collected members or items of a container to their final memory: a slab, or a separate allocation for
// many. left is the length of the remaining input, which bounds how much of a new slab can be used. The result has no
// spare capacity: appending to it copies, and cannot overwrite a neighbour.
func keep[T any](slab *[]T, collected []T, left int) []T {
	if len(collected) == 0 {
		return nil
	}
	if len(collected) > slabSize/4 {
		return slices.Clone(collected)
	}
	if cap(*slab)-len(*slab) < len(collected) {
		*slab = make([]T, 0, min(slabSize, len(collected)+left/16))
	}
	start := len(*slab)
	*slab = append(*slab, collected...)
	return (*slab)[start:len(*slab):len(*slab)]
}

// ascend says whether a is before b. The first bytes differ for most pairs of adjacent keys.
func ascend(a, b string) bool {
	if a != "" && b != "" && a[0] != b[0] {
		return a[0] < b[0]
	}
	return a < b
}

// order sorts members, drops all but the last of each key, and records the keys that occur more than once. Its work for
// duplicates is bounded (maxDuplicates, maxReported): a body may repeat a key a million times, at any depth, and
// printing the path of each would take quadratic time and memory.
func (p *parser) order(members []Member) []Member {
	slices.SortStableFunc(members, func(a, b Member) int { return strings.Compare(a.Key, b.Key) })
	for i := 1; i < len(members); i++ {
		if members[i-1].Key != members[i].Key || i > 1 && members[i-2].Key == members[i].Key {
			continue
		}
		if len(p.duplicates) >= maxDuplicates || p.duplicatesSize >= maxReported {
			break
		}
		where := p.where(members[i].Key)
		p.duplicatesSize += len(where) + len(p.path)
		if !slices.Contains(p.duplicates, where) {
			p.duplicates = append(p.duplicates, where)
		}
	}
	return lastOfEach(members)
}

// where returns the path of a member of the map that is being parsed.
func (p *parser) where(name string) string {
	var b strings.Builder
	add := func(key string) {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(key)
	}
	for _, s := range p.path[:len(p.path)-1] {
		if s.index >= 0 {
			fmt.Fprintf(&b, "[%d]", s.index)
			continue
		}
		again := parser{in: p.in, pos: s.key}
		key, _ := again.str() // cannot fail: the key has been parsed before
		add(key)
	}
	add(name)
	return b.String()
}

// array parses a list, whose bracket is at pos.
func (p *parser) array() (Value, error) {
	if err := p.enter(0); err != nil {
		return Nil, err
	}
	base, first := len(p.items), true
	for c := p.next(); ; c = p.next() {
		if c == ']' && first {
			break
		}
		first = false
		v, err := p.value()
		if err != nil {
			return Nil, err
		}
		if !p.skim {
			p.items = append(p.items, v)
		}
		p.path[len(p.path)-1].index++
		if c = p.next(); c == ']' {
			break
		}
		if c != ',' {
			return Nil, p.wanted("after array element")
		}
		p.pos++
	}
	p.pos++
	v := ListOf(keep(&p.itemSlab, p.items[base:], len(p.in)-p.pos)...)
	p.items = p.items[:base]
	p.path = p.path[:len(p.path)-1]
	return v, nil
}

// enter passes the opening bracket of a container. index is 0 for a list, and -1 for a map.
func (p *parser) enter(index int) error {
	p.pos++
	if len(p.path) == MaxDepth {
		p.pos--
		return p.unexpected("exceeded max depth")
	}
	p.path = append(p.path, step{index: index})
	return nil
}

// number reads a literal by the grammar of RFC 8259. An integer of at most 18 digits, which is below 2⁶³, is converted
// here. A literal ends after a leading zero: in 012 the container finds an error at the 1, as in encoding/json.
func (p *parser) number() (Value, error) {
	start := p.pos
	negative := p.in[p.pos] == '-'
	if negative {
		p.pos++
	}
	first := p.pos
	switch p.digits(); {
	case p.pos == first:
		return Nil, p.broken("in numeric literal")
	case p.in[first] == '0':
		p.pos = first + 1
	}
	if p.pos == len(p.in) || p.in[p.pos] != '.' && p.in[p.pos]|0x20 != 'e' {
		if p.pos-first > 18 {
			return NumberOf(p.in[start:p.pos]), nil
		}
		var n int64
		for _, c := range []byte(p.in[first:p.pos]) {
			n = n*10 + int64(c-'0')
		}
		if negative {
			n = -n
		}
		return IntOf(n), nil
	}
	if p.in[p.pos] == '.' {
		p.pos++
		if err := p.someDigits("after decimal point in numeric literal"); err != nil {
			return Nil, err
		}
	}
	if p.pos < len(p.in) && p.in[p.pos]|0x20 == 'e' {
		p.pos++
		if p.pos < len(p.in) && (p.in[p.pos] == '+' || p.in[p.pos] == '-') {
			p.pos++
		}
		if err := p.someDigits("in exponent of numeric literal"); err != nil {
			return Nil, err
		}
	}
	return NumberOf(p.in[start:p.pos]), nil
}

// digits passes all digits from pos on. There may be none.
func (p *parser) digits() {
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		p.pos++
	}
}

// someDigits passes one digit or more. where is the end of the error message if there is none.
func (p *parser) someDigits(where string) error {
	start := p.pos
	p.digits()
	if p.pos > start {
		return nil
	}
	return p.broken(where)
}

// str reads a string. If it is valid UTF-8 without escapes, as nearly all strings are, the result is a part of the
// input.
func (p *parser) str() (string, error) {
	p.pos++
	start, ascii := p.pos, true
	for {
		p.pos = afterPlain(p.in, p.pos)
		if p.pos == len(p.in) {
			return "", p.end()
		}
		switch c := p.in[p.pos]; {
		case c == '"':
			s := p.in[start:p.pos]
			p.pos++
			if !ascii && !utf8.ValidString(s) {
				s = string(appendValid(nil, s))
			}
			return s, nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", p.unexpected("in string literal")
		}
		ascii = false
		p.pos++
	}
}

// afterPlain returns the offset of the first byte from pos on that is a quote, a backslash, a control character or not
// ASCII. It tests eight bytes at a time. Each of the four terms has the top bit set in every byte of its class: w in
// bytes that are not ASCII, w - 0x20 in control characters, and the last two in quotes and backslashes. For example,
// the byte w^('"'*ones) is 0 where w has a quote, and 0x00 - 0x01 borrows and gives 0xff, whose top bit is set. The
// borrow may falsify the bytes above it, which are the later ones, and so the first set bit is always right.
func afterPlain(in string, pos int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; pos+8 <= len(in); pos += 8 {
		w := eight(in[pos : pos+8])
		quote, backslash := w^('"'*ones), w^('\\'*ones)
		if found := (w | (w - 0x20*ones) | (quote - ones) | (backslash - ones)) & tops; found != 0 {
			return pos + bits.TrailingZeros64(found)/8
		}
	}
	for pos < len(in) && in[pos] >= 0x20 && in[pos] != '"' && in[pos] != '\\' && in[pos] < utf8.RuneSelf {
		pos++
	}
	return pos
}

// eight loads eight bytes into one word, with the first byte lowest.
func eight(b string) uint64 {
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(
		b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// appendValid appends text with U+FFFD for every byte that is not UTF-8.
func appendValid(dst []byte, text string) []byte {
	for _, r := range text {
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// escaped reads the rest of a string whose first escape is at pos.
func (p *parser) escaped(start int) (string, error) {
	buf := append(make([]byte, 0, 2*(p.pos-start)+16), p.in[start:p.pos]...)
	for {
		from := p.pos
		p.pos = afterPlain(p.in, p.pos)
		buf = append(buf, p.in[from:p.pos]...)
		if p.pos == len(p.in) {
			return "", p.end()
		}
		switch c := p.in[p.pos]; {
		case c == '"':
			p.pos++
			if !utf8.Valid(buf) {
				buf = appendValid(nil, string(buf))
			}
			return string(buf), nil
		case c < 0x20:
			return "", p.unexpected("in string literal")
		case c != '\\':
			buf = append(buf, c)
			p.pos++
			continue
		}
		p.pos++
		if strings.HasPrefix(p.in[p.pos:], "u") {
			r, err := p.unicode()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
			continue
		}
		i := -1
		if p.pos < len(p.in) {
			i = strings.IndexByte(`"\/bfnrt`, p.in[p.pos])
		}
		if i < 0 {
			return "", p.broken("in string escape code")
		}
		buf = append(buf, "\"\\/\b\f\n\r\t"[i])
		p.pos++
	}
}

// unicode reads uXXXX, and the second half of a surrogate pair if it follows. A half without the other one is U+FFFD.
func (p *parser) unicode() (rune, error) {
	r, err := p.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if strings.HasPrefix(p.in[p.pos:], `\u`) {
		back := p.pos
		p.pos++
		low, err := p.hex4()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
		p.pos = back
	}
	return utf8.RuneError, nil
}

// hex4 reads four hexadecimal digits behind the u at pos.
func (p *parser) hex4() (rune, error) {
	p.pos++
	var r rune
	for range 4 {
		digit := -1
		if p.pos < len(p.in) {
			digit = strings.IndexByte(hexDigits, p.in[p.pos]|0x20)
		}
		if digit < 0 || p.in[p.pos] < '0' {
			return 0, p.broken(`in \u hexadecimal character escape`)
		}
		r = r<<4 | rune(digit)
		p.pos++
	}
	return r, nil
}

// literal passes one of the words true, false and null.
func (p *parser) literal(word string) error {
	for i := 0; i < len(word); i++ {
		if p.pos == len(p.in) || p.in[p.pos] != word[i] {
			return p.broken(fmt.Sprintf("in literal %s (expecting %s)", word, quoteChar(word[i])))
		}
		p.pos++
	}
	return nil
}

// next skips white space and returns the byte behind it, or 0 at the end of the input.
func (p *parser) next() byte {
	if p.pos < len(p.in) && p.in[p.pos] > ' ' {
		return p.in[p.pos]
	}
	return p.skipSpace()
}

// skipSpace is next without its shortcut for text without white space.
func (p *parser) skipSpace() byte {
	for ; p.pos < len(p.in); p.pos++ {
		switch c := p.in[p.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// wanted returns the error for a byte at pos other than the required one, or for the end of the input.
func (p *parser) wanted(where string) error {
	if p.pos == len(p.in) {
		return p.end()
	}
	return p.unexpected(where)
}

// end returns the error for input that ends too early.
func (p *parser) end() error {
	return &SyntaxError{Message: "unexpected end of JSON input", Offset: len(p.in)}
}

// broken returns the error for a literal (a number, a word, an escape) with a wrong byte at pos. If the input ends in
// the literal, encoding/json reports a space that the input does not have: for "tru" as for "tru ".
func (p *parser) broken(where string) error {
	if p.pos == len(p.in) {
		return &SyntaxError{Message: "invalid character ' ' " + where, Offset: p.pos}
	}
	return p.unexpected(where)
}

// unexpected returns the error for the byte at pos, with the text of encoding/json.
func (p *parser) unexpected(where string) error {
	return &SyntaxError{Message: "invalid character " + quoteChar(p.in[p.pos]) + " " + where, Offset: p.pos + 1}
}

// quoteChar quotes a byte as encoding/json does.
func quoteChar(c byte) string {
	switch c {
	case '\'':
		return `'\''`
	case '"':
		return `'"'`
	}
	s := strconv.Quote(string(rune(c)))
	return "'" + s[1:len(s)-1] + "'"
}
