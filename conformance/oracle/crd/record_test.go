//go:build mutants

package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	recording "plinth/conformance/internal/recorder"
	"plinth/internal/mutants"
	"plinth/object"
)

// recorded is the table that TestRecord writes: a write of a definition, the definition, the one that it replaces, and
// its errors, one on each line.
const recorded = "../../../internal/crd/validation/testdata/recorded.txt"

// TestRecord searches for definitions for which our rules give the same errors as upstream and a mutant of them does
// not. It writes the table of package crd/validation anew: of the writes in the table, and then of new ones, those that
// notice a mutant which no earlier one notices:
//
//	go run ./mutants/overlay internal/crd/validation DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/crd -run TestRecord
func TestRecord(t *testing.T) {
	all, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Recorder: all, errors: 60, reached: map[int]bool{}, said: map[string]bool{},
		differ: map[string]bool{}}
	r.out.WriteString("# What upstream says of definitions, each of which notices a mutant of the rules: found by TestRecord of " +
		"conformance/oracle/crd.\n")
	docs := corpus(t)
	m := newMutator(docs)
	from := docs
	for _, c := range cases {
		for _, doc := range docs {
			if doc["metadata"].(map[string]any)["name"] == c.name {
				from = append(from, put(clone(doc), c.path, c.to).(map[string]any))
			}
		}
	}
	before := recordedBefore(t)
	for _, e := range before {
		r.Reset() // each is tried on every mutant
		if w := r.write(t, e.verb, e.doc, e.old); w != nil {
			r.try(t, w)
			r.pool = append(r.pool, w)
		}
	}
	t.Logf("%d recorded writes leave %d mutants", len(before), len(r.Open))
	for _, e := range examples() {
		r.Reset()
		if e.old == nil {
			e.old = e.doc
		}
		for _, verb := range verbs {
			if w := r.write(t, verb, e.doc, e.old); w != nil && r.try(t, w) {
				from = append(from, e.doc)
			}
		}
	}
	t.Logf("%d examples leave %d mutants", len(examples()), len(r.Open))
	r.errors = 8
	choose := rand.New(rand.NewPCG(*seed, 1))
	for i := range 20 * *objects {
		doc := m.variant(*seed<<32+uint64(i), from[choose.IntN(len(from))])
		old := from[choose.IntN(len(from))]
		if choose.IntN(3) > 0 {
			old = m.variant(*seed<<33+uint64(i), doc)
		}
		joins := false
		for _, verb := range verbs {
			w := r.write(t, verb, doc, old)
			if w != nil && r.try(t, w) {
				joins = true
			}
		}
		if joins {
			from = append(from, doc)
		}
		if i%100 == 0 {
			r.Reset()
		}
		if i%400 == 0 {
			t.Logf("%d tried, %d in the corpus, %d mutants are left", i, len(from), len(r.Open))
		}
	}
	samples := make([]*mutants.Sample, len(r.pool))
	for i, w := range r.pool {
		samples[i] = w.Sample
	}
	r.errors = 60
	r.CloseGlobals(samples, func(i, mutant int) *mutants.Sample {
		w := r.minimise(t, r.pool[i], mutant)
		r.record(w)
		return w.Sample
	})
	for _, n := range slices.Sorted(maps.Keys(r.Open)) {
		t.Logf("left: %s", mutants.Names[n-1])
	}
	t.Logf("%d of %d mutants are left", len(r.Open), mutants.Count)
	if err := os.WriteFile(recorded, r.out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// recordedBefore returns the writes in the table, so that the new table notices at least the same mutants.
func recordedBefore(t *testing.T) (all []example) {
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case slices.Contains(verbs, line):
			all = append(all, example{verb: line})
		case line[0] == '{':
			var doc map[string]any
			if err := json.Unmarshal([]byte(line), &doc); err != nil {
				t.Fatal(err)
			}
			if e := &all[len(all)-1]; e.doc == nil {
				e.doc = doc
			} else {
				e.old = doc
			}
		}
	}
	return all
}

// verbs are the verbs that write a definition.
var verbs = []string{"create", "update", "status"}

type recorder struct {
	*mutants.Recorder
	out     bytes.Buffer
	reached map[int]bool
	pool    []*write        // for mutants in variables
	errors  int             // how many errors a write may have
	said    map[string]bool // error texts seen so far, for the pool
	differ  map[string]bool // differences that have been reported
}

// mostSaid limits how many writes are in the pool because of their errors.
const mostSaid = 700

// quotes are the parts of an error that depend on the definition: paths and values.
var quotes = regexp.MustCompile(`"[^"]*"|\S*openAPIV3Schema\S*|\d+`)

// write is a write of a definition for which upstream and we return the same errors.
type write struct {
	*mutants.Sample
	verb     string
	doc, was map[string]any
	obj, old object.Value
}

// write returns nil for a definition that cannot be decoded, if upstream's errors differ, if upstream panics, and if
// there are too many errors.
func (r *recorder) write(t *testing.T, verb string, doc, was map[string]any) *write {
	d, ok := decode(t, text(t, doc))
	if !ok {
		return nil
	}
	var old definition
	var v verdict
	w := &write{verb: verb, doc: doc, was: was}
	if verb == "create" {
		v = create(d)
		w.obj = prepared(d.ours, object.Fields())
	} else {
		if old, ok = decode(t, text(t, was)); !ok {
			return nil
		}
		w.old = old.ours
		if verb == "update" {
			v = update(d, old)
			w.obj = named(prepared(d.ours, old.ours.At("status")), old.ours)
		} else {
			v = updateStatus(d, old)
			w.obj = named(d.ours.With("spec", old.ours.At("spec")), old.ours)
		}
	}
	if difference := v.difference(); difference != "" {
		if shown := quotes.ReplaceAllString(difference, ""); len(r.differ) < 30 && !r.differ[shown] {
			r.differ[shown] = true
			t.Logf("upstream and we differ: %s: %s\n%.2000s\n%.2000s", verb, difference, text(t, doc), text(t, was))
		}
		return nil
	}
	if v.panicked != nil || len(v.ours) > r.errors {
		return nil
	}
	var err error
	w.Sample, err = r.Sample(func() (string, error) {
		said := ""
		for _, line := range judged(verb, w.obj, w.old) {
			said += fmt.Sprintf("    %q\n", line)
		}
		return said, nil
	})
	if err != nil {
		return nil
	}
	return w
}

// try records a write if it notices an open mutant, and says whether it reaches one that no earlier write has reached.
func (r *recorder) try(t *testing.T, w *write) bool {
	fresh := false
	for _, n := range w.Reached() {
		fresh = fresh || r.Open[n] && !r.reached[n]
		r.reached[n] = true
	}
	if said := quotes.ReplaceAllString(w.Says, ""); fresh || !r.said[said] && len(r.said) < mostSaid {
		r.said[said] = true
		r.pool = append(r.pool, w)
	}
	for mutant := r.First(w.Sample); mutant > 0; mutant = r.First(w.Sample) {
		r.record(r.minimise(t, w, mutant))
	}
	return fresh
}

// minimise removes the parts of a write without which it still notices a mutant.
func (r *recorder) minimise(t *testing.T, w *write, mutant int) *write {
	for _, ofOld := range []bool{false, true} {
		for n := 0; ; {
			doc, was := w.doc, w.was
			from := &doc
			if ofOld {
				from = &was
			}
			smaller, ok := recording.Without(*from, n, "apiVersion", "kind")
			if !ok {
				break
			}
			*from = smaller.(map[string]any)
			if less := r.write(t, w.verb, doc, was); less != nil && less.Notices(mutant) {
				w = less
			} else {
				n++
			}
		}
		if w.verb == "create" {
			break
		}
	}
	return w
}

func (r *recorder) record(w *write) {
	r.Close(w.Sample)
	fmt.Fprintf(&r.out, "%s\n%s\n", w.verb, object.AppendJSON(nil, w.obj))
	if w.verb != "create" {
		fmt.Fprintf(&r.out, "%s\n", object.AppendJSON(nil, w.old))
	}
	r.out.WriteString(w.Says)
}
