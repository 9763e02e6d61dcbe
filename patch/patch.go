// Package patch applies the patch languages that need no server: JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386).
// It is pure: values in, values out.
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

// maxCopied is how many bytes the copy operations of one JSON Patch may add, as in the reference: without a bound, a few
// dozen operations that copy a list into itself would fill any memory (WRITE-6).
const maxCopied = 3 * 3 << 20

// The library keeps this bound in a variable of its package.
func init() { jsonpatch.AccumulatedCopySizeLimit = maxCopied }

var (
	// ErrMalformed is a patch that is not written in its language.
	ErrMalformed = errors.New("patch: malformed")
	// ErrUnprocessable is a patch that cannot be applied to this object: a failed test, a path that is not there.
	ErrUnprocessable = errors.New("patch: cannot be applied")
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
	patched, err := apply(operations, object.AppendJSON(nil, obj))
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
// to be. What it works on is its own, so nothing is left half done.
func apply(operations jsonpatch.Patch, doc []byte) (patched []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it makes no sense: %v", p)
		}
	}()
	return operations.Apply(doc)
}

// IsList says whether a JSON Patch body is a list at all; the reference words that error apart.
func IsList(patch []byte) error {
	var operations []json.RawMessage
	return json.Unmarshal(patch, &operations)
}

// Merge applies a JSON Merge Patch: members of maps are merged, null removes, everything else replaces.
func Merge(obj, patch object.Value) object.Value {
	if patch.Kind() != object.Map {
		return patch
	}
	if obj.Kind() != object.Map {
		obj = object.MapOf()
	}
	var set []object.Member
	var drop []string
	for _, m := range patch.Members() {
		if m.Value.IsNull() {
			drop = append(drop, m.Key)
			continue
		}
		old, _ := obj.Get(m.Key)
		set = append(set, object.Member{Key: m.Key, Value: Merge(old, m.Value)})
	}
	return obj.Edit(set, drop...)
}
