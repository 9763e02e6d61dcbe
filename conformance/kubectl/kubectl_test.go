package kubectl

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

var rewrite = flag.Bool("rewrite", false, "record in testdata what kubectl prints against the reference")

func TestMain(m *testing.M) { harness.Main(m) }

func scripts(t *testing.T) map[string]*script {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*script{}
	for _, file := range files {
		s, err := load(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".txt")] = s
	}
	if len(all) == 0 {
		t.Fatal("there are no scripts")
	}
	return all
}

// TestPlinth holds what kubectl prints against what it printed with the reference.
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	server := harness.RunTarget(t)
	for name, s := range scripts(t) {
		t.Run(name, func(t *testing.T) { replay(t, server, s) })
	}
}

// TestRecords holds the records against the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	server := harness.Run(t, harness.Options{Kind: harness.Reference})
	for name, s := range scripts(t) {
		t.Run(name, func(t *testing.T) {
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
	sh, err := newShell(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range s.steps {
		st.output = sh.run(st.command, st.stdin)
	}
	if err := os.WriteFile(s.file, s.print(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replay(t *testing.T, server *harness.Server, s *script) {
	t.Parallel()
	sh, err := newShell(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range s.steps {
		got := sh.run(st.command, st.stdin)
		switch {
		case got == st.output && st.differs != "":
			t.Errorf("%s:%d: %s: the known difference is gone: %s", s.file, st.line, st.title, st.differs)
		case got != st.output && st.differs == "":
			t.Errorf("%s:%d: %s\n$ %s\n--- reference\n+++ here\n%s", s.file, st.line, st.title, st.command, linediff.Diff(st.output, got))
		}
	}
}
