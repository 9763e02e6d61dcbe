package object

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// MaxDepth is how deep lists and maps may be nested (WRITE-6). encoding/json has the same limit.
const MaxDepth = 10_000

// Parsed is what a body says.
type Parsed struct {
	Value Value
	// Duplicates holds the path of every key that stands twice in its map (`spec.replicas`), in the order found, or the
	// words of the YAML parser for it. The later one of two has won. At most maxDuplicates are listed.
	Duplicates []string
}

// maxDuplicates bounds what a hostile body can make the parser remember.
const maxDuplicates = 100

// SyntaxError is text that is not JSON. Offset counts the bytes read before it.
type SyntaxError struct {
	Message string
	Offset  int
}

func (e *SyntaxError) Error() string { return e.Message }

// ParseJSON reads one JSON document in one pass. It takes the input over: strings of the result point into it, so it
// must not change afterwards. Errors are *SyntaxError, worded as encoding/json words them.
func ParseJSON(data []byte) (Parsed, error) {
	p := parser{in: unsafe.String(unsafe.SliceData(data), len(data))}
	p.space()
	v, err := p.value()
	if err != nil {
		return Parsed{}, err
	}
	p.space()
	if p.pos < len(p.in) {
		return Parsed{}, p.unexpected("after top-level value")
	}
	return Parsed{Value: v, Duplicates: p.duplicates}, nil
}

// parser is the state of one pass. Items and members are collected on the two stacks, which serve all depths, and copied
// out at their exact size when their container ends.
type parser struct {
	in         string
	pos        int
	depth      int
	items      []Value
	members    []Member
	path       []step
	duplicates []string
}

// step is one element of the way from the top to the value being parsed: a key, or an index where key is "".
type step struct {
	key   string
	index int
}

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

func (p *parser) object() (Value, error) {
	if err := p.enter(); err != nil {
		return Nil, err
	}
	base := len(p.members)
	p.path = append(p.path, step{})
	for first := true; ; first = false {
		p.space()
		if p.pos == len(p.in) {
			return Nil, p.end()
		}
		if first && p.in[p.pos] == '}' {
			break
		}
		if p.in[p.pos] != '"' {
			return Nil, p.unexpected("looking for beginning of object key string")
		}
		key, err := p.str()
		if err != nil {
			return Nil, err
		}
		p.space()
		if p.pos == len(p.in) {
			return Nil, p.end()
		}
		if p.in[p.pos] != ':' {
			return Nil, p.unexpected("after object key")
		}
		p.pos++
		p.space()
		p.path[len(p.path)-1].key = key
		v, err := p.value()
		if err != nil {
			return Nil, err
		}
		p.members = append(p.members, Member{Key: key, Value: v})
		p.space()
		if p.pos == len(p.in) {
			return Nil, p.end()
		}
		if p.in[p.pos] == '}' {
			break
		}
		if p.in[p.pos] != ',' {
			return Nil, p.unexpected("after object key:value pair")
		}
		p.pos++
	}
	p.pos++
	p.depth--
	members := slices.Clone(p.members[base:])
	p.members = p.members[:base]
	if !strictlySorted(members) {
		members = p.order(members)
	}
	p.path = p.path[:len(p.path)-1]
	return mapOf(members), nil
}

// order sorts members and notes the keys that stand there more than once.
func (p *parser) order(members []Member) []Member {
	slices.SortStableFunc(members, func(a, b Member) int { return strings.Compare(a.Key, b.Key) })
	for i := 1; i < len(members); i++ {
		if members[i-1].Key == members[i].Key && len(p.duplicates) < maxDuplicates {
			p.path[len(p.path)-1].key = members[i].Key
			p.duplicates = append(p.duplicates, p.where())
		}
	}
	return lastOfEach(members)
}

func (p *parser) where() string {
	var b strings.Builder
	for _, s := range p.path {
		switch {
		case s.key == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() == 0:
			b.WriteString(s.key)
		default:
			b.WriteString("." + s.key)
		}
	}
	return b.String()
}

func (p *parser) array() (Value, error) {
	if err := p.enter(); err != nil {
		return Nil, err
	}
	base := len(p.items)
	p.path = append(p.path, step{})
	for first := true; ; first = false {
		p.space()
		if first && p.pos < len(p.in) && p.in[p.pos] == ']' {
			break
		}
		v, err := p.value()
		if err != nil {
			return Nil, err
		}
		p.items = append(p.items, v)
		p.path[len(p.path)-1].index++
		p.space()
		if p.pos == len(p.in) {
			return Nil, p.end()
		}
		if p.in[p.pos] == ']' {
			break
		}
		if p.in[p.pos] != ',' {
			return Nil, p.unexpected("after array element")
		}
		p.pos++
	}
	p.pos++
	p.depth--
	items := slices.Clone(p.items[base:])
	p.items = p.items[:base]
	p.path = p.path[:len(p.path)-1]
	return ListOf(items...), nil
}

// enter steps over the opening bracket of a container.
func (p *parser) enter() error {
	p.pos++
	p.depth++
	if p.depth > MaxDepth {
		return &SyntaxError{Message: "exceeded max depth", Offset: p.pos}
	}
	return nil
}

// number reads a literal by the grammar of RFC 8259.
func (p *parser) number() (Value, error) {
	start := p.pos
	if p.in[p.pos] == '-' {
		p.pos++
	}
	if p.pos == len(p.in) {
		return Nil, p.end()
	}
	switch c := p.in[p.pos]; {
	case c == '0':
		p.pos++
	case c >= '1' && c <= '9':
		p.digits()
	default:
		return Nil, p.unexpected("in numeric literal")
	}
	if p.pos < len(p.in) && p.in[p.pos] == '.' {
		p.pos++
		if err := p.someDigits("after decimal point in numeric literal"); err != nil {
			return Nil, err
		}
	}
	if p.pos < len(p.in) && (p.in[p.pos] == 'e' || p.in[p.pos] == 'E') {
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

func (p *parser) digits() {
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		p.pos++
	}
}

func (p *parser) someDigits(where string) error {
	start := p.pos
	p.digits()
	if p.pos > start {
		return nil
	}
	if p.pos == len(p.in) {
		return p.end()
	}
	return p.unexpected(where)
}

// str reads a string. Without escapes and with valid UTF-8, which is nearly always, it is a part of the input.
func (p *parser) str() (string, error) {
	p.pos++
	start, ascii := p.pos, true
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '"':
			s := p.in[start:p.pos]
			p.pos++
			if !ascii && !utf8.ValidString(s) {
				s = strings.ToValidUTF8(s, "\uFFFD")
			}
			return s, nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", p.unexpected("in string literal")
		case c >= utf8.RuneSelf:
			ascii = false
		}
		p.pos++
	}
	return "", p.end()
}

// escaped goes on with a string whose first escape is at pos.
func (p *parser) escaped(start int) (string, error) {
	buf := append(make([]byte, 0, 2*(p.pos-start)+16), p.in[start:p.pos]...)
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '"':
			p.pos++
			return strings.ToValidUTF8(string(buf), "\uFFFD"), nil
		case c < 0x20:
			return "", p.unexpected("in string literal")
		case c != '\\':
			buf = append(buf, c)
			p.pos++
			continue
		}
		p.pos++
		if p.pos == len(p.in) {
			return "", p.end()
		}
		if p.in[p.pos] == 'u' {
			r, err := p.unicode()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
			continue
		}
		i := strings.IndexByte(`"\/bfnrt`, p.in[p.pos])
		if i < 0 {
			return "", p.unexpected("in string escape code")
		}
		buf = append(buf, "\"\\/\b\f\n\r\t"[i])
		p.pos++
	}
	return "", p.end()
}

// unicode reads uXXXX, and the second half of a surrogate pair if there is one. A lone half is U+FFFD.
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

func (p *parser) hex4() (rune, error) {
	p.pos++
	for i := 0; i < 4; i++ {
		if p.pos+i == len(p.in) {
			p.pos += i
			return 0, p.end()
		}
		if c := p.in[p.pos+i] | 0x20; (c < '0' || c > '9') && (c < 'a' || c > 'f') || p.in[p.pos+i] < '0' {
			p.pos += i
			return 0, p.unexpected(`in \u hexadecimal character escape`)
		}
	}
	n, err := strconv.ParseUint(p.in[p.pos:p.pos+4], 16, 16)
	if err != nil {
		return 0, p.unexpected(`in \u hexadecimal character escape`)
	}
	p.pos += 4
	return rune(n), nil
}

func (p *parser) literal(word string) error {
	for i := 0; i < len(word); i++ {
		if p.pos == len(p.in) {
			return p.end()
		}
		if p.in[p.pos] != word[i] {
			return p.unexpected(fmt.Sprintf("in literal %s (expecting %s)", word, quoteChar(word[i])))
		}
		p.pos++
	}
	return nil
}

func (p *parser) space() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) end() error {
	return &SyntaxError{Message: "unexpected end of JSON input", Offset: len(p.in)}
}

func (p *parser) unexpected(where string) error {
	return &SyntaxError{Message: "invalid character " + quoteChar(p.in[p.pos]) + " " + where, Offset: p.pos + 1}
}

// quoteChar words a byte as encoding/json does.
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
