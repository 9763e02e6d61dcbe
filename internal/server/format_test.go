package server

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// format2 is the folder store of a data directory in format 2, of a server that was started twice: with a ConfigMap
// that was changed, one that was deleted, a CustomResourceDefinition, and an object of it that came after the second
// start.
const format2 = "testdata/format2.tgz"

// unpack writes the files of an archive below a directory.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for all := tar.NewReader(plain); ; files++ {
		header, err := all.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.FileInfo().IsDir() {
			continue
		}
		content, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if files < 4 {
		t.Fatalf("%s has %d files", archive, files)
	}
}

// A directory that an earlier release has written in today's format is read as it was left; one in an older format is
// refused, and nothing in it is changed.
//
// SPEC: STORE-1
func TestDirectoryOfAnEarlierRelease(t *testing.T) {
	s := started(t, func(c *Config) {
		c.Storage = "embedded"
		unpack(t, format2, c.DataDir)
	})
	client := clientOf(t, s)
	for path, want := range map[string]string{
		"/api/v1/namespaces/default/configmaps/kept":             `"data":{"a":"2"}`,
		"/apis/example.com/v1/namespaces/default/widgets/w":      `"spec":{"size":3}`,
		"/api/v1/namespaces/default/configmaps/gone":             `"reason":"NotFound"`,
		"/api/v1/namespaces/default/configmaps/kube-root-ca.crt": `"name":"kube-root-ca.crt"`,
	} {
		answer, err := client.send(t.Context(), http.MethodGet, path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %s", path, err, text)
		}
	}

	c := s.config
	c.DataDir, c.WriteKubeconfig = t.TempDir(), ""
	unpack(t, format2, c.DataDir)
	file := filepath.Join(c.DataDir, "store", "FORMAT")
	if err := os.WriteFile(file, []byte("plinth data 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Listener = nil
	if other, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "format 1") ||
		!strings.Contains(err.Error(), "a server with a new directory") {
		t.Errorf("format 1: %v", err)
		if err == nil {
			other.Close()
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "plinth data 1\n" {
		t.Errorf("FORMAT is %q, %v", text, err)
	}
}
