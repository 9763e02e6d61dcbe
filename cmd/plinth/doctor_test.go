package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// found returns the diagnoses about a subject that are of a level.
func (c *checkup) found(level, about string) (all []string) {
	for _, d := range c.all {
		if d.level == level && d.about == about {
			all = append(all, d.says+"; "+d.advice)
		}
	}
	return all
}

// A machine on which nothing is wrong has no problem, and each thing that is wrong is found and has an advice.
//
// SPEC: RUN-13
func TestDoctor(t *testing.T) {
	dir := filledDataDir(t, "", someObjects)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	flags := []string{"doctor", "--data-dir", dir, "--secure-port", fmt.Sprint(port)}
	said, err := plinth(flags...)
	if codeOf(err) != exitFound || strings.Count(said, broken) != 1 || !strings.Contains(said, "listens at") &&
		!strings.Contains(said, "cannot be used") {
		t.Errorf("with the port taken: %v\n%s", err, said)
	}
	l.Close()
	if said, err := plinth(flags...); err != nil || strings.Contains(said, broken) {
		t.Errorf("%v\n%s", err, said)
	}
	flags[2] = filepath.Join(dir, "none")
	if said, err := plinth(flags...); err != nil {
		t.Errorf("without a data directory: %v\n%s", err, said)
	}

	now := time.Now()
	for _, c := range []struct {
		name, level, about, says string
		run                      func(*checkup)
	}{
		{"full disk", broken, "disk", "make room", func(c *checkup) {
			c.disk(func(string) (uint64, bool) { return 1 << 20, true })
		}},
		{"nearly full disk", doubtful, "disk", "0.5 GB", func(c *checkup) {
			c.disk(func(string) (uint64, bool) { return 500e6, true })
		}},
		{"a clock before the release", broken, "clock", "set it", func(c *checkup) {
			c.now = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
			c.clock()
		}},
		{"a clock that is behind", broken, "clock", "was written at", func(c *checkup) {
			c.now = now.Add(-time.Hour)
			c.clock()
		}},
		{"few files", broken, "limits", "LimitNOFILE", func(c *checkup) { c.limits(64, true) }},
		{"not many files", doubtful, "limits", "ulimit", func(c *checkup) { c.limits(1024, true) }},
		{"expired certificates", broken, "certificates", "server.crt expired on", func(c *checkup) {
			c.now = now.AddDate(2, 0, 0)
			c.certificates()
		}},
		{"expired authorities", broken, "certificates", "clients trust it", func(c *checkup) {
			c.now = now.AddDate(11, 0, 0)
			c.certificates()
		}},
		{"certificates that expire soon", doubtful, "certificates", "renews it", func(c *checkup) {
			c.now = now.AddDate(0, 0, 364-20)
			c.certificates()
		}},
		{"certificates of the future", broken, "certificates", "set the clock", func(c *checkup) {
			c.now = now.AddDate(-1, 0, 0)
			c.certificates()
		}},
		{"no certificate", broken, "certificates", "is no certificate", func(c *checkup) {
			write(t, filepath.Join(dir, "pki", "x.crt"), "x")
			c.certificates()
		}},
		{"keys for all", doubtful, "keys", "chmod 600", func(c *checkup) {
			if err := os.Chmod(filepath.Join(dir, "pki", "ca.key"), 0o644); err != nil {
				t.Fatal(err)
			}
			c.keys()
		}},
		{"a missing part", broken, "data", "store/FORMAT", func(c *checkup) {
			if err := os.Remove(filepath.Join(dir, "store", "FORMAT")); err != nil {
				t.Fatal(err)
			}
			c.directory()
		}},
		{"a damaged record", broken, "data", "PARTS", func(c *checkup) {
			write(t, filepath.Join(dir, "PARTS"), "x\n")
			c.directory()
		}},
	} {
		up := &checkup{dir: dir, port: port, now: now}
		c.run(up)
		if found := strings.Join(up.found(c.level, c.about), "\n"); !strings.Contains(found, c.says) {
			t.Errorf("%s: %+v", c.name, up.all)
		}
		for _, d := range up.all {
			if (d.level == sound) != (d.advice == "") {
				t.Errorf("%s: %+v", c.name, d)
			}
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
