package requests

import (
	"flag"
	"net/http"
	"os"
	"slices"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/records"
)

var (
	rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")
	accept  = flag.Bool("accept", false, "record Plinth's answers in the steps that are known to differ")
)

// least is the minimum number of steps.
const least = 2400

func TestMain(m *testing.M) {
	// Scripts mostly wait, for events and timeouts, and need little CPU.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	harness.Main(m)
}

// TestPlinth compares Plinth's responses with the recorded ones, over both versions of HTTP and with both kinds of
// storage. Each script names the requirements that it covers; those below are covered by testdata/documented.txt.
//
// SPEC: URI-6, URI-11, WATCH-2, WATCH-5, LIST-1, LIST-6, WRITE-2, VAL-1, DRY-1, DEL-1, DEL-8, SSA-2, SSA-14
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	type mode struct {
		name   string
		flags  []string
		client func(*harness.Server) *http.Client
		plane  string
	}
	modes := []mode{
		{"HTTP 2, embedded storage", nil, (*harness.Server).Client, ""},
		{"HTTP 1.1, storage in memory", []string{"--storage", "memory"}, (*harness.Server).OldClient, ""},
		{"HTTP 2, in a plane", nil, (*harness.Server).Client, "tested"},
	}
	if harness.Target() == harness.Reference {
		modes = modes[:2]
	}
	if *accept {
		modes = modes[:1]
	}
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			// The records were made with this gate off, and many of them list the media types.
			flags := append(mode.flags, "--feature-gates=CBORServingAndStorage=false",
				// They were made without a controller manager. (Without "*", only the named controllers run.)
				"--controllers=-namespace-controller", "--service-cluster-ip-range=10.0.0.0/16")
			start := func(flags []string) *harness.Server {
				return harness.Run(t, harness.Options{Kind: harness.Target(), Flags: flags, Plane: mode.plane})
			}
			shared := start(flags)
			for _, script := range records.Load(t, Parse) {
				t.Run(records.Name(script.File), func(t *testing.T) {
					// the other scripts would see its types in discovery; it removes them at its end
					if records.Name(script.File) != "definitions" {
						t.Parallel() // each has its own namespace
					}
					server := shared
					if len(script.Server) > 0 {
						server = start(script.flags(flags))
					}
					replay(t, script, NewRunner(server.URL, mode.client(server), script), mode.plane != "")
					if *accept {
						write(t, script)
					}
				})
			}
		})
	}
}

// TestScripts checks that printing a script gives the file, so that recording changes only responses.
func TestScripts(t *testing.T) {
	steps := 0
	for _, script := range records.Load(t, Parse) {
		records.Unchanged(t, script.File, script.Print())
		steps += len(script.Steps)
	}
	if steps < least {
		t.Errorf("only %d steps", steps)
	}
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	shared := harness.Run(t, harness.Options{Kind: harness.Reference})
	for _, script := range records.Load(t, Parse) {
		t.Run(records.Name(script.File), func(t *testing.T) {
			server := shared
			if len(script.Server) > 0 {
				server = harness.Run(t, harness.Options{Kind: harness.Reference, Flags: script.Server})
			}
			if *rewrite {
				record(t, script, NewRunner(server.URL, server.Client(), script))
				return
			}
			for _, step := range script.Steps {
				step.Differs, step.DiffersAt = "", nil
			}
			script.Differs = nil
			replay(t, script, NewRunner(server.URL, server.Client(), script), false)
		})
	}
}

// flags returns the flags of Plinth for this script: the script's are last, and take precedence.
func (s *Script) flags(others []string) []string {
	if harness.Target() == harness.Reference {
		return s.Server
	}
	return slices.Concat(others, s.Server)
}

func record(t *testing.T, script *Script, runner *Runner) {
	defer runner.Close()
	for _, step := range script.Steps {
		result, err := runner.Do(step, nil)
		if err != nil {
			t.Errorf("%s:%d: %s: %v", script.File, step.Line, step.Title, err)
			continue
		}
		step.Answer = result.String()
	}
	write(t, script)
}

func write(t *testing.T, script *Script) {
	t.Helper()
	if err := os.WriteFile(script.File, script.Print(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replay(t *testing.T, script *Script, runner *Runner, plane bool) {
	defer runner.Close()
	for _, step := range script.Steps {
		want := Recorded(step)
		got, err := runner.Do(step, &want)
		if err == nil {
			for _, d := range append(script.Differs, step.DiffersAt...) {
				d.Apply(&got, &want)
			}
		}
		switch {
		case err != nil:
			t.Errorf("%s:%d: %s: %v", script.File, step.Line, step.Title, err)
		case *accept && step.Differs != "":
			step.Differently = got.String()
		default:
			if wrong := step.Compare(&got, &want, plane); wrong != "" {
				t.Errorf("%s:%d: %s: %s", script.File, step.Line, step.Title, wrong)
			}
		}
		if wrong := step.Gone(); wrong != "" {
			t.Errorf("%s:%d: %s: %s", script.File, step.Line, step.Title, wrong)
		}
		for _, d := range step.DiffersAt {
			if !d.seen {
				t.Errorf("%s:%d: %s: the known difference at %v no longer occurs: %s", script.File, step.Line, step.Title,
					d.Paths, d.Reason)
			}
		}
	}
	for _, d := range script.Differs {
		if !d.seen {
			t.Errorf("%s: the known difference at %v no longer occurs: %s", script.File, d.Paths, d.Reason)
		}
	}
}
