package cel

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kube "k8s.io/apiserver/pkg/cel"

	"plinth/schema"
)

var errUndeclared = errors.New("failed to convert to declType for CEL validation rules")

func escape(name string) (string, bool) { return kube.Escape(name) }

// follow goes from a type along the fieldPath of a rule, .spec.labels['a.b'], and returns it as paths of errors are printed. A name
// is that of a field, or, of what has no fields, a key.
func follow(path string, t *schema.Type) (string, error) {
	var out *field.Path
	for rest := path; rest != ""; {
		var name string
		var err error
		if name, rest, err = cutStep(rest); err != nil {
			return "", err
		}
		switch {
		case t != nil && len(t.Fields) > 0:
			if t = fieldType(t, name); t == nil {
				return "", errNoField
			}
			out = out.Child(name)
		case t != nil && t.Additional() != nil:
			t = t.Additional()
			out = out.Key(name)
		default:
			return "", errNoField
		}
	}
	if out == nil {
		return "", nil
	}
	return out.String(), nil
}

var errNoField = errors.New("does not refer to a valid field")

// cutStep cuts `.name` or `['name']` off a path.
func cutStep(path string) (name, rest string, err error) {
	switch {
	case path[0] == '.':
		end := strings.IndexAny(path[1:], ".[]") + 1
		if end == 0 {
			end = len(path)
		}
		if end == 1 {
			return "", "", fmt.Errorf("%q: a name is missing", path)
		}
		return path[1:end], path[end:], nil
	case strings.HasPrefix(path, "['"):
		for i := 2; i < len(path); i++ {
			if path[i] == '\'' && path[i-1] != '\\' {
				if rest, closed := strings.CutPrefix(path[i+1:], "]"); closed {
					return escapes.Replace(path[2:i]), rest, nil
				}
				break
			}
		}
	}
	return "", "", fmt.Errorf("%q is no path", path)
}

var escapes = strings.NewReplacer(`\a`, "\a", `\b`, "\b", `\f`, "\f", `\n`, "\n", `\r`, "\r", `\t`, "\t", `\v`, "\v", `\'`, "'", `\\`, `\`)
