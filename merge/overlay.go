package merge

import (
	"fmt"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// Overlay merges an intent into an object without managers: what admission policies do (SSA-19). Items of associative
// lists are merged by their keys, and nothing is removed.
//
// An intent may not have values that would replace others as wholes: atomic lists, maps and structs. Its author would
// see the fields that it sets, and not those that are lost. So these are an error, also where the object has nothing at
// that place. Errors are worded as in the reference.
func Overlay(obj, intent object.Value, t *schema.Type) (object.Value, error) {
	r := newArena()
	defer r.release()
	if _, err := checkedFieldsOf(intent, t, r); err != nil {
		return object.Nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if places := atomics(nil, nil, intent, t); len(places) > 0 {
		return object.Nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s",
			strings.Join(places, ", "))
	}
	merged, err := join(obj, intent, t)
	if err != nil {
		return object.Nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	return merged, nil
}

// atomics appends the places of all atomic containers in a value. Members whose names the type does not declare are not
// looked into, as in the reference.
func atomics(found []string, at []byte, v object.Value, t *schema.Type) []string {
	s := shapeOf(t, v)
	isMap, isList := s == mapping && v.Kind() == object.Map, s == listing && v.Kind() == object.List
	if (isMap || isList) && atomic(t, s) {
		found = append(found, string(at))
	}
	switch {
	case isMap:
		for _, m := range v.Members() {
			if of, declared := memberType(t, m.Key); declared {
				found = atomics(found, append(at, "."+m.Key...), m.Value, of)
			}
		}
	case isList:
		for i, item := range v.Items() {
			found = atomics(found, fmt.Appendf(at, "[%d]", i), item, itemType(t))
		}
	}
	return found
}
