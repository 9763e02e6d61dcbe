//go:build unix

package background

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram makes this test binary a program in the background: what it does.
const asProgram = "PLINTH_TEST_BACKGROUND"

func TestMain(m *testing.M) {
	what := os.Getenv(asProgram)
	if what == "" {
		os.Exit(m.Run())
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	fmt.Println("it begins")
	switch what {
	case "fails":
		fmt.Println("plinth: the disk is on fire")
		os.Exit(1)
	case "ready":
		socket, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
		if err == nil {
			_, err = socket.Write([]byte("READY=1"))
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	<-end
	os.Exit(0)
}

func launch(t *testing.T, what string) *Launch {
	t.Helper()
	t.Setenv(asProgram, what)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Launch{Program: self, State: State{Context: "c"}, Find: func() (string, error) { return "https://x", nil }}
}

func named(t *testing.T, root, name string) *Server {
	t.Helper()
	s, err := Named(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// SPEC: RUN-12
func TestStartAndStop(t *testing.T) {
	root := t.TempDir()
	s := named(t, root, "a")
	if _, err := s.Running(); !errors.Is(err, ErrStopped) || s.Exists() {
		t.Errorf("before the first start: %v", err)
	}
	for range 2 {
		state, err := s.Start(t.Context(), launch(t, "ready"))
		if err != nil || state.URL != "https://x" || state.Context != "c" || time.Since(state.Started) > time.Minute {
			t.Fatalf("%+v, %v", state, err)
		}
		if kept, err := s.State(); err != nil || kept != state {
			t.Errorf("%+v is kept, not %+v: %v", kept, state, err)
		}
		pid, err := s.Running()
		if err != nil || syscall.Kill(pid, 0) != nil {
			t.Errorf("process %d: %v", pid, err)
		}
		if _, err := s.Start(t.Context(), launch(t, "ready")); !errors.Is(err, ErrRuns) {
			t.Errorf("a second start: %v", err)
		}
		if again, err := s.Running(); err != nil || again != pid {
			t.Errorf("after a second start it is process %d, not %d: %v", again, pid, err)
		}
		if err := s.Remove(); !errors.Is(err, ErrRuns) {
			t.Errorf("while it runs it is removed: %v", err)
		}
		if all, err := List(root); err != nil || len(all) != 1 || all[0].Name != "a" {
			t.Errorf("%v, %v", all, err)
		}
		if err := s.Stop(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context(), false); !errors.Is(err, ErrStopped) {
			t.Errorf("a second stop: %v", err)
		}
	}
	if text, err := os.ReadFile(s.LogFile()); err != nil || strings.Count(string(text), "it begins") != 2 {
		t.Errorf("the log: %v\n%s", err, text)
	}
	if err := s.Remove(); err != nil || s.Exists() {
		t.Error(err)
	}
}

// The number of a process that has ended may be that of another one, which is never ended.
//
// SPEC: RUN-12
func TestAnotherProcessIsLeftAlone(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	s := named(t, t.TempDir(), "a")
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(lockFile), []byte(strconv.Itoa(other.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Running(); !errors.Is(err, ErrStopped) {
		t.Errorf("it runs: %v", err)
	}
	for _, kill := range []bool{false, true} {
		if err := s.Stop(t.Context(), kill); !errors.Is(err, ErrStopped) {
			t.Errorf("stop: %v", err)
		}
	}
	// The lock is held by a start that has not written a number yet.
	lock, err := takeLock(s.path(lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context(), true); err == nil || !strings.Contains(err.Error(), "is being started") {
		t.Errorf("while it is started: %v", err)
	}
	lock.Close()
	select {
	case err := <-ended:
		t.Fatalf("the other process was ended: %v", err)
	default:
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// A server that is killed is not one that runs, and can be started again.
//
// SPEC: RUN-12
func TestKilled(t *testing.T) {
	s := named(t, t.TempDir(), "a")
	for range 2 {
		if _, err := s.Start(t.Context(), launch(t, "ready")); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Running(); !errors.Is(err, ErrStopped) {
			t.Errorf("after it was killed: %v", err)
		}
	}
}

// SPEC: RUN-12
func TestStartFails(t *testing.T) {
	s := named(t, t.TempDir(), "a")
	if _, err := s.Start(t.Context(), launch(t, "fails")); err == nil ||
		!strings.Contains(err.Error(), "the disk is on fire") || !strings.Contains(err.Error(), s.LogFile()) {
		t.Errorf("a program that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Start(ctx, launch(t, "hangs")); err == nil || !strings.Contains(err.Error(), "not ready in time") {
		t.Errorf("a program that is never ready: %v", err)
	}
	if _, err := s.Running(); !errors.Is(err, ErrStopped) {
		t.Errorf("it still runs: %v", err)
	}
	l := launch(t, "ready")
	l.Program = filepath.Join(t.TempDir(), "none")
	if _, err := s.Start(t.Context(), l); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", ".a", "A", strings.Repeat("a", 64)} {
		if _, err := Named("/", name); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/home/me")
	if root, err := Root(); err != nil || root != "/home/me/.local/state/plinth" {
		t.Errorf("%s, %v", root, err)
	}
}
