package nodes

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"plinth/conformance/internal/containers"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/records"
	"plinth/conformance/internal/shell"
)

var rewrite = flag.Bool("rewrite", false, "record in testdata what kubectl prints with the reference")

// least is the minimum number of steps.
const least = 45

func TestMain(m *testing.M) { harness.Main(m) }

// step is one command and what it printed.
type step struct {
	title, command, stdin, output string
	line                          int
}

func parse(section records.Section) (*step, error) {
	command, stdin, _ := strings.Cut(section.Step, "\n")
	command, ok := strings.CutPrefix(command, "$ ")
	if !ok {
		return nil, fmt.Errorf("%q is no command", command)
	}
	return &step{section.Title, command, strings.TrimSpace(stdin), section.Answer, section.Line}, nil
}

func (s *step) section() records.Section {
	return records.Section{Title: s.title, Step: "$ " + s.command + "\n" + s.stdin, Answer: s.output}
}

const file = "testdata/session.txt"

func load(t *testing.T) (head string, steps []*step) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, steps, err = records.Parse(file, string(text), parse)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) < least {
		t.Errorf("there are only %d steps", len(steps))
	}
	return head, steps
}

// What kubectl prints, and its exit status, are the same with Plinth as with the reference.
//
// SPEC: URI-7
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	t.Setenv("NO_PROXY", "*")
	_, steps := load(t)
	play(t, harness.RunTarget(t), steps, compare)
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	t.Setenv("NO_PROXY", "*")
	head, steps := load(t)
	server := harness.Run(t, harness.Options{Kind: harness.Reference})
	if !*rewrite {
		play(t, server, steps, compare)
		return
	}
	play(t, server, steps, func(_ *testing.T, s *step, got string) { s.output = got })
	if err := os.WriteFile(file, records.Print(head, steps, (*step).section), 0o644); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, s *step, got string) {
	if got != s.output {
		t.Errorf("%s:%d: %s\n$ %s\n--- recorded\n+++ here\n%s", file, s.line, s.title, s.command,
			linediff.Diff(s.output, got))
	}
}

// play runs all steps with a server, in order.
func play(t *testing.T, server *harness.Server, steps []*step, done func(*testing.T, *step, string)) {
	t.Helper()
	dir := t.TempDir()
	node, err := containers.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	address, err := containers.Address()
	if err != nil {
		t.Fatal(err)
	}
	port := func(l net.Listener) string { return fmt.Sprint(l.Addr().(*net.TCPAddr).Port) }
	kubelet, web := port(node.Kubelet.Listener), port(node.Pod.Listener)
	sh, err := shell.New(dir, dir, server.Kubeconfig, "ADDRESS="+address, "KUBELET="+kubelet, "WEB="+web)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		got := sh.Run(s.command, s.stdin).String()
		for _, private := range [][2]string{{server.URL, "SERVER"}, {strings.TrimPrefix(server.URL, "https://"), "SERVER"},
			{dir, "HOME"}, {address, "ADDRESS"}, {":" + kubelet, ":KUBELET"}, {":" + web, ":WEB"}} {
			got = strings.ReplaceAll(got, private[0], private[1])
		}
		done(t, s, strings.TrimSpace(got))
	}
}
