package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plinth/internal/background"
)

// terminal is a new terminal: the end that a program has, and the one of whoever looks at it.
func terminal(t *testing.T) (program, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, screen
}

// SIGHUP ends a server that has a terminal, as it is closed. Without one it has the server open its log files again,
// the audit log and that of plinth start, and go on.
//
// SPEC: RUN-1, RUN-12
func TestHangup(t *testing.T) {
	// A program whose parent ignores SIGHUP, as under nohup, ignores it, too. It does not inherit that it is handled.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	defer signal.Stop(handled)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, seen := range []bool{true, false} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		if err := os.WriteFile(at("policy"), []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		program := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSignals$")
		program.Env = append(os.Environ(), background.LogVariable+"="+at("log"),
			"PLINTH_TEST_SIGNALS=serve --storage=memory --secure-port=0 --audit-policy-file="+at("policy")+
				" --audit-log-path="+at("audit")+" --data-dir="+at("data"))
		log, err := os.OpenFile(at("log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		program.Stderr = log
		out, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		program.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if seen {
			program.Stdin, _ = terminal(t)
			program.SysProcAttr.Setctty = true
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for line := ""; !strings.Contains(line, "is ready"); {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"log", "audit"} {
			if err := os.Rename(at(name), at(name)+".old"); err != nil {
				t.Fatal(err)
			}
		}
		if err := program.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if !seen {
			awaitText(t, at("log"), "log files were opened again")
			if _, err := os.Stat(at("audit")); err != nil {
				t.Error(err)
			}
			if err := program.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.Copy(io.Discard, lines)
		if err := program.Wait(); err != nil {
			t.Errorf("with a terminal %t: %v", seen, err)
		}
		if _, err := os.Stat(at("log")); seen != os.IsNotExist(err) {
			t.Errorf("with a terminal %t: the log was opened again: %v", seen, err)
		}
	}
}

// awaitText waits until a file contains a text, at most for a time that only a failure takes.
func awaitText(t *testing.T, file, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(file)
		if strings.Contains(string(text), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has no %q: %s (%v)", file, want, text, err)
		}
	}
}
