package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hasObjects finds in the report of a restore how many objects it has made.
var hasObjects = regexp.MustCompile(`has (\d+) objects`)

// The two programs as they are installed: a server uploads what it has, and an archive is uploaded; both are restored
// after the server was killed, and no process of plinth-cloud is left.
//
// SPEC: STORE-6
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	build := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...)
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go build %q: %v\n%s", args, err, text)
		}
	}
	plinth, helper := filepath.Join(dir, "plinth"), filepath.Join(dir, "plinth-cloud")
	build("-C", "..", "-tags", "invariants", "-o", plinth, "./cmd/plinth")
	build("-o", helper, ".")
	storage := s3(t)
	continuous, archive := storage.at("/continuous"), storage.at("/archives/one.tar")
	data := filepath.Join(dir, "data")
	server := exec.CommandContext(t.Context(), plinth, "serve", "--data-dir", data, "--secure-port", "0", "--backup-url",
		continuous)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()         //nolint:errcheck // it was killed
	defer server.Process.Kill() //nolint:errcheck // as above

	within := func(what string, do func() error) {
		t.Helper()
		var last error
		for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if last = do(); last == nil {
				return
			}
		}
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%s: %v\n%s", what, last, text)
	}
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		text, err := exec.CommandContext(ctx, plinth, args...).CombinedOutput()
		if err != nil {
			return "", &failure{string(text), err}
		}
		return string(text), nil
	}
	within("an archive", func() error {
		_, err := run("backup", archive, "--kubeconfig", filepath.Join(data, "kubeconfig"))
		return err
	})
	restored := 0
	restore := func(from string) (string, error) {
		restored++
		return run("restore", from, "-o", filepath.Join(dir, "restored", strconv.Itoa(restored)))
	}
	within("a continuous backup", func() error {
		_, err := restore(continuous)
		return err
	})
	if err := server.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{continuous, archive} {
		text, err := restore(from)
		if found := hasObjects.FindStringSubmatch(text); err != nil || found == nil || len(found[1]) < 3 {
			t.Errorf("%s: %v\n%s", from, err, text)
		}
	}
	within("all processes end", func() error {
		left, err := exec.CommandContext(t.Context(), "pgrep", "-f", helper).Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 { // it found none
			return nil
		}
		return &failure{"processes are left: " + strings.Join(strings.Fields(string(left)), " "), err}
	})
}

// failure is what a program has said.
type failure struct {
	said string
	err  error
}

func (f *failure) Error() string { return f.said }
func (f *failure) Unwrap() error { return f.err }
