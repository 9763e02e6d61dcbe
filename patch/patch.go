// Package patch applies patches: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386) and Strategic Merge Patch, which is
// Kubernetes' own. It is pure: it takes values and returns values. Server-side apply, which uses field owners, is in
// package merge.
//
// The same change in the three formats, a new image of the second container:
//
//	JSON Patch         [{"op": "replace", "path": "/spec/containers/1/image", "value": "log:2"}]
//	JSON Merge Patch   {"spec": {"containers": [{…all of the first…}, {…all of the second, with log:2…}]}}
//	Strategic          {"spec": {"containers": [{"name": "log", "image": "log:2"}]}}
//
// # Strategic Merge Patch
//
// Strategic Merge Patch is JSON Merge Patch with a schema: if the tags of a field say so, its list is merged item by
// item instead of replaced. Items are identified by a merge key. Members that begin with a dollar are directives:
//
//	"$patch": "replace"                     the rest of this map replaces the live one; in an item: the
//	                                        other items replace the list
//	"$patch": "delete"                      empties this map; in an item: removes the live items with this merge key
//	"$retainKeys": ["type", "recreate"]     removes all other keys of the live map
//	"$deleteFromPrimitiveList/f": ["a"]     removes these scalars from the list f
//	"$setElementOrder/f": [{"name": "a"}]   the order of the list f: merge keys, or the items if they are scalars
//
// For example, the containers of a Pod are merged by name. To live [{name: a, image: x}, {name: b}] the patch
//
//	containers: [{name: b, image: y}, {name: c}, {name: a, $patch: delete}]
//
// removes a, sets the image of b and adds c: [{name: b, image: y}, {name: c}]. A JSON Merge Patch would replace the
// list, so the client must know all items; with JSON Patch it must know their positions, and if the list has changed
// meanwhile, the patch changes the wrong item.
//
// The format has no specification: the meaning of a patch is defined by the reference's code, including the order of
// lists. The functions here compute the same results with other algorithms, since the reference compares every item of
// one list with every item of the other. All lists are merged in linear time, apart from a logarithmic factor (index,
// distinct).
//
// # Glossary
//
//   - live: the object that is patched.
//   - merge key: the member that identifies an item of a list of maps; each list of that kind has one, by its type.
//   - strategy: the way in which a list or map is merged according to its tags: merge, or replace. Without a tag, maps
//     are merged and lists replaced.
//   - directive: a member of a patch that says how to merge, and is not part of the object.
//   - parallel list: a directive about another member, whose name follows the slash.
//
// # Caveats
//
// A patch is applied to untyped JSON. The decoding that follows (schema.Type.Decode) checks the types and handles
// unknown fields. Subtrees that a patch does not change are shared between the old and the new object, and decoding
// skips them. The result of a JSON Patch shares nothing, because it is applied to text.
//
// The reference processes the members of a patch in the random order of a Go map. Here the order is fixed: retained
// keys, element orders, deletions from lists, everything else; each sorted by key. If a patch both deletes from a list
// and adds to it without an element order, the reference's result is random; here the additions win. Patches that crash
// the reference are errors here, and a patch that would take minutes (thousands of items with the same merge key) is
// refused. conformance/oracle/patches lists these differences.
package patch

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/object"
)

// MaxOperations is how many operations one JSON Patch may have (WRITE-2), as in the reference.
const MaxOperations = 10_000

var (
	// ErrMalformed is the error of a patch that breaks the rules of its format.
	ErrMalformed = errors.New("patch: malformed")
	// ErrUnprocessable is the error of a patch that cannot be applied to this object: a failed test, a missing path.
	ErrUnprocessable = errors.New("patch: cannot be applied")
	// ErrMisfit is the error of a strategic merge patch that does not fit the object or its type, where the reference
	// answers with an internal error: an item without its merge key, a list whose items differ in kind.
	ErrMisfit = errors.New("patch: does not fit")
)

// TooManyError is a JSON Patch with more operations than MaxOperations.
type TooManyError struct{ Operations int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, e.Operations)
}

// JSON applies a JSON Patch: all of its operations, or none. Errors wrap ErrMalformed or ErrUnprocessable, or are
// *TooManyError.
//
// stop is asked before each operation; an error of it ends the work, and is returned as it is. A patch may take seconds
// (operations.go), and this package has no clock. A caller with a context passes its Err; with nil, the patch runs to
// its end.
//
// A test of an operation compares text, so the object is printed, and the result parsed.
func JSON(obj object.Value, patch []byte, stop func() error) (object.Value, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return object.Nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(operations) > MaxOperations {
		return object.Nil, &TooManyError{Operations: len(operations)}
	}
	d, err := newDocument(object.AppendJSON(nil, obj))
	if err != nil {
		return object.Nil, fmt.Errorf("%w: %w", ErrUnprocessable, err)
	}
	for _, op := range operations {
		if stop != nil {
			if err := stop(); err != nil {
				return object.Nil, err
			}
		}
		if err := d.apply(op); err != nil {
			return object.Nil, fmt.Errorf("%w: %w", ErrUnprocessable, err)
		}
	}
	parsed, err := object.ParseJSON(d.root.appendTo(nil))
	if err != nil {
		return object.Nil, fmt.Errorf("%w: %w", ErrUnprocessable, err)
	}
	return parsed.Value, nil
}

// CheckSyntax returns an error for the body of a JSON Patch that is not JSON. The function JSON checks the rest.
func CheckSyntax(patch []byte) error {
	var value json.RawMessage
	return json.Unmarshal(patch, &value)
}

// Between is the JSON Merge Patch that makes one object into another.
func Between(before, after object.Value) (object.Value, error) {
	text, err := jsonpatch.CreateMergePatch(object.AppendJSON(nil, before), object.AppendJSON(nil, after))
	if err != nil {
		return object.Nil, err
	}
	parsed, err := object.ParseJSON(text)
	return parsed.Value, err
}

// Merge applies a JSON Merge Patch: members of maps are merged, null removes, everything else replaces.
//
// There is one deviation from RFC 7386, which is the reference's: maps inside of a list lose their null members, too,
// unless the list replaces a map. Neither argument is changed; the result shares all unchanged subtrees.
//
// The time is linear in the patch and in the maps of which it changes members. A patch whose values equal those of obj
// changes nothing: the result is then obj, in the same memory.
func Merge(obj, patch object.Value) object.Value {
	if obj.Kind() != object.Map || patch.Kind() != object.Map {
		whole, _ := plain(patch, nullMembers)
		return whole
	}
	e := edit{base: obj}
	for _, m := range patch.Members() {
		old, _ := obj.Get(m.Key)
		switch isMap := m.Value.Kind() == object.Map; {
		case m.Value.IsNull():
			e.drop(m.Key)
		case isMap && old.Kind() == object.Map:
			e.put(m.Key, old, Merge(old, m.Value))
		case old.Kind() == object.Map:
			e.set(m.Key, m.Value)
		default:
			e.set(m.Key, Merge(object.Nil, m.Value))
		}
	}
	return e.done()
}
