package datadir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var parts = []Part{{"pki/ca.crt", "the certificate authority"}, {"store/FORMAT", "all objects"}}

// begin makes the parts as a server does.
func begin(t *testing.T, dir string, needs ...Part) *Dir {
	t.Helper()
	d, err := Open(t.Context(), dir, "embedded", needs)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range needs {
		put(t, filepath.Join(dir, p.File))
		put(t, filepath.Join(dir, filepath.Dir(p.File), "other"))
	}
	return d
}

func put(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && path != dir {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// What was made and is gone is an error, whether its directory is gone or empty, as that of a disk that is not mounted.
//
// SPEC: RUN-7
func TestMissingParts(t *testing.T) {
	for _, empty := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "a", "data")
		if err := begin(t, dir, parts...).Keep(); err != nil {
			t.Fatal(err)
		}
		if err := begin(t, dir, parts...).Keep(); err != nil { // a restart
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
			t.Fatal(err)
		}
		if empty {
			if err := os.Mkdir(filepath.Join(dir, "store"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		before := list(t, dir)
		_, err := Open(t.Context(), dir, "embedded", parts)
		if err == nil || !strings.Contains(err.Error(), "all objects (store/FORMAT)") ||
			!strings.Contains(err.Error(), "remove "+filepath.Join(dir, "PARTS")) || strings.Contains(err.Error(), "ca.crt") {
			t.Errorf("without a store: %v", err)
		}
		if after := list(t, dir); after != before {
			t.Errorf("the refused start changed %s to %s", before, after)
		}
		if err := begin(t, dir, parts[0]).Keep(); err != nil { // one without a store, such as with etcd
			t.Errorf("a start that does not need it: %v", err)
		}
		if _, err := Open(t.Context(), dir, "embedded", parts); err == nil {
			t.Error("it is forgotten after a start that does not need it")
		}
		if err := os.Remove(filepath.Join(dir, "PARTS")); err != nil {
			t.Fatal(err)
		}
		if err := begin(t, dir, parts...).Keep(); err != nil { // on purpose; and so are older directories recorded
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "pki")); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, "embedded", parts); err == nil || !strings.Contains(err.Error(), "pki/ca.crt") {
			t.Errorf("without an authority: %v", err)
		}
	}
}

// A start that fails leaves nothing that it made, and everything else.
func TestUndo(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "data")
	if err := begin(t, dir, parts...).Undo(); err != nil {
		t.Fatal(err)
	}
	if left := list(t, top); left != "" {
		t.Errorf("%s is left", left)
	}
	put(t, filepath.Join(dir, "mine"))
	put(t, filepath.Join(dir, "pki", "sa.key"))
	before := list(t, dir)
	if err := begin(t, dir, parts...).Undo(); err != nil {
		t.Fatal(err)
	}
	if left := list(t, dir); left != before {
		t.Errorf("%s became %s", before, left)
	}
	if err := begin(t, dir, parts...).Keep(); err != nil {
		t.Fatal(err)
	}
	before = list(t, dir)
	if err := begin(t, dir, parts...).Undo(); err != nil {
		t.Fatal(err)
	}
	if left := list(t, dir); left != before {
		t.Errorf("%s became %s", before, left)
	}
}

// Of two starts in a directory, one waits for the other.
func TestStartsWait(t *testing.T) {
	dir := t.TempDir()
	first := begin(t, dir, parts...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, dir, "embedded", parts); err == nil ||
		!strings.Contains(err.Error(), "another server is starting") {
		t.Errorf("beside another start: %v", err)
	}
	if left := list(t, dir); !strings.Contains(left, "store/FORMAT") {
		t.Errorf("only %s is left", left)
	}
	if err := first.Keep(); err != nil {
		t.Fatal(err)
	}
	if err := begin(t, dir, parts...).Keep(); err != nil {
		t.Fatal(err)
	}
}

func TestBadRecord(t *testing.T) {
	for _, text := range []string{"", "plinth parts 2\n", "plinth parts 1\n../x\n",
		"plinth parts 1\nstorage etcd\n../x\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "PARTS"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), dir, "embedded", nil)
		if err == nil || !strings.Contains(err.Error(), "PARTS") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What Make makes is there as a whole or not at all, and it goes on where a process was killed.
//
// SPEC: RUN-7, STORE-6
func TestMake(t *testing.T) {
	build := func(err error) func(made, scratch string) error {
		return func(made, scratch string) error {
			for _, name := range []string{"PARTS", "pki", "store"} {
				if err := os.WriteFile(filepath.Join(made, name), []byte(name), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(scratch, "other"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return err
		}
	}
	exists := func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	names := func(dir string) (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "a", "new"), t.TempDir()} {
		was := exists(dir)
		failure := errors.New("failed")
		if err := Make(t.Context(), dir, build(failure)); !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if left := names(dir); exists(dir) != was || len(left) > 0 {
			t.Errorf("after an error there is %v", left)
		}
		killed := filepath.Join(dir, unfinished, "new", "store")
		if err := os.MkdirAll(killed, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Make(t.Context(), dir, build(nil)); err != nil {
			t.Fatal(err)
		}
		if have, want := names(dir), []string{"PARTS", "pki", "store"}; !slices.Equal(have, want) {
			t.Errorf("there is %v, not %v", have, want)
		}
		if err := Make(t.Context(), dir, build(nil)); err == nil || !strings.Contains(err.Error(), "is not empty") {
			t.Errorf("made twice: %v", err)
		}
		if have := names(dir); len(have) != 3 {
			t.Errorf("there is %v", have)
		}
	}
}
