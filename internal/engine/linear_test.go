//go:build invariants

package engine

// Comparisons are counted where assertions are on, as in make test.

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/store"
)

// Selecting is linear, up to a logarithmic factor, in the terms of the selector and the labels of the object, for any
// input. The test counts comparisons instead of measuring time.
//
// SPEC: LIST-7, WRITE-6
func TestSelectionIsLinear(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("label-%06d", i) }
	terms := func(n int, term func(i int) string) string {
		var list []string
		for i := range n {
			list = append(list, term(i))
		}
		return strings.Join(list, ",")
	}
	long := func(n int) []store.Pair {
		list := make([]store.Pair, n)
		for i := range list {
			list[i] = store.Pair{Name: name(i), Value: "v"}
		}
		return list
	}
	for what, c := range map[string]struct {
		selector func(n int) string
		labels   func(n int) []store.Pair
	}{
		"every label":  {func(n int) string { return terms(n, func(i int) string { return name(i) + "=v" }) }, long},
		"none of them": {func(n int) string { return terms(n, func(i int) string { return "!x" + name(i) }) }, long},
		"between them": {func(n int) string { return terms(n, func(i int) string { return name(i) + "x!=v" }) }, long},
		"the last":     {func(n int) string { return name(n-1) + "=v" }, long},
		"one, many terms": {func(n int) string { return terms(n, func(i int) string { return fmt.Sprintf("a!=v%d", i) }) },
			one},
		"one, many values": {func(n int) string {
			return "a notin (" + terms(n, func(i int) string { return fmt.Sprint("v", i) }) + ")"
		}, one},
		"one, many lists": {func(n int) string { return terms(n/4, func(i int) string { return "a in (u,v,w)" }) }, one},
		"one of others":   {func(n int) string { return terms(n, func(i int) string { return "!" + name(i) }) }, one},
	} {
		t.Run(what, func(t *testing.T) {
			work := func(n int) int64 {
				selector, err := labels.Parse(c.selector(n))
				if err != nil {
					t.Fatal(err)
				}
				before := comparisons.Load()
				if !compileLabels(selector).match(c.labels(n)) {
					t.Fatal("the labels do not match the selector")
				}
				return comparisons.Load() - before
			}
			const n, times = 500, 16
			few, many := work(n), work(n*times)
			t.Logf("%d comparisons for %d, %d for %d", few, n, many, n*times)
			if many > 2*times*few || few == 0 {
				t.Errorf("%d comparisons for %d terms, %d for %d: more than linear", few, n, many, n*times)
			}
		})
	}
}

func one(int) []store.Pair { return []store.Pair{{Name: "a", Value: "v"}} }
