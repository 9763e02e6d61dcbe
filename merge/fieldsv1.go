package merge

import (
	"errors"
	"fmt"
	"strings"

	"plinth/object"
)

// ParseFieldsV1 reads a set from its form in managedFields (SSA-1). Each level of the trie is a JSON object, whose
// keys are elements with a prefix. An empty object is a path of the set; a path with others below it has the member
// "." as well:
//
//	{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}    is    .metadata.labels, .metadata.labels.app
//
// The four sorts of elements in one set:
//
//	{"f:spec": {"f:ports": {"k:{\"port\":80}": {".":{}, "f:name":{}}},     .spec.ports[port=80] and its .name
//	            "f:finalizers": {"v:\"a.b/c\"": {}},                      .spec.finalizers[="a.b/c"]
//	            "f:args": {"i:0": {}}}}                                    .spec.args[0]
//
// It reads what the reference reads, which is more than it writes: elements in any order, null for {}, and elements
// with unknown prefixes, which are dropped. The errors are for what it cannot read, with the reference's texts. The
// depth of v is that of a JSON document, which the parser has bounded, so the recursion is, too.
// Elements may point into the memory of v.
func ParseFieldsV1(v object.Value) (Set, error) {
	p := fieldsParser{arena: new(arena)}
	set, err := p.parse(v)
	return set, err
}

// fieldsParser reads FieldsV1.
//
//	¬noncanonical after parse(v) = s   ⇒   s.FieldsV1() = v
//
// Only then may v be stored again in place of printing s. The parser records whether any part would be printed
// differently; printing the set and comparing would cost as much as it saves.
type fieldsParser struct {
	arena        *arena // of the nodes
	noncanonical bool   // FieldsV1 prints the set as another text: the original may not be kept
}

// parse reads a whole set.
func (p *fieldsParser) parse(v object.Value) (Set, error) {
	set, self, err := p.below(v)
	p.noncanonical = p.noncanonical || self && v.Len() > 0 // an object as such has no owner
	return set, err
}

// below reads the elements below a node, and says whether the node itself is in the set.
func (p *fieldsParser) below(v object.Value) (below Set, self bool, err error) {
	if v.Kind() != object.Map {
		if !v.IsNull() {
			return Set{}, false, fmt.Errorf("expect { or n, but found %s", v.Kind())
		}
		p.noncanonical = true
	}
	members := v.Members()
	if len(members) == 0 {
		return Set{}, true, nil
	}
	nodes := p.arena.nodes(len(members))
	for _, m := range members {
		if m.Key == "." {
			self = true
			p.noncanonical = p.noncanonical || m.Value.Kind() != object.Map || m.Value.Len() > 0
			continue
		}
		element, same, err := parseElement(m.Key)
		if errors.Is(err, errUnknownElement) {
			p.noncanonical = true
			continue
		}
		if err != nil {
			return Set{}, false, fmt.Errorf("parsing key as path element: %w", err)
		}
		p.noncanonical = p.noncanonical || !same
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
	if len(nodes) == 0 { // only ".", or elements that were dropped
		p.noncanonical = true
		return Set{}, true, nil
	}
	return sortedSet(nodes), self, nil
}

var (
	emptyMap  = object.MapOf()
	selfField = object.Member{Key: ".", Value: emptyMap}
)

// FieldsV1 is the form of the set in managedFields. ParseFieldsV1 reads an equal set from it. Members stand in the
// order of their text, as in all canonical JSON, which is not always the order of the nodes.
func (s Set) FieldsV1() object.Value {
	var p printer
	return p.print(s, false)
}

// printer makes FieldsV1. A set has some hundred elements: the printer cuts their members and keys from large chunks,
// so that it takes a few allocations.
type printer struct {
	text    strings.Builder // of the keys; each key is a substring of it
	members []object.Member // the rest of the current chunk
}

// The chunks that a printer allocates, in bytes and members. They are about the size of one entry of a Deployment;
// larger ones would keep unused memory alive.
const (
	textChunk   = 1024
	memberChunk = 32
)

// empty returns an empty slice with a capacity of n.
func (p *printer) empty(n int) []object.Member {
	if n > memberChunk/2 {
		return make([]object.Member, 0, n)
	}
	if len(p.members) < n {
		p.members = make([]object.Member, memberChunk)
	}
	out := p.members[:0:n]
	p.members = p.members[n:]
	return out
}

// print is the JSON object of one level; self says that the node above is a path of the set itself. A node without
// others below it is {}, and needs no ".": a node that is neither in the set nor leads to others cannot exist (node).
func (p *printer) print(s Set, self bool) object.Value {
	n := len(s.nodes)
	if self {
		n++
	}
	members := p.empty(n)
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

// wire is Element.wire for the common elements, in the memory of the printer.
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

// join concatenates. The result points into the text of the printer, which is only appended to.
func (p *printer) join(parts ...string) string {
	need := 0
	for _, part := range parts {
		need += len(part)
	}
	if p.text.Cap()-p.text.Len() < need {
		p.text = strings.Builder{} // strings that were cut from the old one stay valid
		p.text.Grow(max(textChunk, need))
	}
	from := p.text.Len()
	for _, part := range parts {
		p.text.WriteString(part)
	}
	return p.text.String()[from:]
}
