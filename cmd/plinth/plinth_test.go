package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plinth/internal/product"
	"plinth/internal/server"
)

// file writes a file of this test.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// plinth runs a command and returns what it prints.
func plinth(args ...string) (string, error) {
	var out strings.Builder
	err := run("plinth", args, &out)
	return out.String(), err
}

const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: default}\n"

// SPEC: BEY-1, SSA-3, SSA-4
func TestMergeWithoutAServer(t *testing.T) {
	first, err := plinth("merge", "--apply", file(t, "a.yaml", config+"data: {a: x, b: z}"), "--manager", "one",
		"--show-managed-fields")
	if err != nil {
		t.Fatal(err)
	}
	live := file(t, "live.yaml", first)
	second, err := plinth("merge", "--live", live, "--apply", file(t, "b.yaml", config+"data: {b: z, c: w}"),
		"--manager", "two")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"a: x", "# one (Apply)\n", "b: z", "# one (Apply), two (Apply)\n", "c: w",
		"# two (Apply)\n"} {
		if !strings.Contains(second, line) {
			t.Errorf("no %q in\n%s", line, second)
		}
	}
	conflict := file(t, "c.yaml", config+"data: {a: other}")
	_, err = plinth("merge", "--live", live, "--apply", conflict, "--manager", "two")
	if err == nil || !strings.Contains(err.Error(), `conflict with "one": .data.a`) ||
		!strings.Contains(err.Error(), `.data.a is "x", owned by one (Apply); the intent has "other"`) {
		t.Errorf("conflict: %v", err)
	}
	if forced, err := plinth("merge", "--live", live, "--apply", conflict, "--manager", "two", "--force"); err != nil ||
		!strings.Contains(forced, "a: other") {
		t.Errorf("forced: %v\n%s", err, forced)
	}
	owned, err := plinth("owners", "-f", live)
	if err != nil || !strings.Contains(owned, "# one (Apply)") {
		t.Errorf("owners: %v\n%s", err, owned)
	}
}

// SPEC: SSA-18
func TestMergeOfBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"[1]":                          "holds no object",
		"a: b: c":                      "mapping values are not allowed",
		config + "data: {a: 1}":        "cannot unmarshal number",
		config + "colour: red":         `unknown field "colour"`,
		config + "data: {a: b}\nx: {}": `unknown field "x"`,
	} {
		if _, err := plinth("merge", "--apply", file(t, "a.yaml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := plinth("merge"); err == nil {
		t.Error("a merge of nothing")
	}
}

// SPEC: BEY-1
func TestOwnersOnAServer(t *testing.T) {
	dir := t.TempDir()
	c := server.Defaults()
	c.DataDir, c.Storage, c.SecurePort, c.Logger = dir, "memory", 0, slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ready, out := io.Pipe()
	s, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.Serve(ctx, out); out.Close() }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	go io.Copy(io.Discard, ready)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text, err := plinth("owners", "--kubeconfig", kubeconfig, "namespaces/default")
		if err == nil {
			if !strings.Contains(text, "kubernetes.io/metadata.name: default") || !strings.Contains(text, "(Update)") {
				t.Errorf("owners:\n%s", text)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	document, err := plinth("owners", "--kubeconfig", kubeconfig, "--json", "ns/default")
	if err != nil || !strings.Contains(document, `"kind":"Ownership"`) {
		t.Errorf("document: %v\n%s", err, document)
	}
	for word, want := range map[string]string{
		"": "deployments/", "ns/": "ns/kube-system", "namespaces/": "namespaces/default", "none/": ":4",
	} {
		if got := complete(t, "owners", "--kubeconfig", kubeconfig, word); !slices.Contains(got, want) {
			t.Errorf("%q: %q, want %s", word, got, want)
		}
	}
	if got := complete(t, "owners", "--kubeconfig", kubeconfig, "-n", ""); !slices.Contains(got, "kube-public") {
		t.Errorf("namespaces: %q", got)
	}
	for name, want := range map[string]string{
		"cm/none": `configmaps "none" not found`, "nothing/x": "no resource type", "x": "is no TYPE/NAME",
		"leases.coordination.k8s.io/l": "not found",
	} {
		if _, err := plinth("owners", "--kubeconfig", kubeconfig, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// A second signal ends the program at once, with a failure, as it ends kube-apiserver. The program is this test.
//
// SPEC: RUN-1
func TestSecondSignal(t *testing.T) {
	if dir := os.Getenv("PLINTH_TEST_SERVE"); dir != "" {
		err := run("plinth", []string{"serve", "--storage=memory", "--secure-port=0", "--data-dir=" + dir,
			"--shutdown-delay-duration=1h"}, os.Stdout)
		t.Fatalf("it ended by itself: %v", err)
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSecondSignal$")
	program.Env = append(os.Environ(), "PLINTH_TEST_SERVE="+t.TempDir())
	lines, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(lines)
	for _, word := range []string{"is ready", "is closing"} {
		for !strings.Contains(out.Text(), word) {
			if !out.Scan() {
				t.Fatalf("it ended before it %s: %v", word, program.Wait())
			}
		}
		if err := program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	var code *exec.ExitError
	if err := program.Wait(); !errors.As(err, &code) || code.ExitCode() != 1 || out.Scan() {
		t.Errorf("after the second signal: %v, %s", err, out.Text())
	}
}

// The error of a bad value names the flag and the value, in the words of the user.
func TestBadNumbers(t *testing.T) {
	for arg, want := range map[string]string{
		"--secure-port=abc": `--secure-port: "abc" is no number`, "--goaway-chance=x": `--goaway-chance: "x" is no number`,
		"--event-ttl=x": `"x"`, "--profiling=x": `--profiling: "x" is neither true nor false`,
		"--tls-curve-preferences=x":          `--tls-curve-preferences: "x" is no number`,
		"--secure-port=99999999999999999999": `--secure-port: "99999999999999999999" is out of range`,
	} {
		_, err := plinth("serve", arg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

// Kubeconfigs in a list count as one, and a bad argument is not blamed on them.
//
// SPEC: BEY-1
func TestKubeconfigLists(t *testing.T) {
	first := file(t, "first", "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n")
	second := file(t, "second", "current-context: b\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n")
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("KUBECONFIG", strings.Join([]string{"", missing, first, second}, string(filepath.ListSeparator)))
	if _, err := plinth("owners", "cm/x"); err == nil || !strings.Contains(err.Error(), "https://127.0.0.1:1/api") {
		t.Errorf("with a list: %v", err)
	}
	t.Setenv("KUBECONFIG", missing)
	if _, err := plinth("owners", "cm"); err == nil || !strings.Contains(err.Error(), `"cm" is no TYPE/NAME`) {
		t.Errorf("a bad argument: %v", err)
	}
	if _, err := plinth("owners", "cm/x"); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("without a kubeconfig: %v", err)
	}
	home := t.TempDir()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", home)
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:2'}}]\n"
	if err := os.WriteFile(filepath.Join(home, ".kube", "config"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plinth("owners", "cm/x"); err == nil || !strings.Contains(err.Error(), "https://127.0.0.1:2/api") {
		t.Errorf("with that of the home directory: %v", err)
	}
}

// A signal ends a server in order, with success: one that serves, and one that still starts. The program is this test.
//
// SPEC: RUN-1
func TestSignals(t *testing.T) {
	if args := os.Getenv("PLINTH_TEST_SIGNALS"); args != "" {
		if err := run("plinth", strings.Fields(args), os.Stdout); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const serve = "serve --storage=memory --secure-port=0 --data-dir="
	for _, c := range []struct {
		name, args string
		signal     syscall.Signal
	}{
		{"SIGTERM", serve, syscall.SIGTERM},
		{"at the start", "serve --secure-port=0 --etcd-servers=http://" + silent.Addr().String() + " --data-dir=",
			syscall.SIGTERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			program := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSignals$")
			program.Env = append(os.Environ(), "PLINTH_TEST_SIGNALS="+c.args+dir)
			lines, err := program.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.args, "etcd") {
				asked, err := silent.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer asked.Close()
			}
			out := bufio.NewReader(lines)
			for line := ""; !strings.Contains(c.args, "etcd") && !strings.Contains(line, "is ready"); {
				if line, err = out.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if err := program.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			if err := program.Wait(); err != nil {
				t.Errorf("%v: %s", err, rest)
			}
			if _, err := os.Stat(dir); strings.Contains(c.args, "etcd") && !os.IsNotExist(err) {
				t.Errorf("a start that was ended left %s: %v", dir, err)
			}
		})
	}
}

// The programs of others are not replaced, those of an earlier release are.
//
// SPEC: RUN-2, RUN-7
func TestEnvtestReplacesItsOwn(t *testing.T) {
	const text = "#!/bin/sh\n"
	for _, name := range []string{kubeAPIServer, etcd, "kubectl"} {
		dir := t.TempDir()
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := plinth("envtest", dir); name != "kubectl" && (err == nil || !strings.Contains(err.Error(), at)) {
			t.Errorf("beside another %s: %v", name, err)
		}
		if is, err := os.ReadFile(at); err != nil || string(is) != text {
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := copyFile(self, filepath.Join(dir, etcd)); err != nil {
		t.Fatal(err)
	}
	if err := install(self, filepath.Join(dir, etcd)); err != nil {
		t.Errorf("an earlier release: %v", err)
	}
}

// A service manager hears when the server is ready, that it is alive, and that it ends.
//
// SPEC: RUN-2
func TestServiceManager(t *testing.T) {
	at := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	program := process("serve", "--storage=memory", "--secure-port=0", "--anonymous-auth=false",
		"--data-dir="+filepath.Join(t.TempDir(), "data"))
	program.Env = append(program.Env, "NOTIFY_SOCKET="+at, "WATCHDOG_USEC=1000000")
	program.Stderr = t.Output()
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Process.Kill(); program.Wait() })
	told := make(chan string)
	go func() {
		defer close(told)
		for buffer := make([]byte, 100); ; {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			told <- string(buffer[:n])
		}
	}()
	next := func() string {
		select {
		case state := <-told:
			return state
		case <-time.After(time.Minute):
			return "nothing for a minute"
		}
	}
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := next(); got != want {
			t.Fatalf("told %q, not %q", got, want)
		}
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := next()
	for got == "WATCHDOG=1" {
		got = next()
	}
	if got != "STOPPING=1" {
		t.Errorf("told %q", got)
	}
}

func TestVersion(t *testing.T) {
	text, err := plinth("version")
	if err != nil || !strings.HasPrefix(text, "plinth "+product.Built().Version+"\nKubernetes v1.") {
		t.Errorf("%v, %s", err, text)
	}
}

// The program is what it is called, on every system; as a plugin of kubectl it prints owners.
func TestProgramName(t *testing.T) {
	for path, want := range map[string]string{
		"/opt/bin/kube-apiserver": kubeAPIServer, "etcd.exe": etcd, "p/plinth": "plinth",
	} {
		if got := programName(path); got != want {
			t.Errorf("%s runs as %q, not %q", path, got, want)
		}
	}
	var as, plain strings.Builder
	errPlugin, err := run(ownersPlugin, []string{"--help"}, &as), run("plinth", []string{"owners", "--help"}, &plain)
	if as.Len() == 0 || as.String() != plain.String() || fmt.Sprint(errPlugin) != fmt.Sprint(err) {
		t.Errorf("%s --help: %v\n%s\nowners --help: %v\n%s", ownersPlugin, errPlugin, as.String(), err, plain.String())
	}
}
