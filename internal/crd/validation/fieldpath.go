package validation

import (
	"errors"

	"plinth/object"
	"plinth/schema"
)

// pathEnd is the end of a path into objects.
type pathEnd struct {
	node  object.Value // the schema there; null if it is unknown
	path  string       // the path in the reference's notation
	first string       // its first element
}

var errNoField = errors.New("does not refer to a valid field")

// follow resolves a path ([schema.FieldPath]) in the JSON of a schema. A step is the name of a property, or a key of
// the map if there are no properties.
func follow(path string, root object.Value, quoted bool) (pathEnd, error) {
	at := pathEnd{node: root}
	for steps := schema.NewFieldPath(path, quoted); ; {
		name, ok, err := steps.Next()
		if err != nil {
			return pathEnd{}, err
		}
		if !ok {
			return at, nil
		}
		if err := at.enter(name); err != nil {
			return pathEnd{}, err
		}
	}
}

// enter resolves one step.
func (t *pathEnd) enter(name string) error {
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
		t.node = additional
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
