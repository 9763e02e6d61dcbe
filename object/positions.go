package object

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Positions returns the offsets of members in the text of a parsed document, by their paths in the form of Duplicates:
// for each path, the offset of the nth occurrence of its key in its map, counted from 1, or -1 if there are fewer. The
// result is nil if the document was not JSON.
//
// The text is read a second time, but only the parts that lead to one of the paths: a parser that recorded the offset
// of every member would make every request pay for what few need. In the text {"a":{"b":1,"b":2}}, the path a.b has the
// first position 6, and the second one 12. The positions decide the order in which the reference reports fields.
func (p *Parsed) Positions(paths []string, nth int) []int {
	if p.text == "" {
		return nil
	}
	f := finder{
		text: p.text, data: unsafe.Slice(unsafe.StringData(p.text), len(p.text)),
		nth: nth, paths: paths, at: make([]int, len(paths)), counts: make([]int, len(paths)),
	}
	all := make([]int, len(paths))
	for i := range paths {
		all[i], f.at[i] = i, -1
	}
	f.value(skipSpace(p.text, 0), all, 0)
	return f.at
}

// inOrder returns the duplicates in the order of their second occurrences in the text, which is the order in which the
// reference reports them. The parser finds them in another order: that in which containers end.
func (p *Parsed) inOrder() []string {
	at := p.Positions(p.Duplicates, 2)
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return at[i] - at[j] })
	sorted := make([]string, len(order))
	for i, from := range order {
		sorted[i] = p.Duplicates[from]
	}
	return sorted
}

// finder looks for paths in the text of a document that has been parsed before, so that the text is well-formed and its
// depth is bounded.
type finder struct {
	text   string
	data   []byte // the bytes of text
	nth    int
	paths  []string
	counts []int // how many occurrences of each path have been found
	at     []int // the result
}

// value searches the value at pos for the paths that lead through it: those with the indices in through, whose first
// length bytes are the path of the value. It returns the offset behind the value. A value on none of the paths is
// skipped without reading its keys. A key with a dot may look like a longer path (the key "a.b" at the top level, or b
// in a); both are followed.
func (f *finder) value(pos int, through []int, length int) int {
	if len(through) == 0 || f.text[pos] != '{' && f.text[pos] != '[' {
		return skip(f.data, pos)
	}
	closing := byte('}')
	if f.text[pos] == '[' {
		closing = ']'
	}
	pos = skipSpace(f.text, pos+1)
	for index := 0; f.text[pos] != closing; index++ {
		element, start := "["+strconv.Itoa(index)+"]", pos
		if closing == '}' {
			again := parser{in: f.text, pos: pos}
			element, _ = again.str() // cannot fail: the key has been parsed before
			if length > 0 {
				element = "." + element
			}
			pos = skipSpace(f.text, skipSpace(f.text, again.pos)+1) // behind the colon
		}
		var further []int
		for _, i := range through {
			rest, leads := strings.CutPrefix(f.paths[i][length:], element)
			if !leads {
				continue
			}
			if rest == "" {
				if f.counts[i]++; f.counts[i] == f.nth {
					f.at[i] = start
				}
				continue
			}
			further = append(further, i)
		}
		pos = skipSpace(f.text, f.value(pos, further, length+len(element)))
		if f.text[pos] == ',' {
			pos = skipSpace(f.text, pos+1)
		}
	}
	return pos + 1
}

func skipSpace(text string, pos int) int {
	for pos < len(text) && (text[pos] == ' ' || text[pos] == '\n' || text[pos] == '\t' || text[pos] == '\r') {
		pos++
	}
	return pos
}
