package kubectl

import (
	"flag"
	"os"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/records"
)

var (
	rewrite = flag.Bool("rewrite", false, "record in testdata what kubectl prints against the reference")
	accept  = flag.Bool("accept", false, "record what kubectl prints against Plinth in the steps that are known to differ")
)

// least is the minimum number of steps.
const least = 321

// TestScripts checks that printing a script gives the file, so that recording changes only output.
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

func TestMain(m *testing.M) { harness.Main(m) }

// TestPlinth compares kubectl's output with the recorded one of the reference.
//
// SPEC: MED-10, VAL-2, VAL-5, WRITE-8
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	// The records were made without a controller manager, and with this range of addresses. (Without "*", only the named
	// controllers run.)
	server := harness.RunTarget(t, recorded...)
	for _, s := range records.Load(t, parse) {
		t.Run(records.Name(s.file), func(t *testing.T) { replay(t, server, s) })
	}
}

var recorded = []string{"--controllers=-garbage-collector-controller", "--service-cluster-ip-range=10.0.0.0/16"}

// TestPlane compares what kubectl prints in a plane, with the kubeconfig of plinth plane, with what it prints for the
// reference: a plane is a lone server's API.
//
// SPEC: BEY-9
func TestPlane(t *testing.T) {
	if *rewrite || *accept || harness.Target() != harness.Plinth {
		return
	}
	server := harness.Run(t, harness.Options{Kind: harness.Plinth, Plane: "tested", Flags: recorded})
	for _, s := range records.Load(t, parse) {
		t.Run(records.Name(s.file), func(t *testing.T) { replay(t, server, s) })
	}
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	server := harness.Run(t, harness.Options{Kind: harness.Reference})
	for _, s := range records.Load(t, parse) {
		t.Run(records.Name(s.file), func(t *testing.T) {
			if *rewrite {
				record(t, server, s)
				return
			}
			for _, st := range s.steps {
				st.differs = ""
			}
			replay(t, server, s)
		})
	}
}

func record(t *testing.T, server *harness.Server, s *script) {
	r, err := newRunner(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range s.steps {
		st.output = r.run(st.command, st.stdin)
	}
	write(t, s)
}

func write(t *testing.T, s *script) {
	t.Helper()
	if err := os.WriteFile(s.file, s.print(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replay(t *testing.T, server *harness.Server, s *script) {
	t.Parallel()
	r, err := newRunner(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range s.steps {
		got, want := r.run(st.command, st.stdin), st.output
		if st.differs != "" {
			want = st.differently
		}
		switch {
		case *accept && st.differs != "":
			st.differently = got
		case got != want:
			t.Errorf("%s:%d: %s\n$ %s\n--- recorded\n+++ here\n%s", s.file, st.line, st.title, st.command,
				linediff.Diff(want, got))
		}
		if st.differs != "" && st.differently == st.output {
			t.Errorf("%s:%d: %s: the known difference no longer occurs: %s", s.file, st.line, st.title, st.differs)
		}
	}
	if *accept {
		write(t, s)
	}
}
