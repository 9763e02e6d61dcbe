package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plinth/internal/encryption"
	"plinth/internal/encryption/plugintest"
	"plinth/object"
)

// encrypted is a server with an EncryptionConfiguration, which is restarted in one data directory.
type encrypted struct {
	t      *testing.T
	config Config
	server *Server
	client *apiClient
	piped  bool // it has no socket, and can be in a bubble
}

func newEncrypted(t *testing.T) *encrypted {
	e := &encrypted{t: t, config: quiet(t.TempDir())}
	e.config.Encryption.ConfigFile = filepath.Join(t.TempDir(), "encryption.yaml")
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
	file := e.config.Encryption.ConfigFile
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
	if e.piped {
		e.config.Listener = newPipes()
	}
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
//
// The server goes on writing meanwhile. A copy that has the beginning of a file from before a write, and what follows
// from after it, is no state in which a crash could leave the directory. As the server only adds to files, creates and
// removes them, two copies in a row that are equal are one.
func (e *encrypted) crash() {
	e.t.Helper()
	dir, last := e.copied()
	e.await(func() bool {
		before := last
		dir, last = e.copied()
		return last == before
	})
	e.stop()
	e.config.DataDir = dir
	e.start()
}

// copied copies the data directory, and returns a hash of the copy.
func (e *encrypted) copied() (dir string, sum [sha256.Size]byte) {
	e.t.Helper()
	for copied := false; !copied; {
		dir = e.t.TempDir()
		err := os.CopyFS(dir, os.DirFS(e.config.DataDir))
		if copied = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) { // an old file may just be removed
			e.t.Fatal(err)
		}
	}
	all := sha256.New()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		fmt.Fprintf(all, "%s %d\n%s", strings.TrimPrefix(file, dir), len(content), content)
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return dir, [sha256.Size]byte(all.Sum(nil))
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
	read, err := 0, fs.ErrNotExist
	// A file may be renamed or removed meanwhile, and another one take its place. What packs of the past have is
	// compressed, and looked at by internal/store/past.
	for try := 0; errors.Is(err, fs.ErrNotExist) && try < 100; try++ {
		read, found, err = e.search(value)
	}
	if err != nil || read == 0 {
		e.t.Fatalf("%d bytes were read: %v", read, err)
	}
	return found
}

func (e *encrypted) search(value string) (read int, found []string, err error) {
	err = filepath.WalkDir(filepath.Join(e.config.DataDir, "store"), func(file string, d fs.DirEntry, err error) error {
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
	return read, found, err
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

// What an object was is unreadable when the key is gone by which it was encrypted then: a request for it is an error
// that names the object, and nothing else is.
//
// SPEC: STORE-5, BEY-4
func TestPastOfAKeyThatIsGone(t *testing.T) {
	e := newEncrypted(t)
	e.config.WatchHistoryBytes = 1
	e.configure("secrets", withKeys("secretbox", "one"))
	e.start()
	first := e.version(e.send(http.MethodPost, inDefault+"secrets", secret("a", "the first secret"), 201))
	e.send(http.MethodPut, inDefault+"secrets/a", secret("a", "the second secret"), 200)
	e.send(http.MethodGet, inDefault+"secrets/a?history", "", 200) // the first version is in a pack now
	e.configure("secrets", withKeys("secretbox", "two", "one"))
	e.start()
	e.await(func() bool { return e.server.plane.Store.Stats().HistoryBytes == 0 })
	second := e.version(e.send(http.MethodPut, inDefault+"secrets/a", secret("a", "another second secret"), 200))
	e.send(http.MethodPut, inDefault+"secrets/a", secret("a", "the third secret"), 200)
	e.send(http.MethodGet, inDefault+"secrets/a?history", "", 200)
	asOf := func(path, version string) string {
		return inDefault + path + "?resourceVersionMatch=Exact&resourceVersion=" + version
	}
	has := func(text, value string) bool {
		return strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(value)))
	}
	for _, path := range []string{"secrets/a", "secrets"} {
		if text := e.send(http.MethodGet, asOf(path, first), "", 200); !has(text, "the first secret") {
			t.Errorf("%s with both keys: %s", path, text)
		}
	}
	e.configure("secrets", withKeys("secretbox", "two"))
	e.start()
	for _, path := range []string{asOf("secrets/a", first), asOf("secrets", first), inDefault + "secrets/a?history"} {
		if text := e.send(http.MethodGet, path, "", 500); !strings.Contains(text, "secrets/default/a") {
			t.Errorf("%s without the first key: %s", path, text)
		}
	}
	for _, path := range []string{"secrets/a", "secrets"} {
		if text := e.send(http.MethodGet, asOf(path, second), "", 200); !has(text, "another second secret") {
			t.Errorf("%s with the second key: %s", path, text)
		}
	}
	if text := e.send(http.MethodGet, inDefault+"secrets/a", "", 200); !has(text, "the third secret") {
		t.Errorf("as it is: %s", text)
	}
	if text := e.send(http.MethodGet, inDefault+"secrets/a?history&limit=1", "", 200); !has(text, "the third secret") {
		t.Errorf("the newest change: %s", text)
	}
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

			e.checkpoint(third)
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
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			e.t.Fatal("it has not become true for a minute")
		}
	}
}

// A key is replaced as the documentation of Kubernetes says: the new key is added first, and every object is written
// again without a change. Then the old key can be removed. The same way leads to a configuration without encryption.
//
// SPEC: STORE-5
func TestRotation(t *testing.T) {
	e := newEncrypted(t)
	const value = "a value that is rotated"
	read := func() string {
		t.Helper()
		text := e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
		if !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(value))) {
			t.Errorf("%s", text)
		}
		return text
	}
	// again writes the object as it is, and returns whether that was a change.
	again := func() bool {
		t.Helper()
		old := read()
		return e.version(e.send(http.MethodPut, inDefault+"secrets/a", old, 200)) != e.version(old)
	}
	e.configure("secrets", "identity: {}")
	e.start()
	e.send(http.MethodPost, inDefault+"secrets", secret("a", value), 201)
	if len(e.inClear(value)) == 0 {
		t.Error("it is encrypted by identity")
	}
	if again() {
		t.Error("a write without a change was a change")
	}
	for _, step := range [][]string{
		{withKeys("aescbc", "one"), "identity: {}"},
		{withKeys("aescbc", "two", "one"), "identity: {}"},
		{withKeys("aescbc", "two")},
		{withKeys("secretbox", "one"), withKeys("aescbc", "two")},
		{withKeys("aesgcm", "one"), withKeys("secretbox", "one")},
		{"identity: {}", withKeys("aesgcm", "one")},
		{"identity: {}"},
	} {
		e.configure("secrets", step...)
		e.start()
		if changed, want := again(), len(step) > 1; changed != want {
			t.Errorf("with %v: written again %t, want %t", step, changed, want)
		}
		if again() {
			t.Errorf("with %v: it is written twice", step)
		}
		e.crash()
		read()
	}
}

// All that is stored is encrypted with a new key without a write, also what is no object, so that the old key can be
// removed.
//
// SPEC: STORE-5
func TestReseal(t *testing.T) {
	e := newEncrypted(t)
	e.configure("'*.*'", withKeys("aescbc", "one"))
	e.start()
	e.send(http.MethodPost, inDefault+"secrets", secret("a", "value"), 201)
	service := `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30080}]}}`
	e.send(http.MethodPost, inDefault+"services", service, 201)
	e.start()
	before := e.checkpoints()
	e.start()
	if e.checkpoints() != before {
		t.Error("a checkpoint was written although no key has changed")
	}
	e.configure("'*.*'", withKeys("aescbc", "two", "one"))
	e.start()
	e.await(func() bool { return e.checkpoints() != before })
	e.configure("'*.*'", withKeys("aescbc", "two"))
	e.crash()
	e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
	e.send(http.MethodPost, inDefault+"services", strings.Replace(service, `"s"`, `"other"`, 1), 422)
	e.send(http.MethodDelete, inDefault+"services/s", "", 200)
	e.send(http.MethodPost, inDefault+"services", service, 201)
	for _, path := range []string{inDefault + "services", "/api/v1/namespaces",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles"} {
		e.send(http.MethodGet, path, "", 200)
	}

	// The same by reloading.
	e.config.Encryption.Reload, e.config.Encryption.Interval = true, 5*time.Millisecond
	e.start()
	before = e.checkpoints()
	e.configure("'*.*'", withKeys("aescbc", "three", "two"))
	e.await(func() bool { return e.checkpoints() != before })
	e.crash()
	e.stop()
	e.configure("'*.*'", withKeys("aescbc", "three"))
	e.start()
	e.send(http.MethodGet, inDefault+"services", "", 200)
}

// The Secrets of planes are encrypted, and encrypted with a new key without a request to the planes; a fork has those
// of a plane that was deleted. With a lost key they cannot be read, and can be when it is back.
//
// SPEC: STORE-5, BEY-9
func TestRotationOfPlanes(t *testing.T) {
	e := newEncrypted(t)
	e.config.Planes = true
	const plane, path = planesPath, "/clusters/b" + inDefault + "secrets"
	e.configure("secrets", withKeys("aesgcm", "one"))
	e.start()
	e.send(http.MethodPost, plane, `{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":"a"}}`, 201)
	e.send(http.MethodPost, "/clusters/a"+inDefault+"secrets", secret("both", "a secret of a"), 201)
	e.send(http.MethodPost, plane, `{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":"b"},`+
		`"spec":{"from":{"name":"a"}}}`, 201)
	e.send(http.MethodPost, path, secret("own", "a secret of b"), 201)
	e.send(http.MethodDelete, plane+"/a", "", 200)
	read := func() {
		t.Helper()
		for name, value := range map[string]string{"both": "a secret of a", "own": "a secret of b"} {
			if text := e.send(http.MethodGet, path+"/"+name, "", 200); !strings.Contains(text,
				base64.StdEncoding.EncodeToString([]byte(value))) {
				t.Errorf("%s", text)
			}
			e.hidden(value)
		}
	}
	e.crash()
	read()

	before := e.checkpoints()
	e.configure("secrets", withKeys("aesgcm", "two", "one"))
	e.start()
	e.await(func() bool { return e.checkpoints() != before })
	e.configure("secrets", withKeys("aesgcm", "two"))
	e.crash()
	read()

	e.configure("secrets", withKeys("aesgcm", "three"))
	e.start()
	e.send(http.MethodGet, path+"/both", "", 500)
	e.send(http.MethodGet, path+"/own", "", 500)
	e.configure("secrets", withKeys("aesgcm", "three", "two"))
	e.start()
	read()
}

// An object whose key was removed cannot be read, and everything else can. It is readable again with its key, and it
// can be removed without it, as every unreadable object.
//
// SPEC: STORE-5, DEL-6, DEL-7
func TestKeyRemoved(t *testing.T) {
	e := newEncrypted(t)
	e.configure("secrets", withKeys("aesgcm", "one"))
	e.start()
	e.send(http.MethodPost, inDefault+"secrets", secret("a", "first"), 201)
	e.send(http.MethodPost, inDefault+"secrets", secret("b", "first"), 201)
	version := e.version(e.send(http.MethodPut, inDefault+"secrets/b", secret("b", "second"), 200))
	e.send(http.MethodPost, inDefault+"configmaps", `{"metadata":{"name":"c"}}`, 201)

	for _, providers := range [][]string{{withKeys("aesgcm", "two")}, {withKeys("secretbox", "two")}, {"identity: {}"},
		nil} {
		if providers == nil {
			e.config.Encryption.ConfigFile, e.config.Storage = "", "embedded"
		} else {
			e.configure("secrets", providers...)
		}
		e.start()
		why := map[string]string{"aesgcm": "no matching key", "secretbox": "no matching prefix",
			"identity": "no matching prefix", "": "identity transformer tried to read encrypted data"}
		kind, _, _ := strings.Cut(strings.Join(providers, ""), ":")
		for _, name := range []string{"a", "b"} {
			text := e.send(http.MethodGet, inDefault+"secrets/"+name, "", 500)
			if !strings.Contains(text, why[kind]) || !strings.Contains(text, "/secrets/default/"+name) {
				t.Errorf("with %v: %s", providers, text)
			}
			e.send(http.MethodPut, inDefault+"secrets/"+name, secret(name, "third"), 500)
			e.send(http.MethodDelete, inDefault+"secrets/"+name, "", 500)
		}
		e.send(http.MethodGet, inDefault+"secrets", "", 500)
		e.send(http.MethodGet, inDefault+"configmaps/c", "", 200)
		e.send(http.MethodPost, inDefault+"secrets", secret("new", "third"), 201)
		e.send(http.MethodDelete, inDefault+"secrets/new", "", 200)
		e.crash()
		e.send(http.MethodGet, inDefault+"secrets/b", "", 500)
	}

	// A checkpoint keeps what it cannot read.
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	e.config.Encryption.ConfigFile = file
	e.configure("configmaps", withKeys("aesgcm", "two"))
	e.start()
	e.checkpoint("text")
	e.configure("secrets", withKeys("aesgcm", "two", "one"))
	e.start()
	e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
	if text := e.send(http.MethodGet, inDefault+"secrets/b", "", 200); e.version(text) != version {
		t.Errorf("it is not version %s: %s", version, text)
	}
	e.send(http.MethodGet, inDefault+"secrets", "", 200)

	e.configure("secrets", withKeys("aesgcm", "three"))
	e.start()
	for _, name := range []string{"a", "b"} {
		e.send(http.MethodDelete, inDefault+"secrets/"+name+"?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", 200)
	}
	e.send(http.MethodGet, inDefault+"secrets", "", 200)
	e.crash()
	e.send(http.MethodGet, inDefault+"secrets", "", 200)
	e.send(http.MethodPost, inDefault+"secrets", secret("a", "third"), 201)
}

// checkpoint writes Secrets with a text, enough of them for a checkpoint, and waits for it.
func (e *encrypted) checkpoint(text string) {
	e.t.Helper()
	before := e.checkpoints()
	large := strings.Repeat(text, 640_000/len(text))
	for i := range 25 {
		e.send(http.MethodPost, inDefault+"secrets", secret(fmt.Sprint("large-", i), large), 201)
	}
	for i := range 25 {
		e.send(http.MethodDelete, inDefault+fmt.Sprint("secrets/large-", i), "", 200)
	}
	e.await(func() bool { return e.checkpoints() != before })
}

func (e *encrypted) checkpoints() string {
	e.t.Helper()
	files, err := filepath.Glob(filepath.Join(e.config.DataDir, "store", "*.base"))
	if err != nil {
		e.t.Fatal(err)
	}
	return strings.Join(files, " ")
}

// health sends a request for the health of the server.
func (e *encrypted) health(path string, want int) string {
	e.t.Helper()
	return e.send(http.MethodGet, path, "", want)
}

// A claim on a node port cannot be decrypted: the port is taken until its Service is deleted, and then free.
//
// SPEC: STORE-5
func TestKeyOfClaimsRemoved(t *testing.T) {
	e := newEncrypted(t)
	e.configure("'*.plinth'", withKeys("aescbc", "one")) // the group of what is no object
	e.start()
	service := `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30080}]}}`
	e.send(http.MethodPost, inDefault+"services", service, 201)
	e.configure("'*.plinth'", withKeys("aescbc", "two"))
	e.start()
	other := strings.Replace(service, `"s"`, `"other"`, 1)
	e.send(http.MethodPost, inDefault+"services", other, 422)
	e.send(http.MethodDelete, inDefault+"services/s", "", 200)
	e.send(http.MethodPost, inDefault+"services", other, 201)
}

// A plugin encrypts the key of Secrets: it is called once for each start and each key, and not for each Secret. While
// it does not run, Secrets that were written before cannot be read, and become readable when it is started.
//
// SPEC: STORE-5
func TestPlugin(t *testing.T) {
	plugin := plugintest.New(t)
	plugin.Start(t)
	e := newEncrypted(t)
	e.config.Encryption.Interval = 20 * time.Millisecond
	provider := fmt.Sprintf("kms: {apiVersion: v2, name: test, endpoint: %q, timeout: 1s}", plugin.Endpoint)
	e.configure("secrets", provider)
	e.start()
	const value = "a value for the plugin"
	begin := e.version(e.send(http.MethodPost, inDefault+"secrets", secret("a", value), 201))
	for i := range 20 {
		e.send(http.MethodPost, inDefault+"secrets", secret(fmt.Sprint("s-", i), value), 201)
	}
	e.send(http.MethodPut, inDefault+"secrets/a", secret("a", value+"!"), 200)
	e.hidden(value, value+"!")
	if n := plugin.Calls("Encrypt"); n != 1 {
		t.Errorf("the plugin has encrypted %d keys", n)
	}
	for _, path := range []string{"/healthz", "/readyz", "/livez"} {
		e.health(path, 200)
	}
	e.health("/readyz/kms-providers", 200)
	e.health("/livez/kms-providers", 404)

	// A restart: one call decrypts all.
	e.crash()
	e.send(http.MethodGet, inDefault+"secrets", "", 200)
	e.send(http.MethodGet, inDefault+"secrets?watch=1&timeoutSeconds=1&resourceVersion="+begin, "", 200)
	if n := plugin.Calls("Decrypt"); n != 1 {
		t.Errorf("the plugin has decrypted %d keys", n)
	}
	metrics := e.send(http.MethodGet, "/metrics", "", 200)
	for _, name := range []string{
		`apiserver_storage_transformation_operations_total{resource="secrets",status="OK",transformation_type="from_storage",transformer_prefix="k8s:enc:kms:v2:test:"}`,
		`apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code="OK",method_name="/v2.KeyManagementService/Decrypt",provider_name="test"} 1`,
		`apiserver_envelope_encryption_key_id_hash_total`, `apiserver_envelope_encryption_dek_source_cache_size`,
		`apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds`,
		`apiserver_storage_envelope_transformation_cache_misses_total 1`,
		`apiserver_encryption_config_controller_last_config_info`,
	} {
		if !strings.Contains(metrics, name) {
			t.Errorf("no metric %s", name)
		}
	}

	// Another key: what was written with the old one is written again by a write that changes nothing.
	plugin.Set(func(s *plugintest.State) { s.KeyID = "key-2" })
	old := e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
	e.start()
	if e.version(e.send(http.MethodPut, inDefault+"secrets/a", old, 200)) == e.version(old) {
		t.Error("a value of the old key is not stale")
	}

	// The plugin does not run at the start.
	plugin.Stop()
	e.start()
	e.health("/readyz", 500)
	e.health("/healthz", 500)
	e.health("/livez", 200)
	if text := e.health("/readyz/kms-providers", 500); !strings.Contains(text, "kms-provider-0: ") {
		t.Error(text)
	}
	e.send(http.MethodGet, inDefault+"secrets/a", "", 500)
	e.send(http.MethodPost, inDefault+"secrets", secret("new", value), 500)
	e.send(http.MethodPost, inDefault+"configmaps", `{"metadata":{"name":"c"}}`, 201)
	plugin.Start(t)
	e.await(func() bool {
		response, err := e.client.send(t.Context(), http.MethodGet, inDefault+"secrets", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode == 200
	})
	e.health("/readyz", 200)
	e.send(http.MethodPost, inDefault+"secrets", secret("new", value), 201)
	text := e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
	if !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(value+"!"))) {
		t.Error(text)
	}
	if changed := e.version(e.send(http.MethodPut, inDefault+"secrets/a", text, 200)) != e.version(text); changed {
		t.Error("a write without a change was a change")
	}

	// It ends later: what is known stays readable, and is written for some minutes.
	plugin.Stop()
	e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
	e.send(http.MethodPost, inDefault+"secrets", secret("newer", value), 201)
	e.hidden(value, value+"!")
}

// A plugin that encrypts everything and does not run at the start: the server starts, and has all of its objects as
// soon as the plugin runs.
//
// SPEC: STORE-5
func TestPluginOfEverything(t *testing.T) {
	plugin := plugintest.New(t)
	plugin.Start(t)
	e := newEncrypted(t)
	e.config.Encryption.Interval = 20 * time.Millisecond
	e.configure("'*.*'", fmt.Sprintf("kms: {apiVersion: v2, name: test, endpoint: %q, timeout: 1s}", plugin.Endpoint))
	e.start()
	before := e.names()
	plugin.Stop()
	e.start()
	e.health("/readyz", 500)
	e.send(http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", 500)
	plugin.Start(t)
	e.await(func() bool { return e.names() == before })
	e.await(func() bool { // policies and definitions can be read again, too
		response, err := e.client.send(t.Context(), http.MethodGet, "/readyz", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode == 200
	})
	e.send(http.MethodPost, inDefault+"configmaps", `{"metadata":{"name":"c"}}`, 201)
	e.start() // not a crash: a copy of the directory would not be of one moment, as objects are still written
	e.send(http.MethodGet, inDefault+"configmaps/c", "", 200)
}

// names are those of all readable objects of some types.
func (e *encrypted) names() string {
	e.t.Helper()
	all := ""
	for _, path := range []string{"/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"/api/v1/services", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"} {
		response, err := e.client.send(e.t.Context(), http.MethodGet, path, "", nil)
		if err != nil {
			e.t.Fatal(err)
		}
		defer response.Body.Close()
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
			e.t.Fatal(err)
		}
		all += fmt.Sprintln(response.StatusCode, list.Items)
	}
	return all
}

// A file that was changed is in use without a restart; one that is refused is not, and is counted.
//
// SPEC: STORE-5
func TestEncryptionReload(t *testing.T) {
	e := newEncrypted(t)
	e.config.Encryption.Interval = 5 * time.Millisecond
	e.config.Encryption.Reload = true
	e.configure("secrets", withKeys("aescbc", "one"))
	e.start()
	e.health("/readyz/kms-providers", 200)
	e.send(http.MethodPost, inDefault+"secrets", secret("a", "value"), 201)
	counted := func(status string) bool {
		return regexp.MustCompile(`apiserver_encryption_config_controller_automatic_reloads_total\{` +
			`apiserver_id_hash="sha256:[0-9a-f]{64}",status="` + status + `"\}`).MatchString(
			e.send(http.MethodGet, "/metrics", "", 200))
	}
	old := e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
	for _, bad := range []string{"", "kind: Secret", strings.Repeat("x", 100)} {
		e.write(bad)
		e.await(func() bool { return counted("failure") })
	}
	if e.version(e.send(http.MethodPut, inDefault+"secrets/a", old, 200)) != e.version(old) {
		t.Error("a refused file changes something")
	}
	e.configure("secrets", withKeys("aescbc", "two", "one"))
	e.await(func() bool { return counted("success") })
	changed := e.send(http.MethodPut, inDefault+"secrets/a", old, 200)
	if e.version(changed) == e.version(old) {
		t.Error("the new key is not in use")
	}
	configured, err := os.ReadFile(e.config.Encryption.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if text := e.send(http.MethodGet, "/metrics", "", 200); !strings.Contains(text, encryption.Hash(configured)) {
		t.Error("the hash of the file in use is not shown")
	}

	// A restart with a key that is missing, which is then added.
	e.stop()
	e.configure("secrets", withKeys("aescbc", "three"))
	e.start()
	e.send(http.MethodGet, inDefault+"secrets/a", "", 500)
	e.configure("secrets", withKeys("aescbc", "three", "two"))
	e.await(func() bool {
		response, err := e.client.send(t.Context(), http.MethodGet, inDefault+"secrets/a", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode == 200
	})
	// It was written with the new key.
	e.stop()
	e.configure("secrets", withKeys("aescbc", "three"))
	e.start()
	e.send(http.MethodGet, inDefault+"secrets/a", "", 200)
}

// The key of everything is removed: the server starts, and says of each object that it cannot be read. With the key
// all is as before.
//
// SPEC: STORE-5
func TestKeyOfEverythingRemoved(t *testing.T) {
	e := newEncrypted(t)
	e.configure("'*.*'", withKeys("aescbc", "one"))
	e.start()
	service := `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30080}]}}`
	e.send(http.MethodPost, inDefault+"services", service, 201)
	e.send(http.MethodPost, inDefault+"configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`, 201)
	definition := `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	e.send(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, 201)
	const things = "/apis/example.com/v1/namespaces/default/things"
	e.await(func() bool {
		response, err := e.client.send(t.Context(), http.MethodPost, things, "application/json",
			json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"},"mark":"bWFyaw=="}`))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode == 201
	})
	e.hidden("mark")
	e.crash()
	e.send(http.MethodGet, things+"/t", "", 200)

	e.configure("'*.*'", withKeys("aescbc", "two"))
	e.start()
	e.send(http.MethodGet, inDefault+"services/s", "", 500)
	e.send(http.MethodGet, inDefault+"configmaps/c", "", 500)
	e.send(http.MethodGet, "/livez", "", 200)
	e.checkpoint("text")

	e.configure("'*.*'", withKeys("aescbc", "two", "one"))
	e.start()
	e.send(http.MethodGet, inDefault+"services/s", "", 200)
	e.send(http.MethodGet, things+"/t", "", 200)
	e.send(http.MethodPost, inDefault+"services", strings.Replace(service, `"s"`, `"other"`, 1), 422)
	e.send(http.MethodDelete, inDefault+"services/s", "", 200)
	e.send(http.MethodPost, inDefault+"services", service, 201)
}
