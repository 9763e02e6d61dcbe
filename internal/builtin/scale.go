package builtin

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/builtin/columns"
	"plinth/internal/engine"
	"plinth/internal/scale"
	"plinth/merge"
	"plinth/object"
)

// scaled is the scale subresource of the kinds that have spec.replicas and status.replicas (URI-7). selector is the
// text of the label selector of an object; version is the apiVersion of the kind.
func scaled(selector func(obj object.Value) (string, error), version string) *engine.Subresource {
	return scale.Scaling{
		Read: func(obj object.Value) (scale.Numbers, error) {
			selects, err := selector(obj)
			if err != nil {
				return scale.Numbers{}, apierr.NewBadRequest(err.Error())
			}
			return scale.Numbers{
				Wanted: obj.At("spec", "replicas").Int(), There: obj.At("status", "replicas").Int(), Selector: selects,
			}, nil
		},
		Write:    setReplicas,
		Replicas: merge.Replicas{version: {merge.FieldElement("spec"), merge.FieldElement("replicas")}},
		Columns:  columns.Scales.Columns, Cells: columns.Scales.Cells,
	}.Subresource()
}

func setReplicas(obj object.Value, n int64) (object.Value, error) {
	if n < 0 {
		typ := apierr.Type{Group: "autoscaling", Name: "Scale"}
		return object.Nil, apierr.NewInvalid(typ, obj.At("metadata", "name").Str(), field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0"),
		})
	}
	return obj.WithAt(object.IntOf(n), "spec", "replicas"), nil
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
