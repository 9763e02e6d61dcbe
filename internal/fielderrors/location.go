package fielderrors

import "strconv"

// Location is a position in an object: a chain up to the root, on the stack. Its methods are small so that they are
// inlined, and nothing keeps a Place, so that none escapes to the heap. For the same reason, appendTo copies names, and
// returns text and not a *field.Path, which would keep them.
type Location struct {
	Up   *Location // nil: the root
	name string    // of a member, or the subscript if n is subscript
	n    int       // the index of a list item, or one of the two below
}

const (
	member    = -1
	subscript = -2
)

// To returns the place of a field of a struct: ".name".
func (p *Location) To(name string) *Location { return &Location{Up: p, name: name, n: member} }

// Item returns the place of a list item: "[i]".
func (p *Location) Item(i int) *Location { return &Location{Up: p, n: i} }

// Key returns the place of a value of a map: "[k]".
func (p *Location) Key(k string) *Location { return &Location{Up: p, name: k, n: subscript} }

// appendTo appends the path from the root to dst.
func (p *Location) appendTo(dst []byte) []byte {
	if p == nil {
		return dst
	}
	dst = p.Up.appendTo(dst)
	switch p.n {
	case member:
		if len(dst) > 0 {
			dst = append(dst, '.')
		}
		return append(dst, p.name...)
	case subscript:
		dst = append(dst, '[')
		dst = append(dst, p.name...)
	default:
		dst = append(dst, '[')
		dst = strconv.AppendInt(dst, int64(p.n), 10)
	}
	return append(dst, ']')
}
