package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plinth/internal/server"
	"plinth/object"
)

// goesOnAbove finds in the report of a restore the revision above which it goes on.
var goesOnAbove = regexp.MustCompile(`goes on above (\d+)\.`)

// A backup of a server that serves is restored to one that has the same objects, to whom the keys of the first one
// belong; what is encrypted at rest is so in the backup; whoever knows a resourceVersion of the lost server gets 410,
// and new ones are above.
//
// SPEC: STORE-6, STORE-5
func TestBackupAndRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	encryption := file(t, "keys.yaml", keys)
	work := t.TempDir()
	archive, withKeys := filepath.Join(work, "plinth.tar"), filepath.Join(work, "keys.tar")
	passphrase := file(t, "passphrase", "correct horse\nbattery staple\n")
	apply := func(c *remote, path, body string) object.Value {
		t.Helper()
		text, err := c.send(http.MethodPost, path, []byte(body), http.Header{"Content-Type": {"application/yaml"}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := object.ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		return v.Value
	}
	const hidden = "a-value-that-nobody-finds"
	var known, uid string
	withServer(t, dir, encryption, func(c *remote) {
		apply(c, "/api/v1/namespaces/default/secrets", fmt.Sprintf(
			"{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {a: %s}}", hidden))
		made := apply(c, "/api/v1/namespaces/default/configmaps",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: precious}, data: {a: b}}")
		known, uid = made.At("metadata", "resourceVersion").Str(), made.At("metadata", "uid").Str()
		config := filepath.Join(dir, "kubeconfig")
		said, err := plinth("backup", archive, "--kubeconfig", config)
		if err != nil || !strings.Contains(said, "without keys") {
			t.Fatalf("%s, %v", said, err)
		}
		atURL := "file://" + filepath.ToSlash(filepath.Join(work, "folder")) + "/a.tar"
		if said, err := plinth("backup", atURL, "--kubeconfig", config); err != nil ||
			!strings.Contains(said, "plinth restore "+atURL) {
			t.Fatalf("%s, %v", said, err)
		}
		fromURL := filepath.Join(work, "from-url")
		if said, err := plinth("restore", atURL, "-o", fromURL); err != nil || !goesOnAbove.MatchString(said) {
			t.Errorf("%s, %v", said, err)
		}
		if said, err = plinth("backup", withKeys, "--kubeconfig", config, "--with-keys", "--passphrase-file",
			passphrase); err != nil || !strings.Contains(said, "with keys") {
			t.Fatalf("%s, %v", said, err)
		}
		// What is made after the backup is lost.
		apply(c, "/api/v1/namespaces/default/configmaps", "{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}")
		for user, want := range map[string]int{"jane": http.StatusForbidden, "": http.StatusOK} {
			header := http.Header{}
			if user != "" {
				header.Set("Impersonate-User", user)
			}
			r, err := c.open(t.Context(), c.client, http.MethodHead, "/backup", nil, header)
			code := http.StatusOK
			var status *codeError
			if errors.As(err, &status) {
				code = status.code
			} else if err != nil || r.ContentLength < 100_000 {
				t.Errorf("%q: %v, %v", user, r, err)
			}
			if code != want {
				t.Errorf("%q gets %d, should get %d", user, code, want)
			}
		}
		if _, err := plinth("backup", filepath.Join(work, "none", "a"), "--kubeconfig", config); !errors.Is(err,
			fs.ErrNotExist) {
			t.Errorf("into a directory that is not there: %v", err)
		}
	})
	for _, name := range []string{archive, withKeys} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{hidden, base64.StdEncoding.EncodeToString([]byte(hidden)), "PRIVATE KEY"} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %q in clear", name, secret)
			}
		}
		if !bytes.Contains(text, []byte("precious")) {
			t.Errorf("%s does not even have what is not encrypted", name)
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}

	// Without keys no server starts, unless somebody puts them there.
	alone := filepath.Join(work, "alone")
	said, err := plinth("restore", archive, "-o", alone)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"1 of them are encrypted, and need the key secretbox k: --encryption-provider-config",
		"No server starts in " + alone, "pki/ca.crt\n", "pki/sa.key\n", "--encryption-provider-config=" + encryption} {
		if !strings.Contains(said, part) {
			t.Errorf("no %q in\n%s", part, said)
		}
	}
	c := server.Defaults()
	c.DataDir, c.SecurePort, c.Logger = alone, 0, slog.New(slog.DiscardHandler)
	if _, err := server.Start(context.Background(), c); err == nil || !strings.Contains(err.Error(), "pki/ca.crt") {
		t.Errorf("a server starts without keys: %v", err)
	}
	if err := os.CopyFS(filepath.Join(alone, "pki"), os.DirFS(filepath.Join(dir, "pki"))); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(work, "restored")
	if _, err := plinth("restore", withKeys, "-o", restored, "--passphrase-file", file(t, "p", "wrong")); err == nil ||
		!strings.Contains(err.Error(), "not the passphrase") {
		t.Errorf("with another passphrase: %v", err)
	}
	whole, err := plinth("restore", withKeys, "-o", restored, "--passphrase-file", passphrase)
	if err != nil || strings.Contains(whole, "No server starts") {
		t.Fatalf("%s, %v", whole, err)
	}
	flag := filepath.Join(restored, "flags", "encryption-provider-config", "0-keys.yaml")
	if !strings.Contains(whole, "--encryption-provider-config="+flag) {
		t.Errorf("the flag is not in\n%s", whole)
	}
	for at, with := range map[string][2]string{alone: {said, encryption}, restored: {whole, flag}} {
		withServer(t, at, with[1], func(c *remote) { checkRestored(t, c, with[0], known, uid, hidden) })
	}
}

func checkRestored(t *testing.T, c *remote, said, known, uid, hidden string) {
	t.Helper()
	for path, want := range map[string]string{
		"configmaps/precious":                          `"uid":"` + uid + `"`,
		"configmaps/precious?fieldManager=":            `"resourceVersion":"` + known + `"`,
		"secrets/password":                             base64.StdEncoding.EncodeToString([]byte(hidden)),
		"configmaps?watch=1&resourceVersion=" + known:  `"code":410`,
		"configmaps?timeoutSeconds=1&resourceVersion=": `"precious"`,
	} {
		text, err := c.get("/api/v1/namespaces/default/" + path)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
	var status *statusError
	if _, err := c.get("/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact&resourceVersion=" +
		known); !errors.As(err, &status) || status.value.At("code").Int() != http.StatusGone {
		t.Errorf("a list as of %s: %v", known, err)
	}
	if _, err := c.get("/api/v1/namespaces/default/configmaps/late"); err == nil {
		t.Error("what was made after the backup is there")
	}
	text, err := c.send(http.MethodPost, "/api/v1/namespaces/default/configmaps",
		[]byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}"),
		http.Header{"Content-Type": {"application/yaml"}})
	above := goesOnAbove.FindStringSubmatch(said)
	if err != nil || above == nil {
		t.Fatal(err, said)
	}
	made, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	version := made.Value.At("metadata", "resourceVersion").Str()
	if len(version) != len(above[1]) || version <= above[1] || len(version) < 10 {
		t.Errorf("a new object has the resourceVersion %s, after %s", version, above[1])
	}
}

// What cannot be backed up or restored is an error that says what to do.
//
// SPEC: STORE-6
func TestBackupRefuses(t *testing.T) {
	c := server.Defaults()
	dir := t.TempDir()
	c.DataDir, c.Storage, c.SecurePort, c.Logger = dir, "memory", 0, slog.New(slog.DiscardHandler)
	s, err := server.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	config := filepath.Join(dir, "kubeconfig")
	to := filepath.Join(t.TempDir(), "a.tar")
	t.Setenv("PATH", "")
	noArchive := strings.Repeat("no archive ", 100)
	for want, args := range map[string][]string{
		"the objects of this server are in memory":   {"backup", to, "--kubeconfig", config},
		"which --with-keys adds":                     {"backup", to, "--passphrase-file", "x"},
		"backup needs one file":                      {"backup"},
		"nor in a directory of PATH":                 {"restore", "s3://bucket/plinth", "-o", "x"},
		"there is no backup: it is no archive":       {"restore", "file://" + filepath.ToSlash(dir) + "/none", "-o", "x"},
		"names no bucket":                            {"restore", "s3:///plinth", "-o", "x"},
		"-o names the data directory":                {"restore", to},
		"name a file that plinth backup has written": {"restore", to, "-o", "x"},
		"is no resourceVersion, no time":             {"restore", to, "-o", "x", "--at", "yesterday"},
		"revisions only grow":                        {"restore", to, "-o", "x", "--bump-revision", "-1"},
		"it is damaged, or no archive":               {"restore", file(t, "text", noArchive), "-o", "x"},
		"it is cut off":                              {"restore", file(t, "empty", ""), "-o", "x"},
	} {
		if said, err := plinth(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v, should say %q", args, said, err, want)
		}
	}
	for _, name := range []string{to, to + ".tmp", "x"} {
		if exists(name) {
			t.Errorf("%s was made", name)
		}
	}
}
