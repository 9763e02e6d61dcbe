package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// Conflict is a field that an apply would change and that another manager owns (SSA-4). A field with three owners is
// three conflicts, one with each.
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

// ConflictError is the error of an apply that would take fields from other managers. It lists all fields and all
// managers, up to a limit that is longer than any user would read (maxConflictText), so that the user decides once.
// Whether to force is the user's decision, too (Writer.Force); this package never chooses a winner.
type ConflictError struct {
	Conflicts []Conflict // grouped by manager, in the order of managedFields; the first maxConflictText bytes of them
	More      int        // the number of further conflicts
	all       []conflict // those in Conflicts and the further ones
	// addValues adds the values to the conflicts of this error, or of one with fewer conflicts.
	addValues func(*ConflictError)
}

// maxConflictText bounds the text of the paths and managers of the conflicts that are listed, in bytes; the first
// conflict is listed at any length. Each path is written out, although in the request many share a prefix: 100,000
// fields below a key of a megabyte fit into a request, and their paths would be 100 GB of text.
const maxConflictText = 4 << 20

// Len is the number of conflicts.
func (e *ConflictError) Len() int { return len(e.Conflicts) + e.More }

// without is the error for the conflicts about other fields than those of the set, with values; nil if there are none.
func (e *ConflictError) without(fields Set) *ConflictError {
	var rest []conflict
	for _, c := range e.all {
		if lost := c.lost.Minus(fields); !lost.Empty() {
			rest = append(rest, conflict{c.with, lost})
		}
	}
	if len(rest) == 0 {
		return nil
	}
	less := conflictError(rest)
	e.addValues(less)
	return less
}

// Error is the message of the reference. One conflict is named in the sentence; several are listed by manager, in the
// order of the managers' identifiers:
//
//	Apply failed with 2 conflicts: conflicts with "hpa" with subresource "scale" using apps/v1:
//	- .spec.replicas
//	conflicts with "kubectl-edit" using apps/v1:
//	- .spec.template.spec.containers[name="web"].image
//
// If not all conflicts are listed, a last line has the number of the others; the reference always lists all.
func (e *ConflictError) Error() string {
	if e.Len() == 1 {
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
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("- … and %d more", e.More))
	}
	return fmt.Sprintf("Apply failed with %d conflicts: %s", e.Len(), strings.Join(lines, "\n"))
}

// conflict holds the fields that one manager would lose: those of its fields that the apply would add or change. A
// field that the apply removes is not a conflict. It is removed only if the writer owned it and no other manager does,
// or together with an item for which that holds (prune).
type conflict struct {
	with *entry
	lost Set
}

// conflictError is the error for these conflicts, as yet without values (addValues). The sets must not be empty.
func conflictError(all []conflict) *ConflictError {
	e := &ConflictError{all: all}
	size := 0
	for _, c := range all {
		by := len((&Conflict{With: c.with.Entry}).By())
		c.lost.Each(func(p Path) {
			if e.More == 0 {
				size += by + len(p.String())
			}
			if len(e.Conflicts) > 0 && size > maxConflictText {
				e.More++
				return
			}
			e.Conflicts = append(e.Conflicts, Conflict{Path: slices.Clone(p), With: c.with.Entry})
		})
	}
	return e
}

// addValues adds both values to each listed conflict. If the objects cannot be converted to the version of a manager,
// its conflicts stay without.
//
// An apply may have as many conflicts as its list has items. Each object is therefore converted once per version, and
// each list on the way is indexed once (finder): a search through the list for every conflict would take quadratic
// time, 20 seconds for 20,000 items.
func (o *operation) addValues(e *ConflictError, live, merged object.Value) {
	type pair struct{ live, merged *finder } // nil if the version cannot be had
	pairs := map[string]pair{}
	for i := range e.Conflicts {
		c := &e.Conflicts[i]
		in, done := pairs[c.With.APIVersion]
		if !done {
			before, t, err := o.in(live, c.With.APIVersion)
			now, _, err2 := o.in(merged, c.With.APIVersion)
			if err == nil && err2 == nil && t != nil {
				in = pair{newFinder(before, t), newFinder(now, t)}
			}
			pairs[c.With.APIVersion] = in
		}
		if in.live != nil {
			c.Live, _ = in.live.at(c.Path)
			c.Wanted, _ = in.merged.at(c.Path)
		}
	}
}

// finder finds the values at many paths of one object. It keeps an index of each associative list that it has passed,
// so that a look-up takes time logarithmic in the lengths of the lists. It is used by one goroutine, for one error or
// one check.
type finder struct {
	root  object.Value
	t     *schema.Type
	lists map[typedList]*itemIndex
}

// typedList is the key of an index: the same memory may be a list of two types, whose keys differ.
type typedList struct {
	v object.Value
	t *schema.Type
}

func newFinder(v object.Value, t *schema.Type) *finder {
	return &finder{root: v, t: t, lists: map[typedList]*itemIndex{}}
}

// at is the value at a path, and whether there is one.
func (f *finder) at(p Path) (v object.Value, ok bool) {
	v = f.root
	t := f.t
	for _, e := range p {
		switch e.step {
		case Field:
			t, _ = memberType(t, e.v.Str())
			v, ok = v.Get(e.v.Str())
		default:
			v, ok = f.item(v, t, e)
			t = itemType(t)
		}
		if !ok {
			return object.Nil, false
		}
	}
	return v, true
}

// item is the item of a list that an element selects; the first one if several have its identity.
func (f *finder) item(v object.Value, t *schema.Type, e Element) (object.Value, bool) {
	items := v.Items()
	if e.step == Index {
		if i := e.v.Int(); i >= 0 && i < int64(len(items)) {
			return items[i], true
		}
		return object.Nil, false
	}
	id, ok := identityIn(t, e)
	if !ok {
		return object.Nil, false
	}
	key := typedList{v, t}
	x := f.lists[key]
	if x == nil {
		x = new(itemIndex)
		if err := x.build(t, items); err != nil {
			x = new(itemIndex) // no path leads into this list: comparing it has failed
		}
		f.lists[key] = x
	}
	if i := x.first(id); i >= 0 {
		return items[i], true
	}
	return object.Nil, false
}
