package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/store"
)

func sortedPairs(set map[string]string) []store.Pair {
	var list []store.Pair
	for _, name := range slices.Sorted(maps.Keys(set)) {
		list = append(list, store.Pair{Name: name, Value: set[name]})
	}
	return list
}

// randomSelector is a label selector with few requirements on few names and values, so that several often have the same
// name.
func randomSelector(r *rand.Rand, names int) string {
	var terms []string
	for range r.IntN(8) {
		name := fmt.Sprint("k", r.IntN(names))
		value := func() string { return fmt.Sprint(r.IntN(4)) }
		terms = append(terms, []string{
			name, "!" + name, name + "=" + value(), name + "!=" + value(), name + "=",
			name + " in (" + value() + "," + value() + "," + value() + ")", name + " notin (" + value() + "," + value() + ")",
			name + ">" + value(), name + "<" + value(), name + " in (x,y)",
		}[r.IntN(10)])
	}
	return strings.Join(terms, ",")
}

// A compiled selector selects the same objects as the selector from which it was compiled.
//
// SPEC: LIST-7
func TestCompiledSelectors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	selected := 0
	const rounds = 50_000
	for range rounds {
		names := 1 + r.IntN(12)
		text, set := randomSelector(r, names), map[string]string{}
		for range r.IntN(12) {
			set[fmt.Sprint("k", r.IntN(names))] = []string{"0", "1", "2", "3", "x", ""}[r.IntN(6)]
		}
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		want, compiled := selector.Matches(labels.Set(set)), compileLabels(selector)
		if got := compiled == nil || compiled.match(sortedPairs(set)); got != want {
			t.Fatalf("the compiled selector %q matches labels %v: %v, apimachinery's differs", text, set, got)
		}
		if want {
			selected++
		}
	}
	if selected < rounds/20 || selected > rounds*19/20 {
		t.Errorf("%d of %d cases were selected: both results must be frequent", selected, rounds)
	}
	for _, selector := range []labels.Selector{labels.Nothing()} {
		if compileLabels(selector).match([]store.Pair{{Name: "a", Value: "b"}}) {
			t.Errorf("%v, which matches nothing, selects an object", selector)
		}
	}
}

// SPEC: LIST-7
func TestCompiledFieldSelectors(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"}
	selected := 0
	const rounds = 20_000
	for range rounds {
		var terms []string
		for range 1 + r.IntN(4) {
			terms = append(terms, names[r.IntN(len(names))]+[]string{"=", "==", "!="}[r.IntN(3)]+[]string{"", "a",
				"b"}[r.IntN(3)])
		}
		set := fields.Set{"metadata.name": "a", "metadata.namespace": "b"}
		others := map[string]string{}
		for _, name := range names[2:] {
			if r.IntN(2) == 0 {
				others[name] = []string{"", "a", "b"}[r.IntN(3)]
			}
		}
		maps.Copy(set, others)
		selector := fields.ParseSelectorOrDie(strings.Join(terms, ","))
		s := selection{fields: compileFields(selector)}
		want := selector.Matches(set)
		if got := s.matchesFields(store.Key{Name: "b/a"}, sortedPairs(others)); got != want {
			t.Fatalf("the compiled selector %v matches fields %v: %v, apimachinery's differs", selector, set, got)
		}
		if want {
			selected++
		}
	}
	if selected < rounds/20 {
		t.Errorf("%d of %d cases were selected: both results must be frequent", selected, rounds)
	}
	s := selection{fields: compileFields(fields.Nothing())}
	if s.matchesFields(store.Key{Name: "b/a"}, nil) {
		t.Error("fields.Nothing() selects an object")
	}
}

// FuzzCompiledSelector compares compiled selectors with those of apimachinery.
//
// SPEC: LIST-7
func FuzzCompiledSelector(f *testing.F) {
	f.Add("a=b,c!=d,e in (f,g),h,!i,j>1,k<2", "a=b;e=f;h=;j=2;k=1")
	f.Add("a in (b,c),a in (c,d),a!=c", "a=c")
	f.Add("x notin (,y)", "x=")
	f.Fuzz(func(t *testing.T, text, object string) {
		selector, err := labels.Parse(text)
		if err != nil {
			return
		}
		set := labels.Set{}
		for pair := range strings.SplitSeq(object, ";") {
			name, value, _ := strings.Cut(pair, "=")
			set[name] = value
		}
		compiled := compileLabels(selector)
		if got, want := compiled == nil || compiled.match(sortedPairs(set)), selector.Matches(set); got != want {
			t.Fatalf("the compiled selector %q matches labels %v: %v, apimachinery's differs", text, set, got)
		}
	})
}
