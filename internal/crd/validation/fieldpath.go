package validation

import (
	"errors"

	"plinth/object"
	"plinth/schema"
)

// target is where a path into objects leads.
type target struct {
	node  object.Value // the schema there; null if nothing is known of it
	path  string       // the path as the reference writes it
	first string       // its first element
}

var errNoField = errors.New("does not refer to a valid field")

// follow goes along a path ([schema.FieldPath]) into the JSON of a schema. A name is that of a property, or, if there
// are no properties, the key of a map.
func follow(path string, root object.Value, quoted bool) (target, error) {
	at := target{node: root}
	for steps := schema.NewFieldPath(path, quoted); ; {
		name, ok, err := steps.Next()
		if err != nil {
			return target{}, err
		}
		if !ok {
			return at, nil
		}
		if err := at.enter(name); err != nil {
			return target{}, err
		}
	}
}

// enter goes one step down.
func (t *target) enter(name string) error {
	element := name
	if properties := t.node.At("properties"); properties.Len() > 0 {
		node, ok := properties.Get(name)
		if !ok {
			return errNoField
		}
		t.node = node
		if t.path != "" {
			element = "." + name
		}
	} else if additional := t.node.At("additionalProperties"); !additional.IsNull() {
		t.node = object.Nil
		if additional.Kind() == object.Map {
			t.node = additional
		}
		element = "[" + name + "]"
	} else {
		return errNoField
	}
	if t.path == "" {
		t.first = element
	}
	t.path += element
	return nil
}
