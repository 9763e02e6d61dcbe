package authz

import (
	"fmt"
	"testing"
)

// Wanted rules are covered if each of their atoms is covered by one held rule.
//
// SPEC: AUTH-2
func TestUncovered(t *testing.T) {
	get := func(resources []string, names ...string) Rule {
		return Rule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: resources, ResourceNames: names}
	}
	pods := []string{"pods"}
	path := func(url string, names ...string) Rule {
		return Rule{Verbs: []string{"get"}, NonResourceURLs: []string{url}, ResourceNames: names}
	}
	for _, c := range []struct {
		held, wanted Rule
		covered      bool
	}{
		{get(pods), get(pods), true},
		{get(pods), get(pods, "a"), true},
		{get(pods, "a"), get(pods), false},
		{get(pods, "a"), get(pods, "b"), false},
		{get(pods, "a", "b"), get(pods, "b", "a"), true},
		{get(pods), get([]string{"pods", "nodes"}), false},
		{get([]string{"*"}), get([]string{"pods/log"}), true},
		{get([]string{"*/log"}), get([]string{"pods/log"}), true},
		{get([]string{"*/log"}), get([]string{"log"}), false},
		{get(pods), get([]string{"pods/log"}), false},
		{Rule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: pods}, get(pods), false},
		{Rule{Verbs: []string{"*"}, APIGroups: []string{"apps"}, Resources: pods}, get(pods), false},
		{path("/a/*"), path("/a/b"), true},
		{path("/a/*"), path("/b"), false},
		{path("/a/*", "x"), path("/a/b"), false},
		{get([]string{"*"}), path("/a"), false},
		{fullAuthority[0], get(pods), true},
		{fullAuthority[0], path("/a"), false},
	} {
		if got := len(uncovered([]Rule{c.held}, []Rule{c.wanted})) == 0; got != c.covered {
			t.Errorf("%s covers %s: have %v, want %v", c.held, c.wanted, got, c.covered)
		}
	}
}

// A rule with more atoms than maxAtoms counts as not covered, and is not split into atoms.
//
// SPEC: AUTH-2
func TestUncoveredIsBounded(t *testing.T) {
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprint("x", i)
	}
	huge := Rule{Verbs: many, APIGroups: many, Resources: many, ResourceNames: many}
	small := Rule{Verbs: many[:10], APIGroups: many[:10], Resources: many[:10]}
	if missing := uncovered(fullAuthority, []Rule{small, huge, small}); len(missing) != 2 {
		t.Errorf("have %d rules that are not covered, want 2: the one with many atoms and all after it", len(missing))
	}
	if missing := uncovered(fullAuthority, []Rule{small}); len(missing) != 0 {
		t.Errorf("have %s not covered, want none", missing)
	}
}
