package patch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"plinth/object"
	"plinth/schema"
)

const (
	patchDirective = "$patch"
	replacing      = "replace"
	deleting       = "delete"
	merging        = "merge"

	retainKeys   = "retainKeys"
	retainPrefix = "$" + retainKeys
	deletePrefix = "$deleteFromPrimitiveList"
	orderPrefix  = "$setElementOrder"
)

// maxWork bounds the number of members and items that one strategic merge patch may walk: several times the number that
// the largest patch of the largest object needs. Only a patch that merges the same item repeatedly comes near it
// (WRITE-6).
const maxWork = 1 << 24

// Strategic applies a Strategic Merge Patch to an object of a built-in type, as StrategicMergeMapPatch of
// apimachinery's package strategicpatch does. Errors are *StrategicError. For custom types, whose fields have no patch
// tags, the engine refuses such patches.
//
// Numbers are compared as without a schema: 80 and 80.0 are different merge keys. As in the reference, a null patch
// changes nothing.
func Strategic(live, patch object.Value, t *schema.Type) (object.Value, error) {
	made, _, err := StrategicCollisions(live, patch, t)
	return made, err
}

// StrategicCollisions is Strategic, and also returns the lists in which the patch took several items for one: of an
// ordinary patch, none.
func StrategicCollisions(live, patch object.Value, t *schema.Type) (object.Value, []Collision, error) {
	if t == nil || t.Kind != schema.Struct {
		return object.Nil, nil, malformed("strategic merge patch format is not supported")
	}
	if patch.IsNull() {
		return live, nil, nil
	}
	if patch.Kind() != object.Map {
		return object.Nil, nil,
			malformed("json: cannot unmarshal %s into Go value of type map[string]interface {}", patch.Kind())
	}
	patch, err := patch.Untyped()
	if err != nil {
		return object.Nil, nil, malformed("%s", err)
	}
	// Untyped content of the live object may contain a literal beyond the range of all number types. Then the object is
	// used with its literals.
	if untyped, err := live.Untyped(); err == nil {
		live = untyped
	}
	m := merger{work: maxWork}
	made, err := m.maps(live, patch, valueType{kind: schema.Struct, t: t})
	return made, m.collisions, err
}

// merger is one application of a strategic merge patch. It walks the live object, the patch and the type in parallel.
type merger struct {
	work int // what remains of maxWork
	// collisions are those so far. While a part of the patch is merged, the paths of those that are found there are
	// relative to it (under).
	collisions []Collision
}

// spend subtracts the cost of a step from work. A step is paid before it is done, so work < 0 bounds the time.
func (m *merger) spend(steps int) error {
	if m.work -= steps; m.work < 0 {
		return &StrategicError{kind: ErrUnprocessable, message: "the patch merges the same list items too many times"}
	}
	return nil
}

// maps merges a patch into a map of this type, in a fixed order: the $patch directive, retained keys, element orders,
// deletions, all other members. The order affects the result, because several of these may change the same member.
//
// Members of a patch that equal those of the live object leave them unchanged, and shared (edit).
func (m *merger) maps(live, patch object.Value, p valueType) (object.Value, error) {
	if directive, ok := patch.Get(patchDirective); ok {
		switch directive.Str() {
		case replacing:
			return patch.Without(patchDirective), nil
		case deleting:
			return object.MapOf(), nil
		}
		return object.Nil, unknownDirective(directive, patch)
	}
	if err := m.spend(live.Len() + patch.Len()); err != nil {
		return object.Nil, err
	}
	d := directivesOf(patch)
	if d.retain != nil {
		var err error
		if live, err = retained(live, patch, *d.retain); err != nil {
			return object.Nil, err
		}
	}
	live, placed, err := m.inOrder(live, patch, p, d.orders)
	if err != nil {
		return object.Nil, err
	}
	if live, err = m.without(live, p, d.deletions); err != nil {
		return object.Nil, err
	}
	e := edit{base: live}
	for _, member := range patch.Members() {
		if member.Key == retainPrefix || isParallel(member.Key) || placed[member.Key] {
			continue
		}
		first := len(m.collisions)
		if err := m.member(&e, member.Key, member.Value, p); err != nil {
			return object.Nil, within(err, member.Key)
		}
		m.under(first, member.Key)
	}
	return e.done(), nil
}

// member merges a member of a patch that is not a directive. Null removes the live member; a map is merged into a map,
// and a list into a list. Any other value, such as a member that the object does not have, is added without its nulls
// and directives.
func (m *merger) member(e *edit, key string, patch object.Value, p valueType) error {
	if patch.IsNull() {
		e.drop(key)
		return nil
	}
	live, exists := e.base.Get(key)
	switch {
	case exists && live.Kind() == object.Map && patch.Kind() == object.Map:
		return m.memberMap(e, key, live, patch, p)
	case exists && live.Kind() == object.List && patch.Kind() == object.List:
		made, err := m.memberList(key, live, patch, p, false)
		if err != nil {
			return err
		}
		e.set(key, object.ListOf(made...))
		return nil
	}
	if fresh, ok := plain(patch, nullMembers|directiveMaps); ok {
		e.set(key, fresh)
	} else {
		e.drop(key)
	}
	return nil
}

// memberMap merges a map into the live map of the same member, or replaces it if its tags say so.
func (m *merger) memberMap(e *edit, key string, live, patch object.Value, p valueType) error {
	field, err := p.field(key)
	if err != nil {
		return err
	}
	strategy, err := field.strategy()
	if err != nil {
		return err
	}
	if strategy == replacing {
		e.set(key, patch)
		return nil
	}
	made, err := m.maps(live, patch, field.valueType)
	if err != nil {
		return err
	}
	e.put(key, live, made)
	return nil
}

// memberList merges a list into the live list of the same member, and returns the items. A list is merged only if its
// tags say so. deletes says that the list comes from a $deleteFromPrimitiveList directive, which works in any list.
func (m *merger) memberList(key string, live, patch object.Value, p valueType, deletes bool) ([]object.Value, error) {
	field, err := p.list(key)
	if err != nil {
		return nil, err
	}
	strategy, err := field.strategy()
	if err != nil {
		return nil, err
	}
	if strategy != merging && !deletes {
		return patch.Items(), nil
	}
	made, _, err := m.lists(live.Items(), patch.Items(), field, deletes)
	return made, err
}

// without applies the $deleteFromPrimitiveList directives. The reference handles their values like those of members,
// and so does without: null removes the list, a map is merged, and a scalar replaces.
func (m *merger) without(live object.Value, p valueType, deletions []object.Member) (object.Value, error) {
	e := edit{base: live}
	for _, d := range deletions {
		prefix, key, slash := strings.Cut(d.Key, "/")
		if !slash || prefix != deletePrefix {
			return object.Nil, malformed("invalid patch format of primitive list")
		}
		if key == "" {
			key = d.Key
		}
		old, exists := live.Get(key)
		switch {
		case d.Value.IsNull():
			e.drop(key)
		case !exists || old.Kind() != d.Value.Kind():
		case old.Kind() == object.Map:
			if err := m.memberMap(&e, key, old, d.Value, p); err != nil {
				return object.Nil, within(err, d.Key)
			}
		case old.Kind() == object.List:
			made, err := m.memberList(key, old, d.Value, p, true)
			if err != nil {
				return object.Nil, within(err, d.Key)
			}
			e.set(key, object.ListOf(made...))
		default:
			e.set(key, d.Value)
		}
	}
	return e.done(), nil
}

// directives are the members of a patch that are directives, by their effect.
type directives struct {
	retain    *object.Value
	orders    []object.Member
	deletions []object.Member
}

// directivesOf finds the directives of a patch. All begin with a dollar, so they are adjacent in the sorted members.
func directivesOf(patch object.Value) directives {
	var d directives
	members := patch.Members()
	first, _ := slices.BinarySearchFunc(members, "$", func(m object.Member,
		key string) int {
		return strings.Compare(m.Key, key)
	})
	for _, m := range members[first:] {
		switch {
		case !strings.HasPrefix(m.Key, "$"):
			return d
		case m.Key == retainPrefix:
			d.retain = &m.Value
		case strings.HasPrefix(m.Key, orderPrefix):
			d.orders = append(d.orders, m)
		case strings.HasPrefix(m.Key, deletePrefix):
			d.deletions = append(d.deletions, m)
		}
	}
	return d
}

// isParallel says whether a member of a patch is a directive about another member.
func isParallel(key string) bool {
	return strings.HasPrefix(key, orderPrefix) || strings.HasPrefix(key, deletePrefix)
}

// retained removes the members that $retainKeys does not list from the live map. The list must name all members that
// the patch sets.
func retained(live, patch, list object.Value) (object.Value, error) {
	if list.Kind() != object.List {
		return object.Nil, malformed("invalid patch format of retainKeys")
	}
	keys := make(map[string]bool, list.Len())
	for _, key := range list.Items() {
		switch key.Kind() {
		case object.String:
			keys[key.Str()] = true
		case object.List, object.Map:
			return object.Nil, noScalar(key)
		}
	}
	for _, m := range patch.Members() {
		if m.Key != retainPrefix && !m.Value.IsNull() && !isParallel(m.Key) && !keys[m.Key] {
			return object.Nil, malformed("invalid patch format of retainKeys")
		}
	}
	e := edit{base: live}
	for _, m := range live.Members() {
		if !keys[m.Key] {
			e.drop(m.Key)
		}
	}
	return e.done(), nil
}

// unwanted are the parts of a patch that are removed where the object has no value to merge it with.
type unwanted uint8

const (
	nullMembers   unwanted = 1 << iota // members that are null; null items of lists stay
	directiveMaps                      // maps with a $patch directive
)

// plain returns a part of a patch without the unwanted parts, in the form in which it is added to an object that has no
// value at this place; ok is false if nothing remains. A part without unwanted parts is returned unchanged, and shared.
func plain(patch object.Value, without unwanted) (object.Value, bool) {
	switch patch.Kind() {
	case object.Map:
		e := edit{base: patch}
		for _, m := range patch.Members() {
			if without&nullMembers != 0 && m.Value.IsNull() {
				e.drop(m.Key)
				continue
			}
			if without&directiveMaps != 0 && m.Key == patchDirective {
				return object.Nil, false
			}
			if v, ok := plain(m.Value, without); ok {
				e.put(m.Key, m.Value, v)
			} else {
				e.drop(m.Key)
			}
		}
		return e.done(), true
	case object.List:
		items := patch.Items()
		kept := make([]object.Value, 0, len(items))
		changed := false
		for _, item := range items {
			v, ok := plain(item, without)
			if ok {
				kept = append(kept, v)
			}
			changed = changed || !ok || v != item
		}
		if changed {
			return object.ListOf(kept...), true
		}
	}
	return patch, true
}

// StrategicError is a strategic merge patch that cannot be applied, with the text of the reference. It wraps
// ErrMalformed (400), ErrUnprocessable (422) or ErrMisfit (500 in the reference).
type StrategicError struct {
	// Path leads to the part of the patch that the error is about: "spec.containers[1].env". Each level that the error
	// passes on its way up puts its element in front.
	Path    string
	kind    error
	message string
}

// within puts the element of a path in front of the path of an error, and returns the error.
func within(err error, element string) error {
	var strategic *StrategicError
	if !errors.As(err, &strategic) {
		return err
	}
	strategic.Path = joined(element, strategic.Path)
	return err
}

// joined puts the element of a path in front of the rest.
func joined(element, rest string) string {
	if rest != "" && rest[0] != '[' {
		element += "."
	}
	return element + rest
}

func (e *StrategicError) Error() string { return e.message }

// Unwrap returns the sentinel that classifies the error.
func (e *StrategicError) Unwrap() error { return e.kind }

// malformed is the error of a patch that breaks the rules of the format.
func malformed(format string, args ...any) error {
	return &StrategicError{kind: ErrMalformed, message: fmt.Sprintf(format, args...)}
}

// misfit is the error of a patch that does not fit the object or its type.
func misfit(format string, args ...any) error {
	return &StrategicError{kind: ErrMisfit, message: fmt.Sprintf(format, args...)}
}
