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

// clause is everything that a selector requires of one label or field. The zero clause requires nothing.
//
// The problem: a selector is a conjunction of requirements, of which thousands may be about one name, and an object
// may have thousands of labels. To try each requirement in turn on each object, as apimachinery's selectors do, is
// quadratic: 50,000 requirements over one object with 50,000 labels are 2.5 billion comparisons. So a selector is
// compiled, once for a request: the requirements about one name become one clause, and clauses are sorted by name, as
// the labels in a sidecar are. Then
//
//	comparisons(object) ≤ min(clauses, labels) · O(log(clauses + labels + values))
//
// A compiled selector selects what the selector selects:
//
//	selector.Matches(labels)  ⇔  ∀ clauses c: labels has c.name ⇒ c.matches(labels[c.name]), else ¬c.required
//
// Tests compare the two on random selectors, and hold the number of comparisons against the bound.
type clause struct {
	name     string
	required bool     // the name must exist
	absent   bool     // the name must not exist
	listed   bool     // the value must be one of in
	in       []string // sorted
	notIn    []string // sorted; the value must not be one of these
	above    *int64   // the value must be a greater number
	below    *int64   // the value must be a smaller number
}

// conjunction is a compiled selector: all its clauses have to hold. The clauses are sorted by name, and each name has
// one clause (assertSorted). It does not change after it is compiled; a watch uses it to its end.
type conjunction struct {
	clauses  []clause
	required int // the number of clauses that require the name to exist
}

// compileLabels compiles a label selector. The result is nil if it selects everything.
func compileLabels(selector labels.Selector) *conjunction {
	if selector == nil || selector.Empty() {
		return nil
	}
	requirements, selectable := selector.Requirements()
	// labels.Nothing() selects no object, and has no requirements.
	if !selectable {
		return nothing()
	}
	all := make([]clause, 0, len(requirements))
	for _, r := range requirements {
		all = append(all, labelClause(&r))
	}
	return conjoin(all)
}

// labelClause is the clause of one requirement. In, = and == require that the label exists; NotIn, != and ! accept an
// object without it.
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
		// The parser of selectors refuses such a limit. If one gets here all the same, the clause selects no object.
		case err != nil:
			c.absent = true
		case r.Operator() == selects.GreaterThan:
			c.above = &limit
		default:
			c.below = &limit
		}
	// Required and absent at once: an unknown operator selects no object.
	default:
		c.required, c.absent = true, true
	}
	return c
}

// compileFields compiles a field selector. The result is nil if it selects everything. A field that an object does not
// have reads as empty, so no clause is required.
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

// nothing is a conjunction that selects no object.
func nothing() *conjunction {
	return &conjunction{clauses: []clause{{required: true, absent: true, listed: true}}, required: 1}
}

// conjoin makes one clause of those about each name. It sorts them first, so that those about one name stand side by
// side.
func conjoin(all []clause) *conjunction {
	slices.SortStableFunc(all, func(a, b clause) int { return strings.Compare(a.name, b.name) })
	c := &conjunction{}
	for start := 0; start < len(all); {
		end := start + 1
		for end < len(all) && all[end].name == all[start].name {
			end++
		}
		// all[start:end] are the clauses about one name.
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

// unite returns the clause that is equivalent to a list of clauses about one name: a value that any clause forbids is
// forbidden, a listed value has to be in every list, and of several limits the strictest one counts.
//
// The lists are intersected from the shortest on: each of its values is searched for in the others, so this takes no
// longer than it took to sort them. Starting with any list would let a client with many long lists cause work that is
// the product of their lengths.
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
	// The shortest list first: the result is no longer than that.
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

// matches says whether a label or field with this value satisfies the clause. A value that is not a number satisfies no
// limit.
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

// match says whether labels, which are sorted by name, satisfy the conjunction. It iterates over the shorter one of
// labels and clauses, and searches each name in the rest of the longer one. Both are sorted, so no element is looked at
// again once it was passed.
//
// If it iterates over the labels, it does not meet a clause whose name the object does not have. Such a clause fails
// only if it is required, so it is enough to count the required clauses that were met.
func (c *conjunction) match(labels []store.Pair) bool {
	if c.required > len(labels) {
		return false
	}
	// Fewer clauses than labels, the usual case: each clause looks for its label.
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
	// Fewer labels than clauses: each label looks for its clause, and the required clauses that were met are counted
	// down.
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

// from is the part of a sorted list that begins at a name, or where the name would be. It looks at elements 1, 2, 4, 8
// … until it has passed the name, and then does a binary search between the last two: O(log d) for a name that is d
// elements away. A binary search of the whole list would take O(log length) for a neighbour, too, which is the usual
// case when labels and clauses have the same names.
func from[T any](list []T, name string, nameOf func(*T) string) []T {
	// Everything before low is below the name.
	low, high := 0, 1
	// Steps of 1, 2, 4 …: after the loop the name is between low and high.
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

// comparisons counts what selections compare, where assertions are on: tests hold it against the number of clauses
// and labels.
var comparisons atomic.Int64

// below and equal compare two names or values, and count that.
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
