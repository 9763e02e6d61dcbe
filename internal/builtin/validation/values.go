package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

// text is the member of a map that is a string, "" if it is absent.
func text(v object.Value, key string) string {
	member, _ := v.Get(key)
	return member.Str()
}

// has says whether a member is set: Go's pointer to it is not nil.
func has(v object.Value, key string) bool {
	member, _ := v.Get(key)
	return !member.IsNull()
}

// length is the number of items, members or bytes of a member.
func length(v object.Value, key string) int {
	member, _ := v.Get(key)
	return member.Len()
}

// number is the member of a map that is an integer, 0 if it is absent.
func number(v object.Value, key string) int64 {
	member, _ := v.Get(key)
	return member.Int()
}

// truth is the member of a map that is a boolean, false if it is absent.
func truth(v object.Value, key string) bool {
	member, _ := v.Get(key)
	return member.Bool()
}

// list is the content of a list of strings. It is for error messages and rare paths.
func list(v object.Value) []string {
	items := make([]string, v.Len())
	for i, item := range v.Items() {
		items[i] = item.Str()
	}
	return items
}

// contains says whether a list of strings holds s.
func contains(v object.Value, s string) bool {
	return slices.ContainsFunc(v.Items(), func(item object.Value) bool { return item.Str() == s })
}

// quantity reads a quantity that has been decoded, zero if it is absent.
func quantity(v object.Value) resource.Quantity {
	q, _ := resource.ParseQuantity(v.Str()) // zero for an empty text
	return q
}

// quantities are the members whose values are quantities, or maps of them. Two quantities are equal if their amounts
// are, however they are written.
var quantities = []string{"allocatedResources", "capacity", "divisor", "limits", "overhead", "requests", "sizeLimit"}

// same says whether two values have the same meaning: an absent list equals an empty one.
func same(a, b object.Value) bool { return alike(a, b, false) }

func alike(a, b object.Value, amount bool) bool {
	if object.Equal(a, b) || hollow(a) && hollow(b) {
		return true
	}
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case object.String:
		if amount {
			x, y := quantity(a), quantity(b)
			return x.Cmp(y) == 0
		}
		return false
	case object.List:
		return slices.EqualFunc(a.Items(), b.Items(), same)
	case object.Map:
		return alikeMembers(a.Members(), b.Members(), amount)
	}
	return false
}

func hollow(v object.Value) bool { return v.IsNull() || v.Kind() == object.List && v.Len() == 0 }

// alikeMembers walks two sorted maps at once; a hollow member equals an absent one.
func alikeMembers(a, b []object.Member, amount bool) bool {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Key < b[0].Key:
			if !hollow(a[0].Value) {
				return false
			}
			a = a[1:]
		case len(a) == 0 || b[0].Key < a[0].Key:
			if !hollow(b[0].Value) {
				return false
			}
			b = b[1:]
		default:
			if !alike(a[0].Value, b[0].Value, amount || slices.Contains(quantities, a[0].Key)) {
				return false
			}
			a, b = a[1:], b[1:]
		}
	}
	return true
}

// seen is a set of names; a few of them need no allocation.
type seen struct {
	few  [8]string
	n    int
	many map[string]bool
}

// has says whether a name has been added.
func (s *seen) has(name string) bool {
	if s.many != nil {
		return s.many[name]
	}
	return slices.Contains(s.few[:s.n], name)
}

// add adds a name and says whether it was in the set already.
func (s *seen) add(name string) bool {
	if s.has(name) {
		return true
	}
	switch {
	case s.many != nil:
		s.many[name] = true
	case s.n < len(s.few):
		s.few[s.n] = name
		s.n++
	default:
		s.many = map[string]bool{}
		for _, old := range s.few {
			s.many[old] = true
		}
		s.many[name] = true
	}
	return false
}

// byName finds items of a list by their name; if a name is repeated, the last one.
type byName struct {
	items []object.Value
	index map[string]int
}

func newByName(items []object.Value) byName {
	b := byName{items: items}
	if len(items) > 16 {
		b.index = make(map[string]int, len(items))
		for i, item := range items {
			b.index[text(item, "name")] = i
		}
	}
	return b
}

func (b *byName) find(name string) (object.Value, bool) {
	if b.index != nil {
		i, ok := b.index[name]
		if !ok {
			return object.Nil, false
		}
		return b.items[i], true
	}
	for i := len(b.items) - 1; i >= 0; i-- {
		if text(b.items[i], "name") == name {
			return b.items[i], true
		}
	}
	return object.Nil, false
}
