package builtin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/object"
)

func authorization() group {
	type answer = func(context.Context, *engine.Request, object.Value) (object.Value, error)
	answered := func(by func(accessReviews) answer) func(r *engine.Resource, parts *Parts) {
		return func(r *engine.Resource, parts *Parts) {
			r.Answer = by(accessReviews{cmp.Or(parts.Authority, &authz.Authority{})})
		}
	}
	return group{"authorization.k8s.io", []kind{
		{
			name: "localsubjectaccessreviews", kind: "LocalSubjectAccessReview",
			versions: []version{unlisted[authorizationv1.LocalSubjectAccessReview]()}, verbs: createOnly,
			acts: answered(func(a accessReviews) answer { return a.of(localAccess) }),
		},
		{
			name: "selfsubjectaccessreviews", kind: "SelfSubjectAccessReview",
			versions: []version{unlisted[authorizationv1.SelfSubjectAccessReview]()}, cluster: true, verbs: createOnly,
			acts: answered(func(a accessReviews) answer { return a.self }),
		},
		{
			name: "selfsubjectrulesreviews", kind: "SelfSubjectRulesReview",
			versions: []version{unlisted[authorizationv1.SelfSubjectRulesReview]()}, cluster: true, verbs: createOnly,
			acts: answered(func(a accessReviews) answer { return a.rules }),
		},
		{
			name: "subjectaccessreviews", kind: "SubjectAccessReview",
			versions: []version{unlisted[authorizationv1.SubjectAccessReview]()}, cluster: true, verbs: createOnly,
			acts: answered(func(a accessReviews) answer { return a.of(noMeta) }),
		},
	}}
}

// accessReviews return the decision that the authority would make about a request.
type accessReviews struct{ authority *authz.Authority }

// self returns whether the user who sends it may do something.
func (a accessReviews) self(ctx context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
	errs := append(attributesErrors(obj), selectorErrors(obj)...)
	if errs = append(errs, noMeta(obj)...); len(errs) > 0 {
		return object.Nil, refused(errs)
	}
	return a.decide(ctx, obj, rq.User), nil
}

// of returns whether a named user may do something. rule is the validation that is specific to the kind.
func (a accessReviews) of(rule func(obj object.Value) field.ErrorList) func(context.Context, *engine.Request,
	object.Value) (object.Value, error) {
	return func(ctx context.Context, _ *engine.Request, obj object.Value) (object.Value, error) {
		errs := attributesErrors(obj)
		spec := obj.At("spec")
		if spec.At("user").Str() == "" && spec.At("groups").Len() == 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "user"), "",
				"at least one of user or group must be specified"))
		}
		errs = append(errs, selectorErrors(obj)...)
		if errs = append(errs, rule(obj)...); len(errs) > 0 {
			return object.Nil, refused(errs)
		}
		u := access.User{Name: spec.At("user").Str(), UID: spec.At("uid").Str(), Groups: textsOf(spec.At("groups"))}
		for _, m := range spec.At("extra").Members() {
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			u.Extra[m.Key] = textsOf(m.Value)
		}
		return a.decide(ctx, obj, u), nil
	}
}

// decide sets the status of a review.
func (a accessReviews) decide(ctx context.Context, obj object.Value, u access.User) object.Value {
	asked := attributesOf(obj.At("spec"), u)
	decision, reason, err := a.authority.Authorize(ctx, &asked)
	status := object.Fields("allowed", object.BoolOf(decision == access.Allow))
	if decision == access.Deny {
		status = status.With("denied", object.BoolOf(true))
	}
	if reason != "" {
		status = status.With("reason", object.StringOf(reason))
	}
	var failed []string
	if err != nil {
		failed = append(failed, err.Error())
	}
	fieldsKnown, fieldsErr := asked.FieldRequirements()
	labelsKnown, labelsErr := asked.LabelRequirements()
	for _, s := range []struct {
		name  string
		known int
		err   error
	}{{"fieldSelector", len(fieldsKnown), fieldsErr}, {"labelSelector", len(labelsKnown), labelsErr}} {
		if s.err != nil {
			how := "ignored"
			if s.known > 0 {
				how = "partially ignored"
			}
			failed = append(failed, "spec.resourceAttributes."+s.name+" "+how+" due to parse error")
		}
	}
	if len(failed) > 0 {
		status = status.With("evaluationError", object.StringOf(strings.Join(failed, "; ")))
	}
	return obj.With("status", status)
}

// attributesOf returns the attributes of the request that a review describes.
func attributesOf(spec object.Value, u access.User) access.Attributes {
	r := spec.At("resourceAttributes")
	if r.IsNull() {
		path := spec.At("nonResourceAttributes")
		return access.Attributes{User: u, Verb: path.At("verb").Str(), Path: path.At("path").Str()}
	}
	a := access.Attributes{
		User: u, IsResource: true, Verb: r.At("verb").Str(), Namespace: r.At("namespace").Str(),
		Name:  r.At("name").Str(),
		Group: r.At("group").Str(), Version: r.At("version").Str(), Resource: r.At("resource").Str(),
		Subresource:   r.At("subresource").Str(),
		FieldSelector: r.At("fieldSelector", "rawSelector").Str(),
		LabelSelector: r.At("labelSelector", "rawSelector").Str(),
	}
	if a.Version == "" {
		a.Version = "*"
	}
	var required access.Requirements
	required.Fields, required.FieldsErr = fieldRequirements(r.At("fieldSelector", "requirements").Items())
	required.Labels, required.LabelsErr = labelRequirements(r.At("labelSelector", "requirements").Items())
	a.Required = &required
	return a
}

// fieldRequirements converts requirements of a field selector. It leaves out those that it cannot interpret, so that
// the review is about a larger set of objects.
func fieldRequirements(list []object.Value) (known fields.Requirements, err error) {
	var errs []error
	for _, item := range list {
		values := textsOf(item.At("values"))
		operator := metav1.FieldSelectorOperator(item.At("operator").Str())
		switch {
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("fieldSelectors do not yet support multiple values"))
		case operator == metav1.FieldSelectorOpIn && len(values) == 1:
			known = append(known, fields.Requirement{Field: item.At("key").Str(), Operator: selection.Equals,
				Value: values[0]})
		case operator == metav1.FieldSelectorOpNotIn && len(values) == 1:
			known = append(known, fields.Requirement{Field: item.At("key").Str(), Operator: selection.NotEquals,
				Value: values[0]})
		default:
			errs = append(errs, fmt.Errorf("%q is not a valid field selector operator", operator))
		}
	}
	return known, utilerrors.NewAggregate(errs)
}

// labelOperators are the operators that a review may have.
var labelOperators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
}

// labelRequirements is fieldRequirements for labels.
func labelRequirements(list []object.Value) (known labels.Requirements, err error) {
	var errs []error
	for _, item := range list {
		operator, ok := labelOperators[item.At("operator").Str()]
		if !ok {
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", item.At("operator").Str()))
			continue
		}
		requirement, err := labels.NewRequirement(item.At("key").Str(), operator, textsOf(item.At("values")))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		known = append(known, *requirement)
	}
	return known, utilerrors.NewAggregate(errs)
}

// textsOf is a list of strings; nil for an empty one.
func textsOf(list object.Value) (all []string) {
	for _, item := range list.Items() {
		all = append(all, item.Str())
	}
	return all
}

// refused does not name a kind, as in the reference.
func refused(errs field.ErrorList) error {
	return apierr.NewInvalid(apierr.Type{Group: "authorization.k8s.io"}, "", errs)
}

// attributesErrors requires that a review is about either a resource or a path.
func attributesErrors(obj object.Value) field.ErrorList {
	spec := obj.At("spec")
	path := spec.At("nonResourceAttributes")
	if path.IsNull() != spec.At("resourceAttributes").IsNull() {
		return nil
	}
	var shown any
	if !path.IsNull() {
		shown = string(object.AppendJSON(nil, path))
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), shown,
		"exactly one of nonResourceAttributes or resourceAttributes must be specified")}
}

// noMeta requires that a review has no metadata.
func noMeta(obj object.Value) field.ErrorList {
	return metaErrors(obj.At("metadata"), "must be empty")
}

func metaErrors(meta object.Value, why string, allowed ...string) field.ErrorList {
	for _, m := range meta.Members() {
		if m.Key != "managedFields" && !slices.Contains(allowed, m.Key) && !m.Value.IsNull() && m.Value.Len() > 0 {
			return field.ErrorList{field.Invalid(field.NewPath("metadata"), string(object.AppendJSON(nil, meta)), why)}
		}
	}
	return nil
}

// localAccess requires that a review is about the namespace of its URL.
func localAccess(obj object.Value) field.ErrorList {
	errs := metaErrors(obj.At("metadata"), "must be empty except for namespace", "namespace")
	spec := obj.At("spec")
	if resource := spec.At("resourceAttributes"); !resource.IsNull() {
		if namespace := resource.At("namespace").Str(); namespace != obj.At("metadata", "namespace").Str() {
			errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), namespace,
				"must match metadata.namespace"))
		}
	}
	if path := spec.At("nonResourceAttributes"); !path.IsNull() {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"),
			string(object.AppendJSON(nil, path)),
			"disallowed on this kind of request"))
	}
	return errs
}

// selectorErrors requires that each selector of a review is either requirements or text, and is valid. Unknown
// operators are allowed, as newer clients may send them.
func selectorErrors(obj object.Value) (errs field.ErrorList) {
	attributes, path := obj.At("spec", "resourceAttributes"), field.NewPath("spec.resourceAttributes")
	for _, name := range []string{"fieldSelector", "labelSelector"} {
		selector, path := attributes.At(name), path.Child(name)
		if selector.IsNull() {
			continue
		}
		raw, requirements := selector.At("rawSelector").Str(), selector.At("requirements").Items()
		switch {
		case raw != "" && len(requirements) > 0:
			errs = append(errs, field.Invalid(path.Child("rawSelector"), raw,
				"may not specified at the same time as requirements"))
		case raw == "" && len(requirements) == 0:
			errs = append(errs, field.Required(path.Child("requirements"),
				fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path)))
		}
		for i, r := range requirements {
			key, operator, values := r.At("key").Str(), r.At("operator").Str(), textsOf(r.At("values"))
			path := path.Child("requirements").Index(i)
			if name == "fieldSelector" {
				errs = append(errs, metavalidation.ValidateFieldSelectorRequirement(
					metav1.FieldSelectorRequirement{Key: key, Operator: metav1.FieldSelectorOperator(operator),
						Values: values},
					metavalidation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, path)...)
				continue
			}
			errs = append(errs, metavalidation.ValidateLabelSelectorRequirement(
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOperator(operator),
					Values: values},
				metavalidation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, path)...)
		}
	}
	return errs
}

// rules lists what the requesting user may do in a namespace.
func (a accessReviews) rules(ctx context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
	namespace := obj.At("spec", "namespace").Str()
	if namespace == "" {
		return object.Nil, apierr.NewBadRequest("no namespace on request")
	}
	rules, incomplete, err := a.authority.RulesFor(ctx, &rq.User, namespace)
	var resources, paths []object.Value
	for i := range rules {
		r := &rules[i]
		verbs := object.Strings(r.Verbs...)
		if len(r.Resources) > 0 {
			rule := object.Fields("resources", object.Strings(r.Resources...), "verbs", verbs)
			if len(r.APIGroups) > 0 {
				rule = rule.With("apiGroups", object.Strings(r.APIGroups...))
			}
			if len(r.ResourceNames) > 0 {
				rule = rule.With("resourceNames", object.Strings(r.ResourceNames...))
			}
			resources = append(resources, rule)
		}
		if len(r.NonResourceURLs) > 0 {
			paths = append(paths, object.Fields("nonResourceURLs", object.Strings(r.NonResourceURLs...), "verbs",
				verbs))
		}
	}
	status := object.Fields("resourceRules", object.ListOf(resources...), "nonResourceRules", object.ListOf(paths...),
		"incomplete", object.BoolOf(incomplete))
	if err != nil {
		status = status.With("evaluationError", object.StringOf(err.Error()))
	}
	return obj.Edit([]object.Member{
		{Key: "metadata", Value: object.MapOf()}, {Key: "spec", Value: object.MapOf()}, {Key: "status", Value: status},
	}), nil
}
