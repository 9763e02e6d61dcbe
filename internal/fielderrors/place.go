package fielderrors

import "strconv"

// Place is a position in an object: a chain up to the root, made on the stack. Its methods are small so that they are
// inlined; nothing keeps a Place, so none of them is ever allocated. That is why text, not a *field.Path, comes out.
type Place struct {
	Up   *Place // nil: the root
	name string // of a member, or the subscript if n is subscript
	n    int    // the index of a list item, or one of the two below
}

const (
	member    = -1
	subscript = -2
)

// To is the place of a member of a map with known members.
func (p *Place) To(name string) *Place { return &Place{Up: p, name: name, n: member} }

// Item is the place of a list item.
func (p *Place) Item(i int) *Place { return &Place{Up: p, n: i} }

// Key is the place of a member of a map with free keys.
func (p *Place) Key(k string) *Place { return &Place{Up: p, name: k, n: subscript} }

// appendTo writes the Place behind dst, which ends with the Place of the root. It copies names, so that the Place
// itself may stay on the stack.
func (p *Place) appendTo(dst []byte) []byte {
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
