package configfile

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A part is made of its files at first, and whenever one of them has changed; what is refused, or cannot be read, is
// said once, and what was made before stays.
//
// SPEC: AUTH-11
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	var told []string
	f := &Files{Logger: slog.New(slog.NewTextHandler(&log, nil)), Reloaded: func(flag string, err error) {
		if err != nil {
			flag += " failed"
		}
		told = append(told, flag)
	}}
	made := ""
	take := func(texts [][]byte) error {
		if a, b := string(texts[0]), string(texts[1]); a != b {
			return errors.New("they do not fit")
		}
		made = string(texts[0])
		return nil
	}
	if err := f.Use("--x", []string{one, two}, take); err == nil || !strings.Contains(err.Error(), "--x: open") {
		t.Errorf("files that are not there: %v", err)
	}
	write(one, "a")
	write(two, "b")
	if err := f.Use("--x", []string{one, two}, take); err == nil || err.Error() != "--x: they do not fit" {
		t.Errorf("files that do not fit: %v", err)
	}
	write(two, "a")
	if err := f.Use("--x", []string{one, two}, take); err != nil || made != "a" {
		t.Fatalf("%q, %v", made, err)
	}
	for i, step := range []struct {
		change     func()
		made, told string
	}{
		{func() {}, "a", ""},
		{func() { write(one, "b") }, "a", "--x failed"},
		{func() {}, "a", ""}, // it is said once
		{func() { write(two, "b") }, "b", "--x"},
		{func() { os.Remove(one) }, "b", "--x failed"},
		{func() {}, "b", ""},
		{func() { write(one, "b") }, "b", ""},          // as it was
		{func() { os.Remove(one) }, "b", "--x failed"}, // again
		{func() { write(one, "b") }, "b", ""},
		{func() { write(one, "c"); write(two, "c") }, "c", "--x"},
	} {
		told = nil
		step.change()
		f.Look()
		if got := strings.Join(told, ","); made != step.made || got != step.told {
			t.Errorf("step %d: %q, told %q, want %q and %q", i, made, got, step.made, step.told)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
		t.Errorf("%d errors are in the log: %s", n, log.String())
	}
	var once *Files
	if err := once.Use("--x", []string{one, two}, take); err != nil {
		t.Error(err)
	}
}
