package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A data directory is copied to another one, with its keys and its planes; what is encrypted stays so, or gets another
// key, or none, which is said. A copy of one plane has what it has, as the first one. (Copies from and to an etcd are
// in conformance/store/etcd.)
//
// SPEC: STORE-6, STORE-5
func TestCopyOfADirectory(t *testing.T) {
	secret := file(t, "keys.yaml", keys)
	other := file(t, "other.yaml", strings.Replace(keys, "name: k,", "name: other,", 1))
	dir := filledDataDir(t, secret, someObjects)
	withPlanes(t, dir, map[string]string{"red": "of-red", "template": "of-its-own"})
	whole, err := plinth("export", dir, "--encryption-provider-config", secret)
	if err != nil {
		t.Fatal(err)
	}
	var sums []string
	for _, c := range []struct {
		flags     []string
		said, key string // what the copy says, and the key of the Secret in it; "": none
	}{
		{nil, "Other planes were copied, too", "k"},
		{[]string{"--from-encryption-provider-config", secret, "--to-encryption-provider-config", other}, "--planes",
			"other"},
		{[]string{"--from-encryption-provider-config", secret}, "1 objects were encrypted in", ""},
	} {
		to := filepath.Join(t.TempDir(), "new")
		said, err := plinth(append([]string{"copy", dir, to}, c.flags...)...)
		if err != nil || !strings.Contains(said, c.said) {
			t.Fatalf("%q: %v\n%s", c.flags, err, said)
		}
		_, rest, _ := strings.Cut(said, "sha256:")
		line, _, _ := strings.Cut(rest, "\n")
		if sums = append(sums, line); len(line) != 64 {
			t.Errorf("the hash is %q", line)
		}
		if inStore(t, to, "k8s:enc:secretbox:v1:"+c.key+":") != (c.key != "") ||
			inStore(t, to, base64.StdEncoding.EncodeToString([]byte("hidden-value"))) != (c.key == "") {
			t.Errorf("%q: the Secret is not encrypted with the key %q", c.flags, c.key)
		}
		key := map[string]string{"k": secret, "other": other, "": secret}[c.key]
		if text, err := plinth("export", to, "--encryption-provider-config", key); err != nil || text != whole {
			t.Errorf("%q: %v; the copy has\n%s\nand the directory had\n%s", c.flags, err, text, whole)
		}
		if text, err := plinth("export", to, "--plane", "red"); err != nil || !strings.Contains(text, "name: of-red\n") {
			t.Errorf("%v\n%s", err, text)
		}
		if a, b := read(t, dir, "pki/ca.crt"), read(t, to, "pki/ca.crt"); a != b {
			t.Error("the copy has another authority")
		}
		if said, err := plinth("check", to, "--encryption-provider-config", key); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
	}
	if sums[1] != sums[2] || sums[0] == sums[1] { // the first one is of what is encrypted
		t.Errorf("the hashes are %q", sums)
	}

	red := filepath.Join(t.TempDir(), "red")
	if said, err := plinth("copy", dir, red, "--plane", "red", "--bump-revision", "1000"); err != nil ||
		strings.Contains(said, "--planes") {
		t.Fatalf("%v\n%s", err, said)
	}
	if text, err := plinth("export", red); err != nil || !strings.Contains(text, "name: of-red\n") ||
		strings.Contains(text, "name: first\n") {
		t.Errorf("%v\n%s", err, text)
	}
	first := filepath.Join(t.TempDir(), "first")
	if said, err := plinth("copy", dir, first, "--plane", "/", "--from-encryption-provider-config", secret); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if said, err := plinth("check", first); err != nil || strings.Contains(said, "planes besides") {
		t.Errorf("%v\n%s", err, said)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// inStore says whether one of the files of a store has a text.
func inStore(t *testing.T, dir, text string) bool {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(read(t, dir, filepath.Join("store", e.Name())), text) {
			return true
		}
	}
	return false
}

// SPEC: STORE-6
func TestCopyRefuses(t *testing.T) {
	dir := filledDataDir(t, file(t, "keys.yaml", keys), someObjects)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"is not empty: it has file":             {dir, full},
		"cannot be copied onto itself":          {dir, dir},
		"is no URL of an etcd":                  {dir, "s3://bucket"},
		"has no store":                          {t.TempDir(), full},
		"is negative":                           {dir, full + "x", "--bump-revision", "-1"},
		"is for a directory":                    {dir, "http://127.0.0.1:1", "--bump-revision", "1"},
		"an etcd has one plane":                 {"http://127.0.0.1:1", full, "--plane", "red"},
		"has no planes":                         {dir, full + "x", "--plane", "red"},
		"some objects cannot be read: /secrets": {dir, full + "x", "--plane", "/"},
		"go together":                           {dir, "https://127.0.0.1:1", "--to-etcd-certfile", "x"},
		"--to-service-node-port-range":          {dir, "http://127.0.0.1:1", "--to-service-node-port-range", "x"},
		"two stores":                            {dir},
		"no such file":                          {dir, full + "x", "--to-encryption-provider-config", "missing"},
	} {
		if said, err := plinth(append([]string{"copy"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, and not %s\n%s", args, err, want, said)
		}
		if _, err := os.Stat(full + "x"); err == nil {
			t.Fatalf("%q made something", args)
		}
	}
}
