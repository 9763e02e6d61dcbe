// Package shell runs lines of shell with the real kubectl, with a separate home directory and an environment that does
// not influence the output.
package shell

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
)

// Shell holds the environment in which lines run.
type Shell struct {
	dir string
	env []string
}

// New makes a shell in a folder. kubectl keeps its discovery cache below home. env has further variables, as
// NAME=value.
func New(dir, home, kubeconfig string, env ...string) (*Shell, error) {
	program, err := harness.Kubectl()
	if err != nil {
		return nil, err
	}
	s := &Shell{dir: dir}
	s.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+home, "TZ=UTC", "LC_ALL=C",
		"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "KUBECTL_KUBERC=false")
	s.env = append(s.env, env...)
	return s, nil
}

// timeout is much longer than any command takes.
const timeout = 60 * time.Second

// Output is the output of lines and their exit status.
type Output struct {
	Stdout, Stderr string
	Err            error
}

// Run runs lines; they share the standard input.
func (s *Shell) Run(lines, stdin string) Output {
	cmd := exec.Command("timeout", fmt.Sprint(timeout.Seconds()), "sh", "-c", lines)
	cmd.Env, cmd.Dir = s.env, s.dir
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return Output{stdout.String(), stderr.String(), err}
}

// String formats the standard output, then the standard error after "! ", then the exit status if it is not 0.
func (o Output) String() string {
	out := o.Stdout
	if text := strings.TrimRight(o.Stderr, "\n"); text != "" {
		for line := range strings.SplitSeq(text, "\n") {
			out += strings.TrimRight("! "+line, " ") + "\n"
		}
	}
	if o.Err != nil {
		out += "(" + o.Err.Error() + ")\n"
	}
	return out
}
