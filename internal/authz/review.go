package authz

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"plinth/internal/access"
	"plinth/internal/configfile"
	"plinth/object"
)

// A request is converted to a SubjectAccessReview in two forms: JSON for the webhook, without empty members, and maps
// for its match conditions, in which every string is present. Invalid requirements of selectors, and those with
// operators that reviews do not have, are omitted: a requirement only narrows a request, so the webhook then decides
// about a request for more objects.

// reviewSpec is a request with its parsed selectors.
type reviewSpec struct {
	*access.Attributes
	fields, labels []requirement
}

// requirement is one requirement of a selector in the form of a review.
type requirement struct {
	key, operator string
	values        []string
}

// reviewOperators are the operators that reviews have. Requirements with others are omitted.
var reviewOperators = map[selection.Operator]string{
	selection.Equals: "In", selection.DoubleEquals: "In", selection.In: "In", selection.NotEquals: "NotIn",
	selection.NotIn:  "NotIn",
	selection.Exists: "Exists", selection.DoesNotExist: "DoesNotExist",
}

func specOf(a *access.Attributes) *reviewSpec {
	s := &reviewSpec{Attributes: a}
	if !a.IsResource {
		return s
	}
	byField, _ := a.FieldRequirements()
	byLabel, _ := a.LabelRequirements()
	s.fields, s.labels = fieldsOf(byField), labelsOf(byLabel)
	return s
}

func fieldsOf(list fields.Requirements) (all []requirement) {
	for _, r := range list {
		if operator := reviewOperators[r.Operator]; operator == "In" || operator == "NotIn" {
			all = append(all, requirement{r.Field, operator, []string{r.Value}})
		}
	}
	return all
}

func labelsOf(list labels.Requirements) (all []requirement) {
	for _, r := range list {
		if operator := reviewOperators[r.Operator()]; operator != "" {
			all = append(all, requirement{r.Key(), operator, r.ValuesUnsorted()})
		}
	}
	return all
}

// texts returns the strings of a resource request, by their names in a review.
func (s *reviewSpec) texts() map[string]string {
	return map[string]string{
		"namespace": s.Namespace, "verb": s.Verb, "group": s.Group, "version": s.Version, "resource": s.Resource,
		"subresource": s.Subresource, "name": s.Name,
	}
}

// value returns the spec for the webhook.
func (s *reviewSpec) value(version string) object.Value {
	var members []object.Member
	add := func(list *[]object.Member, key string, v object.Value, present bool) {
		if present {
			*list = append(*list, object.Member{Key: key, Value: v})
		}
	}
	var inner []object.Member
	if s.IsResource {
		for key, text := range s.texts() {
			add(&inner, key, object.StringOf(text), text != "")
		}
		add(&inner, "fieldSelector", selectorValue(s.fields), len(s.fields) > 0)
		add(&inner, "labelSelector", selectorValue(s.labels), len(s.labels) > 0)
		add(&members, "resourceAttributes", object.MapOf(inner...), true)
	} else {
		add(&inner, "path", object.StringOf(s.Path), s.Path != "")
		add(&inner, "verb", object.StringOf(s.Verb), s.Verb != "")
		add(&members, "nonResourceAttributes", object.MapOf(inner...), true)
	}
	groups := "groups"
	if version == reviewV1beta1 {
		groups = "group"
	}
	add(&members, "user", object.StringOf(s.User.Name), s.User.Name != "")
	add(&members, groups, object.Strings(s.User.Groups...), len(s.User.Groups) > 0)
	add(&members, "uid", object.StringOf(s.User.UID), s.User.UID != "")
	var extra []object.Member
	for key, values := range s.User.Extra {
		add(&extra, key, object.Strings(values...), true)
	}
	add(&members, "extra", object.MapOf(extra...), len(extra) > 0)
	return object.MapOf(members...)
}

func selectorValue(list []requirement) object.Value {
	items := make([]object.Value, len(list))
	for i, r := range list {
		items[i] = object.Fields("key", object.StringOf(r.key), "operator", object.StringOf(r.operator))
		if len(r.values) > 0 {
			items[i] = items[i].With("values", object.Strings(r.values...))
		}
	}
	return object.Fields("requirements", object.ListOf(items...))
}

// request returns the spec for match conditions.
func (s *reviewSpec) request() map[string]any {
	extra := s.User.Extra
	if extra == nil {
		extra = map[string][]string{}
	}
	request := map[string]any{"user": s.User.Name, "uid": s.User.UID, "groups": s.User.Groups, "extra": extra}
	if !s.IsResource {
		request["nonResourceAttributes"] = map[string]string{"path": s.Path, "verb": s.Verb}
		return request
	}
	attributes := make(map[string]any, 9)
	for key, text := range s.texts() {
		attributes[key] = text
	}
	for key, list := range map[string][]requirement{"fieldSelector": s.fields, "labelSelector": s.labels} {
		if len(list) == 0 {
			continue
		}
		items := make([]map[string]any, len(list))
		for i, r := range list {
			items[i] = map[string]any{"key": r.key, "operator": r.operator, "values": r.values}
		}
		attributes[key] = map[string]any{"requirements": items}
	}
	request["resourceAttributes"] = attributes
	return request
}

// review returns the request body for the webhook.
func review(version string, spec object.Value) []byte {
	return object.AppendObject(nil, object.Fields(
		"kind", object.StringOf(reviewKind), "apiVersion", object.StringOf(reviewGroup+version),
		"metadata", object.MapOf(), "spec", spec, "status", object.Fields("allowed", object.BoolOf(false))))
}

const (
	reviewKind  = "SubjectAccessReview"
	reviewGroup = "authorization.k8s.io/"
)

// SubjectAccessReviewStatus is the decision of a webhook. The types are named as in the reference, because errors
// about their JSON show the names.
type SubjectAccessReviewStatus struct {
	Allowed bool   `json:"allowed"`
	Denied  bool   `json:"denied,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// SubjectAccessReview has the members of the response that are used.
type SubjectAccessReview struct {
	Status SubjectAccessReviewStatus `json:"status"`
}

// readResponse parses the response of a webhook, in JSON or YAML. apiVersion and kind may be missing, but must not
// differ. Its errors are those of the reference.
func readResponse(text []byte, version string) (SubjectAccessReviewStatus, error) {
	none := SubjectAccessReviewStatus{}
	if len(text) == 0 {
		return none, errors.New("0-length response")
	}
	if text[0] != '{' {
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			return none, err
		}
		text = converted
	}
	head, err := configfile.HeadOf(text)
	if err != nil {
		return none, err
	}
	kind, given := cmp.Or(head.Kind, reviewKind), cmp.Or(head.APIVersion, reviewGroup+version)
	if kind != reviewKind || given != reviewGroup+version {
		return none, fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", path.Base(given), kind, version,
			reviewKind)
	}
	var response SubjectAccessReview
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &response); err != nil {
		return none, err
	}
	return response.Status, nil
}
