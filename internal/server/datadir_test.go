package server

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A server does not begin anew where something is gone that an earlier one made, and says which.
//
// SPEC: RUN-7
func TestDataDirWithoutAPart(t *testing.T) {
	for part, wants := range map[string]string{"store": "all objects (store/FORMAT)", "pki": "pki/ca.crt"} {
		t.Run(part, func(t *testing.T) {
			c := Defaults()
			c.DataDir, c.SecurePort = t.TempDir(), 0
			for range 2 { // a restart is no loss
				s, err := Start(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(filepath.Join(c.DataDir, part)); err != nil {
				t.Fatal(err)
			}
			s, err := Start(t.Context(), c)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), wants) || !strings.Contains(err.Error(), "PARTS") {
				t.Errorf("without %s: %v", part, err)
			}
			if _, err := os.Stat(filepath.Join(c.DataDir, part)); !os.IsNotExist(err) {
				t.Errorf("%s was made anew: %v", part, err)
			}
			if part == "store" { // which a server without one does not miss
				c.Storage = "memory"
				if s, err = Start(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// A start that fails, late, leaves nothing behind.
//
// SPEC: RUN-7
func TestFailedStartLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	top := t.TempDir()
	c := Defaults()
	c.DataDir, c.SecurePort = filepath.Join(top, "a", "data"), taken.Addr().(*net.TCPAddr).Port
	if s, err := Start(t.Context(), c); err == nil {
		s.Close()
		t.Fatal("two servers at one port")
	}
	if left, err := os.ReadDir(top); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The kubeconfig has the host by which the server is known outside, and what the user has added stays.
//
// SPEC: RUN-7
func TestKubeconfigIsMerged(t *testing.T) {
	c := Defaults()
	c.DataDir, c.SecurePort, c.ExternalHostname = t.TempDir(), 0, "api.example.com"
	file := filepath.Join(c.DataDir, "kubeconfig")
	const mine = "# mine\napiVersion: v1\nkind: Config\ncurrent-context: prod\n"
	if err := os.WriteFile(file, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text, err := os.ReadFile(file)
	for _, want := range []string{"# mine\n", "current-context: prod\n", "server: https://api.example.com:"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q is missing, %v:\n%s", want, err, text)
		}
	}
}

// A busy port is an error that names the flag and who has the port; so is the lock of a data directory.
func TestWhoHasIt(t *testing.T) {
	c := Defaults()
	c.DataDir, c.SecurePort, c.Logger = t.TempDir(), 0, slog.New(slog.DiscardHandler)
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := c
	other.DataDir, other.SecurePort = t.TempDir(), s.port()
	for _, c := range []struct {
		Config
		want string
	}{{other, "--secure-port: port "}, {c, "in use by "}} {
		second, err := Start(t.Context(), c.Config)
		if err == nil {
			second.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			runtime.GOOS == "linux" && !strings.Contains(err.Error(), "in use by this process") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// Keys that others can read are named in the log.
func TestKeysOfAll(t *testing.T) {
	var log bytes.Buffer
	c := Defaults()
	c.DataDir, c.SecurePort, c.Logger = t.TempDir(), 0, slog.New(slog.NewTextHandler(&log, nil))
	for _, mode := range []os.FileMode{0o600, 0o644} {
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		key := filepath.Join(c.DataDir, "pki", "ca.key")
		if named := strings.Contains(log.String(), key); named != (mode == 0o644) {
			t.Errorf("a key of mode %v: %s", mode, log.String())
		}
		if err := os.Chmod(key, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
