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

// quantities are the members that map resources to quantities.
var quantities = []string{"allocatedResources", "capacity", "limits", "overhead", "requests"}

// verbatim is the member with content that the client alone knows.
const verbatim = "parameters"

// same says whether two values have the same meaning: in a map, an absent list equals an empty one, and two quantities
// are equal if their amounts are, however they are written.
func same(a, b object.Value) bool { return alike(a, b, "", false) }

// alike is same for two values of the member key; amount says that the texts in them are quantities.
func alike(a, b object.Value, key string, amount bool) bool {
	if object.Equal(a, b) {
		return true
	}
	if a.Kind() != b.Kind() || key == verbatim {
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
		return slices.EqualFunc(a.Items(), b.Items(),
			func(x, y object.Value) bool { return alike(x, y, key, amount) })
	case object.Map:
		return alikeMembers(a.Members(), b.Members(), key, amount)
	}
	return false
}

func hollow(v object.Value) bool { return v.IsNull() || v.Kind() == object.List && v.Len() == 0 }

// alikeMembers compares two maps, which are the values of the member key, in one pass over their sorted members; a
// hollow member equals an absent one.
func alikeMembers(a, b []object.Member, key string, amount bool) bool {
	for {
		a, b = skipHollow(a), skipHollow(b)
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b)
		}
		if a[0].Key != b[0].Key ||
			!alike(a[0].Value, b[0].Value, a[0].Key, amount || isAmount(key, a[0].Key, a[0].Value)) {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

func skipHollow(m []object.Member) []object.Member {
	for len(m) > 0 && hollow(m[0].Value) {
		m = m[1:]
	}
	return m
}

// isAmount says whether a member of the map within is a quantity, or has quantities. A label or another key that a
// client has chosen may have the same name; its value is a text.
func isAmount(within, key string, v object.Value) bool {
	switch key {
	case "divisor":
		return within == "resourceFieldRef"
	case "sizeLimit":
		return within == "emptyDir"
	}
	return v.Kind() == object.Map && slices.Contains(quantities, key)
}

// nameSet is a set of names; a few of them need no allocation.
type nameSet struct {
	few  [8]string
	n    int
	many map[string]bool
}

// has says whether a name has been added.
func (s *nameSet) has(name string) bool {
	if s.many != nil {
		return s.many[name]
	}
	return slices.Contains(s.few[:s.n], name)
}

// add adds a name and says whether it was in the set already.
func (s *nameSet) add(name string) bool {
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
