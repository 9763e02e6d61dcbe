package requests

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

func scripts(t *testing.T) []*Script {
	t.Helper()
	all, err := Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no scripts")
	}
	return all
}

func name(s *Script) string { return strings.TrimSuffix(filepath.Base(s.File), ".txt") }

// TestPlinth holds Plinth against the recorded answers.
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	server := harness.RunTarget(t)
	for _, script := range scripts(t) {
		t.Run(name(script), func(t *testing.T) {
			t.Parallel() // each has its own namespace, and most of their time they wait
			replay(t, server, script)
		})
	}
}

// TestRecords holds the records against the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	server := harness.Run(t, harness.Options{Kind: harness.Reference})
	for _, script := range scripts(t) {
		t.Run(name(script), func(t *testing.T) {
			if *rewrite {
				record(t, server, script)
				return
			}
			for _, step := range script.Steps {
				step.Differs, step.DiffersAt = "", nil
			}
			script.Differs = nil
			replay(t, server, script)
		})
	}
}

func record(t *testing.T, server *harness.Server, script *Script) {
	runner := NewRunner(server, script)
	defer runner.Close()
	for _, step := range script.Steps {
		result, err := runner.Do(step, nil)
		if err != nil {
			t.Errorf("%s:%d: %s: %v", script.File, step.Line, step.Title, err)
			continue
		}
		step.Answer = result.String()
	}
	if err := os.WriteFile(script.File, script.Print(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replay(t *testing.T, server *harness.Server, script *Script) {
	runner := NewRunner(server, script)
	defer runner.Close()
	for _, step := range script.Steps {
		want := recorded(step)
		got, err := runner.Do(step, &want)
		if err == nil {
			for _, d := range append(script.Differs, step.DiffersAt...) {
				d.apply(&got, &want)
			}
		}
		same := err == nil && got.String() == want.String()
		switch {
		case same && step.Differs != "":
			t.Errorf("%s:%d: %s: the known difference is gone: %s", script.File, step.Line, step.Title, step.Differs)
		case !same && step.Differs == "" && err != nil:
			t.Errorf("%s:%d: %s: %v", script.File, step.Line, step.Title, err)
		case !same && step.Differs == "":
			t.Errorf("%s:%d: %s: %s %s\n--- reference\n+++ here\n%s", script.File, step.Line, step.Title, step.Method, step.URL,
				linediff.Diff(want.String(), got.String()))
		}
		for _, d := range step.DiffersAt {
			if !d.seen {
				t.Errorf("%s:%d: %s: the known difference at %v is gone: %s", script.File, step.Line, step.Title, d.Paths, d.Reason)
			}
		}
	}
	for _, d := range script.Differs {
		if !d.seen {
			t.Errorf("%s: the known difference at %v is gone: %s", script.File, d.Paths, d.Reason)
		}
	}
}
