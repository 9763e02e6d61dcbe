package hooks

import (
	"slices"
	"strings"

	"plinth/internal/engine"
	"plinth/object"
)

// URL is what rules look at, besides the name of the object. The type is compared by identity; a definition that
// changes has new ones.
type URL struct {
	Resource    *engine.Resource
	Subresource string
	Operation   engine.Operation
	namespaced  bool
}

// URLOf is the URL of a request.
func URLOf(a *engine.Attributes) URL {
	r := a.Request.Resource
	return URL{
		Resource: r, Subresource: subresourceOf(a), Operation: a.Operation,
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

// Rule is a rule with operations.
type Rule struct {
	groups, versions, resources, operations []string
	scope                                   string
	names                                   []string // resourceNames; none: any
}

// RulesOf reads a list of rules.
func RulesOf(v object.Value) []Rule {
	var rules []Rule
	for _, r := range v.Items() {
		rules = append(rules, Rule{
			groups: texts(r.At("apiGroups")), versions: texts(r.At("apiVersions")), resources: texts(r.At("resources")),
			operations: texts(r.At("operations")), scope: r.At("scope").Str(), names: texts(r.At("resourceNames")),
		})
	}
	return rules
}

func texts(v object.Value) []string {
	all := make([]string, 0, v.Len())
	for _, item := range v.Items() {
		all = append(all, item.Str())
	}
	return all
}

// Match returns the type in whose version the request is seen by a hook with these rules; nil if no rule matches. A
// rule that names the type of the request precedes those that name another version of it, which only equivalent allows.
// name is that of the object; nil: rules match whatever names they have.
func Match(rules []Rule, equivalent bool, types *engine.Types, u URL, name *string) *engine.Resource {
	for i := range rules {
		if rules[i].matches(u, u.Resource, name) {
			return u.Resource
		}
	}
	if !equivalent {
		return nil
	}
	others := types.Equivalents(u.Resource, u.Subresource)
	for i := range rules {
		for _, other := range others {
			if rules[i].matches(u, other, name) {
				return other
			}
		}
	}
	return nil
}

// Named says whether one of the rules is for objects of certain names only.
func Named(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return len(r.names) > 0 })
}

// matches says whether a rule matches a request as if it were for the type r.
func (r *Rule) matches(u URL, of *engine.Resource, name *string) bool {
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
	return has(r.operations, u.Operation.String()) && has(r.groups, of.Group) && has(r.versions, of.Version) &&
		r.hasResource(of.Name, u.Subresource) && (len(r.names) == 0 || name == nil || slices.Contains(r.names, *name))
}

func has(list []string, item string) bool {
	for _, l := range list {
		if l == "*" || l == item {
			return true
		}
	}
	return false
}

func (r *Rule) hasResource(name, subresource string) bool {
	for _, l := range r.resources {
		resource, sub, _ := strings.Cut(l, "/")
		if (resource == "*" || resource == name) && (sub == "*" || sub == subresource) {
			return true
		}
	}
	return false
}

// policyKinds configure policies. Policies that are made through the API are not asked about them, and webhooks neither
// about them nor about those of webhooks, so that nothing can keep its own configuration from being mended.
var policyKinds = []string{
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
	"MutatingAdmissionPolicyBinding",
}

// IsPolicy says whether a request is for one of the four kinds of policies and their bindings.
func IsPolicy(r *engine.Resource) bool {
	return r.Group == Group && slices.Contains(policyKinds, r.Kind)
}

// IsConfiguration is IsPolicy, and says so of the configurations of webhooks, too.
func IsConfiguration(r *engine.Resource) bool {
	return IsPolicy(r) || r.Group == Group && strings.HasSuffix(r.Kind, "WebhookConfiguration")
}

// Group is the group of what configures admission.
const Group = "admissionregistration.k8s.io"

// IsReview says whether a type is one of the virtual resources without which nobody could be authenticated or
// authorized.
func IsReview(r *engine.Resource) bool { return reviews[[2]string{r.Group, r.Name}] }

var reviews = map[[2]string]bool{
	{"authentication.k8s.io", "selfsubjectreviews"}: true, {"authentication.k8s.io", "tokenreviews"}: true,
	{"authorization.k8s.io", "localsubjectaccessreviews"}: true,
	{"authorization.k8s.io", "selfsubjectaccessreviews"}:  true,
	{"authorization.k8s.io", "selfsubjectrulesreviews"}:   true,
	{"authorization.k8s.io", "subjectaccessreviews"}:      true,
}
