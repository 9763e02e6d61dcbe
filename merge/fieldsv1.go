package merge

import (
	"errors"
	"fmt"

	"plinth/object"
)

// ParseFieldsV1 reads a set from the form in which managedFields holds it (SSA-1): `{"f:spec":{"f:replicas":{}}}`.
func ParseFieldsV1(v object.Value) (Set, error) {
	s, _, err := parseFields(v)
	return s, err
}

// parseFields reads what is below a node, and says whether the node itself is in the set.
func parseFields(v object.Value) (below Set, member bool, err error) {
	if v.Kind() != object.Map && !v.IsNull() {
		return Set{}, false, fmt.Errorf("expect { or n, but found %s", v.Kind())
	}
	members := v.Members()
	if len(members) == 0 {
		return Set{}, true, nil
	}
	nodes := make([]node, 0, len(members))
	for _, m := range members {
		if m.Key == "." {
			member = true
			continue
		}
		element, err := parseElement(m.Key)
		if errors.Is(err, errUnknownElement) {
			continue
		}
		if err != nil {
			return Set{}, false, fmt.Errorf("parsing key as path element: %w", err)
		}
		n := node{element: element}
		var own bool
		if n.below, own, err = parseFields(m.Value); err != nil {
			return Set{}, false, err
		}
		if own {
			n.marks = owned
		}
		nodes = append(nodes, n)
	}
	return gather(nodes), member || len(nodes) == 0, nil
}

var (
	emptyMap  = object.MapOf()
	selfField = object.Member{Key: ".", Value: emptyMap}
)

// FieldsV1 is the form of the set in which managedFields holds it.
func (s Set) FieldsV1() object.Value { return s.print(false) }

func (s Set) print(self bool) object.Value {
	members := make([]object.Member, 0, len(s.nodes)+1)
	if self {
		members = append(members, selfField)
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		value := emptyMap
		if len(n.below.nodes) > 0 {
			value = n.below.print(n.marks != 0)
		}
		members = append(members, object.Member{Key: n.element.wire(), Value: value})
	}
	return object.MapOf(members...)
}
