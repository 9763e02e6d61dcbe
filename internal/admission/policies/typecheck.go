package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/object"
	"plinth/schema"
)

// maxChecked is how many types of one rule the expressions of a policy are checked against.
const maxChecked = 10

// TypeWarnings checks the expressions of a validating policy against the types that it names, as
// validatingadmissionpolicy-status-controller does: the items of status.typeChecking.expressionWarnings. Rules with
// wildcards name no types.
func TypeWarnings(types *engine.Types, policy object.Value) ([]object.Value, error) {
	spec := policy.At("spec")
	var checks []typeCheck
	for _, r := range checkedTypes(types, spec.At("matchConstraints", "resourceRules")) {
		var params *schema.Type
		kind := spec.At("paramKind")
		if of := types.OfKind(kind.At("apiVersion").Str(), kind.At("kind").Str()); of != nil {
			params = of.Schema()
		}
		c, err := cel.NewTypeCheck(r.Kind, r.Schema(), kind.At("kind").Str(), params)
		if err != nil {
			return nil, err
		}
		for _, v := range spec.At("variables").Items() {
			c.Add(v.At("name").Str(), v.At("expression").Str())
		}
		checks = append(checks, typeCheck{c, fmt.Sprintf("%s/%s, Kind=%s", r.Group, r.Version, r.Kind)})
	}
	var warnings []object.Value
	for i, v := range spec.At("validations").Items() {
		for _, key := range [...]string{"expression", "messageExpression"} {
			source := v.At(key).Str()
			if source == "" {
				continue
			}
			if warning := checkWith(checks, source); warning != "" {
				warnings = append(warnings, object.Fields("fieldRef",
					object.StringOf(fmt.Sprintf("spec.validations[%d].%s", i, key)), "warning", object.StringOf(warning)))
			}
		}
	}
	return warnings, nil
}

// typeCheck is the check against one type, with its group, version and kind.
type typeCheck struct {
	*cel.TypeCheck
	kind string
}

// checkWith returns what is wrong with an expression, by type.
func checkWith(checks []typeCheck, source string) string {
	var found []string
	for _, c := range checks {
		if wrong := c.Check(source); wrong != "" {
			found = append(found, c.kind+": "+wrong+"\n")
		}
	}
	return strings.Join(found, "\n")
}

// checkedTypes are the types that rules name, by group, version and kind.
func checkedTypes(types *engine.Types, rules object.Value) []*engine.Resource {
	var all []*engine.Resource
	for _, rule := range rules.Items() {
		of := typesOf(types, rule)
		if all = append(all, of...); len(of) == maxChecked {
			break // as in the reference: it does not look at the other rules
		}
	}
	slices.SortFunc(all, func(a, b *engine.Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.CompactFunc(all, func(a, b *engine.Resource) bool {
		return a.Group == b.Group && a.Version == b.Version && a.Kind == b.Kind
	})
}

// typesOf are the types that a rule names, at most maxChecked of them. The core group has no name, and so stands for
// any group that has a resource of that name.
func typesOf(types *engine.Types, rule object.Value) (found []*engine.Resource) {
	wild := func(name string) bool { return strings.Contains(name, "*") }
	groups, versions := sorted(rule.At("apiGroups")), sorted(rule.At("apiVersions"))
	if slices.ContainsFunc(groups, wild) || slices.ContainsFunc(versions, wild) {
		return nil
	}
	for _, group := range groups {
		for _, version := range versions {
			for _, name := range sorted(rule.At("resources")) {
				if strings.ContainsAny(name, "*/") {
					continue
				}
				for r := range types.All() {
					if r.Version == version && (group == "" || r.Group == group) && (r.Name == name || r.Singular == name) {
						if found = append(found, r); len(found) == maxChecked {
							return found
						}
					}
				}
			}
		}
	}
	return found
}

func sorted(list object.Value) []string {
	var all []string
	for _, item := range list.Items() {
		all = append(all, item.Str())
	}
	slices.Sort(all)
	return all
}
