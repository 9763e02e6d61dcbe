package mutation

import (
	"maps"
	"slices"
)

// Without returns a document without its n-th part, counted from the top; apiVersion and kind do not count. n is
// negative afterwards if there was such a part.
func Without(v any, n *int) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key == "apiVersion" || key == "kind" {
				continue
			}
			if *n == 0 {
				*n--
				delete(out, key)
				return out
			}
			*n--
			if out[key] = Without(v[key], n); *n < 0 {
				return out
			}
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range v {
			if *n == 0 {
				*n--
				return slices.Delete(out, i, i+1)
			}
			*n--
			if out[i] = Without(v[i], n); *n < 0 {
				return out
			}
		}
		return out
	}
	return v
}
