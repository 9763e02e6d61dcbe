package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// repository is where the sources are that the tests copy.
const repository = "../.."

// before is a repository whose module is gizmo, a word that it uses for other things, too.
var before = map[string]string{
	"go.mod":       "module gizmo\n\ngo 1.26.0\n\nrequire golang.org/x/mod v0.41.0\n\ntool gizmo/cmd/gizmo\n",
	"part/part.go": "// Package part is gizmo/part.\npackage part\n\nconst Key = \"gizmo/claims\"\n",
	"cmd/gizmo/main.go": `// Command gizmo is cmd/gizmo/main.go; gizmo/cmd/gizmo,gizmo/part and (gizmo/parts, gizmo/part-2).
package main

import (
	"fmt"

	"golang.org/x/mod/semver"

	alias "gizmo/part" // as in gizmo/part.
	"hab/of/part"
)

func main() {
	fmt.Println("gizmo", "gizmo/", "/src/gizmo/part", "a.gizmo/part", ` + "`\"gizmo/part\"`" + `, "x\ngizmo/part.Key",
		alias.Key, part.Key, semver.Major("gizmo/v1"), "~gizmo/part")
}
`,
	"nested/go.mod": "module gizmo/nested\n\nrequire (\n\tcel.dev/expr v0.25.1 // indirect\n\tgizmo v0.0.0\n\thub v1.0.0\n)\n\n" +
		"replace gizmo => ../\n",
	"docs/page.md": "`go get gizmo/part` gets gizmo/part,gizmo/part/more; bin/gizmo/part, gizmo/docs and gizmo do not.\n" +
		"go mod edit -require=gizmo@v0.0.0 -replace=gizmo=$GIZMO; gizmo=$1 a/gizmo@v1 gizmo@home\n",
	"docs/picture":     "gizmo/part\x00",
	".git/config":      "gizmo/part\n",
	"bin/gizmo":        "gizmo/part\n",
	"unrelated/doc.go": "package unrelated\n",
}

// after is what becomes of the files that change, with the path hub.example/gizmo.
var after = map[string]string{
	"go.mod": "module hub.example/gizmo\n\ngo 1.26.0\n\nrequire golang.org/x/mod v0.41.0\n\n" +
		"tool hub.example/gizmo/cmd/gizmo\n",
	"part/part.go": "// Package part is hub.example/gizmo/part.\npackage part\n\nconst Key = \"gizmo/claims\"\n",
	"cmd/gizmo/main.go": `// Command gizmo is cmd/gizmo/main.go; hub.example/gizmo/cmd/gizmo,hub.example/gizmo/part and (gizmo/parts, gizmo/part-2).
package main

import (
	"fmt"

	"golang.org/x/mod/semver"

	"hab/of/part"
	alias "hub.example/gizmo/part" // as in hub.example/gizmo/part.
)

func main() {
	fmt.Println("gizmo", "gizmo/", "/src/gizmo/part", "a.gizmo/part", ` + "`\"hub.example/gizmo/part\"`" +
		`, "x\nhub.example/gizmo/part.Key",
		alias.Key, part.Key, semver.Major("gizmo/v1"), "~gizmo/part")
}
`,
	"nested/go.mod": "module hub.example/gizmo/nested\n\nrequire (\n\tcel.dev/expr v0.25.1 // indirect\n\thub v1.0.0\n" +
		"\thub.example/gizmo v0.0.0\n)\n\nreplace hub.example/gizmo => ../\n",
	"docs/page.md": "`go get hub.example/gizmo/part` gets hub.example/gizmo/part,hub.example/gizmo/part/more; bin/gizmo/part, " +
		"gizmo/docs and gizmo do not.\n" +
		"go mod edit -require=hub.example/gizmo@v0.0.0 -replace=hub.example/gizmo=$GIZMO; gizmo=$1 " +
		"a/gizmo@v1 gizmo@home\n",
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, before)
	from, changed, err := run(dir, "hub.example/gizmo")
	if err != nil || from != "gizmo" || len(changed) != len(after) {
		t.Fatalf("%s, %s, %v", from, changed, err)
	}
	for name, text := range before {
		want, changes := after[name]
		if !changes {
			want = text
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s, %v:\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// A path that cannot be used, and a repository that cannot be read, change nothing.
func TestRenameRefuses(t *testing.T) {
	for _, c := range []struct{ to, broken, want string }{
		{"plinth", "", "missing dot in first path element"},
		{"example.com/a b", "", "invalid char"},
		{"", "", "empty string"},
		{"example.com/plinth/v2", "", "has a major version"},
		{"example.com/ok", "package", "broken.go"},
	} {
		dir := t.TempDir()
		write(t, dir, before)
		if c.broken != "" {
			write(t, dir, map[string]string{"zz/broken.go": c.broken})
		}
		if _, _, err := run(dir, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.to, err, c.want)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || string(text) != before["go.mod"] {
			t.Errorf("%q, %v: %s", c.to, err, text)
		}
	}
	if _, _, err := run(t.TempDir(), "example.com/ok"); err == nil {
		t.Error("a folder without a module is accepted")
	}
}

// copyRepository copies the sources of this repository.
func copyRepository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	files, _, err := list(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		relative, err := filepath.Rel(repository, file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{relative: string(text)})
	}
	return dir
}

// There and back again, a renamed repository is what it was; in between no package of the old path is imported.
func TestRenameThisRepository(t *testing.T) {
	dir := copyRepository(t)
	const elsewhere = "go.example.org/forge/control-plane"
	from, changed, err := run(dir, elsewhere)
	if err != nil || len(changed) < 500 {
		t.Fatalf("%d files were changed, %v", len(changed), err)
	}
	folders := map[string]int{}
	for _, module := range []string{".", "conformance", "tools"} {
		list := command(t, filepath.Join(dir, module), nil, "go", "list", "-e", "-test", "-f",
			`{{.ImportPath}} {{join .Imports " "}}`, "./...")
		for _, path := range strings.Fields(list) {
			if path == from || strings.HasPrefix(path, from+"/") {
				t.Errorf("%s is still there, in %s", path, module)
			}
			if strings.HasPrefix(path, elsewhere) {
				folders[module]++
			}
		}
	}
	if folders["."] < 500 || folders["conformance"] < 200 || folders["tools"] < 3 {
		t.Errorf("there are only so many packages of this repository: %v", folders)
	}
	if _, _, err := rename(dir, from); err != nil {
		t.Fatal(err)
	}
	for _, file := range changed {
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		want, err1 := os.ReadFile(filepath.Join(repository, relative))
		got, err2 := os.ReadFile(file)
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what it was: %v, %v", relative, err1, err2)
		}
	}
}

// command runs a program in a folder and returns what it prints.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// published is the module that TestGoGet publishes, and which testdata/user imports.
var published = module.Version{Path: "example.com/plinth", Version: "v0.0.1"}

// publish writes what a proxy serves of the module in dir.
func publish(t *testing.T, proxy, dir string) {
	t.Helper()
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, published, dir); err != nil {
		t.Fatal(err)
	}
	definition, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := json.Marshal(map[string]any{"Version": published.Version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(published.Path, "@v", published.Version)
	write(t, proxy, map[string]string{
		version + ".zip": archive.String(), version + ".mod": string(definition), version + ".info": string(info),
		filepath.Join(published.Path, "@v", "list"): published.Version + "\n",
	})
}

// The module under another path can be fetched from a proxy, and used by a module that knows nothing of this
// repository: its public packages link, and plinthtest works there.
//
// The other dependencies come from this machine's module cache, which is laid out as a proxy's files are, and from the
// configured proxy if they are not there. Paths of this machine are left out of what is compiled (-trimpath), so that
// the compiler's cache has it the next time.
func TestGoGet(t *testing.T) {
	dir := copyRepository(t)
	if _, _, err := run(dir, published.Path); err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	publish(t, proxy, dir)
	var settings struct{ GOMODCACHE, GOPROXY string }
	out := command(t, ".", nil, "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err := json.Unmarshal([]byte(out), &settings); err != nil {
		t.Fatal(err)
	}
	cached := filepath.Join(settings.GOMODCACHE, "cache", "download")
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + cached + "," + settings.GOPROXY,
		"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-trimpath -modcacherw -mod=mod", "GONOSUMDB=" + published.Path, "GOWORK=off",
	}
	user := t.TempDir()
	if err := os.CopyFS(user, os.DirFS("testdata/user")); err != nil {
		t.Fatal(err)
	}
	// With the sums that this repository vouches for, only those of the new module are not known.
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, user, map[string]string{"go.sum": string(sums)})
	command(t, user, env, "go", "mod", "init", "example.net/user")
	command(t, user, env, "go", "get", published.String())
	out = command(t, user, env, "go", "test", "-count=1", "-v", "./...")
	for _, test := range []string{"TestPlane", "TestVirtualTime", "TestMerge"} {
		if !strings.Contains(out, "--- PASS: "+test+" ") {
			t.Errorf("%s has not run:\n%s", test, out)
		}
	}
	used := strings.TrimSpace(command(t, user, env, "go", "list", "-m", published.Path))
	if used != published.Path+" "+published.Version {
		t.Errorf("the module is %s", used)
	}
	version := command(t, user, env, "go", "run", published.Path+"/cmd/plinth", "version")
	if !strings.HasPrefix(version, "plinth ") || !strings.Contains(version, "\nKubernetes v1.") {
		t.Errorf("the program prints %s", version)
	}
}

var full = flag.Bool("full", false, "build and test the renamed repository, which takes half an hour")

// Under another path everything builds, and all tests pass.
func TestRenamedRepository(t *testing.T) {
	dir := copyRepository(t)
	if _, _, err := run(dir, "go.example.org/forge/control-plane"); err != nil {
		t.Fatal(err)
	}
	if out := command(t, dir, nil, "go", "test", "-tags", "invariants", "-count=1", "."); !strings.HasPrefix(out, "ok") {
		t.Errorf("the house rules: %s", out)
	}
	if *full {
		t.Log(command(t, dir, nil, "make", "test", "check"))
	}
}
