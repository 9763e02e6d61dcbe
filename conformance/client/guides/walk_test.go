package guides

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/reference"
)

// walk is one run of a page.
type walk struct {
	programs string   // a directory with plinth, kubectl and etcd
	dir      string   // where the shell begins
	home     string   // the home directory, and what is below $XDG_STATE_HOME
	env      []string // further variables
}

// What the shell prints between what the commands print.
const (
	beginMark  = "=== step "
	failedMark = "=== failed: "
	endMark    = "=== end"
)

// run runs the steps, and returns what is wrong with them.
func (w *walk) run(ctx context.Context, steps []*step) (complaints []string) {
	var script strings.Builder
	// 141 is SIGPIPE, the end of a command whose output was read as far as somebody wanted it (head). A command that fails
	// although it is not to ends the shell, so that what follows from that is not reported. Marks have a descriptor of
	// their own: a command that fails may be in a substitution.
	script.WriteString(`exec 9>&1
set -Euo pipefail
trap 'status=$?; test $status = 141 || { echo "` + failedMark + `$status $BASH_COMMAND" >&9; test -n "$fails" || exit 1; }' ERR
trap 'trap - ERR; kill $(jobs -p) 2> /dev/null' EXIT
began=$PWD
`)
	for i, s := range steps {
		if out, _ := exec.Command("bash", "-n", "-c", s.commands).CombinedOutput(); len(out) > 0 {
			return []string{fmt.Sprintf("line %d: the commands are no whole script: %s", s.line, out)}
		}
		fails := ""
		if s.fails {
			fails = "yes"
		}
		fmt.Fprintf(&script, "fails=%s\nprintf '\\n%s%d\\n'\n%s\n", fails, beginMark, i, s.commands)
	}
	fmt.Fprintf(&script, "fails=\nprintf '\\n%s\\n'\ntest \"$PWD\" = \"$began\"\n", endMark)
	all, err := w.shell(ctx, script.String())
	body, rest, ended := strings.Cut(all, "\n"+endMark+"\n")
	printed := strings.Split(body, "\n"+beginMark)[1:]
	for i, text := range printed {
		_, text, _ = strings.Cut(text, "\n") // the number
		complaints = append(complaints, steps[i].complain(text)...)
	}
	if !ended {
		complaints = append(complaints, fmt.Sprintf("the shell ended in step %d of %d: %v", len(printed), len(steps), err))
	} else if err != nil || strings.TrimSpace(rest) != "" {
		complaints = append(complaints, fmt.Sprintf("the shell is not where it began: %v %s", err, rest))
	}
	return complaints
}

// complain says what is wrong with what a step has printed.
func (s *step) complain(text string) (complaints []string) {
	say := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf("line %d: ", s.line)+fmt.Sprintf(format, args...))
	}
	var failed []string
	var printed strings.Builder
	for line := range strings.Lines(text) {
		if _, what, ok := strings.Cut(line, failedMark); ok {
			failed = append(failed, strings.TrimSpace(what))
		} else {
			printed.WriteString(line)
		}
	}
	out := strings.Trim(printed.String(), "\n")
	switch {
	case s.fails && len(failed) != 1:
		say("one command is to fail, and these did: %q\n%s", failed, out)
	case !s.fails && len(failed) > 0:
		say("this failed: %s\n%s", failed[0], out)
	}
	if s.shown != nil && !matches(*s.shown, out) {
		say("the page (-) shows something else than the commands print (+):\n%s",
			linediff.Diff(strings.TrimRight(*s.shown, "\n"), out))
	}
	return complaints
}

// shell runs a script and returns what it has printed. It prints to a file, not to a pipe: a server in the background
// that a script has left there must not keep the test waiting.
func (w *walk) shell(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	name := filepath.Join(w.home, "printed")
	file, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir, command.Stdout, command.Stderr = w.dir, file, file
	command.Env = w.environment()
	// What the script has started ends with it, also when it has no time left.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	ran := command.Run()
	all, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	return string(all), ran
}

// environment is that of the test without what a user may have set, and with a home directory of its own.
func (w *walk) environment() []string {
	var env []string
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "KUBECONFIG", "KUBEBUILDER_ASSETS", "PLINTH", "PLINTH_SOURCES":
		default:
			env = append(env, v)
		}
	}
	env = append(env, "PATH="+w.programs+":"+os.Getenv("PATH"), "HOME="+w.home, "XDG_STATE_HOME="+w.state(),
		"TZ=UTC", "LC_ALL=C.UTF-8", "KUBECTL_KUBERC=false")
	return append(env, w.env...)
}

func (w *walk) state() string { return filepath.Join(w.home, "state") }

// stopServers ends the servers in the background, and returns their names.
func (w *walk) stopServers() ([]string, error) {
	servers, err := filepath.Glob(filepath.Join(w.state(), "plinth", "*"))
	var names []string
	for _, server := range servers {
		name := filepath.Base(server)
		names = append(names, name)
		command := exec.Command(filepath.Join(w.programs, "plinth"), "stop", name, "--kill", "--delete")
		command.Env = w.environment()
		if out, failed := command.CombinedOutput(); failed != nil {
			err = fmt.Errorf("%w: %s", failed, out)
		}
	}
	return names, err
}

// linkPrograms puts plinth, kubectl and etcd into a directory.
func linkPrograms(dir string) error {
	kubectl, err := harness.Kubectl()
	if err != nil {
		return err
	}
	plinth, err := harness.Program()
	if err != nil {
		return err
	}
	built, err := reference.BuildPrograms(os.Stderr, reference.EtcdProgram)
	if err != nil {
		return err
	}
	etcd := filepath.Join(built, "etcd")
	for name, target := range map[string]string{"kubectl": kubectl, "plinth": plinth, "etcd": etcd} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
