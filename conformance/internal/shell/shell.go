// Package shell runs lines of shell with the real kubectl, with a home directory of its own and an environment that
// does not influence what is printed.
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

// Shell is where lines run.
type Shell struct {
	dir string
	env []string
}

// New makes a shell in a folder. kubectl keeps what it learns of a server below home. More of the environment can be
// given as NAME=value.
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

// timeout is far beyond what any command takes.
const timeout = 60 * time.Second

// Output is what lines have printed, and how they ended.
type Output struct {
	Stdout, Stderr string
	Err            error
}

// Run runs lines; the standard input is that of all of them.
func (s *Shell) Run(lines, stdin string) Output {
	cmd := exec.Command("timeout", fmt.Sprint(timeout.Seconds()), "sh", "-c", lines)
	cmd.Env, cmd.Dir = s.env, s.dir
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return Output{stdout.String(), stderr.String(), err}
}

// String is the standard output, then the standard error behind "! ", then the exit status if it is not 0.
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
