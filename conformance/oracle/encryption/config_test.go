package encryption

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"plinth/internal/encryption"
)

// Parts of errors that differ by design: the scheme of the reference's decoder, names of Go types, and secrets, which
// the reference prints; how gRPC notices that a time is over.
var different = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(` in scheme "[^"]*"`), ""},
	{regexp.MustCompile(`"Secret":"[^"]*"`), `"Secret":"REDACTED"`},
	{regexp.MustCompile(`Go struct field \S+ of type \S+`), "Go struct field"},
	{regexp.MustCompile(`DeadlineExceeded desc = .*`), "DeadlineExceeded"},
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, d := range different {
		text = d.found.ReplaceAllString(text, d.as)
	}
	return text
}

// compareConfig opens a file with both.
func compareConfig(t *testing.T, file string, reloads, kmsV1 bool) (accepted bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	theirs, want := encryptionconfig.LoadEncryptionConfig(ctx, file, reloads, "server")
	ours, got := encryption.Open(ctx, file, reloads, encryption.Options{KMSv1: kmsV1})
	if errorText(got) != errorText(want) {
		text, _ := os.ReadFile(file)
		t.Errorf("%s (reloads %t)\n--- reference\n%s\n+++ here\n%s", text, reloads, errorText(want), errorText(got))
	}
	if want != nil || got != nil {
		return false
	}
	if ours.Hash() != theirs.EncryptionFileContentHash {
		t.Errorf("%s has the hash %s, want %s", file, ours.Hash(), theirs.EncryptionFileContentHash)
	}
	var names []string
	for _, check := range theirs.HealthChecks {
		names = append(names, check.Name())
	}
	if got := ours.Checks(); fmt.Sprint(got) != fmt.Sprint(names) {
		text, _ := os.ReadFile(file)
		t.Errorf("%s\nhas the checks %v, want %v", text, got, names)
	}
	return true
}

// kmsV1 sets the feature gate of the reference.
func kmsV1(t *testing.T, on bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KMSv1, on)
}

// timeouts are those of plugins, which do not run.
var timeouts = regexp.MustCompile(`timeout: *[0-9]+s|endpoint: unix:///tmp/testprovider\.sock`)

// All files of the reference's tests are accepted by both or refused by both, with the same message.
//
// SPEC: STORE-5
func TestFilesOfTheReference(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/apiserver").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "pkg/server/options/encryptionconfig/testdata")
	accepted, refused := 0, 0
	for _, v1 := range []bool{false, true} {
		kmsV1(t, v1)
		err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			// A short timeout for those that have none, or a long one.
			text = timeouts.ReplaceAllFunc(text, func(found []byte) []byte {
				if strings.HasPrefix(string(found), "timeout") {
					return []byte("timeout: 10ms")
				}
				return found
			})
			copied := filepath.Join(t.TempDir(), filepath.Base(file))
			if err := os.WriteFile(copied, text, 0o600); err != nil {
				return err
			}
			if compareConfig(t, copied, false, v1) {
				accepted++
			} else {
				refused++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if accepted < 20 || refused < 15 {
		t.Errorf("%d files were accepted, %d refused", accepted, refused)
	}
}

// one returns one of the values.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// anyConfig makes a configuration, of which about every fourth is valid.
func anyConfig(r *rand.Rand) map[string]any {
	key := func(lengths ...string) map[string]any {
		k := map[string]any{"name": one(r, "a", "b", "key-1", "x:y"), "secret": one(r, lengths...)}
		if r.IntN(25) == 0 {
			delete(k, one(r, "name", "secret"))
		}
		if r.IntN(25) == 0 {
			k["secret"] = one(r, "", "not base64!", "c2hvcnQ=")
		}
		if r.IntN(60) == 0 {
			k[one(r, "unknown", "Name")] = "x"
		}
		return k
	}
	keys := func(lengths ...string) map[string]any {
		var list []any
		for range one(r, 1, 1, 2, 3) {
			list = append(list, key(lengths...))
		}
		if r.IntN(25) == 0 {
			list = nil
		}
		return map[string]any{"keys": list}
	}
	const k16, k24, k32 = "MDEyMzQ1Njc4OWFiY2RlZg==", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3",
		"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	kms := func() map[string]any {
		k := map[string]any{"apiVersion": one(r, "v2", "v2", "v2", "v1", "v3", ""),
			"name":     one(r, "p", "q", "r", "s", "t:u", ""),
			"endpoint": one(r, "unix:///nowhere/s", "unix:///nowhere/s", "unix:///@abstract", "http://x", "", "%zz", "a"),
			"timeout":  one(r, "1ms", "1ms", "1ms", "0s", "-1s")}
		if r.IntN(5) == 0 {
			k["cachesize"] = one(r, 0, 1, -1, 1000)
		}
		if k["apiVersion"] == "" {
			delete(k, "apiVersion")
		}
		return k
	}
	provider := func() map[string]any {
		p := map[string]any{}
		for range one(r, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2) {
			switch r.IntN(6) {
			case 0:
				p["aescbc"] = keys(k16, k24, k32)
			case 1:
				p["aesgcm"] = keys(k16, k24, k32)
			case 2:
				p["secretbox"] = keys(k32, k32, k32, k32, k16)
			case 3:
				p["identity"] = map[string]any{}
			case 4:
				p["kms"] = kms()
			case 5:
				p[one(r, "aescbc", "aesgcm", "secretbox")] = keys(k32)
			}
		}
		if r.IntN(60) == 0 {
			return map[string]any{}
		}
		return p
	}
	resources := []string{"secrets", "configmaps", "pods", "deployments.apps", "*.apps", "*.", "*.*", "events",
		"things.example.com",
		"*.example.com"}
	bad := []string{"Secrets", "*", "apiserveripinfo", "serviceipallocations", "events.events.k8s.io", "*.events.k8s.io",
		"*.extensions", "secrets.*", "", "."}
	var groups []any
	for range one(r, 1, 1, 2, 3) {
		g := map[string]any{}
		var names, providers []any
		for range one(r, 1, 1, 2, 3) {
			if r.IntN(20) == 0 {
				names = append(names, one(r, bad...))
			} else {
				names = append(names, one(r, resources...))
			}
		}
		for range one(r, 1, 1, 2, 3) {
			providers = append(providers, provider())
		}
		if r.IntN(30) > 0 {
			g["resources"] = names
		}
		if r.IntN(30) > 0 {
			g["providers"] = providers
		}
		groups = append(groups, g)
	}
	c := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": groups}
	switch r.IntN(40) {
	case 0:
		c["apiVersion"], c["kind"] = "v1", "EncryptionConfig"
	case 1:
		c["apiVersion"] = one(r, "apiserver.config.k8s.io/v1beta1", "v1", "a/b/c", "")
	case 2:
		c["kind"] = one(r, "EncryptionConfig", "Secret", "")
	case 3:
		delete(c, one(r, "apiVersion", "kind", "resources"))
	case 4:
		c["more"] = 1
	case 5:
		c["resources"] = one[any](r, "x", 1, []any{"x"}, map[string]any{})
	}
	return c
}

// SPEC: STORE-5
func TestGeneratedConfigs(t *testing.T) {
	accepted, refused := 0, 0
	dir := t.TempDir()
	for _, v1 := range []bool{false, true} {
		kmsV1(t, v1)
		for seed := range uint64(1500) {
			r := rand.New(rand.NewPCG(seed, 7))
			text, err := json.MarshalIndent(anyConfig(r), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "config")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if compareConfig(t, file, r.IntN(2) == 0, v1) {
				accepted++
			} else {
				refused++
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 300 || refused < 1500 {
		t.Errorf("%d were accepted, %d refused", accepted, refused)
	}
}

// Files that are no configurations.
//
// SPEC: STORE-5
func TestTexts(t *testing.T) {
	for _, text := range []string{"", "x", "{", "a: b: c", "kind: EncryptionConfiguration", "[]", "null",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\nresources:\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n" +
			"  providers: [{identity: {}, identity: {}}]\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n" +
			"  providers: [{identity: {more: 1}}]\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n" +
			"  providers: [{identity: }, {aescbc: {keys: 1}}, {kms: {timeout: x}}]\n",
	} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		compareConfig(t, file, false, false)
	}
	compareConfig(t, "/nowhere", false, false)
}
