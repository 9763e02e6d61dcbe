package console

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const vendored = "../../internal/console/web/static/vendor"

// The vendored libraries are what tools/webvendor/vendor.sh wrote: each file has its checksum, each checksum its file,
// and each package of the script's list its files and its licence.
func TestVendoredLibraries(t *testing.T) {
	sums := map[string]string{}
	for _, fields := range table(t, filepath.Join(vendored, "SHA256SUMS.txt")) {
		sums[fields[1]] = fields[0]
	}
	entries, err := os.ReadDir(vendored)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == "SHA256SUMS.txt" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(vendored, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sums[name] {
			t.Errorf("%s has the checksum %s, and %q is listed", name, got, sums[name])
		}
		delete(sums, name)
	}
	for name := range sums {
		t.Errorf("%s is listed, and there is no such file", name)
	}

	wanted := map[string]bool{"SHA256SUMS.txt": true}
	for _, fields := range table(t, "../../tools/webvendor/packages.txt") {
		if len(fields) != 5 || !strings.HasPrefix(fields[2], "sha512-") {
			t.Fatalf("packages.txt: %q", fields)
		}
		wanted[fields[4]] = true
		wanted["LICENSE."+strings.ReplaceAll(strings.TrimPrefix(fields[0], "@"), "/", "-")+".txt"] = true
	}
	if len(wanted) < 9 || len(wanted) != len(entries) {
		t.Errorf("%d files are there, and packages.txt says %d", len(entries), len(wanted))
	}
	for _, entry := range entries {
		if !wanted[entry.Name()] {
			t.Errorf("%s is of no package in packages.txt", entry.Name())
		}
	}
}

// table reads a file of lines of words; lines that begin with # are comments.
func table(t *testing.T, file string) [][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, "#") {
			rows = append(rows, fields)
		}
	}
	return rows
}
