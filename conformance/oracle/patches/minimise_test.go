package patches

import (
	"math/rand/v2"

	"plinth/object"
)

// minimised returns a case with as many parts removed as possible that still shows the difference.
func (c strategic) minimised(rng *rand.Rand, whole *difference) strategic {
	trials := 0
	shows := func(c strategic) bool {
		if trials++; trials > 4000 {
			return false
		}
		d := c.difference(rng, nil)
		return d != nil && d.kind() == whole.kind()
	}
	for changed := true; changed; {
		changed = false
		if less, ok := shrunk(c.patch, func(v object.Value) bool { return shows(strategic{c.kind, c.live, v}) }); ok {
			c.patch, changed = less, true
		}
		if less, ok := shrunk(c.live, func(v object.Value) bool { return shows(strategic{c.kind, v, c.patch}) }); ok {
			c.live, changed = less, true
		}
	}
	return c
}

// shrunk leaves out members and items of a value, outer ones first, as long as shows holds for the rest.
func shrunk(v object.Value, shows func(object.Value) bool) (object.Value, bool) {
	changed := false
	switch v.Kind() {
	case object.Map:
		for _, m := range v.Members() {
			if less := v.Without(m.Key); shows(less) {
				v, changed = less, true
			}
		}
		for _, m := range v.Members() {
			if less, ok := shrunk(m.Value, func(inner object.Value) bool { return shows(v.With(m.Key, inner)) }); ok {
				v, changed = v.With(m.Key, less), true
			}
		}
	case object.List:
		for i := 0; i < v.Len(); {
			items := v.Items()
			less := object.ListOf(append(append([]object.Value{}, items[:i]...), items[i+1:]...)...)
			if shows(less) {
				v, changed = less, true
			} else {
				i++
			}
		}
		for i := range v.Len() {
			if less, ok := shrunk(v.Items()[i], func(inner object.Value) bool { return shows(v.WithItem(i, inner)) }); ok {
				v, changed = v.WithItem(i, less), true
			}
		}
	}
	return v, changed
}
