package proto

import "testing"

// A plan that violates an invariant is noticed.
func TestPlanInvariants(t *testing.T) {
	some := func(p plan) *plan { return &p }
	for _, c := range []struct {
		plan *plan
		want string
	}{
		{some(plan{}), ""},
		{some(plan{names: []string{"a", "b", "c"}, fields: []planned{{}, {}, {none: true}},
			order: []step{{number: 2, field: 1}, {number: 3, field: -1, embedded: []step{{number: 1, field: 0}}}}}), ""},
		{some(plan{names: []string{"a", "a"}, fields: []planned{{}, {}},
			order: []step{{number: 1, field: 0}, {number: 2, field: 1}}}), "names out of order"},
		{some(plan{names: []string{"b", "a"}, fields: []planned{{}, {}},
			order: []step{{number: 1, field: 0}, {number: 2, field: 1}}}), "names out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}},
			order: []step{{number: 1, field: 0}, {number: 1, field: 1}}}), "field numbers out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}},
			order: []step{{number: 2, field: 0}, {number: 1, field: 1}}}), "field numbers out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}}, order: []step{{number: 1, field: -1,
			embedded: []step{{number: 2, field: 0}, {number: 1, field: 1}}}}}), "field numbers out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}}, order: []step{{number: 1, field: 0}}}),
			"a field that is missing, or there twice: b"},
		{some(plan{names: []string{"a"}, fields: []planned{{}}, order: []step{{number: 1, field: 0}, {number: 2,
			field: 0}}}), "a field that is missing, or there twice: a"},
		{some(plan{names: []string{"a"}, fields: []planned{{none: true}}, order: []step{{number: 1, field: 0}}}),
			"a field that is missing, or there twice: a"},
	} {
		if have := c.plan.broken(); have != c.want {
			t.Errorf("%+v: %q, want %q", *c.plan, have, c.want)
		}
	}
}
