package crd

import (
	"context"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/scale"
	"plinth/merge"
	"plinth/object"
)

// scalePaths are the paths of the fields that a Scale shows, in the form of the definition: ".spec.replicas".
type scalePaths struct {
	wanted, there, selector string // selector may be ""
}

// scalePathsOf returns the paths of a version; ok is false if it has no scale subresource.
func scalePathsOf(version object.Value) (p scalePaths, ok bool) {
	v := version.At("subresources", "scale")
	return scalePaths{
		wanted: v.At("specReplicasPath").Str(), there: v.At("statusReplicasPath").Str(),
		selector: v.At("labelSelectorPath").Str(),
	}, !v.IsNull()
}

// notWanted stands for a missing number of replicas in the Scale that a patch or apply starts from. If the result still
// has it, the patch has not set the number.
const notWanted = math.MinInt32

// scaleOf is the scale subresource of a version; nil if it has none. validate validates an object that was changed by
// a Scale.
func scaleOf(
	version object.Value, all *common, validate func(ctx context.Context, obj, old object.Value) field.ErrorList,
) *engine.Subresource {
	p, ok := scalePathsOf(version)
	if !ok {
		return nil
	}
	// As in the reference for every Scale: numbers that are 0, which autoscaling/v1 omits, are shown as empty cells.
	columns, cells := printerColumns([]object.Value{
		printerColumn("Desired", "integer", "Number of desired replicas", ".spec.replicas"),
		printerColumn("Available", "integer", "Number of actual replicas", ".status.replicas"),
		ageColumn(),
	})
	s := scale.Scaling{
		Read: func(obj object.Value) (scale.Numbers, error) {
			n, found, err := p.numbers(obj)
			if err == nil && !found {
				err = fmt.Errorf("the spec replicas field %q does not exist", p.wanted)
			}
			return n, err
		},
		Base: func(obj object.Value) (scale.Numbers, error) {
			n, found, err := p.numbers(obj)
			if !found {
				n.Wanted = notWanted
			}
			return n, err
		},
		Write: func(obj object.Value, n int64) (object.Value, error) {
			if n == notWanted {
				empty := fmt.Sprintf("the spec replicas field %q cannot be empty", p.wanted)
				return object.Nil, apierr.NewBadRequest(empty)
			}
			return setAt(obj, object.IntOf(n), split(p.wanted))
		},
		Replicas: all.replicas, Columns: columns, Cells: cells,
	}
	sub := s.Subresource()
	sub.Validate = func(ctx context.Context, _, obj, old object.Value) field.ErrorList {
		return validate(ctx, obj, old)
	}
	return sub
}

// replicasOf maps each version of a definition to the path of its number of replicas; the path is empty for a version
// without scale subresource.
func replicasOf(definition object.Value) merge.Replicas {
	replicas := merge.Replicas{}
	for _, v := range definition.At("spec", "versions").Items() {
		var path merge.Path
		if p, ok := scalePathsOf(v); ok {
			for _, name := range split(p.wanted) {
				path = append(path, merge.FieldElement(name))
			}
		}
		replicas[definition.At("spec", "group").Str()+"/"+v.At("name").Str()] = path
	}
	return replicas
}

// numbers reads the numbers of a Scale from an object. there says whether the object has a number of desired replicas.
// As in the reference they are truncated to 32 bits.
func (p scalePaths) numbers(obj object.Value) (n scale.Numbers, present bool, err error) {
	wanted, present, err := integerAt(obj, p.wanted)
	if err != nil {
		return n, false, unclassified(err)
	}
	current, _, err := integerAt(obj, p.there)
	if err != nil {
		return n, false, unclassified(err)
	}
	if p.selector != "" {
		if n.Selector, err = textAt(obj, p.selector); err != nil {
			return n, false, unclassified(err)
		}
	}
	n.Wanted, n.There = int64(int32(wanted)), int64(int32(current))
	return n, present, nil
}

// unclassified is an error without a reason, as in the reference.
func unclassified(err error) error { return &apierr.Error{Code: 500, Message: err.Error()} }

// validateScale returns a function that validates the fields that a Scale shows; nil if the version has no scale
// subresource.
func validateScale(version object.Value) func(obj object.Value) field.ErrorList {
	p, ok := scalePathsOf(version)
	if !ok {
		return nil
	}
	return func(obj object.Value) field.ErrorList {
		return append(validReplicas(obj, p.wanted), p.validateStatus(obj)...)
	}
}

// validateScaleStatus is validateScale for writes of the status: it checks the fields in the status, and the selector.
func validateScaleStatus(version object.Value) func(obj object.Value) field.ErrorList {
	p, ok := scalePathsOf(version)
	if !ok {
		return nil
	}
	return p.validateStatus
}

func (p scalePaths) validateStatus(obj object.Value) field.ErrorList {
	errs := validReplicas(obj, p.there)
	if p.selector != "" {
		if _, err := textAt(obj, p.selector); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(p.selector), "", err.Error()))
		}
	}
	return errs
}

func validReplicas(obj object.Value, path string) field.ErrorList {
	n, _, err := integerAt(obj, path)
	detail := ""
	switch {
	case err != nil:
		detail = err.Error()
	case n < 0:
		detail = "should be a non-negative integer"
	case n > math.MaxInt32:
		detail = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, detail)}
}

// split returns the names in a path. Dots in names cannot be escaped.
func split(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// integerAt returns the integer at a path; there says whether it exists.
func integerAt(obj object.Value, path string) (n int64, present bool, err error) {
	v, present, err := valueAt(obj, split(path))
	if !present || err != nil {
		return 0, present, err
	}
	if v.Kind() != object.Int {
		return 0, false, accessError(split(path), v, "int64")
	}
	return v.Int(), true, nil
}

// textAt returns the string at a path; "" if it does not exist.
func textAt(obj object.Value, path string) (string, error) {
	v, ok, err := valueAt(obj, split(path))
	if !ok || err != nil {
		return "", err
	}
	if v.Kind() != object.String {
		return "", accessError(split(path), v, "string")
	}
	return v.Str(), nil
}

func valueAt(obj object.Value, path []string) (v object.Value, present bool, err error) {
	v = obj
	for i, name := range path {
		switch v.Kind() {
		case object.Null:
			return object.Nil, false, nil
		case object.Map:
		default:
			return object.Nil, false, accessError(path[:i+1], v, "map[string]interface{}")
		}
		if v, present = v.Get(name); !present {
			return object.Nil, false, nil
		}
	}
	return v, true, nil
}

func accessError(path []string, v object.Value, expected string) error {
	current := v.Native()
	return fmt.Errorf(".%s accessor error: %v is of the type %T, expected %s",
		strings.Join(path, "."), current, current, expected)
}

// setAt sets the value at a path and creates missing maps.
func setAt(obj, v object.Value, path []string) (object.Value, error) {
	at, present := obj, true
	for i, name := range path[:len(path)-1] {
		if at, present = at.Get(name); present && at.Kind() != object.Map {
			return object.Nil, unclassified(fmt.Errorf(
				"value cannot be set because .%s is not a map[string]interface{}", strings.Join(path[:i+1], ".")))
		}
	}
	return obj.WithAt(v, path...), nil
}
