package cel

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	limits "k8s.io/apiserver/pkg/apis/cel"
)

var (
	schemas = flag.Uint64("schemas", 400, "how many schemas the generator makes")
	seed    = flag.Uint64("seed", 1, "what they are made from")
	enough  = flag.Int("enough", 5, "how many differences end the run")
)

// SPEC: EXT-1: generated schemas, rules, objects and updates of them: the same verdict on the definition, new and
// updated, and the same errors, warnings and costs of objects.
func TestGenerated(t *testing.T) {
	count := map[string]int{}
	found := 0
	for number := range *schemas {
		g := generator{rand.New(rand.NewPCG(*seed, number))}
		schema := g.schema()
		text := encode(t, schema)
		theirs, err := tryReference(text)
		if err != nil {
			t.Fatalf("schema %d of seed %d: %v\n%s", number, *seed, err, text)
		}
		told := generated(t, g, schema, theirs, newPlinth(t, text), count)
		if told == "" {
			continue
		}
		t.Errorf("schema %d of seed %d: %s\n%s", number, *seed, told, text)
		if found++; found == *enough {
			break
		}
	}
	t.Log(count)
	for what, least := range map[string]uint64{"check: errors": 40, "check: none": 15, "objects: errors": 300,
		"objects: none":   100,
		"updates: errors": 250, "updates: warnings": 60, "transitions": 80, "over": 8} {
		if uint64(count[what]) < least**schemas/100 {
			t.Errorf("%s: %d, too few", what, count[what])
		}
	}
	if most := 20 * *schemas / 100; uint64(count["depends on the order of maps"]) > most {
		t.Errorf("%d rules depend on the order of maps: too many", count["depends on the order of maps"])
	}
	if n := count["not a definition"]; uint64(n) > *schemas/50 {
		t.Errorf("%d of %d generated schemas are invalid in a definition, so the errors of their rules are not compared", n,
			*schemas)
	}
}

func generated(t *testing.T, g generator, schema node, theirs *reference, ours *plinth, count map[string]int) string {
	t.Helper()
	want, other := theirs.check(nil)
	switch {
	case len(other) > 0:
		count["not a definition"]++
	case len(want) > 0:
		count["check: errors"]++
	default:
		count["check: none"]++
	}
	if strings.Contains(strings.Join(want, " "), "exceeds budget") {
		count["over"]++
	}
	if len(other) == 0 {
		if told := untilSame(count, func() string {
			want, _ := theirs.check(nil)
			return compare("checks", ours.check(nil, false), want)
		}); told != "" {
			return told
		}
	}
	for range 8 {
		now := g.members(schema)
		obj := encode(t, now)
		changed := encode(t, g.changed(schema, now))
		if told := untilSame(count, func() string { return objects(t, obj, changed, theirs, ours, count) }); told != "" {
			return told + "\n" + string(obj) + "\n" + string(changed)
		}
	}
	return ""
}

// untilSame repeats a comparison that differs: the reference iterates over Go maps in random order, on which depend its
// errors for a map with invalid values, the cost of an expression that ends early, and which of several equally
// expensive rules it names.
func untilSame(count map[string]int, differs func() string) string {
	told := differs()
	for n := 0; told != "" && n < 300; n++ {
		if differs() == "" {
			count["depends on the order of maps"]++
			return ""
		}
	}
	return told
}

// objects compares the results for an object, for the object as a default, and for an update of it.
func objects(t *testing.T, obj, changed []byte, theirs *reference, ours *plinth, count map[string]int) string {
	t.Helper()
	want, _ := theirs.validate(t, obj, nil)
	got, _ := ours.validate(t, obj, nil)
	if told := compare("errors", got, want); told != "" {
		return told
	}
	count[verdict("objects", want)]++
	want, wantLeft := theirs.cost(t, obj, limits.RuntimeCELCostBudget)
	got, gotLeft := ours.cost(t, obj, limits.RuntimeCELCostBudget)
	if told := compare("errors of a default", got, want); told != "" || gotLeft != wantLeft {
		return fmt.Sprintf("%s %d is left, the reference has %d", told, gotLeft, wantLeft)
	}
	if changed[0] != '{' {
		return ""
	}
	want, wantWarnings := theirs.validate(t, changed, obj)
	got, gotWarnings := ours.validate(t, changed, obj)
	if told := compare("errors of an update", got, want) + compare("warnings", gotWarnings, wantWarnings); told != "" {
		return told
	}
	count[verdict("updates", want)]++
	if len(wantWarnings) > 0 {
		count["updates: warnings"]++
	}
	if strings.Contains(strings.Join(want, " "), "oldSelf") {
		count["transitions"]++
	}
	return ""
}

func verdict(of string, errs []string) string {
	if len(errs) == 0 {
		return of + ": none"
	}
	return of + ": errors"
}
