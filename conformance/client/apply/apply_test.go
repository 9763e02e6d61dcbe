package apply

import (
	"flag"
	"os"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/records"
)

var (
	rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")
	accept  = flag.Bool("accept", false, "record Plinth's answers in the steps that are known to differ")
)

func TestMain(m *testing.M) { harness.Main(m) }

// least is the minimum number of steps.
const least = 447

// TestScripts checks that printing a script gives the file, so that recording changes only responses.
func TestScripts(t *testing.T) {
	steps := 0
	for _, s := range records.Load(t, parse) {
		records.Unchanged(t, s.file, s.print())
		steps += len(s.steps)
	}
	if steps < least {
		t.Errorf("there are only %d steps", steps)
	}
}

// TestPlinth compares Plinth's responses with the recorded ones of the reference.
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	// The records were made without a controller manager: the owners in the scripts do not exist. (Without "*", only the
	// named controllers run.)
	walk(t, harness.RunTarget(t, "--controllers=-garbage-collector-controller"), func(st *step) string {
		if st.differs != "" && harness.Target() == harness.Plinth {
			return st.differently
		}
		return st.want
	}, *accept)
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	walk(t, harness.Run(t, harness.Options{Kind: harness.Reference}), func(st *step) string { return st.want }, false)
}

// walk runs all scripts on a server in parallel, each in its own namespace.
func walk(t *testing.T, server *harness.Server, want func(*step) string, accept bool) {
	home := t.TempDir()
	client := server.Client()
	t.Cleanup(client.CloseIdleConnections)
	for _, s := range records.Load(t, parse) {
		t.Run(s.name(), func(t *testing.T) {
			t.Parallel()
			r, err := newRunner(server, client, home, s)
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range s.steps {
				got, err := r.do(st)
				if err != nil {
					got = err.Error()
				}
				switch {
				case *rewrite:
					st.want = got
				case accept && st.differs != "":
					st.differently = got
				case got != want(st):
					t.Errorf("%s:%d: %s\n%s\n--- recorded\n+++ here\n%s", s.file, st.line, st.title, st.command,
						linediff.Diff(want(st), got))
				}
				if st.differs != "" && st.differently == st.want && !*rewrite {
					t.Errorf("%s:%d: %s: there is no difference: %s", s.file, st.line, st.title, st.differs)
				}
			}
			if *rewrite || accept {
				if err := os.WriteFile(s.file, s.print(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
