package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/object"
)

// url is what the rules of hooks look at: it determines the candidates of a request. The type is compared by identity;
// a definition that changes has new ones.
type url struct {
	resource    *engine.Resource
	subresource string
	operation   engine.Operation
	namespaced  bool
}

// candidate is a hook whose rules match, with the type in whose version it gets the object, and its number in the set.
type candidate struct {
	*hook
	in    *engine.Resource
	index int
}

// urlOf is the URL of a request.
func urlOf(a *engine.Attributes) url {
	r := a.Request.Resource
	return url{
		resource: r, subresource: subresourceOf(a), operation: a.Operation,
		namespaced: a.Request.Namespace != "" && !isNamespaces(r),
	}
}

func subresourceOf(a *engine.Attributes) string {
	if sub := a.Request.Subresource; sub != nil {
		return sub.Name
	}
	return ""
}

func isNamespaces(r *engine.Resource) bool { return r.Group == "" && r.Name == "namespaces" }

// candidates returns the hooks whose rules match, in their order.
func (s *set) candidates(types *engine.Types, u url) []candidate {
	if len(s.byName) == 0 {
		return nil
	}
	found, ok := s.matched.Get(u)
	if ok {
		return found
	}
	for i, h := range s.hooks() {
		if in := h.matches(types, u); in != nil {
			found = append(found, candidate{h, in, i})
		}
	}
	s.matched.Set(u, found, 1)
	return found
}

// matches returns the type in whose version the hook gets the object; nil if no rule matches. A rule that names the
// type of the request precedes those that name another version of it.
func (h *hook) matches(types *engine.Types, u url) *engine.Resource {
	for i := range h.rules {
		if h.rules[i].matches(u, u.resource) {
			return u.resource
		}
	}
	if !h.equivalent {
		return nil
	}
	others := types.Equivalents(u.resource, u.subresource)
	for i := range h.rules {
		for _, other := range others {
			if h.rules[i].matches(u, other) {
				return other
			}
		}
	}
	return nil
}

// matches says whether a rule matches a request as if it were for the type r.
func (r *rule) matches(u url, of *engine.Resource) bool {
	switch r.scope {
	case "", "*":
	case "Namespaced":
		if !u.namespaced {
			return false
		}
	case "Cluster":
		if u.namespaced {
			return false
		}
	default:
		return false
	}
	return has(r.operations, u.operation.String()) && has(r.groups, of.Group) && has(r.versions, of.Version) &&
		r.hasResource(of.Name, u.subresource)
}

func has(list []string, item string) bool {
	for _, l := range list {
		if l == "*" || l == item {
			return true
		}
	}
	return false
}

func (r *rule) hasResource(name, subresource string) bool {
	for _, l := range r.resources {
		resource, sub, _ := strings.Cut(l, "/")
		if (resource == "*" || resource == name) && (sub == "*" || sub == subresource) {
			return true
		}
	}
	return false
}

// selects says whether the selectors of a hook select a request. obj is the object as it is now.
func (p *Plugin) selects(ctx context.Context, h *hook, a *engine.Attributes, obj object.Value) (bool, error) {
	if h.selectorErr != nil {
		return false, apierr.NewInternal(h.selectorErr)
	}
	// The labels of the object are looked at first although an error about the namespace precedes: a hook whose other
	// selector does not select is none of the request's business.
	if !h.objects.Empty() && !h.hasObject(a, obj) && !h.hasObject(a, a.Old) {
		return false, nil
	}
	if h.namespaces.Empty() {
		return true, nil
	}
	set, cluster, err := p.namespaceLabels(ctx, a, obj)
	if cluster || err != nil {
		return cluster, err
	}
	return h.namespaces.Matches(set), nil
}

// hasObject says whether the object selector selects an object. The options of a connection have no labels.
func (h *hook) hasObject(a *engine.Attributes, obj object.Value) bool {
	return !obj.IsNull() && a.Operation != engine.OperationConnect && h.objects.Matches(labelsOf(obj))
}

// namespaceLabels returns the labels of the namespace of a request; for the Namespaces themselves those of the object,
// unless it is deleted. cluster says that the request has no namespace; such requests are always selected.
func (p *Plugin) namespaceLabels(ctx context.Context, a *engine.Attributes, obj object.Value) (set labels.Labels,
	cluster bool, err error) {
	name, ofNamespace := a.Request.Namespace, isNamespaces(a.Request.Resource)
	if ofNamespace {
		if subresourceOf(a) == "" && (a.Operation == engine.OperationCreate || a.Operation == engine.OperationUpdate) {
			return labelsOf(obj), false, nil
		}
		name = a.Name
	}
	if name == "" {
		return nil, !ofNamespace, nil
	}
	ns, err := p.namespace(ctx, name)
	switch {
	case err != nil:
		return nil, false, apierr.From(err)
	case ns.IsNull():
		return nil, false, apierr.NewNotFound(apierr.Type{Name: "namespaces"}, name)
	}
	return labelsOf(ns), false, nil
}

// meets says whether the match conditions of a hook hold. An error of one of them counts only if no other is false;
// then the failure policy decides whether the request is refused or the hook is not called.
func (p *Plugin) meets(ctx context.Context, h *hook, a *engine.Attributes, on *cel.AdmissionInput) (bool, error) {
	conditions := h.conditions()
	if len(conditions) == 0 {
		return true, nil
	}
	began, failed := time.Now(), []string(nil)
	defer func() { p.metrics.ConditionsRun(h.name, p.mutating, a.Operation, len(failed), time.Since(began)) }()
	budget := int64(cel.MatchConditionsBudget)
	for _, c := range conditions {
		holds, err := c.Holds(ctx, on, &budget)
		switch {
		case errors.Is(err, cel.ErrOutOfBudget):
			return p.unmet(h, a, []string{err.Error()})
		case err != nil:
			failed = append(failed, err.Error())
		case !holds:
			p.metrics.ConditionsExcluded(h.name, p.mutating, a.Operation)
			return false, nil
		}
	}
	if len(failed) > 0 {
		return p.unmet(h, a, failed)
	}
	return true, nil
}

// unmet applies the failure policy to errors of match conditions.
func (p *Plugin) unmet(h *hook, a *engine.Attributes, failed []string) (bool, error) {
	if h.ignore {
		return false, nil
	}
	why := failed[0]
	if len(failed) > 1 {
		why = fmt.Sprintf("[%s]", strings.Join(failed, ", "))
	}
	return false, apierr.NewForbidden(a.Request.Resource.Type(), a.Name, why)
}
