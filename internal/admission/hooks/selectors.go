package hooks

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// NamespaceReader reads a Namespace; null: there is none.
type NamespaceReader func(ctx context.Context, name string) (object.Value, error)

// Selectors are the namespaceSelector and the objectSelector of a hook.
type Selectors struct {
	namespaces, objects labels.Selector
	err                 error
}

// SelectorsOf reads the members namespaceSelector and objectSelector.
func SelectorsOf(v object.Value) (s Selectors) {
	if s.namespaces, s.err = Selector(v.At("namespaceSelector")); s.err == nil {
		s.objects, s.err = Selector(v.At("objectSelector"))
	}
	return s
}

// Selector reads a LabelSelector. An empty one selects everything, and so does null.
func Selector(v object.Value) (labels.Selector, error) {
	var of metav1.LabelSelector
	for _, m := range v.At("matchLabels").Members() {
		if of.MatchLabels == nil {
			of.MatchLabels = map[string]string{}
		}
		of.MatchLabels[m.Key] = m.Value.Str()
	}
	for _, e := range v.At("matchExpressions").Items() {
		of.MatchExpressions = append(of.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.At("key").Str(), Operator: metav1.LabelSelectorOperator(e.At("operator").Str()),
			Values: texts(e.At("values")),
		})
	}
	return metav1.LabelSelectorAsSelector(&of)
}

// Labels are what selectors look at: the labels of the object of a request, as it is now and as it was. They are made
// once for all selectors of a request.
type Labels struct {
	of       *engine.Attributes
	now, old labels.Labels // nil: there is no such object
}

// LabelsOf returns the labels of the object of a request, as it is at the time of the call.
func LabelsOf(a *engine.Attributes) *Labels {
	l := &Labels{of: a}
	if a.Operation == engine.OperationConnect { // the options of a connection have no labels
		return l
	}
	if !a.Object.IsNull() {
		l.now = ObjectLabels(a.Object)
	}
	if !a.Old.IsNull() {
		l.old = ObjectLabels(a.Old)
	}
	return l
}

// Select says whether the selectors select a request by the labels of its object and of its namespace. An error is an
// internal one if a selector could not be read, or says why the namespace could not be read.
func (s *Selectors) Select(ctx context.Context, namespace NamespaceReader, l *Labels) (bool, error) {
	if s.err != nil {
		return false, apierr.NewInternal(s.err)
	}
	// The labels of the object are looked at first although an error about the namespace precedes: a hook whose other
	// selector does not select is none of the request's business.
	matches := func(of labels.Labels) bool { return of != nil && s.objects.Matches(of) }
	if !s.objects.Empty() && !matches(l.now) && !matches(l.old) {
		return false, nil
	}
	if s.namespaces.Empty() {
		return true, nil
	}
	set, cluster, err := namespaceLabels(ctx, namespace, l.of)
	if cluster || err != nil {
		return cluster, err
	}
	return s.namespaces.Matches(set), nil
}

// namespaceLabels returns the labels of the namespace of a request; for the Namespaces themselves those of the object,
// unless it is deleted. cluster says that the request has no namespace; such requests are always selected.
func namespaceLabels(ctx context.Context, namespace NamespaceReader, a *engine.Attributes) (set labels.Labels,
	cluster bool, err error) {
	name, ofNamespace := a.Request.Namespace, isNamespaces(a.Request.Resource)
	if ofNamespace {
		if subresourceOf(a) == "" && (a.Operation == engine.OperationCreate || a.Operation == engine.OperationUpdate) {
			return ObjectLabels(a.Object), false, nil
		}
		name = a.Name
	}
	if name == "" {
		return nil, true, nil
	}
	ns, err := namespace(ctx, name)
	switch {
	case err != nil:
		return nil, false, apierr.From(err)
	case ns.IsNull():
		return nil, false, apierr.NewNotFound(apierr.Type{Name: "namespaces"}, name)
	}
	return ObjectLabels(ns), false, nil
}

// ObjectLabels are the labels of an object. They are not copied.
func ObjectLabels(obj object.Value) labels.Labels { return objectLabels{obj.At("metadata", "labels")} }

// objectLabels implements labels.Labels.
type objectLabels struct{ of object.Value }

func (l objectLabels) Has(label string) bool {
	_, ok := l.of.Get(label)
	return ok
}

func (l objectLabels) Get(label string) string {
	v, _ := l.of.Get(label)
	return v.Str()
}

func (l objectLabels) Lookup(label string) (value string, ok bool) {
	v, ok := l.of.Get(label)
	return v.Str(), ok
}
