// Command plinth is the Kubernetes API server, with the commands around it. The tables of flags and their conversion to
// a server.Config are here; the server itself is package internal/server. The commands are listed in program.go.
//
// The program has several names. As plinth it has the commands of its help. As kube-apiserver it is `plinth serve`
// with the reference's defaults, and as etcd it is the etcd stub: envtest and similar tools start these two. A fourth
// one, kubectl-owners, makes `plinth owners` a plugin of kubectl.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

func main() {
	name := programName(os.Args[0])
	err := run(name, os.Args[1:], os.Stdout)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: 1, err: err}
	}
	switch {
	case exit.err == nil:
	case name == kubeAPIServer || name == etcd:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	default:
		fmt.Fprintf(os.Stderr, "%s %s\n", styleOf(os.Stderr).red("plinth:"), oneLine(exit.err))
	}
	os.Exit(exit.code)
}

// The names that make the program behave as another one.
const (
	kubeAPIServer = "kube-apiserver"
	etcd          = "etcd"
	ownersPlugin  = "kubectl-owners" // kubectl runs it as `kubectl owners`
)

// programName is the name under which the program at a path runs.
func programName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), ".exe")
}

// run runs the program under a name.
func run(name string, args []string, out io.Writer) error {
	switch name {
	case kubeAPIServer:
		return serve(kubeAPIServer, args, out)
	case etcd:
		return stub(args, out)
	case ownersPlugin:
		args = append([]string{"owners"}, args...)
	}
	root := program(out)
	root.SetArgs(append([]string{}, args...)) // not nil: nil would be the arguments of the process
	return root.Execute()
}

// exitError ends the program with a code of its own. err is nil if what there is to say was printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// oneLine is the text of an error on one line: those that libraries return, and lists of several errors, have more.
// Only a report that is meant to have several lines keeps them.
func oneLine(err error) string {
	var report *reportError
	if errors.As(err, &report) {
		return err.Error()
	}
	var text strings.Builder
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if before := text.String(); strings.HasSuffix(before, ":") {
			text.WriteString(" ")
		} else if before != "" {
			text.WriteString("; ")
		}
		text.WriteString(line)
	}
	return text.String()
}

// reportError is an error whose further lines are a report, such as the fields of a conflict.
type reportError struct{ text string }

func (e *reportError) Error() string { return e.text }
