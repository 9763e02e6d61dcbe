//go:build mutants

package validation

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	recording "plinth/conformance/internal/recorder"
	"plinth/conformance/internal/vectors"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/mutants"
)

var (
	variants = flag.Int("variants", 1500, "how many cases of each kind and verb are tried")
	kind     = flag.String("kind", "", "look for cases of these kinds alone, separated by commas")
	calls    = flag.String("corpus", "", "the file that command harvest has written")
	cases    = flag.String("cases", "", "a folder with tables of cases that are tried first; their errors are not read")
	open     = flag.String("open", "",
		"the file of the mutants that no case notices yet; written anew, so that the next run needs not try the tables")
)

// recorded is the comment line above the cases that TestRecord writes.
const recorded = "# Each case below notices a mutant of the rules: found by TestRecord of conformance/oracle/validation, answers included.\n"

// TestRecord searches for cases in which our rules give the same errors as upstream and a mutant of them does not. It
// adds those that notice a mutant which no earlier case notices to the tables of package validation:
//
//	go run ./mutants/overlay internal/builtin/validation DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/validation -run TestRecord
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
		names: slices.Sorted(maps.Keys(documents)), vectors: map[schema.GroupVersionKind][]map[string]any{}}
	r.calls = readCalls(t, *calls)
	if *cases != "" {
		if r.written, err = validationtest.Read(*cases); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range vectors.All(t) {
		doc := v.Document(t)
		delete(doc, "metadata") // the server sets most of it
		r.vectors[v.Kind] = append(r.vectors[v.Kind], doc)
	}
	if *open == "" {
		r.closeNoticed(tables)
	} else if err := r.load(*open); os.IsNotExist(err) {
		r.closeNoticed(tables)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d mutants are not noticed by the tables", len(r.Open), mutants.Count)
	for _, k := range inOrder(kindsUnderTest(t)) {
		r.kind(t, k)
		if *open != "" {
			if err := r.save(*open); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d mutants are left", len(r.Open))
}

// closeNoticed closes the mutants that the cases of the tables notice.
func (r *recorder) closeNoticed(tables []*validationtest.Table) {
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
}

// load reads which mutants are open. The file has their names, which survive changes of the rules.
func (r *recorder) load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		names[strings.TrimSuffix(line, "\n")] = true
	}
	clear(r.Open)
	for i, name := range mutants.Names {
		if names[name] {
			r.Open[i+1] = true
		}
	}
	return nil
}

func (r *recorder) save(file string) error {
	var text []byte
	for _, n := range slices.Sorted(maps.Keys(r.Open)) {
		text = append(append(text, mutants.Names[n-1]...), '\n')
	}
	return os.WriteFile(file, text, 0o644)
}

// inOrder sorts the kinds so that those whose rules others use are first: an error in a Pod is easier to read in a Pod
// than in a template.
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
	vectors   map[schema.GroupVersionKind][]map[string]any
	calls     []call
	written   []*validationtest.Table
}

// prepared is a case together with what is needed to validate it many times.
type prepared struct {
	*validationtest.Case
	*mutants.Sample
	says []string
}

// prepare validates a case by our rules; nil if the case cannot be tried.
func (r *recorder) prepare(c *validationtest.Case) *prepared {
	request, err := r.served.Request(c, r.documents)
	if err != nil {
		return nil
	}
	s, err := r.Sample(func() (string, error) {
		errs, err := request.Refuse()
		return strings.Join(validationtest.Lines(errs), "\n"), err
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

// kind looks for cases of one kind. New cases are made from the documents at first; a case that reaches an open mutant
// which no earlier case has reached joins them. Thus mutants behind several conditions are found one condition at a
// time.
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
	if len(bases) == 0 || *kind != "" && !slices.Contains(strings.Split(*kind, ","), k.gvk.Kind) {
		return
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(k.gvk.String())) // never fails
	start := hash.Sum64() + *seed<<32
	h := r.harvest(t, k, bases, r.calls)
	x := newExplorer(slices.Concat(docs, r.vectors[k.gvk], h.docs))
	before := len(r.Open)
	r.Reset()
	var pool []*prepared // for mutants in variables: cases with a feature that no other has
	said, differences := map[string]bool{}, map[string]string{}
	for _, verb := range verbs(k) {
		reached := map[int]bool{}
		var first []*validationtest.Case
		var from []*prepared
		for _, base := range bases {
			first = append(first, &validationtest.Case{Verb: verb, Object: base})
		}
		written := r.ofKind(verb, bases)
		first = append(append(first, written...), h.cases[verb]...)
		for i := range len(first) + *variants {
			var c *validationtest.Case
			if i < len(first) {
				c = first[i]
			} else {
				c = r.candidate(x, start+uint64(i), x.choose(from, start+uint64(i)))
			}
			if c == nil || c.Changes() > 80 || len(c.String()) > 12_000 {
				continue
			}
			p := r.prepare(c)
			if hand := i - len(bases); hand >= 0 && hand < len(written) {
				r.explain(t, k, c, p)
				r.Reset() // earlier cases of its class do not speak for it
			}
			if p == nil || len(p.says) > 20 {
				continue
			}
			x.learn(p.says)
			joins := i < len(bases)
			for _, n := range p.Reached() {
				joins = joins || r.Open[n] && !reached[n]
				reached[n] = true
			}
			if joins {
				from = append(from, p)
			}
			found = append(found, r.useful(t, k, p, differences)...)
			fresh := i < len(bases)+len(written)
			for _, s := range p.says {
				s, _, _ = strings.Cut(s, ": Invalid value:")
				fresh = fresh || !said[s]
				said[s] = true
			}
			if fresh && r.agreed(t, k, p, differences) {
				pool = append(pool, p)
			}
		}
	}
	samples := make([]*mutants.Sample, len(pool))
	for i, p := range pool {
		samples[i] = p.Sample
	}
	r.CloseGlobals(samples, func(i, mutant int) *mutants.Sample {
		p := r.minimise(pool[i], func(less *prepared) bool { return less.Notices(mutant) && r.agreed(t, k, less, nil) })
		if p.small() {
			r.Close(p.Sample)
			found = append(found, p.Case)
		} else {
			r.Open[mutant] = true
		}
		return p.Sample
	})
	t.Logf("%s: %d cases, for %d mutants", k.gvk.Kind, len(found), before-len(r.Open))
	for _, difference := range slices.Sorted(maps.Values(differences)) {
		t.Logf("%s: upstream and we differ: %s", k.gvk.Kind, difference)
	}
	if err := writeTable(k, found); err != nil {
		t.Fatal(err)
	}
}

// ofKind returns the cases of the folder -cases for a verb and one of the documents.
func (r *recorder) ofKind(verb string, documents []string) []*validationtest.Case {
	var of []*validationtest.Case
	for _, table := range r.written {
		for _, c := range table.Cases {
			if c.Verb == verb && slices.Contains(documents, c.Object) {
				of = append(of, c)
			}
		}
	}
	return of
}

// explain logs what a case of the folder -cases is good for: its errors here and upstream, and the open mutants that it
// notices, or reaches without noticing them.
func (r *recorder) explain(t *testing.T, k *kindUnderTest, c *validationtest.Case, p *prepared) {
	if p == nil {
		_, err := r.served.Request(c, r.documents)
		t.Logf("line %d: %s cannot be tried: %v", c.Line, c, err)
		return
	}
	text := fmt.Sprintf("line %d: %.300s: %.600q", c.Line, c, p.says)
	if theirs, err := k.upstreamSays(t, c, r.documents); err != nil {
		text += fmt.Sprintf("\n  upstream fails: %v", err)
	} else if !slices.Equal(theirs, p.says) {
		text += fmt.Sprintf("\n  UPSTREAM: %.600q", theirs)
	}
	for _, n := range p.Reached() {
		if !r.Open[n] {
			continue
		}
		word := "reaches"
		if p.Notices(n) {
			word = "NOTICES"
		}
		text += "\n  " + word + " " + mutants.Names[n-1]
	}
	t.Log(text)
}

// candidate returns a case with random changes.
func (r *recorder) candidate(x *explorer, seed uint64, c *validationtest.Case) *validationtest.Case {
	base := r.documents[c.Object]
	next := &validationtest.Case{Verb: c.Verb, Object: c.Object, Gates: c.Gates, GatesBefore: c.GatesBefore}
	if c.Verb == "create" {
		doc, err := c.After(base)
		if err != nil {
			return nil
		}
		changes(nil, base, x.variant(seed, doc, ""), func(path, value string) { next.Change(false, path, value) })
		return next
	}
	before, err := c.Before(r.documents)
	if err != nil {
		return nil
	}
	if seed%3 > 0 {
		before = x.variant(seed, before, "")
	}
	changes(nil, base, before, func(path, value string) { next.Change(true, path, value) })
	kept, err := r.served.Kept(next, r.documents)
	if err != nil {
		return nil
	}
	doc, err := c.After(kept)
	if err != nil {
		doc = kept // the changed path no longer exists
	}
	if seed%3 < 2 {
		below := ""
		if c.Verb == "status" || c.Verb == "approval" {
			below = ".status"
		}
		doc = x.variant(seed+1<<40, doc, below)
	}
	changes(nil, kept, doc, func(path, value string) { next.Change(false, path, value) })
	return next
}

// useful returns minimised cases that notice the open mutants which a case notices, and closes those mutants. A case on
// which upstream and we differ is minimised first: that may remove the difference.
func (r *recorder) useful(t *testing.T, k *kindUnderTest, p *prepared,
	differences map[string]string) []*validationtest.Case {
	noticed := r.Noticed(p.Sample)
	if len(noticed) == 0 {
		return nil
	}
	agreed := r.agreed(t, k, p, differences)
	if !agreed && len(noticed) > 3 {
		noticed = noticed[:3]
	}
	var cases []*validationtest.Case
	for _, mutant := range noticed {
		if !r.Open[mutant] { // closed by an earlier case
			continue
		}
		small := r.minimise(p, func(less *prepared) bool {
			return less.Notices(mutant) && (!agreed || r.agreed(t, k, less, nil))
		})
		if small.small() && (agreed || r.agreed(t, k, small, nil)) {
			r.Close(small.Sample)
			cases = append(cases, small.Case)
		}
	}
	return cases
}

// maxErrors is the maximum number of errors of a case that is recorded. Fewer changes can mean more errors.
const maxErrors = 6

// small says whether a case is short enough to be read.
func (p *prepared) small() bool {
	return len(p.says) <= maxErrors && p.Changes() <= 12 && len(p.Case.String()) <= 4000
}

// minimise removes changes, many at a time first, and then parts of their values, as long as useful still holds for the
// case.
func (r *recorder) minimise(p *prepared, useful func(*prepared) bool) *prepared {
	accept := func(c *validationtest.Case) bool {
		less := r.prepare(c)
		ok := less != nil && len(less.says) <= max(len(p.says), maxErrors) && useful(less)
		if ok {
			p = less
		}
		return ok
	}
	for n := max(p.Changes()/2, 1); ; n /= 2 {
		for i := p.Changes() - n; i >= 0; i -= n {
			accept(p.Without(i, n))
		}
		if n == 1 {
			break
		}
	}
	for i := range p.Changes() {
		value, err := p.Value(i)
		if err != nil || p.Repeats(i) {
			continue
		}
		for kept := 0; kept < 200; {
			smaller, ok := recording.Without(value, kept, "apiVersion", "kind")
			if !ok {
				break
			}
			if text, err := json.Marshal(smaller); err == nil && accept(p.WithValue(i, string(text))) {
				value = smaller
			} else {
				kept++
			}
		}
	}
	p.Want = p.says
	return p
}

// agreed says whether upstream and we give the same errors for a case. Differences are logged, once for each field.
func (r *recorder) agreed(t *testing.T, k *kindUnderTest, p *prepared, differences map[string]string) bool {
	theirs, err := k.upstreamSays(t, p.Case, r.documents)
	if err != nil && differences != nil && len(differences) < 40 {
		why := err.Error()
		why = why[:min(len(why), 100)]
		differences["failed: "+why] = fmt.Sprintf("%.600s\n  upstream fails: %.300v", p.Case, err)
	}
	if err != nil || slices.Equal(theirs, p.says) {
		return err == nil
	}
	field, _, _ := strings.Cut(append(without(theirs, p.says), without(p.says, theirs)...)[0], ": ")
	if differences == nil || differences[field] != "" || len(differences) == 20 {
		return false
	}
	differences[field] = "found"
	small := r.minimise(p, func(less *prepared) bool {
		theirs, err := k.upstreamSays(t, less.Case, r.documents)
		differ := append(without(theirs, less.says), without(less.says, theirs)...)
		return err == nil && slices.ContainsFunc(differ, func(s string) bool { return strings.HasPrefix(s, field+": ") })
	})
	theirs, _ = k.upstreamSays(t, small.Case, r.documents) // it did not fail above
	differences[field] = fmt.Sprintf("%.1000s\n  upstream: %.1000q\n  ours:     %.1000q", small.Case,
		without(theirs, small.says), without(small.says, theirs))
	return false
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

// changes reports, in the notation of cases, the changes that turn one value into another.
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
		if text, ok := numbered(to); ok {
			tell(where(path), text)
			return
		}
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
	if text := where(path); !strings.Contains(text, "]]") && !strings.Contains(text, ": ") {
		tell(text, string(b))
	}
}

// where formats a path as the changes of a case do.
func where(path []string) string {
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
	return text
}

// numbered formats a long list whose items differ only in a number, as the changes of a case do. The result is false
// for other lists.
func numbered(list []any) (string, bool) {
	if len(list) < 12 {
		return "", false
	}
	text := func(i int) string {
		b, _ := json.Marshal(list[i])
		return string(b)
	}
	item := strings.ReplaceAll(text(7), "7", "#")
	for i := range list {
		if strings.ContainsAny(item, "<>*") || strings.ReplaceAll(item, "#", strconv.Itoa(i)) != text(i) {
			return "", false
		}
	}
	return "[<" + item + ",*" + strconv.Itoa(len(list)) + ">]", true
}
