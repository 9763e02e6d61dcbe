package builtin

import (
	"strings"

	"plinth/object"
)

// everyItem is the step into each item of a list, everyMember the one into each member of a map.
const (
	everyItem   = "[]"
	everyMember = "{}"
)

// gates splits paths like "spec.containers[].lifecycle.stopSignal" into their steps.
func gates(paths ...string) [][]string {
	all := make([][]string, len(paths))
	for i, path := range paths {
		path = strings.ReplaceAll(path, everyItem, "."+everyItem)
		all[i] = strings.Split(strings.ReplaceAll(path, everyMember, "."+everyMember), ".")
	}
	return all
}

// dropGated drops the fields of features that are off, unless the old object, made when they were on, has them.
func dropGated(obj, old object.Value, fields [][]string) object.Value {
	for _, path := range fields {
		if holds(obj, path) && !holds(old, path) {
			obj = without(obj, path)
		}
	}
	return obj
}

// holds says whether there is anything at the end of a path.
func holds(v object.Value, path []string) bool {
	for i, step := range path {
		switch step {
		case everyItem:
			for _, item := range v.Items() {
				if holds(item, path[i+1:]) {
					return true
				}
			}
			return false
		case everyMember:
			for _, m := range v.Members() {
				if holds(m.Value, path[i+1:]) {
					return true
				}
			}
			return false
		}
		next, ok := v.Get(step)
		if !ok {
			return false
		}
		v = next
	}
	return !v.IsNull()
}

// without is the value with nothing at the ends of a path.
func without(v object.Value, path []string) object.Value {
	switch step := path[0]; {
	case step == everyItem:
		for i, item := range v.Items() {
			if holds(item, path[1:]) {
				v = v.WithItem(i, without(item, path[1:]))
			}
		}
		return v
	case step == everyMember:
		for _, m := range v.Members() {
			if holds(m.Value, path[1:]) {
				v = v.With(m.Key, without(m.Value, path[1:]))
			}
		}
		return v
	case len(path) == 1:
		return v.Without(step)
	default:
		next, ok := v.Get(step)
		if !ok {
			return v
		}
		return v.With(step, without(next, path[1:]))
	}
}
