package builtin

import (
	"encoding/json"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
	"plinth/object"
)

// scale is the subresource that shows the replicas of an object, and sets their number. selector is the text of the
// object's label selector.
func scale(selector func(obj object.Value) (string, error)) *engine.Subresource {
	return &engine.Subresource{
		Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale",
		Verbs:  []string{"get", "patch", "update"},
		Schema: gotypes.Of[autoscalingv1.Scale],
		View: func(obj object.Value) (object.Value, error) {
			selects, err := selector(obj)
			if err != nil {
				return object.Nil, apierr.NewBadRequest(err.Error())
			}
			return scaleOf(obj, selects), nil
		},
		Write:   setReplicas,
		Tables:  true,
		Columns: columns.Scales.Columns, Cells: columns.Scales.Cells,
	}
}

// scaleOf is the Scale of an object.
func scaleOf(obj object.Value, selector string) object.Value {
	var meta []object.Member
	for _, key := range []string{"name", "namespace", "uid", "creationTimestamp"} {
		if v, ok := obj.At("metadata").Get(key); ok {
			meta = append(meta, object.Member{Key: key, Value: v})
		}
	}
	spec := object.MapOf()
	if n := obj.At("spec", "replicas").Int(); n != 0 {
		spec = object.Fields("replicas", object.IntOf(n))
	}
	status := object.Fields("replicas", object.IntOf(obj.At("status", "replicas").Int()))
	if selector != "" {
		status = status.With("selector", object.StringOf(selector))
	}
	return object.Fields(
		"apiVersion", object.StringOf("autoscaling/v1"), "kind", object.StringOf("Scale"),
		"metadata", object.MapOf(meta...), "spec", spec, "status", status)
}

// setReplicas takes the number of replicas from a Scale, and nothing else.
func setReplicas(old, body object.Value) (object.Value, error) {
	n := body.At("spec", "replicas").Int()
	if n < 0 {
		return object.Nil, apierr.NewInvalid(apierr.Type{Group: "autoscaling", Name: "Scale"}, old.At("metadata", "name").Str(),
			field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0")})
	}
	return old.WithAt(object.IntOf(n), "spec", "replicas"), nil
}

// selectorOf is the text of spec.selector where that is a LabelSelector.
func selectorOf(obj object.Value) (string, error) {
	var selector *metav1.LabelSelector
	if v := obj.At("spec", "selector"); !v.IsNull() {
		if err := json.Unmarshal(object.AppendJSON(nil, v), &selector); err != nil {
			return "", err
		}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// labelsOf is the text of spec.selector where that is a map of labels.
func labelsOf(obj object.Value) (string, error) {
	set := labels.Set{}
	for _, m := range obj.At("spec", "selector").Members() {
		set[m.Key] = m.Value.Str()
	}
	return labels.SelectorFromSet(set).String(), nil
}
