package engine

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	selects "k8s.io/apimachinery/pkg/selection"

	"plinth/internal/invariants"
	"plinth/internal/store"
)

// clause is everything that a selector demands of one label or field. The zero clause demands nothing.
//
// A selector is a conjunction of requirements, of which thousands may be about one name, and an object may have
// thousands of names. Trying each requirement in turn on each object, as apimachinery's selectors do, is quadratic:
// 50,000 requirements over one object with 50,000 labels are 2.5 billion comparisons. So a selector is compiled, once
// for a request: the requirements about one name become one clause, and clauses are sorted by name, as labels in a
// sidecar are. Then
//
//	comparisons(object) ≤ min(clauses, labels) · O(log(clauses + labels + values))
type clause struct {
	name     string
	required bool     // the name must be there
	absent   bool     // the name must not be there
	listed   bool     // the value must be one of in
	in       []string // sorted
	notIn    []string // sorted; the value must be none of these
	above    *int64   // the value must be a greater number
	below    *int64   // the value must be a smaller number
}

// conjunction is a compiled selector: clauses sorted by name, each name once.
type conjunction struct {
	clauses  []clause
	required int // of the clauses, how many demand that the name is there
}

// compileLabels is nil for a selector of everything.
func compileLabels(selector labels.Selector) *conjunction {
	if selector == nil || selector.Empty() {
		return nil
	}
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nothing()
	}
	all := make([]clause, 0, len(requirements))
	for _, r := range requirements {
		all = append(all, labelClause(&r))
	}
	return conjoin(all)
}

func labelClause(r *labels.Requirement) clause {
	c := clause{name: r.Key()}
	values := r.ValuesUnsorted()
	slices.Sort(values)
	switch r.Operator() {
	case selects.Exists:
		c.required = true
	case selects.DoesNotExist:
		c.absent = true
	case selects.In, selects.Equals, selects.DoubleEquals:
		c.required, c.listed, c.in = true, true, values
	case selects.NotIn, selects.NotEquals:
		c.notIn = values
	case selects.GreaterThan, selects.LessThan:
		c.required = true
		limit, err := strconv.ParseInt(values[0], 10, 64)
		switch {
		case err != nil: // the parser of selectors has seen to that
			c.absent = true
		case r.Operator() == selects.GreaterThan:
			c.above = &limit
		default:
			c.below = &limit
		}
	default: // matches nothing
		c.required, c.absent = true, true
	}
	return c
}

// compileFields is nil for a selector of everything. A field that an object does not have reads as empty, so none is
// required.
func compileFields(selector fields.Selector) *conjunction {
	if selector == nil || selector.Empty() {
		return nil
	}
	requirements := selector.Requirements()
	if len(requirements) == 0 {
		return nothing()
	}
	all := make([]clause, 0, len(requirements))
	for _, r := range requirements {
		if r.Operator == selects.NotEquals {
			all = append(all, clause{name: r.Field, notIn: []string{r.Value}})
		} else {
			all = append(all, clause{name: r.Field, listed: true, in: []string{r.Value}})
		}
	}
	return conjoin(all)
}

// nothing is what no object matches.
func nothing() *conjunction {
	return &conjunction{clauses: []clause{{required: true, absent: true, listed: true}}, required: 1}
}

// conjoin makes one clause of those about each name.
func conjoin(all []clause) *conjunction {
	slices.SortStableFunc(all, func(a, b clause) int { return strings.Compare(a.name, b.name) })
	c := &conjunction{}
	for start := 0; start < len(all); {
		end := start + 1
		for end < len(all) && all[end].name == all[start].name {
			end++
		}
		one := unite(all[start:end])
		if one.required {
			c.required++
		}
		c.clauses = append(c.clauses, one)
		start = end
	}
	if invariants.Enabled {
		c.assertSorted()
	}
	return c
}

// unite is the clause that demands what all of these demand, which are about the same name. The lists that have to be
// intersected are merged from the shortest on, so that this takes no longer than sorting them.
func unite(all []clause) clause {
	if len(all) == 1 {
		return all[0]
	}
	one := clause{name: all[0].name}
	var lists [][]string
	for _, c := range all {
		one.required = one.required || c.required
		one.absent = one.absent || c.absent
		one.notIn = append(one.notIn, c.notIn...)
		if c.listed {
			one.listed = true
			lists = append(lists, c.in)
		}
		if c.above != nil && (one.above == nil || *c.above > *one.above) {
			one.above = c.above
		}
		if c.below != nil && (one.below == nil || *c.below < *one.below) {
			one.below = c.below
		}
	}
	slices.Sort(one.notIn)
	one.notIn = slices.Compact(one.notIn)
	slices.SortFunc(lists, func(a, b []string) int { return len(a) - len(b) })
	for i, list := range lists {
		if i == 0 {
			one.in = slices.Compact(list)
			continue
		}
		one.in = slices.DeleteFunc(one.in, func(value string) bool { return !has(list, value) })
	}
	return one
}

// matches says whether this value has what is demanded.
func (c *clause) matches(value string) bool {
	if c.absent || c.listed && !has(c.in, value) || has(c.notIn, value) {
		return false
	}
	if c.above == nil && c.below == nil {
		return true
	}
	number, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (c.above == nil || number > *c.above) && (c.below == nil || number < *c.below)
}

// match says whether labels, which are sorted by name, have what is demanded. It goes through the shorter one of
// labels and clauses and looks for each name in what is left of the longer one.
func (c *conjunction) match(labels []store.Pair) bool {
	if c.required > len(labels) {
		return false
	}
	if len(c.clauses) <= len(labels) {
		for i := range c.clauses {
			demand := &c.clauses[i]
			labels = from(labels, demand.name, func(p *store.Pair) string { return p.Name })
			if len(labels) == 0 || !equal(labels[0].Name, demand.name) {
				if demand.required {
					return false
				}
				continue
			}
			if !demand.matches(labels[0].Value) {
				return false
			}
		}
		return true
	}
	required, clauses := c.required, c.clauses
	for i := range labels {
		clauses = from(clauses, labels[i].Name, func(c *clause) string { return c.name })
		if len(clauses) == 0 {
			break
		}
		if !equal(clauses[0].name, labels[i].Name) {
			continue
		}
		if !clauses[0].matches(labels[i].Value) {
			return false
		}
		if clauses[0].required {
			required--
		}
	}
	return required == 0
}

// from is what of a sorted list is not below a name. It looks in steps that double, so that going on from one place
// to the next is cheap where they are near.
func from[T any](list []T, name string, nameOf func(*T) string) []T {
	low, high := 0, 1 // everything before low is below
	for high <= len(list) && below(nameOf(&list[high-1]), name) {
		low, high = high, 2*high
	}
	high = min(high, len(list))
	for low < high {
		if mid := int(uint(low+high) / 2); below(nameOf(&list[mid]), name) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return list[low:]
}

// has says whether a sorted list has a value.
func has(list []string, value string) bool {
	if len(list) == 0 {
		return false
	}
	rest := from(list, value, func(s *string) string { return *s })
	return len(rest) > 0 && equal(rest[0], value)
}

// comparisons counts what selections compare, where the program checks itself: tests hold it against the number of
// clauses and labels.
var comparisons atomic.Int64

func below(a, b string) bool {
	if invariants.Enabled {
		comparisons.Add(1)
	}
	return a < b
}

func equal(a, b string) bool {
	if invariants.Enabled {
		comparisons.Add(1)
	}
	return a == b
}
