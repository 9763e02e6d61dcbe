//go:build mutants

package recorder

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"plinth/internal/mutants"
)

// Question is a function of inputs that both sides implement, and a source of such inputs.
type Question struct {
	Name string
	// First are inputs that are tried first.
	First [][]byte
	// Input makes the i-th random input; nil for none.
	Input func(i int) []byte
	// Ours returns our answer, Theirs upstream's, which fails for some inputs.
	Ours   func(in []byte) (string, error)
	Theirs func(in []byte) (answer string, ok bool)
	// Smaller returns the n-th of the inputs that have one part less than in; nil if there are no more.
	Smaller func(in []byte, n int) []byte
}

// Case is an input and the answer of both sides.
type Case struct {
	Question *Question
	In       []byte
	Answer   string
}

// Record tries random inputs on every question and returns cases that together notice all mutants which any of the
// inputs notices, at least one case for every question. Inputs to which the sides have different answers are reported
// as errors.
func Record(t *testing.T, tries int, questions ...*Question) []Case {
	t.Helper()
	all, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, Recorder: all}
	r.globals()
	var pool []*asked
	for _, q := range questions {
		r.Reset()
		before, differences, compared := len(r.Open), 0, 0
		said := map[string]bool{}
		recorded := len(r.recorded)
		for i := range len(q.First) + tries {
			var in []byte
			if i < len(q.First) {
				in = q.First[i]
			} else {
				in = q.Input(i - len(q.First))
			}
			if in == nil {
				continue
			}
			a, ok := r.ask(q, in)
			if !ok {
				if differences < 3 && r.differ(q, in) {
					differences++
					t.Error(r.difference(q, in))
				}
				continue
			}
			compared++
			for mutant := r.First(a.Sample); mutant > 0; mutant = r.First(a.Sample) {
				r.record(r.minimise(a, func(less *asked) bool { return less.Notices(mutant) }))
			}
			if !said[a.Says] && len(said) < mostPooled {
				said[a.Says] = true
				pool = append(pool, a)
			}
		}
		if at := slices.IndexFunc(pool, func(a *asked) bool { return a.question == q }); at < 0 {
			t.Errorf("%s: no input has the same answer here and upstream", q.Name)
		} else if len(r.recorded) == recorded {
			a := pool[at]
			r.record(r.minimise(a, func(less *asked) bool { return less.Says == a.Says }))
		}
		t.Logf("%s: %d of %d inputs compared, %d mutants noticed", q.Name, compared, tries, before-len(r.Open))
	}
	pool = append(slices.Clone(r.recorded), pool...)
	samples := make([]*mutants.Sample, len(pool))
	for i, a := range pool {
		samples[i] = a.Sample
	}
	r.CloseGlobals(samples, func(i, mutant int) *mutants.Sample {
		a := pool[i]
		if !slices.Contains(r.recorded, a) {
			a = r.minimise(a, func(less *asked) bool { return less.Notices(mutant) })
			r.record(a)
		}
		return a.Sample
	})
	for _, n := range slices.Sorted(maps.Keys(r.Open)) {
		t.Logf("left: %s", mutants.Names[n-1])
	}
	t.Logf("%d of %d mutants are left", len(r.Open), mutants.Count)
	cases := make([]Case, len(r.recorded))
	for i, a := range r.recorded {
		cases[i] = Case{a.question, a.in, a.Says}
	}
	return cases
}

// mostPooled is how many inputs of a question are kept, to be tried on the mutants in the values of variables.
const mostPooled = 60

type run struct {
	*mutants.Recorder
	t        *testing.T
	recorded []*asked
}

// asked is an input to which both sides have the same answer.
type asked struct {
	*mutants.Sample
	question *Question
	in       []byte
}

func (r *run) ask(q *Question, in []byte) (*asked, bool) {
	want, ok := q.Theirs(in)
	if !ok {
		return nil, false
	}
	s, err := r.Sample(func() (string, error) { return q.Ours(in) })
	if err != nil || s.Says != want {
		return nil, false
	}
	return &asked{s, q, in}, true
}

func (r *run) record(a *asked) {
	r.Close(a.Sample)
	r.recorded = append(r.recorded, a)
}

// minimise removes parts of an input as long as enough holds for the rest.
func (r *run) minimise(a *asked, enough func(less *asked) bool) *asked {
	for n := 0; ; {
		in := a.question.Smaller(a.in, n)
		if in == nil {
			return a
		}
		if less, ok := r.ask(a.question, in); ok && enough(less) {
			a = less
		} else {
			n++
		}
	}
}

// globals finds the mutants that are reached when variables are initialised, and closes those that prevent a program
// from starting: every test notices them.
func (r *run) globals() {
	reached := map[int]bool{}
	mutants.Reach = func(n int) { reached[n] = true }
	mutants.Set(0)
	mutants.Reach = nil
	mutants.Globals = slices.DeleteFunc(slices.Sorted(maps.Keys(reached)), func(n int) bool {
		starts := set(n)
		if !starts {
			delete(r.Open, n)
		}
		return !starts
	})
	mutants.Set(0)
}

// set turns a mutant on; false for one that prevents a program from starting.
func set(n int) (ok bool) {
	defer func() { ok = recover() == nil }()
	mutants.Set(n)
	return
}

// differ says whether the sides give different answers to an input.
func (r *run) differ(q *Question, in []byte) bool {
	want, ok := q.Theirs(in)
	if !ok {
		return false
	}
	got, err := q.Ours(in)
	return err != nil || got != want
}

// difference describes a difference by the smallest input that shows it.
func (r *run) difference(q *Question, in []byte) string {
	for n := 0; ; {
		less := q.Smaller(in, n)
		if less == nil {
			break
		}
		if r.differ(q, less) {
			in = less
		} else {
			n++
		}
	}
	got, err := q.Ours(in)
	want, _ := q.Theirs(in)
	return fmt.Sprintf("%s: %s\nhave %s (%v)\nwant %s", q.Name, in, got, err, want)
}
