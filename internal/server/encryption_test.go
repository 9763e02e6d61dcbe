package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/object"
)

// encrypted is a server with an EncryptionConfiguration, which is restarted in one data directory.
type encrypted struct {
	t      *testing.T
	config Config
	server *Server
	client *apiClient
}

func newEncrypted(t *testing.T) *encrypted {
	e := &encrypted{t: t, config: quiet(t.TempDir())}
	e.config.EncryptionProviderConfig = filepath.Join(t.TempDir(), "encryption.yaml")
	t.Cleanup(e.stop)
	return e
}

// configure writes a configuration of the providers, in YAML's flow style, of resources.
func (e *encrypted) configure(resources string, providers ...string) {
	e.t.Helper()
	text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
		"- resources: [%s]\n  providers:\n", resources)
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	e.write(text)
}

// write replaces the file of the configuration at once.
func (e *encrypted) write(text string) {
	e.t.Helper()
	file := e.config.EncryptionProviderConfig
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		e.t.Fatal(err)
	}
}

// withKeys is a provider with these keys, of which each is made of its name.
func withKeys(provider string, names ...string) string {
	var keys []string
	for _, name := range names {
		secret := bytes.Repeat([]byte(name), 32)[:32]
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", name, base64.StdEncoding.EncodeToString(secret)))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", provider, strings.Join(keys, ", "))
}

func (e *encrypted) start() {
	e.t.Helper()
	e.stop()
	s, err := Start(context.Background(), e.config)
	if err != nil {
		e.t.Fatal(err)
	}
	e.server, e.client = s, clientOf(e.t, s)
}

func (e *encrypted) stop() {
	if e.server != nil {
		e.client.CloseIdleConnections()
		if err := e.server.Close(); err != nil {
			e.t.Error(err)
		}
		e.server = nil
	}
}

// crash replaces the data directory by a copy of what the server has written so far, and starts with it.
func (e *encrypted) crash() {
	e.t.Helper()
	dir := e.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(e.config.DataDir)); err != nil {
		e.t.Fatal(err)
	}
	e.stop()
	e.config.DataDir = dir
	e.start()
}

const inDefault = "/api/v1/namespaces/default/"

func (e *encrypted) send(method, path, body string, want int) string {
	e.t.Helper()
	var content any
	if body != "" {
		content = json.RawMessage(body)
	}
	mediaType := "application/json"
	if method == http.MethodPatch {
		mediaType = "application/merge-patch+json"
	}
	response, err := e.client.send(e.t.Context(), method, path, mediaType, content)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		e.t.Fatalf("%s %s: %d %s, want %d (%v)", method, path, response.StatusCode, text, want, err)
	}
	return string(text)
}

// secret is a Secret with a value.
func secret(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q},"data":{"k":%q}}`, name,
		base64.StdEncoding.EncodeToString([]byte(value)))
}

// inClear returns the files of the data directory that contain a value.
func (e *encrypted) inClear(value string) (found []string) {
	e.t.Helper()
	read := 0
	err := filepath.WalkDir(filepath.Join(e.config.DataDir, "store"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		read += len(content)
		if bytes.Contains(content, []byte(base64.StdEncoding.EncodeToString([]byte(value)))) {
			found = append(found, filepath.Base(file))
		}
		return err
	})
	if err != nil || read == 0 {
		e.t.Fatalf("%d bytes were read: %v", read, err)
	}
	return found
}

func (e *encrypted) hidden(values ...string) {
	e.t.Helper()
	for _, value := range values {
		if files := e.inClear(value); len(files) > 0 {
			e.t.Errorf("%q is in %v", value, files)
		}
	}
}

// version is the resourceVersion of an object in JSON.
func (e *encrypted) version(text string) string {
	e.t.Helper()
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		e.t.Fatal(err)
	}
	return parsed.Value.At("metadata", "resourceVersion").Str()
}

// Nothing of a Secret is on the disk in clear: neither of its versions, old ones and deleted ones, nor in a checkpoint,
// nor after a crash; and all of it can be read again.
//
// SPEC: STORE-5
func TestEncryptedOnDisk(t *testing.T) {
	for _, provider := range []string{"aescbc", "aesgcm", "secretbox"} {
		t.Run(provider, func(t *testing.T) {
			e := newEncrypted(t)
			e.configure("secrets", withKeys(provider, "one"))
			e.start()
			const first, second, third = "the first secret", "the second secret", "the third secret"
			begin := e.version(e.send(http.MethodPost, inDefault+"secrets", secret("a", first), 201))
			e.send(http.MethodPut, inDefault+"secrets/a", secret("a", second), 200)
			e.send(http.MethodPost, inDefault+"secrets", secret("b", third), 201)
			e.send(http.MethodDelete, inDefault+"secrets/b", "", 200)
			e.send(http.MethodPost, inDefault+"configmaps", `{"metadata":{"name":"c"},"binaryData":{"k":"`+
				base64.StdEncoding.EncodeToString([]byte("no secret"))+`"}}`, 201)
			if len(e.inClear("no secret")) == 0 {
				t.Error("a ConfigMap is encrypted, or is not found")
			}
			e.hidden(first, second, third)

			e.crash()
			e.hidden(first, second, third)
			check := func() {
				t.Helper()
				if text := e.send(http.MethodGet, inDefault+"secrets/a", "", 200); !strings.Contains(text,
					base64.StdEncoding.EncodeToString([]byte(second))) {
					t.Error(text)
				}
			}
			check()
			// The history is read from the log.
			events := e.send(http.MethodGet, inDefault+"secrets?watch=1&timeoutSeconds=1&resourceVersion="+begin, "", 200)
			for _, value := range []string{"MODIFIED", second, "ADDED", third, "DELETED"} {
				if value != strings.ToUpper(value) {
					value = base64.StdEncoding.EncodeToString([]byte(value))
				}
				if !strings.Contains(events, value) {
					t.Errorf("%s is not in %s", value, events)
				}
			}

			// Enough for a checkpoint.
			large := strings.Repeat(third, 40_000)
			for i := range 25 {
				e.send(http.MethodPost, inDefault+"secrets", secret(fmt.Sprint("large-", i), large), 201)
			}
			e.await(func() bool {
				files, err := filepath.Glob(filepath.Join(e.config.DataDir, "store", "*.base"))
				return err == nil && len(files) > 0
			})
			e.hidden(first, second, third)
			e.crash()
			check()
			e.hidden(first, second, third)
		})
	}
}

// await waits until something holds that the server does by itself.
func (e *encrypted) await(holds func() bool) {
	e.t.Helper()
	for !holds() {
		time.Sleep(5 * time.Millisecond)
	}
}
