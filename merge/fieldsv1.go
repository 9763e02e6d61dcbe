package merge

import (
	"errors"
	"fmt"
	"strings"

	"plinth/object"
)

// ParseFieldsV1 reads a set from the form in which managedFields holds it (SSA-1): `{"f:spec":{"f:replicas":{}}}`.
func ParseFieldsV1(v object.Value) (Set, error) {
	p := fieldsParser{room: new(room)}
	set, err := p.parse(v)
	return set, err
}

// fieldsParser reads FieldsV1.
type fieldsParser struct {
	room *room
	odd  bool // the set would be printed in another way
}

func (p *fieldsParser) parse(v object.Value) (Set, error) {
	set, self, err := p.below(v)
	p.odd = p.odd || self && v.Len() > 0 // nobody owns an object as such
	return set, err
}

// below reads what is below a node, and says whether the node itself is in the set.
func (p *fieldsParser) below(v object.Value) (below Set, self bool, err error) {
	if v.Kind() != object.Map {
		if !v.IsNull() {
			return Set{}, false, fmt.Errorf("expect { or n, but found %s", v.Kind())
		}
		p.odd = true
	}
	members := v.Members()
	if len(members) == 0 {
		return Set{}, true, nil
	}
	nodes := p.room.nodes(len(members))
	for _, m := range members {
		if m.Key == "." {
			self = true
			p.odd = p.odd || m.Value.Kind() != object.Map || m.Value.Len() > 0
			continue
		}
		element, same, err := parseElement(m.Key)
		if errors.Is(err, errUnknownElement) {
			p.odd = true
			continue
		}
		if err != nil {
			return Set{}, false, fmt.Errorf("parsing key as path element: %w", err)
		}
		p.odd = p.odd || !same
		n := node{element: element}
		var own bool
		if n.below, own, err = p.below(m.Value); err != nil {
			return Set{}, false, err
		}
		if own {
			n.marks = owned
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		p.odd = true
		return Set{}, true, nil
	}
	return gather(nodes), self, nil
}

var (
	emptyMap  = object.MapOf()
	selfField = object.Member{Key: ".", Value: emptyMap}
)

// FieldsV1 is the form of the set in which managedFields holds it.
func (s Set) FieldsV1() object.Value {
	var p printer
	return p.print(s, false)
}

// printer makes FieldsV1. It sets its memory aside in pieces: a set has some hundred elements.
type printer struct {
	text    strings.Builder
	members []object.Member
}

// The pieces in which a printer takes memory, in bytes and members.
const (
	textRoom   = 1024
	memberRoom = 32
)

// room sets n members aside.
func (p *printer) room(n int) []object.Member {
	if n > memberRoom/2 {
		return make([]object.Member, 0, n)
	}
	if len(p.members) < n {
		p.members = make([]object.Member, memberRoom)
	}
	out := p.members[:0:n]
	p.members = p.members[n:]
	return out
}

func (p *printer) print(s Set, self bool) object.Value {
	n := len(s.nodes)
	if self {
		n++
	}
	members := p.room(n)
	if self {
		members = append(members, selfField)
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		value := emptyMap
		if len(n.below.nodes) > 0 {
			value = p.print(n.below, n.marks != 0)
		}
		members = append(members, object.Member{Key: p.wire(n.element), Value: value})
	}
	return object.MapOf(members...)
}

// wire is the element as FieldsV1 has it.
func (p *printer) wire(e Element) string {
	switch keys := e.v.Members(); {
	case e.step == Field:
		return p.join(fieldPrefix, e.v.Str())
	case e.step == Key && len(keys) == 1 && isPlain(keys[0].Key) && isPlainString(keys[0].Value):
		return p.join(keyPrefix, `{"`, keys[0].Key, `":"`, keys[0].Value.Str(), `"}`)
	case e.step == Item && isPlainString(e.v):
		return p.join(itemPrefix, `"`, e.v.Str(), `"`)
	}
	return e.wire()
}

// isPlainString says whether a value is a string that JSON has without escapes.
func isPlainString(v object.Value) bool { return v.Kind() == object.String && isPlain(v.Str()) }

// join makes a text of its parts.
func (p *printer) join(parts ...string) string {
	need := 0
	for _, part := range parts {
		need += len(part)
	}
	if p.text.Cap()-p.text.Len() < need {
		p.text = strings.Builder{} // what it made stays as it is
		p.text.Grow(max(textRoom, need))
	}
	from := p.text.Len()
	for _, part := range parts {
		p.text.WriteString(part)
	}
	return p.text.String()[from:]
}
