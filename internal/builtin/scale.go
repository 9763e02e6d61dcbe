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
	"plinth/merge"
	"plinth/object"
)

// scaling is where an object keeps what its scale subresource shows (URI-7).
type scaling struct {
	selector     func(obj object.Value) (string, error) // the text of its label selector
	spec, status []string                               // the paths of the number of replicas that is wanted, and that there is
}

// replicasOf is the scaling of the kinds that have spec.replicas and status.replicas.
func replicasOf(selector func(obj object.Value) (string, error)) *scaling {
	return &scaling{selector: selector, spec: []string{"spec", "replicas"}, status: []string{"status", "replicas"}}
}

// subresource shows the replicas of an object, and sets their number. version is the apiVersion of the object.
func (c *scaling) subresource(version string) *engine.Subresource {
	var path merge.Path
	for _, name := range c.spec {
		path = append(path, merge.FieldElement(name))
	}
	return &engine.Subresource{
		Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale",
		Verbs:  []string{"get", "patch", "update"},
		Schema: gotypes.Of[autoscalingv1.Scale],
		View: func(obj object.Value) (object.Value, error) {
			selects, err := c.selector(obj)
			if err != nil {
				return object.Nil, apierr.NewBadRequest(err.Error())
			}
			return c.of(obj, selects), nil
		},
		Write:    c.set,
		Replicas: merge.Replicas{version: path},
		Tables:   true,
		Columns:  columns.Scales.Columns, Cells: columns.Scales.Cells,
	}
}

// of is the Scale of an object.
func (c *scaling) of(obj object.Value, selector string) object.Value {
	var meta []object.Member
	for _, key := range []string{"name", "namespace", "uid", "creationTimestamp"} {
		if v, ok := obj.At("metadata").Get(key); ok {
			meta = append(meta, object.Member{Key: key, Value: v})
		}
	}
	spec := object.MapOf()
	if n := obj.At(c.spec...).Int(); n != 0 {
		spec = object.Fields("replicas", object.IntOf(n))
	}
	status := object.Fields("replicas", object.IntOf(obj.At(c.status...).Int()))
	if selector != "" {
		status = status.With("selector", object.StringOf(selector))
	}
	return object.Fields(
		"apiVersion", object.StringOf("autoscaling/v1"), "kind", object.StringOf("Scale"),
		"metadata", object.MapOf(meta...), "spec", spec, "status", status)
}

// set takes the number of replicas from a Scale, and nothing else.
func (c *scaling) set(old, body object.Value) (object.Value, error) {
	n := body.At("spec", "replicas").Int()
	if n < 0 {
		return object.Nil, apierr.NewInvalid(apierr.Type{Group: "autoscaling", Name: "Scale"}, old.At("metadata", "name").Str(),
			field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0")})
	}
	return old.WithAt(object.IntOf(n), c.spec...), nil
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
