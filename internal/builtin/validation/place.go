package validation

import "strconv"

// place is a position in an object: a chain up to the root, made on the stack. Its methods are small so that they are
// inlined; nothing keeps a place, so none of them is ever allocated. That is why text, not a *field.Path, comes out.
type place struct {
	up   *place
	name string // of a member, or the subscript if n is subscript
	n    int    // the index of a list item, or one of the two below
}

const (
	member    = -1
	subscript = -2
)

// to is the place of a member of a map with known members.
func (p *place) to(name string) *place { return &place{up: p, name: name, n: member} }

// item is the place of a list item.
func (p *place) item(i int) *place { return &place{up: p, n: i} }

// key is the place of a member of a map with free keys.
func (p *place) key(k string) *place { return &place{up: p, name: k, n: subscript} }

// appendTo writes the place behind dst, which ends with the place of the root. It copies names, so that the place
// itself may stay on the stack.
func (p *place) appendTo(dst []byte) []byte {
	if p == nil {
		return dst
	}
	dst = p.up.appendTo(dst)
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
