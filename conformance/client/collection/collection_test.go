package collection

import (
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/records"
)

var (
	rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")
	graphs  = flag.Int("graphs", 500, "the number of random graphs that are compared with the reference")
	seed    = flag.Uint64("seed", 1000, "the seed of the first random graph")
	kills   = flag.Int("kills", 10, "how often the server is killed in the middle of deletions")
)

func TestMain(m *testing.M) { harness.Main(m) }

// The reference's controllers wait five seconds before they empty a namespace, and eight between two attempts at one
// with objects that finalizers hold.
const (
	quietHere      = 1500 * time.Millisecond
	quietReference = 14 * time.Second
)

// here returns a runner on Plinth.
func here(t *testing.T) *runner {
	t.Helper()
	r, err := newRunner(t.Context(), harness.Run(t, harness.Options{Kind: harness.Plinth}), quietHere)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// onReference returns a runner on the reference with kube-controller-manager.
func onReference(t *testing.T) *runner {
	t.Helper()
	server := harness.Run(t, harness.Options{Kind: harness.Reference})
	// its garbage collector looks for new types only every 30 s, so they are created before it starts
	r, err := newRunner(t.Context(), server, quietReference)
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Run(t, server, controlplane.Options{NoScheduler: true, Manager: []string{
		"--controllers=garbage-collector-controller,namespace-controller", "--leader-elect=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-gc-syncs=20",
	}})
	warm := &graph{title: "warm up"}
	for _, line := range []string{"create h hub", "create l link in a owned by h", "wait", "delete h", "wait"} {
		s, err := parseStep(line)
		if err != nil {
			t.Fatal(err)
		}
		warm.steps = append(warm.steps, s)
	}
	for range 5 {
		got, err := r.run(t.Context(), []*graph{warm})
		if err != nil {
			t.Fatal(err)
		}
		if !got[0].objects[1].state.there {
			return r
		}
	}
	t.Fatal("the reference's garbage collector does not begin")
	return nil
}

func testdata(t *testing.T) []*file {
	t.Helper()
	return records.Load(t, parseFile)
}

// Printing a script gives the file, so that recording changes only results.
func TestFiles(t *testing.T) {
	for _, f := range testdata(t) {
		records.Unchanged(t, f.name, f.print())
		for i, g := range f.graphs {
			if records.Name(f.name) == "random" && g.text() != generated(uint64(i), true).text() {
				t.Errorf("%s:%d: it is not the graph that is generated: write it anew with -rewrite", f.name, g.line)
			}
		}
	}
}

// floor checks minimum counts: without them, the comparison might have compared nothing.
func (t *tally) floor(tb testing.TB, factor int) {
	tb.Helper()
	tb.Logf(
		"looked at %d objects: %d went, %d of them by themselves; %d lost owners, %d were held; %d looks at deleted namespaces",
		t.objects, t.gone, t.collected, t.orphaned, t.waiting, t.namespaces)
	if t.gone < 100*factor || t.collected < 40*factor || t.orphaned < 10*factor || t.waiting < 10*factor ||
		t.namespaces < factor {
		tb.Error("that is too little to have compared anything")
	}
}

// SPEC: DEL-2, DEL-5: Plinth leaves the same objects as the reference.
func TestRecorded(t *testing.T) {
	if *rewrite {
		return
	}
	var all []*graph
	files := testdata(t)
	for _, f := range files {
		all = append(all, f.graphs...)
	}
	var total tally
	ran, err := here(t).run(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, g := range f.graphs {
			got := ran[0]
			ran = ran[1:]
			total.add(got.counted)
			want := g.want
			if g.differs != "" {
				want = g.differently
			}
			if got.outcome() != want && !g.maybe(got.outcome()) {
				t.Errorf("%s:%d: %s\n%s\n--- recorded\n+++ here\n%s", f.name, g.line, g.title, g.text(),
					linediff.Diff(want, got.outcome()))
			}
			if g.differs+g.either != "" && g.differently == g.want {
				t.Errorf("%s:%d: %s: the known difference no longer occurs: %s", f.name, g.line, g.title, g.differs)
			}
		}
	}
	total.floor(t, 1)
}

// maybe says whether this is the second of two possible results.
func (g *graph) maybe(got string) bool { return g.either != "" && got == g.differently }

const recordedGraphs = 60

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	files := testdata(t)
	var all []*graph
	for _, f := range files {
		if *rewrite && records.Name(f.name) == "random" {
			before := f.graphs
			f.graphs = nil
			for i := range recordedGraphs {
				g := generated(uint64(i), true)
				if i < len(before) && before[i].text() == g.text() {
					g = before[i] // with the reason why two results are possible
				}
				f.graphs = append(f.graphs, g)
			}
		}
		all = append(all, f.graphs...)
	}
	ran, err := onReference(t).run(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, g := range f.graphs {
			got := ran[0].outcome()
			ran = ran[1:]
			if g.maybe(got) {
				continue
			}
			if !*rewrite && got != g.want {
				t.Errorf("%s:%d: %s\n--- recorded\n+++ today\n%s", f.name, g.line, g.title, linediff.Diff(g.want, got))
			}
			g.want = got
		}
		if *rewrite {
			if err := os.WriteFile(f.name, f.print(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// SPEC: DEL-2, DEL-5: after random graphs of deletions, the same objects exist here and on the reference.
//
// More than one result is possible if steps follow each other without a wait, because it depends on the progress of the
// collector, and if the reference's collector processes two objects at the same time: a dependent keeps its reference
// to an owner that is deleted in the foreground and then held by others, if the owner's finalizer was removed before
// the collector processed the dependent. So graphs that differ are run again on both, several times in parallel, also
// with a wait after each step: a client that changes its mind may be faster than either collector. A graph counts as
// different if no result of Plinth has occurred on the reference.
func TestGraphs(t *testing.T) {
	if *rewrite || !harness.WantReference() {
		return
	}
	var differ []*graph
	for i := range *graphs {
		differ = append(differ, generated(*seed+uint64(i), false))
	}
	ours, theirs := here(t), onReference(t)
	left := map[string]*outcomes{} // by title
	var total tally
	for round := 0; round < 3 && len(differ) > 0; round++ {
		var a, b []*graph
		for _, g := range differ {
			if left[g.title] == nil {
				left[g.title] = &outcomes{}
			}
			if round == 0 {
				a, b = append(a, g), append(b, g)
				continue
			}
			for range copies {
				a, b = append(a, g, g.slowly()), append(b, g, g.slowly())
			}
		}
		hereRan, err := ours.run(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range hereRan {
			o := left[c.title]
			o.here = append(o.here, c.outcome())
		}
		thereRan, err := theirs.run(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range thereRan {
			o := left[c.title]
			o.there = append(o.there, c.outcome())
			if round == 0 {
				total.add(c.counted)
			}
		}
		differ = slices.DeleteFunc(differ, func(g *graph) bool { return left[g.title].meet() })
		t.Logf("round %d: %d graphs differ", round, len(differ))
		for _, g := range differ {
			t.Logf("%s: %d outcomes here, %d on the reference", g.title, distinct(left[g.title].here),
				distinct(left[g.title].there))
		}
	}
	for _, g := range differ {
		o := left[g.title]
		t.Errorf("%s\n%s\n--- reference\n+++ here\n%s", g.title, g.text(), linediff.Diff(o.there[0], o.here[0]))
	}
	total.floor(t, *graphs/50)
}

// copies is how many times a graph that differs is run in each of the following rounds.
const copies = 8

// outcomes holds the results of a graph's runs on Plinth and on the reference.
type outcomes struct{ here, there []string }

// meet says whether both have a result in common.
func (o *outcomes) meet() bool {
	return slices.ContainsFunc(o.here, func(text string) bool { return slices.Contains(o.there, text) })
}

func distinct(texts []string) int { return len(slices.Compact(slices.Sorted(slices.Values(texts)))) }
