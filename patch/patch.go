// Package patch applies the patch languages that name no owner: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386) and
// Strategic Merge Patch, which is Kubernetes' own. It is pure: values in, values out. Server-side apply is package merge.
//
// Strategic Merge Patch is JSON Merge Patch that knows the type: a field whose tags say so has its list merged item by item,
// told apart by a merge key, instead of replaced. Members that begin with a dollar are directives:
//
//	"$patch": "replace"                     this map is the new one; in an item of a list: the other items are the new list
//	"$patch": "delete"                      this map is emptied; an item with this merge key goes
//	"$retainKeys": ["type", "recreate"]     what this map has beside these goes
//	"$deleteFromPrimitiveList/f": ["a"]     these scalars go from the list f
//	"$setElementOrder/f": [{"name": "a"}]   the order of the list f, told by merge keys, or by the items if they are scalars
//
// A patch is applied to untyped JSON. Whether the result fits the type, and what becomes of fields that the type does not
// have, is for the decoding that follows (schema.Type.Decode).
//
// Subtrees that no patch changes are shared between the old and the new object.
//
// Caveats. The reference goes through the members of a patch in the random order of a Go map. Here the order is fixed: retained
// keys, element orders, deletions from lists, everything else; each by key. What upstream's answer is when a list is both
// deleted from and added to without an element order is up to chance there; here the additions win. Where the reference
// crashes, there is an error here, and a patch that would keep it busy for minutes (thousands of items with the same merge
// key) is refused; conformance/patches lists these differences.
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
	// ErrMalformed is a patch that is not written in its language.
	ErrMalformed = errors.New("patch: malformed")
	// ErrUnprocessable is a patch that cannot be applied to this object: a failed test, a path that is not there.
	ErrUnprocessable = errors.New("patch: cannot be applied")
	// ErrMisfit is a strategic merge patch that does not fit the object or its type, where the reference answers with an
	// internal error: an item without its merge key, a list whose items differ in kind.
	ErrMisfit = errors.New("patch: does not fit")
)

// TooManyError is a JSON Patch with more operations than MaxOperations.
type TooManyError struct{ Operations int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, e.Operations)
}

// JSON applies a JSON Patch. Errors wrap ErrMalformed or ErrUnprocessable, or are *TooManyError.
func JSON(obj object.Value, patch []byte) (object.Value, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return object.Nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(operations) > MaxOperations {
		return object.Nil, &TooManyError{Operations: len(operations)}
	}
	patched, err := apply(operations, object.AppendJSON(nil, obj), len(patch))
	if err != nil {
		return object.Nil, fmt.Errorf("%w: %w", ErrUnprocessable, err)
	}
	parsed, err := object.ParseJSON(patched)
	if err != nil {
		return object.Nil, fmt.Errorf("%w: %w", ErrUnprocessable, err)
	}
	return parsed.Value, nil
}

// apply has the library do its work. It panics on some patches: values that are missing, or null where a container is
// to be. What it works on is its own, so nothing is left half done. size is that of the patch's text.
func apply(operations jsonpatch.Patch, doc []byte, size int) (patched []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it makes no sense: %v", p)
		}
	}()
	if mayCopyTooMuch(operations, len(doc)+size) {
		return applyCounted(operations, doc)
	}
	return operations.Apply(doc)
}

// IsList says whether a JSON Patch body is a list at all; the reference words that error apart.
func IsList(patch []byte) error {
	var operations []json.RawMessage
	return json.Unmarshal(patch, &operations)
}

// Merge applies a JSON Merge Patch: members of maps are merged, null removes, everything else replaces.
//
// RFC 7386 takes lists as they are. As in the reference, maps within a list lose their null members, too; unless the list
// takes the place of a map.
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
