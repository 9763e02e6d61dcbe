// Package modules fetches the sources of other projects, as Go modules from the proxy.
package modules

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Folder returns the folder with the files of a module, which nobody may change. It is downloaded if necessary, and not
// compiled. A name without "@VERSION" means the version that this module requires.
func Folder(module string) (string, error) {
	if !strings.Contains(module, "@") {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		return strings.TrimSpace(string(out)), err
	}
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w\n%s", module, err, out)
	}
	var downloaded struct{ Dir string }
	err = json.Unmarshal(out, &downloaded)
	return downloaded.Dir, err
}

// Copy makes a writable copy of the sources of a repository: modules has its modules by their folders in it, "." for
// the first. A module is published without the modules in its folders.
func Copy(to string, modules map[string]string) error {
	for _, folder := range slices.Sorted(maps.Keys(modules)) {
		from, err := Folder(modules[folder])
		if err != nil {
			return err
		}
		if err := copyTree(filepath.Join(to, folder), from); err != nil {
			return err
		}
	}
	return nil
}

func copyTree(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	})
}
