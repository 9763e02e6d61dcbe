//go:build mutants

package recorder

import (
	"encoding/json"
	"maps"
	"slices"
)

// SmallerJSON returns a JSON document without its n-th part, counted from the top; nil if it has no such part. The
// members named in keep are not removed.
func SmallerJSON(in []byte, n int, keep ...string) []byte {
	var doc any
	if err := json.Unmarshal(in, &doc); err != nil {
		return nil
	}
	less, ok := Without(doc, n, keep...)
	if !ok {
		return nil
	}
	out, err := json.Marshal(less)
	if err != nil {
		return nil
	}
	return out
}

// Without returns a JSON value without its n-th part, counted from the top; ok is false if it has no such part. The
// members named in keep are not removed.
func Without(v any, n int, keep ...string) (less any, ok bool) {
	less = without(v, &n, keep)
	return less, n < 0
}

// without returns a value without its n-th part, the parts of one level before those below them; n is negative
// afterwards if there was such a part.
func without(v any, n *int, keep []string) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(key string) bool {
			return slices.Contains(keep, key)
		})
		for _, key := range keys {
			if *n--; *n < 0 {
				delete(out, key)
				return out
			}
		}
		for _, key := range keys {
			if out[key] = without(v[key], n, keep); *n < 0 {
				return out
			}
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range v {
			if *n--; *n < 0 {
				return slices.Delete(out, i, i+1)
			}
		}
		for i := range v {
			if out[i] = without(v[i], n, keep); *n < 0 {
				return out
			}
		}
		return out
	}
	return v
}
