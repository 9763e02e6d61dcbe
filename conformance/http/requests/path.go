package requests

import (
	"fmt"
	"strconv"
	"strings"
)

// A path leads into a JSON value: members and indexes between dots, with * for every one of them, and ~ in place of a
// dot within a name.

func splitPath(path string) []string {
	parts := strings.Split(path, ".")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "~", ".")
	}
	return parts
}

// find returns the value at a path without *.
func find(v any, path string) (any, bool) {
	for _, part := range splitPath(path) {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// drop removes the values at a path. The items of a list are replaced by "dropped", so that the others keep their
// indexes.
func drop(v any, parts []string) any {
	switch in := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(in) {
			if parts[0] != "*" && parts[0] != key {
				continue
			}
			if len(parts) == 1 {
				delete(in, key)
				continue
			}
			in[key] = drop(in[key], parts[1:])
		}
	case []any:
		for i := range in {
			if parts[0] != "*" && parts[0] != strconv.Itoa(i) {
				continue
			}
			if len(parts) == 1 {
				in[i] = "dropped"
				continue
			}
			in[i] = drop(in[i], parts[1:])
		}
	}
	return v
}

// kept returns the parts of v at the paths (keep), or v itself without paths.
func kept(v any, paths []string) any {
	if len(paths) == 0 {
		return v
	}
	return keep(v, paths)
}

// keep returns only the values at the paths, by path.
func keep(v any, paths []string) any {
	kept := map[string]any{}
	for _, path := range paths {
		gather(v, splitPath(path), "", kept)
	}
	return kept
}

func gather(v any, parts []string, at string, into map[string]any) {
	if len(parts) == 0 {
		into[at] = v
		return
	}
	deeper := func(name string) string { return strings.TrimPrefix(at+"."+name, ".") }
	switch in := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(in) {
			if parts[0] == "*" || parts[0] == key {
				gather(in[key], parts[1:], deeper(key), into)
			}
		}
	case []any:
		for i := range in {
			if parts[0] == "*" || parts[0] == strconv.Itoa(i) {
				gather(in[i], parts[1:], deeper(fmt.Sprint(i)), into)
			}
		}
	}
}
