package cel

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kube "k8s.io/apiserver/pkg/cel"

	"plinth/schema"
)

var errUndeclared = errors.New("failed to convert to declType for CEL validation rules")

func escape(name string) (string, bool) { return kube.Escape(name) }

// follow resolves the fieldPath of a rule, starting at a type, and returns the path as errors print it. A step is the
// name of a field, or a key if the type has no fields.
func follow(path string, t *schema.Type) (string, error) {
	var out *field.Path
	for steps := schema.NewFieldPath(path, true); ; {
		name, ok, err := steps.Next()
		switch {
		case err != nil:
			return "", err
		case !ok && out == nil:
			return "", nil
		case !ok:
			return out.String(), nil
		case t != nil && len(t.Fields) > 0:
			if t = t.Property(name); t == nil {
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
}

var errNoField = errors.New("does not refer to a valid field")
