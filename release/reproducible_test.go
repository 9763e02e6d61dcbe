package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var full = flag.Bool("full", false, "build all platforms, twice")

// Two builds of one commit are equal to the byte, also where the second one is of a checkout at another path. The long
// form builds all platforms; the short one only writes the files anew from the same programs.
func TestReproducible(t *testing.T) {
	o := options{source: "..", trial: true, files: built.files, out: filepath.Join(t.TempDir(), "out"),
		platforms: []string{"linux/amd64"}, kubectl: kubectl}
	if !*full {
		again, err := prepare(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.build(); err != nil {
			t.Fatal(err)
		}
		same(t, built, again)
		return
	}
	o.platforms, o.kubectl = nil, ""
	elsewhere := filepath.Join(t.TempDir(), "a", "longer", "path")
	must(t, "..", "git", "worktree", "add", "--detach", elsewhere, "HEAD")
	t.Cleanup(func() { must(t, "..", "git", "worktree", "remove", "--force", elsewhere) })
	var both []*release
	for _, source := range []string{"..", elsewhere} {
		o.source, o.out = source, filepath.Join(t.TempDir(), "out")
		r, err := prepare(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.commit, "+") {
			t.Fatal("files differ from the commit: the checkout that is compared has none of the changes")
		}
		if err := r.build(); err != nil {
			t.Fatal(err)
		}
		both = append(both, r)
	}
	same(t, both[0], both[1])
}

// same compares two releases, file by file.
func same(t *testing.T, a, b *release) {
	t.Helper()
	if len(a.sums) != len(b.sums) || len(a.sums) < 12 {
		t.Errorf("%d and %d files", len(a.sums), len(b.sums))
	}
	for file := range a.sums {
		one, err := os.ReadFile(filepath.Join(a.out, file))
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(filepath.Join(b.out, file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s differs: %d and %d bytes", file, len(one), len(two))
		}
	}
}
