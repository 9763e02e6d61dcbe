package serviceaccount

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// filesIn are the files of a directory, by name.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// The key for the tokens of service accounts is never replaced by itself, as every token would be invalid.
//
// SPEC: AUTH-2
func TestPartsOfTheAccountKey(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	if _, err := OwnKey(filepath.Join(dir, "sa.key"), logger); err != nil {
		t.Fatal(err)
	}
	whole := filesIn(t, dir)
	for _, c := range []struct {
		name  string
		files []string
		fails bool
	}{
		{"both", []string{"sa.key", "sa.pub"}, false},
		{"a start that was interrupted, or an older release", []string{"sa.key"}, false},
		{"the key is missing", []string{"sa.pub"}, true},
		{"the first start", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			part := map[string]string{}
			for _, name := range c.files {
				part[name] = whole[name]
				if err := os.WriteFile(filepath.Join(dir, name), []byte(whole[name]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := OwnKey(filepath.Join(dir, "sa.key"), logger)
			now := filesIn(t, dir)
			switch {
			case c.fails:
				if err == nil || !strings.Contains(err.Error(), "sa.key is missing") || !maps.Equal(now, part) {
					t.Errorf("%v, and the files are %v", err, slices.Sorted(maps.Keys(now)))
				}
			case err != nil:
				t.Error(err)
			case len(c.files) > 0 && !maps.Equal(now, whole):
				t.Error("the key is another one")
			case len(now) != 2:
				t.Errorf("the files are %v", slices.Sorted(maps.Keys(now)))
			}
		})
	}
}
