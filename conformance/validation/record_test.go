//go:build mutants

package validation

import (
	"bytes"
	"encoding/json"
	"flag"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/mutants"
)

var variants = flag.Int("variants", 1500, "how many cases of each kind and verb are tried")

// recorded is the line above the cases that TestRecord writes.
const recorded = "# Each case below notices a mutant of the rules: found by TestRecord of conformance/validation, answers included.\n"

// TestRecord looks for cases in which a mutant of our rules says something else than upstream, while our rules say the
// same, and writes those that notice a mutant which no case has noticed before into the tables of package validation:
//
//	go run ./mutants/overlay internal/builtin/validation DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./validation -run TestRecord
func TestRecord(t *testing.T) {
	documents, err := validationtest.Documents(testdata)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := validationtest.Read(testdata)
	if err != nil {
		t.Fatal(err)
	}
	all, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Recorder: all, documents: documents, served: validationtest.NewServed(),
		names: slices.Sorted(maps.Keys(documents))}
	var pool []*mutants.Sample
	for _, table := range tables {
		for _, c := range table.Cases {
			if p := r.prepare(c); p != nil {
				r.Close(p.Sample)
				pool = append(pool, p.Sample)
			}
		}
	}
	r.CloseGlobals(pool, nil)
	t.Logf("%d of %d mutants are not noticed by the tables", len(r.Open), mutants.Count)
	for _, k := range inOrder(kindsUnderTest(t)) {
		r.kind(t, k)
	}
	t.Logf("%d mutants are left", len(r.Open))
}

// inOrder has the kinds first whose rules others use: what is wrong with a Pod shows in a Pod better than in a
// template.
func inOrder(kinds []*kindUnderTest) []*kindUnderTest {
	first := []string{"Pod", "Service", "PersistentVolumeClaim", "ResourceClaim", "Job"}
	slices.SortStableFunc(kinds, func(a, b *kindUnderTest) int {
		at := func(k *kindUnderTest) int {
			return (slices.Index(first, k.gvk.Kind) + len(first) + 1) % (len(first) + 1)
		}
		return at(a) - at(b)
	})
	return kinds
}

type recorder struct {
	*mutants.Recorder
	documents map[string]map[string]any
	served    validationtest.Served
	names     []string
}

// prepared is a case with what is needed to judge it many times.
type prepared struct {
	*validationtest.Case
	*mutants.Sample
	says []string
}

// prepare gives a case with what we say of it; nil if it is no case.
func (r *recorder) prepare(c *validationtest.Case) *prepared {
	request, err := r.served.Request(c, r.documents)
	if err != nil {
		return nil
	}
	s, err := r.Sample(func() (string, error) {
		errs, err := request.Refuse()
		return strings.Join(validationtest.Errors(errs, true), "\n"), err
	})
	if err != nil {
		return nil
	}
	p := &prepared{Case: c, Sample: s}
	if s.Says != "" {
		p.says = strings.Split(s.Says, "\n")
	}
	return p
}

// kind looks for cases of one kind.
func (r *recorder) kind(t *testing.T, k *kindUnderTest) {
	var found []*validationtest.Case
	var bases []string
	var docs []map[string]any
	for _, name := range r.names {
		doc := r.documents[name]
		if doc["apiVersion"] == k.gvk.GroupVersion().String() && doc["kind"] == k.gvk.Kind {
			bases, docs = append(bases, name), append(docs, doc)
		}
	}
	if len(bases) == 0 {
		return
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.gvk.String())) // never fails
	m := newMutator(docs)
	verbs := []string{"create", "update"}
	for _, sub := range []string{"status", "approval"} {
		if k.upstream.Subresources[sub] != nil {
			verbs = append(verbs, sub)
		}
	}
	before := len(r.Open)
	r.Reset()
	var pool []*prepared // for mutants in variables: cases with something that is found in no other
	said := map[string]bool{}
	for _, verb := range verbs {
		for i := range *variants {
			c := r.candidate(m, h.Sum64()+uint64(i), verb, bases[i%len(bases)], i < len(bases))
			if c == nil {
				continue
			}
			p := r.prepare(c)
			if p == nil || len(p.says) > 8 {
				continue
			}
			if smaller := r.useful(t, k, p); smaller != nil {
				found = append(found, smaller)
			}
			fresh := i < len(bases)
			for _, s := range p.says {
				s, _, _ = strings.Cut(s, ": Invalid value:")
				fresh = fresh || !said[s]
				said[s] = true
			}
			if fresh && r.agreed(t, k, p) {
				pool = append(pool, p)
			}
		}
	}
	samples := make([]*mutants.Sample, len(pool))
	for i, p := range pool {
		samples[i] = p.Sample
	}
	r.CloseGlobals(samples, func(i, mutant int) *mutants.Sample {
		p := r.minimise(t, k, pool[i], mutant)
		found = append(found, p.Case)
		return p.Sample
	})
	t.Logf("%s: %d cases, for %d mutants", k.gvk.Kind, len(found), before-len(r.Open))
	if err := writeTable(k, found); err != nil {
		t.Fatal(err)
	}
}

// candidate is a case of random changes.
func (r *recorder) candidate(m *mutator, seed uint64, verb, base string, plain bool) *validationtest.Case {
	c := &validationtest.Case{Verb: verb, Object: base}
	if plain {
		return c
	}
	doc := r.documents[base]
	if verb != "create" && seed%3 > 0 {
		changes(nil, doc, m.variant(seed, doc, ".spec"), func(path, value string) { c.Change(true, path, value) })
	}
	if verb == "create" || seed%3 < 2 {
		below := ""
		if verb != "create" && verb != "update" {
			below = ".status"
		}
		if verb != "create" {
			var err error
			if doc, err = r.kept(c); err != nil {
				return nil
			}
		}
		changes(nil, doc, m.variant(seed+1<<40, doc, below), func(path, value string) { c.Change(false, path, value) })
	}
	return c
}

// kept is the object of a case as it is stored.
func (r *recorder) kept(c *validationtest.Case) (map[string]any, error) {
	return r.served.Kept(c, r.documents)
}

// useful gives the smallest form of a case that notices an open mutant, if upstream and we say the same of it, and
// closes what it notices.
func (r *recorder) useful(t *testing.T, k *kindUnderTest, p *prepared) *validationtest.Case {
	mutant := r.First(p.Sample)
	if mutant == 0 || !r.agreed(t, k, p) {
		return nil
	}
	return r.minimise(t, k, p, mutant).Case
}

// minimise leaves out the changes without which a mutant is noticed as well, and closes what is noticed of the rest.
func (r *recorder) minimise(t *testing.T, k *kindUnderTest, p *prepared, mutant int) *prepared {
	for i := 0; i < p.Changes(); {
		less := r.prepare(p.Without(i))
		if less != nil && less.Notices(mutant) && r.agreed(t, k, less) {
			p = less
		} else {
			i++
		}
	}
	r.Close(p.Sample)
	p.Case.Want = p.says
	return p
}

// agreed says whether upstream says of a case what we say.
func (r *recorder) agreed(t *testing.T, k *kindUnderTest, p *prepared) bool {
	theirs, err := k.upstreamSays(t, p.Case, r.documents)
	return err == nil && slices.Equal(theirs, p.says)
}

// writeTable adds cases to the table of a kind.
func writeTable(k *kindUnderTest, cases []*validationtest.Case) error {
	if len(cases) == 0 {
		return nil
	}
	file := filepath.Join(testdata, strings.ToLower(k.gvk.Kind)+".txt")
	if k.gvk.Kind == "Event" && k.gvk.Group == "" {
		file = filepath.Join(testdata, "event_core.txt")
	}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if !bytes.Contains(text, []byte(recorded)) {
		text = append(text, recorded...)
	}
	return os.WriteFile(file, append(text, (&validationtest.Table{Cases: cases}).Format()...), 0o644)
}

// changes tells what makes one value another, as the changes of a case.
func changes(path []string, from, to any, tell func(path, value string)) {
	switch to := to.(type) {
	case map[string]any:
		from, ok := from.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(from)
		maps.Copy(keys, to)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			changes(append(slices.Clone(path), key), from[key], to[key], tell)
		}
		return
	case []any:
		from, ok := from.([]any)
		if !ok || len(to) < len(from) || len(from) == 0 {
			break
		}
		for i := range to {
			var was any
			if i < len(from) {
				was = from[i]
			}
			changes(append(slices.Clone(path), "["+strconv.Itoa(i)+"]"), was, to[i], tell)
		}
		return
	}
	a, _ := json.Marshal(from)
	b, err := json.Marshal(to)
	if err != nil || bytes.Equal(a, b) {
		return
	}
	text := ""
	for _, step := range path {
		switch {
		case strings.HasPrefix(step, "["):
			text += step
		case step == "" || strings.ContainsAny(step, ".[]: "):
			text += "[" + step + "]"
		case text == "":
			text = step
		default:
			text += "." + step
		}
	}
	if strings.Contains(text, "]]") || strings.Contains(text, ": ") {
		return
	}
	tell(text, string(b))
}
