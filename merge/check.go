package merge

import (
	"errors"
	"fmt"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// TypeError is an object that cannot be merged: an associative list has an item twice, or one without its keys.
type TypeError struct {
	Path    string
	Message string
	more    []*TypeError
}

func (e *TypeError) Error() string {
	if len(e.more) == 0 {
		return e.line()
	}
	lines := []string{"errors:"}
	for _, each := range append([]*TypeError{e}, e.more...) {
		lines = append(lines, "  "+each.line())
	}
	return strings.Join(lines, "\n")
}

func (e *TypeError) line() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// within puts an element before the path of a TypeError.
func within(err error, e Element) error {
	var typed *TypeError
	if errors.As(err, &typed) {
		typed.Path = e.String() + typed.Path
	}
	return err
}

// checker looks for what keeps an object from being merged.
type checker struct {
	duplicates bool // items may be there twice, as they may in what is stored
	found      []*TypeError
}

// check returns a *TypeError.
func check(v object.Value, t *schema.Type, duplicates bool) error {
	c := checker{duplicates: duplicates}
	c.value(v, t, nil)
	if len(c.found) == 0 {
		return nil
	}
	first := *c.found[0]
	first.more = c.found[1:]
	return &first
}

// trail is the way to a value, for errors.
type trail struct {
	up      *trail
	element func() Element
}

func (at *trail) path() Path {
	if at == nil {
		return nil
	}
	return append(at.up.path(), at.element())
}

func (c *checker) tell(at *trail, format string, args ...any) {
	c.found = append(c.found, &TypeError{Path: at.path().String(), Message: fmt.Sprintf(format, args...)})
}

func (c *checker) value(v object.Value, t *schema.Type, at *trail) {
	switch shapeOf(t, v) {
	case mapping:
		if t.Kind == schema.Any {
			return // nothing below has a schema
		}
		for _, m := range v.Members() {
			of, _ := memberType(t, m.Key)
			c.value(m.Value, of, &trail{at, func() Element { return FieldElement(m.Key) }})
		}
	case listing:
		if t.Kind == schema.Any {
			return
		}
		c.items(v.Items(), t, at)
	}
}

func (c *checker) items(items []object.Value, t *schema.Type, at *trail) {
	if t.ListType == schema.Atomic {
		for i, item := range items {
			c.value(item, itemType(t), &trail{at, func() Element { return Element{Index, object.IntOf(int64(i))} }})
		}
		return
	}
	var r roster
	if err := r.enroll(t, items); err != nil {
		c.tell(at, "%v", err)
		return
	}
	for i, item := range items {
		element := func() Element { return elementOf(t, r.ids[i]) }
		if first := r.first(r.ids[i]); first < i && !c.duplicates {
			c.tell(at, "duplicate entries for key %v", element())
		}
		c.value(item, itemType(t), &trail{at, element})
	}
}
