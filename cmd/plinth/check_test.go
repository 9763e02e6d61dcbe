package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/internal/planes"
	"plinth/internal/planes/kind"
	"plinth/internal/server"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/object"
)

// filledDataDir is the data directory of a server that had these objects, and has ended.
func filledDataDir(t *testing.T, encryption string, objects string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	withServer(t, dir, encryption, func(c *remote) {
		read, err := readManifests([]string{file(t, "objects.yaml", objects)})
		if err == nil {
			err = c.apply(read)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// withServer runs a server on a data directory.
func withServer(t *testing.T, dir, encryption string, do func(*remote)) {
	t.Helper()
	c := server.Defaults()
	c.DataDir, c.DataDirGiven, c.SecurePort, c.Logger = dir, true, 0, slog.New(slog.DiscardHandler)
	c.Encryption.ConfigFile = encryption
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, io.Discard) }()
	client, err := connect([]string{filepath.Join(dir, "kubeconfig")})
	if err != nil {
		t.Error(err)
	} else {
		do(client)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

const someObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: first, namespace: default}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: default}
stringData: {a: hidden-value}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: NodePort, ports: [{port: 80, nodePort: 30123}]}
`

const keys = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: k, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}
`

func codeOf(err error) int {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return 0
}

// An undamaged directory has no finding; what is exported to a new one serves the same objects.
//
// SPEC: RUN-11
func TestCheckAndExport(t *testing.T) {
	config := file(t, "keys.yaml", keys)
	for name, encryption := range map[string]string{"clear": "", "encrypted": config} {
		t.Run(name, func(t *testing.T) {
			dir := filledDataDir(t, encryption, someObjects)
			flags := []string{}
			if encryption != "" {
				said, err := plinth("check", dir)
				if err != nil || !strings.Contains(said, "encrypted, and only their checksums") {
					t.Errorf("without the key: %v\n%s", err, said)
				}
				yaml, err := plinth("export", dir)
				if err != nil || strings.Contains(yaml, "kind: Secret\n") || !strings.Contains(yaml, "name: first\n") {
					t.Errorf("without the key: %v\n%s", err, yaml)
				}
				flags = append(flags, "--encryption-provider-config", encryption)
			}
			said, err := plinth(append([]string{"check", dir}, flags...)...)
			if err != nil || strings.Contains(said, "damage:") || strings.Contains(said, "note:") ||
				!strings.Contains(said, "There is no damage.") {
				t.Errorf("%v\n%s", err, said)
			}
			yaml, err := plinth(append([]string{"export", dir}, flags...)...)
			if err != nil || !strings.Contains(yaml, "name: password\n") || !strings.Contains(yaml, "uid: ") {
				t.Errorf("%v\n%s", err, yaml)
			}
			read, err := object.Documents([]byte(yaml))
			if err != nil || len(read) < 10 {
				t.Errorf("%d objects, %v", len(read), err)
			}
			to := filepath.Join(t.TempDir(), "new")
			// Without the key: what is encrypted stays so.
			if said, err := plinth("export", dir, "--to", to); err != nil || !strings.Contains(said, "plinth serve --data-dir") {
				t.Fatalf("%v\n%s", err, said)
			}
			before := map[string]string{}
			for _, path := range []string{"configmaps/first", "secrets/password"} {
				withServer(t, dir, encryption, func(c *remote) {
					text, err := c.get("/api/v1/namespaces/default/" + path)
					if err != nil {
						t.Error(err)
					}
					before[path] = string(text)
				})
			}
			withServer(t, to, encryption, func(c *remote) {
				for path, want := range before {
					if text, err := c.get("/api/v1/namespaces/default/" + path); err != nil || string(text) != want {
						t.Errorf("%s: %v\n%s\nwas\n%s", path, err, text, want)
					}
				}
			})
			if encryption != "" {
				stored, err := filepath.Glob(filepath.Join(to, "store", "*"))
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range stored {
					if text, err := os.ReadFile(name); err != nil || strings.Contains(string(text), "aGlkZGVuLXZhbHVl") {
						t.Errorf("%s has the secret in clear: %v", name, err)
					}
				}
			}
			if info, err := os.Stat(filepath.Join(to, "pki", "sa.key")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the key: %v, %v", info, err)
			}
		})
	}
}

// What is exported for another server can be applied there.
//
// SPEC: RUN-11
func TestExportForApply(t *testing.T) {
	dir := filledDataDir(t, "", someObjects)
	yaml, err := plinth("export", dir, "--for-apply")
	if err != nil || strings.Contains(yaml, "uid:") {
		t.Fatalf("%v\n%s", err, yaml)
	}
	var mine []string // what the new server makes itself has other values there
	for part := range strings.SplitSeq(yaml, "---\n") {
		if slices.ContainsFunc([]string{"name: first\n", "name: team\n", "name: password\n"},
			func(name string) bool { return strings.Contains(part, name) }) && !strings.Contains(part, "namespace: team") {
			mine = append(mine, part)
		}
	}
	if len(mine) != 3 {
		t.Fatalf("%d objects:\n%s", len(mine), yaml)
	}
	filledDataDir(t, "", strings.Join(mine, "---\n"))
}

// Damage of each file is found, and names the objects; the rest is exported.
//
// SPEC: RUN-11
func TestCheckFindsDamage(t *testing.T) {
	dir := filledDataDir(t, "", someObjects)
	logs, err := filepath.Glob(filepath.Join(dir, "store", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	text, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), `"name":"password"`)
	damaged := slices.Clone(text)
	damaged[at+10] ^= 1
	if err := os.WriteFile(logs[len(logs)-1], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := plinth("check", dir)
	if codeOf(err) != exitFound || !strings.Contains(said, "damage: "+logs[len(logs)-1]) ||
		!strings.Contains(said, "secrets/default/password") || !strings.Contains(said, "plinth export "+dir+" --to ") {
		t.Errorf("%v\n%s", err, said)
	}
	yaml, err := plinth("export", dir)
	if err != nil || !strings.Contains(yaml, "name: first\n") || strings.Contains(yaml, "name: password\n") {
		t.Errorf("%v\n%s", err, yaml)
	}
	to := filepath.Join(t.TempDir(), "new")
	if _, err := plinth("export", dir, "--to", to); err != nil {
		t.Fatal(err)
	}
	withServer(t, to, "", func(c *remote) {
		if _, err := c.get("/api/v1/namespaces/default/configmaps/first"); err != nil {
			t.Error(err)
		}
	})
	if after, err := os.ReadFile(logs[len(logs)-1]); err != nil || !slices.Equal(after, damaged) {
		t.Errorf("the damaged file changed: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "pki", "sa.key")); err != nil {
		t.Fatal(err)
	}
	if said, err := plinth("check", dir); codeOf(err) != exitFound || !strings.Contains(said, "sa.key is missing") {
		t.Errorf("%v\n%s", err, said)
	}
	wrong := file(t, "keys.yaml", strings.ReplaceAll(keys, "YWJj", "YWJk"))
	sealed := filledDataDir(t, file(t, "keys.yaml", keys), someObjects)
	if said, err := plinth("check", sealed, "--encryption-provider-config", wrong); codeOf(err) != exitFound ||
		!strings.Contains(said, "do not decrypt") {
		t.Errorf("with the wrong key: %v\n%s", err, said)
	}
	for _, path := range []string{filepath.Join(dir, "none"), t.TempDir()} {
		if _, err := plinth("check", path); codeOf(err) != exitFailed || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	withServer(t, to, "", func(*remote) {
		if _, err := plinth("check", to); codeOf(err) != exitFailed || !strings.Contains(err.Error(), "stop that server") {
			t.Errorf("while a server has it: %v", err)
		}
	})
}

// A check says how far the past reaches back, and where its packs are damaged, which no object is lost by.
//
// SPEC: RUN-11, BEY-4
func TestCheckFindsDamageOfThePast(t *testing.T) {
	dir := filledDataDir(t, "", someObjects)
	const first = "/api/v1/namespaces/default/configmaps/first"
	withServer(t, dir, "", func(c *remote) {
		if text, err := c.get(first + "?history"); err != nil || !strings.Contains(string(text), `"created"`) {
			t.Errorf("%v: %s", err, text)
		}
	})
	said, err := plinth("check", dir)
	if err != nil || !strings.Contains(said, "1 packs, ") ||
		!strings.Contains(said, "is known from revision 1 on, from 20") {
		t.Errorf("%v\n%s", err, said)
	}
	packs, err := filepath.Glob(filepath.Join(dir, "past", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatal(packs, err)
	}
	whole, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(whole)
	damaged[len(damaged)/4] ^= 1
	if err := os.WriteFile(packs[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err = plinth("check", dir)
	if codeOf(err) != exitFound || !strings.Contains(said, "damage: "+packs[0]+" at offset ") ||
		!strings.Contains(said, "in the past alone") {
		t.Errorf("%v\n%s", err, said)
	}
	// What is not in the past is served, and a read of the past is an error that names the file.
	withServer(t, dir, "", func(c *remote) {
		if _, err := c.get(first); err != nil {
			t.Error(err)
		}
		if _, err := c.get(first + "?history"); err == nil || !strings.Contains(err.Error(), packs[0]) {
			t.Errorf("a record from a damaged pack: %v", err)
		}
	})
	to := filepath.Join(t.TempDir(), "new")
	if _, err := plinth("export", dir, "--to", to); err != nil || exists(filepath.Join(to, "past")) {
		t.Errorf("an export has the past: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "past")); err != nil {
		t.Fatal(err)
	}
	withServer(t, dir, "", func(c *remote) {
		if _, err := c.get(first + "?history"); err != nil {
			t.Error(err)
		}
	})
	if said, err := plinth("check", dir); err != nil || !strings.Contains(said, "There is no damage.") {
		t.Errorf("%v\n%s", err, said)
	}
}

// withPlanes adds planes to the store of a data directory: one with the name and ID of each key, which has a ConfigMap
// with the name of the value.
func withPlanes(t *testing.T, dir string, objects map[string]string) {
	t.Helper()
	log, err := filelog.Open(filepath.Join(dir, "store"), filelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: log, PlaneResources: planes.Resources,
		Describe: func(k store.Key, data []byte) *store.Sidecar { return &store.Sidecar{} }})
	if err != nil {
		t.Fatal(err)
	}
	template := store.Change{Key: store.Key{Resource: planes.Templates, Name: planes.Template}, Data: []byte(`{}`),
		Sidecar: &store.Sidecar{UID: planes.Template}, Begin: &store.Begin{Plane: planes.Template}}
	if _, err := s.Commit(t.Context(), nil, []store.Change{template}); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		id := "id-of-" + name
		inside := store.Change{Key: store.Key{Resource: "/configmaps", Name: "default/" + objects[name]},
			Data: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + objects[name] + `"}}`)}
		if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: kind.Path, Name: name},
			Data:    []byte(`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":"` + name + `","uid":"` + id + `"}}`),
			Sidecar: &store.Sidecar{UID: id},
			Begin:   &store.Begin{Plane: id, Origin: planes.Template, Changes: []store.Change{inside}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Planes are counted, each is exported by its name or its ID, and none is in the export of another one. Damage names
// the planes.
//
// SPEC: RUN-11, STORE-7
func TestCheckAndExportPlanes(t *testing.T) {
	dir := filledDataDir(t, "", someObjects)
	if _, err := plinth("export", dir, "--plane", "red"); err == nil || !strings.Contains(err.Error(), "has no planes") {
		t.Errorf("without planes: %v", err)
	}
	withPlanes(t, dir, map[string]string{"red": "of-red", "blue": "of-blue", "template": "of-its-own"})
	said, err := plinth("check", dir)
	if err != nil || !strings.Contains(said, "planes besides the first one: 3, with 3 objects") {
		t.Errorf("%v\n%s", err, said)
	}
	for _, c := range []struct {
		plane string
		want  []string
	}{{"", []string{"name: first\n", "kind: Plane\n"}}, {"red", []string{"name: of-red\n"}},
		{"id-of-blue", []string{"name: of-blue\n"}}, {"template", []string{"name: of-its-own\n"}}} {
		args := []string{"export", dir}
		if c.plane != "" {
			args = append(args, "--plane", c.plane)
		}
		yaml, err := plinth(args...)
		for _, name := range []string{"name: first\n", "name: of-red\n", "name: of-blue\n", "name: of-its-own\n",
			"kind: Plane\n"} {
			if err != nil || strings.Contains(yaml, name) != slices.Contains(c.want, name) {
				t.Errorf("the export of plane %q: %v\n%s", c.plane, err, yaml)
			}
		}
	}
	for want, args := range map[string][]string{"has no plane green; it has blue, red, template": {"--plane", "green"},
		"give one of them": {"--plane", "red", "--to", filepath.Join(t.TempDir(), "x")}} {
		if _, err := plinth(append([]string{"export", dir}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
	to := filepath.Join(t.TempDir(), "new")
	said, err = plinth("export", dir, "--to", to)
	if err != nil || !strings.Contains(said, "planes besides the first one: 3") ||
		!strings.Contains(said, "--planes\n") {
		t.Errorf("%v\n%s", err, said)
	}
	if yaml, err := plinth("export", to, "--plane", "red"); err != nil || !strings.Contains(yaml, "name: of-red\n") {
		t.Errorf("%v\n%s", err, yaml)
	}

	logs, err := filepath.Glob(filepath.Join(dir, "store", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	name := logs[len(logs)-1]
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[strings.Index(string(text), `"name":"of-blue"`)+10] ^= 1
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err = plinth("check", dir)
	if codeOf(err) != exitFound || !strings.Contains(said, `the plane "id-of-blue" seems to have begun with it`) ||
		!strings.Contains(said, "planes besides the first one: 2,") {
		t.Errorf("%v\n%s", err, said)
	}
	if yaml, err := plinth("export", dir, "--plane", "red"); err != nil || !strings.Contains(yaml, "name: of-red\n") {
		t.Errorf("%v\n%s", err, yaml)
	}
}
