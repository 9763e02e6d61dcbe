package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// Conflict is a field that an apply would change and that another manager owns (SSA-4).
type Conflict struct {
	Path Path
	With Entry // without its fields
	// Live is the value of the field and Wanted that of the intent; null if there is none. Both are in the version of
	// With.
	Live, Wanted object.Value
}

// By names the other manager as the reference does: `"kubectl-edit" using apps/v1`.
func (c *Conflict) By() string {
	text := fmt.Sprintf("%q", c.With.Manager)
	if c.With.Subresource != "" {
		text += fmt.Sprintf(" with subresource %q", c.With.Subresource)
	}
	if c.With.Operation == OperationUpdate {
		text += " using " + c.With.APIVersion
	}
	return text
}

// ConflictError is the error of an apply that would take fields from other managers.
type ConflictError struct {
	Conflicts []Conflict // grouped by manager, in the order of managedFields
}

// Error is the message of the reference.
func (e *ConflictError) Error() string {
	if len(e.Conflicts) == 1 {
		c := &e.Conflicts[0]
		return fmt.Sprintf("Apply failed with 1 conflict: conflict with %s: %v", c.By(), c.Path)
	}
	groups := map[string][]string{} // the lines of a manager, by its identifier
	for i := range e.Conflicts {
		c := &e.Conflicts[i]
		id := c.With.identifier()
		if groups[id] == nil {
			groups[id] = []string{"conflicts with " + c.By() + ":"}
		}
		groups[id] = append(groups[id], "- "+c.Path.String())
	}
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		lines = append(lines, groups[id]...)
	}
	return fmt.Sprintf("Apply failed with %d conflicts: %s", len(e.Conflicts), strings.Join(lines, "\n"))
}

// conflict holds the fields that one manager would lose.
type conflict struct {
	with *entry
	lost Set
}

func conflictError(all []conflict) *ConflictError {
	e := &ConflictError{}
	for _, c := range all {
		c.lost.Each(func(p Path) {
			e.Conflicts = append(e.Conflicts, Conflict{Path: slices.Clone(p), With: c.with.Entry})
		})
	}
	return e
}

// addValues adds both values to each conflict. If the objects cannot be converted to the version of a manager, its
// conflicts stay without.
func (o *operation) addValues(e *ConflictError, live, merged object.Value) {
	for i := range e.Conflicts {
		c := &e.Conflicts[i]
		was, t, err := o.in(live, c.With.APIVersion)
		if err != nil || t == nil {
			continue
		}
		if is, _, err := o.in(merged, c.With.APIVersion); err == nil {
			c.Live, c.Wanted = valueAt(was, t, c.Path), valueAt(is, t, c.Path)
		}
	}
}

// valueAt is the value at a path; null if there is none.
func valueAt(v object.Value, t *schema.Type, p Path) object.Value {
	v, _ = lookup(v, t, p)
	return v
}

// lookup is the value at a path, and whether there is one.
func lookup(v object.Value, t *schema.Type, p Path) (found object.Value, ok bool) {
	for _, e := range p {
		switch e.step {
		case Field:
			t, _ = memberType(t, e.v.Str())
			v, ok = v.Get(e.v.Str())
		default:
			v, ok = itemAt(v, t, e)
			t = itemType(t)
		}
		if !ok {
			return object.Nil, false
		}
	}
	return v, true
}

func itemAt(v object.Value, t *schema.Type, e Element) (object.Value, bool) {
	items := v.Items()
	if e.step == Index {
		if i := e.v.Int(); i >= 0 && i < int64(len(items)) {
			return items[i], true
		}
		return object.Nil, false
	}
	if t.Kind != schema.List || t.ListType == schema.Atomic {
		return object.Nil, false
	}
	for _, item := range items {
		if id, err := identify(t, item); err == nil && elementOf(t, id).Compare(e) == 0 {
			return item, true
		}
	}
	return object.Nil, false
}
