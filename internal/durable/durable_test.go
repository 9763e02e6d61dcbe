package durable

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// read returns the content of a file, "" if there is none.
func read(t *testing.T, disk vfs.FS, name string) string {
	t.Helper()
	f, err := disk.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPowerCut cuts the power before every operation of a disk on which a key and its certificate are written, into new
// directories, and then replaced. What was written before the cut is there, and a certificate is never without its key.
//
// SPEC: STORE-1
func TestPowerCut(t *testing.T) {
	for seed := range uint64(20) {
		mem := vfs.NewCrashableMem()
		rng := rand.New(rand.NewPCG(seed, 5))
		written := map[string]string{}
		cuts := 0
		cut := func() {
			cuts++
			after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * rng.IntN(4), RNG: rng})
			key, cert := read(t, after, "a/pki/ca.key"), read(t, after, "a/pki/ca.crt")
			if written["key"] != "" && key == "" || written["cert"] != "" && cert == "" || cert != "" && key == "" {
				t.Fatalf("seed %d, cut %d: after %v there are %q and %q", seed, cuts, written, key, cert)
			}
			for _, content := range []string{key, cert} {
				if content != "" && content != "one" && content != "two" {
					t.Fatalf("seed %d, cut %d: a file has %q", seed, cuts, content)
				}
			}
			if written["key"] == "two" && key != "two" || written["cert"] == "two" && cert != "two" {
				t.Fatalf("seed %d, cut %d: after %v there are %q and %q", seed, cuts, written, key, cert)
			}
		}
		disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				cut()
			}
			return nil
		}))
		if err := MkdirAll(disk, "a/pki"); err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"one", "two"} {
			for _, name := range []string{"key", "cert"} {
				path := map[string]string{"key": "a/pki/ca.key", "cert": "a/pki/ca.crt"}[name]
				if err := WriteFile(disk, path, []byte(content)); err != nil {
					t.Fatal(err)
				}
				written[name] = content
				cut()
			}
		}
		if cuts < 20 {
			t.Fatalf("only %d losses of power were simulated", cuts)
		}
	}
}

// TestModes: on the disk of the operating system, files and directories are those of their owner, also where a file is
// replaced that others could read, and nothing else is left.
//
// SPEC: STORE-1
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := MkdirAll(FS, dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(FS, path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Dir(dir): 0o700, path: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, %v", path, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || read(t, FS, path) != "new" {
		t.Error(entries, err, read(t, FS, path))
	}
}
