package quota

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"plinth/internal/objectmeta"
	"plinth/object"
)

// Rule is what a ResourceQuota limits.
type Rule struct {
	Name string
	Hard map[string]resource.Quantity
	// Scopes select what is counted: an object has to match all of them.
	Scopes []Scope
}

// Scope is a condition on what is counted.
type Scope struct {
	corev1.ScopedResourceSelectorRequirement
	selector labels.Selector // of the names of classes; nil: an object has to have one
	err      error           // of the selector
}

// ruleText is the text of a quota as a rule: a change of another part of it changes no rule.
func ruleText(key string, spec object.Value) string {
	_, name, _ := strings.Cut(key, "/")
	return name + "\x00" + string(object.AppendJSON(nil, spec))
}

// ParseRule reads the text of a rule.
func ParseRule(text string) (*Rule, error) {
	name, spec, _ := strings.Cut(text, "\x00")
	var typed corev1.ResourceQuotaSpec
	if err := json.Unmarshal([]byte(spec), &typed); err != nil {
		return nil, fmt.Errorf("resource quota %s: %w", name, err)
	}
	r := &Rule{Name: name, Hard: map[string]resource.Quantity{}}
	for name, most := range typed.Hard {
		r.Hard[string(name)] = most
	}
	for _, scope := range typed.Scopes {
		r.Scopes = append(r.Scopes, NewScope(corev1.ScopedResourceSelectorRequirement{
			ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}))
	}
	if typed.ScopeSelector != nil {
		for _, e := range typed.ScopeSelector.MatchExpressions {
			r.Scopes = append(r.Scopes, NewScope(e))
		}
	}
	return r, nil
}

// NewScope makes a scope. An error of its values is one of each object that it is compared with, as in the reference.
func NewScope(e corev1.ScopedResourceSelectorRequirement) Scope {
	s := Scope{ScopedResourceSelectorRequirement: e}
	if e.Operator == corev1.ScopeSelectorOpExists {
		return s
	}
	op, known := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}[e.Operator]
	if !known {
		s.err = fmt.Errorf("%q is not a valid scope selector operator", e.Operator)
		return s
	}
	requirement, err := labels.NewRequirement(string(e.ScopeName), op, e.Values)
	if s.err = err; err == nil {
		s.selector = labels.NewSelector().Add(*requirement)
	}
	return s
}

// A class is what the scopes of quotas can tell apart. The text begins with the kind of the object:
//
//	"P" terminating, best effort and "across namespaces" as "y" or "n", and the PriorityClass    a Pod
//	"C" the VolumeAttributesClasses, each after a comma, sorted                                   a PersistentVolumeClaim
//	""                                                                                            all other objects
const (
	podKind   = 'P'
	claimKind = 'C'
)

func podClass(pod object.Value) string {
	b := []byte{podKind, 'n', 'n', 'n'}
	set := func(i int, holds bool) {
		if holds {
			b[i] = 'y'
		}
	}
	set(1, Terminating(pod))
	set(2, pod.At("status", "qosClass").Str() == string(corev1.PodQOSBestEffort))
	set(3, usesOtherNamespaces(pod))
	return string(b) + pod.At("spec", "priorityClassName").Str()
}

func claimClass(claim object.Value) string {
	var names []string
	for _, v := range []object.Value{
		claim.At("spec", "volumeAttributesClassName"), claim.At("status", "currentVolumeAttributesClassName"),
		claim.At("status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
	} {
		if name := v.Str(); !slices.Contains(names, name) { // "" if it is absent, which Matches leaves out
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return string(claimKind) + strings.Join(names, ",")
}

// Matches says whether the objects of a class match the scope.
func (s *Scope) Matches(class string) (bool, error) {
	switch {
	case class == "":
		return false, nil
	case class[0] == claimKind:
		if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
			return false, nil
		}
		return s.selects(strings.FieldsFunc(class[1:], func(r rune) bool { return r == ',' }))
	}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return class[1] == 'y', nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return class[1] == 'n', nil
	case corev1.ResourceQuotaScopeBestEffort:
		return class[2] == 'y', nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return class[2] == 'n', nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return class[3] == 'y', nil
	case corev1.ResourceQuotaScopePriorityClass:
		if class[4:] == "" {
			return s.selects(nil)
		}
		return s.selects([]string{class[4:]})
	}
	return false, nil
}

// selects says whether the selector of the scope selects one of the names of classes, or none if there are none.
func (s *Scope) selects(names []string) (bool, error) {
	switch {
	case s.err != nil:
		return false, fmt.Errorf("failed to parse and convert selector: %w", s.err)
	case s.selector == nil:
		return len(names) > 0, nil
	case len(names) == 0:
		return s.selector.Matches(labels.Set{}), nil
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return s.selector.Matches(labels.Set{string(s.ScopeName): name})
	}), nil
}

// Counts says whether the rule counts the objects of a class. A scope with an error matches none.
func (r *Rule) Counts(class string) bool {
	for i := range r.Scopes {
		if holds, _ := r.Scopes[i].Matches(class); !holds {
			return false
		}
	}
	return true
}

// Concerns says whether an amount of that name is one that objects of a store resource use. The names of storage
// classes and device classes are not known here, so these are by their form.
func Concerns(path, name string) bool {
	switch path {
	case pods:
		return podName(name)
	case claims:
		return name == CountName(claims) || claimName(name) || claimName(afterClass(name))
	case services:
		switch corev1.ResourceName(name) {
		case corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
			return true
		}
	case resourceClaims:
		if strings.HasSuffix(name, corev1.ResourceClaimsPerClass) {
			return true
		}
	default:
		if alias := aliases[path]; alias != "" && alias == name {
			return true
		}
	}
	return name == CountName(path)
}

func podName(name string) bool {
	switch name {
	case CountName(pods), "pods", "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory",
		"requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage":
		return true
	}
	if strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(name, corev1.ResourceRequestsHugePagesPrefix) {
		return true
	}
	resource, requested := strings.CutPrefix(name, corev1.DefaultResourceRequestsPrefix)
	return requested && (!objectmeta.IsNativeResource(name) || strings.HasPrefix(resource, deviceClassPrefix))
}

func claimName(name string) bool {
	return name == string(corev1.ResourcePersistentVolumeClaims) || name == string(corev1.ResourceRequestsStorage)
}

// afterClass is the part of a name after that of a StorageClass; "" if it has none.
func afterClass(name string) string {
	if i := strings.LastIndex(name, byStorageClass); i >= 0 {
		return name[i+len(byStorageClass):]
	}
	return ""
}

// Tracked says whether an amount of that name is one that objects use. served says whether the objects of a store
// resource are served.
func Tracked(name string, served func(path string) bool) bool {
	if counted, ok := strings.CutPrefix(name, "count/"); ok {
		resource, group, _ := strings.Cut(counted, ".")
		return served(group + "/" + resource)
	}
	for _, path := range []string{pods, services, claims, resourceClaims} {
		if Concerns(path, name) && served(path) {
			return true
		}
	}
	for _, alias := range aliases {
		if alias == name {
			return true
		}
	}
	return false
}
