package authz

import (
	"slices"
	"strings"

	"plinth/internal/access"
	"plinth/object"
)

// Rule is a rule of a role, rbac/v1 PolicyRule: it allows each verb on each resource of each group, or on each path.
// "*" in a list stands for everything. Rules are shared by requests and must not be changed.
type Rule struct {
	Verbs           []string
	APIGroups       []string
	Resources       []string // "pods", "pods/log", "*/scale", "*"
	ResourceNames   []string // empty: all
	NonResourceURLs []string // "/healthz", "/healthz/*", "*"
}

const all = "*"

// rulesOf parses the rules of a role.
func rulesOf(list object.Value) []Rule {
	items := list.Items()
	if len(items) == 0 {
		return nil
	}
	rules := make([]Rule, len(items))
	for i, item := range items {
		rules[i] = Rule{
			Verbs: texts(item.At("verbs")), APIGroups: texts(item.At("apiGroups")), Resources: texts(item.At("resources")),
			ResourceNames: texts(item.At("resourceNames")), NonResourceURLs: texts(item.At("nonResourceURLs")),
		}
	}
	return rules
}

func texts(list object.Value) []string {
	items := list.Items()
	if len(items) == 0 {
		return nil
	}
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = item.Str()
	}
	return all
}

// value converts the rule to its form in an object.
func (r *Rule) value() object.Value {
	var members []object.Member
	add := func(key string, list []string) {
		if len(list) > 0 {
			members = append(members, object.Member{Key: key, Value: object.Strings(list...)})
		}
	}
	add("apiGroups", r.APIGroups)
	add("nonResourceURLs", r.NonResourceURLs)
	add("resourceNames", r.ResourceNames)
	add("resources", r.Resources)
	members = append(members, object.Member{Key: "verbs", Value: object.Strings(r.Verbs...)})
	return object.MapOf(members...)
}

// allows says whether the rule allows a request.
func (r *Rule) allows(a *access.Attributes) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource {
		return slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return coversPath(url, a.Path) })
	}
	return has(r.APIGroups, a.Group) && r.hasResource(a.Resource, a.Subresource) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

// has says whether a list contains a name or "*".
func has(list []string, name string) bool {
	for _, l := range list {
		if l == name || l == all {
			return true
		}
	}
	return false
}

// hasResource says whether the rule names a resource or subresource, itself or by a wildcard.
func (r *Rule) hasResource(resource, subresource string) bool {
	for _, have := range r.Resources {
		switch {
		case have == all:
			return true
		case subresource == "":
			if have == resource {
				return true
			}
		case len(have) == len(resource)+1+len(subresource) && have[len(resource)] == '/' &&
			strings.HasPrefix(have, resource) && strings.HasSuffix(have, subresource):
			return true
		case len(have) == len("*/")+len(subresource) && strings.HasPrefix(have, "*/") && strings.HasSuffix(have, subresource):
			return true
		}
	}
	return false
}

// coversPath says whether a path in a rule equals a URL path, or is a prefix with "*" that covers it.
func coversPath(url, path string) bool {
	return url == path || strings.HasSuffix(url, all) && strings.HasPrefix(path, strings.TrimRight(url, all))
}
