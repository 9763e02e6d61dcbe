package kubectl_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/shell"
)

// chapter is a chapter of a page that is a session in the shell.
type chapter struct {
	title   string
	command string   // what those of its blocks contain that are part of the session
	shown   []string // what the session shows
	failed  []string // the commands that fail, as the text beside them says, each behind its exit status
	instead []string // pairs of a text that the session has and the text that is run in its place
}

// walk runs the chapters of a page one after the other in one shell in dir, which is left in the folder in which it
// began. Every command counts, also one in a function, in a substitution or in front of a pipe: the test fails if one
// does that is not listed.
func walk(t *testing.T, page, dir string, chapters []chapter) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", page))
	if err != nil {
		t.Fatal(err)
	}
	const begin, failure = "=== chapter ", "=== failed: "
	// 141 is SIGPIPE, the end of a command whose output was read as far as somebody wanted it (head).
	script := `set -Euo pipefail
trap 'status=$?; test $status = 141 || echo "` + failure + `$status $BASH_COMMAND" >&2' ERR
trap 'trap - ERR; kill $(jobs -p) 2> /dev/null' EXIT
began=$PWD
`
	at := 0
	for _, c := range chapters {
		next := strings.Index(string(text), "\n## "+c.title+"\n")
		if next < at {
			t.Errorf("the chapter %q is not after the one before it", c.title)
		}
		at = next
		lines, err := shell.Chapter(string(text), c.title, c.command)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(lines, "||") || strings.Contains(lines, "kill %") {
			t.Errorf("the chapter %q hides failures, or ends whatever job has a number:\n%s", c.title, lines)
		}
		for i := 0; i < len(c.instead); i += 2 {
			if !strings.Contains(lines, c.instead[i]) {
				t.Fatalf("the chapter %q does not have %q", c.title, c.instead[i])
			}
			lines = strings.Replace(lines, c.instead[i], c.instead[i+1], 1)
		}
		script += "echo '" + begin + c.title + "'\n" + lines
	}
	all := runSession(t, dir, script+`test "$PWD" = "$began"`+"\n")
	outputs := strings.Split(all, begin)[1:]
	if len(outputs) != len(chapters) {
		t.Fatalf("%d chapters of %d:\n%s", len(outputs), len(chapters), all)
	}
	for i, c := range chapters {
		t.Run(c.title, func(t *testing.T) { c.ran(t, outputs[i], failure) })
	}
}

// ran compares what a chapter has printed. A command that fails is on a line of its own, behind the text failure.
func (c chapter) ran(t *testing.T, output, failure string) {
	for _, line := range c.shown {
		if !strings.Contains(output, line) {
			t.Errorf("the session does not show %q:\n%s", line, output)
		}
	}
	var failed []string
	for line := range strings.Lines(output) {
		if _, what, ok := strings.Cut(line, failure); ok {
			failed = append(failed, strings.TrimSpace(what))
		}
	}
	if !slices.Equal(failed, c.failed) {
		t.Errorf("these commands failed: %q, and not %q:\n%s", failed, c.failed, output)
	}
}

// runSession runs a script in dir, with kubectl on the PATH and the folder of the repository as $CHECKOUT, and returns
// what it has printed.
func runSession(t *testing.T, dir, script string) string {
	t.Helper()
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir, command.WaitDelay = dir, 10*time.Second
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "CHECKOUT="+checkout)
	// Go's caches are below the home directory: another one would have none, and build for minutes.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		command.Env = append(command.Env, name+"="+strings.TrimSpace(string(value)))
	}
	// What the script has started ends with it, also when it has no time left.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	all, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, all)
	}
	return string(all)
}

// sessionDir returns a folder as the pages assume it: with kubectl on the PATH, and bin/plinth.
func sessionDir(t *testing.T) string {
	t.Helper()
	kubectl, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	plinth, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"kubectl": kubectl, "bin/kubectl": kubectl, "bin/plinth": plinth} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
