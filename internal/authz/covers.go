package authz

import (
	"fmt"
	"slices"
	"strings"

	"plinth/internal/access"
)

// The check against escalation (AUTH-2): a user who writes a role or a binding must have the permissions that it gives.
//
// Problem: rules are products (verbs × groups × resources × names). A wanted rule need not be covered by one rule that
// the writer has; several may cover it together. To compare whole rules therefore refuses too much. So wanted rules
// are split into atoms of one verb, group, resource and name each, or of one verb and path. An atom is covered by a
// single rule or not at all:
//
//    held covers wanted  ⇔  each atom of wanted is covered by one rule of held

// The reference splits rules in the same way ("breakdown" in pkg/registry/rbac/validation).

// maxAtoms limits the number of atoms: a request body may name a thousand verbs of a thousand resources of a thousand
// groups. Rules beyond the limit count as not covered. The reference has no limit.
const maxAtoms = 1 << 16

// uncovered returns the atoms of wanted that no rule of held covers.
func uncovered(held, wanted []Rule) (missing []Rule) {
	budget := maxAtoms
	for i := range wanted {
		if budget -= wanted[i].size(budget); budget < 0 {
			return append(missing, wanted[i:]...)
		}
		wanted[i].each(func(atom Rule) {
			if !slices.ContainsFunc(held, func(h Rule) bool { return h.covers(&atom) }) {
				missing = append(missing, atom)
			}
		})
	}
	return missing
}

// size returns an upper bound of the number of atoms of a rule, or any number above most if the bound is greater than
// that.
func (r *Rule) size(most int) int {
	n := len(r.Verbs)
	for _, list := range [][]string{r.APIGroups, r.Resources, r.ResourceNames} {
		if n *= max(1, len(list)); n > most {
			return n
		}
	}
	return n + len(r.Verbs)*len(r.NonResourceURLs)
}

// each yields the atoms of a rule.
func (r *Rule) each(yield func(Rule)) {
	names := [][]string{nil}
	if len(r.ResourceNames) > 0 {
		names = singles(r.ResourceNames)
	}
	for _, group := range singles(r.APIGroups) {
		for _, resource := range singles(r.Resources) {
			for _, verb := range singles(r.Verbs) {
				for _, name := range names {
					yield(Rule{Verbs: verb, APIGroups: group, Resources: resource, ResourceNames: name})
				}
			}
		}
	}
	for _, url := range singles(r.NonResourceURLs) {
		for _, verb := range singles(r.Verbs) {
			yield(Rule{Verbs: verb, NonResourceURLs: url})
		}
	}
}

// singles splits a list into lists of one item.
func singles(list []string) [][]string {
	parts := make([][]string, len(list))
	for i := range list {
		parts[i] = list[i : i+1 : i+1]
	}
	return parts
}

// covers says whether the rule covers an atom.
func (r *Rule) covers(s *Rule) bool {
	if !has(r.Verbs, s.Verbs[0]) {
		return false
	}
	if len(s.NonResourceURLs) > 0 {
		return len(r.ResourceNames) == 0 && slices.ContainsFunc(r.NonResourceURLs,
			func(url string) bool { return coversPath(url, s.NonResourceURLs[0]) })
	}
	if !has(r.APIGroups, s.APIGroups[0]) {
		return false
	}
	resource := s.Resources[0]
	_, subresource, below := strings.Cut(resource, "/")
	if !has(r.Resources, resource) && !(below && slices.Contains(r.Resources, "*/"+subresource)) {
		return false
	}
	return len(r.ResourceNames) == 0 || len(s.ResourceNames) > 0 && slices.Contains(r.ResourceNames, s.ResourceNames[0])
}

// compact joins atoms that differ only in their verb, to make errors shorter.
func compact(atoms []Rule) []Rule {
	type place struct {
		group, resource, name string
		named                 bool
	}
	var rules []Rule
	at := map[place]int{}
	for _, s := range atoms {
		if len(s.NonResourceURLs) > 0 || len(s.APIGroups) != 1 || len(s.Resources) != 1 || len(s.ResourceNames) > 1 {
			rules = append(rules, s)
			continue
		}
		p := place{group: s.APIGroups[0], resource: s.Resources[0]}
		if p.named = len(s.ResourceNames) > 0; p.named {
			p.name = s.ResourceNames[0]
		}
		if i, ok := at[p]; ok {
			rules[i].Verbs = append(rules[i].Verbs, s.Verbs...)
			continue
		}
		at[p] = len(rules)
		s.Verbs = slices.Clone(s.Verbs)
		rules = append(rules, s)
	}
	return rules
}

// String formats the rule for an error.
func (r Rule) String() string {
	var parts []string
	for _, part := range []struct {
		name string
		list []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(part.list) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.list))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// notHeld returns the message of a 403 if a user does not hold all rules of a role, and otherwise "". unresolved is the
// error of looking up the rules that the user holds.
func notHeld(u *access.User, held, wanted []Rule, unresolved error) string {
	missing := uncovered(held, wanted)
	if len(missing) == 0 {
		return ""
	}
	var lines []string
	for _, r := range compact(missing) {
		lines = append(lines, r.String())
	}
	slices.Sort(lines)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.Name, u.Groups, strings.Join(slices.Compact(lines), "\n"))
	if unresolved != nil {
		text += fmt.Sprintf("; resolution errors: %v", []error{unresolved})
	}
	return text
}
