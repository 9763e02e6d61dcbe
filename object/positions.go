package object

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Positions are the offsets of members in the text of a parsed document, by their paths in the form of Duplicates:
// that of the nth occurrence of each key in its map, counted from 1. An offset is -1 if there are fewer. The result is
// nil if the document was not JSON.
//
// The text is read a second time, and only those parts that lead to one of the paths: a parser that kept the offset of
// every member would cost every request what few need. Of the text {"a":{"b":1,"b":2}} and the path a.b, the first
// position is 6, and the second one 12. They decide the order in which the reference reports fields.
func (p *Parsed) Positions(paths []string, nth int) []int {
	if p.text == "" {
		return nil
	}
	f := finder{
		text: p.text, data: unsafe.Slice(unsafe.StringData(p.text), len(p.text)),
		nth: nth, paths: paths, at: make([]int, len(paths)), seen: make([]int, len(paths)),
	}
	all := make([]int, len(paths))
	for i := range paths {
		all[i], f.at[i] = i, -1
	}
	f.value(skipSpace(p.text, 0), all, 0)
	return f.at
}

// inOrder are the duplicates in the order of their second occurrences in the text, which is the order in which the
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

// finder looks for paths in the text of a document that has been parsed before: it is well-formed, and not nested too
// deep.
type finder struct {
	text  string
	data  []byte // the same
	nth   int
	paths []string
	seen  []int // how often each has been there
	at    []int // the result
}

// value searches the value at pos for the paths that lead through it: those with these indices, which agree in their
// first length bytes. It returns the offset behind the value. A value that no path leads through is skipped without
// reading its keys. Names with dots in them may look like longer paths ("a.b" in the top, or b in a); both are
// followed.
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
			element, _ = again.str() // it has been read before
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
				if f.seen[i]++; f.seen[i] == f.nth {
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
