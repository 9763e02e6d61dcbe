package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"plinth/internal/encryption"
	"plinth/internal/encryption/plugintest"
)

// pair is the transformers of one configuration, of both.
type pair struct {
	ours   *encryption.Transformers
	theirs encryptionconfig.StaticTransformers
}

// open opens a configuration of one group of resources with both.
func open(t *testing.T, resources string, providers ...string) *pair {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resources +
		"]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	theirs, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "server")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := encryption.Open(ctx, file, false, encryption.Options{KMSv1: true})
	if err != nil {
		t.Fatal(err)
	}
	return &pair{ours, theirs.Transformers}
}

// result is what a transformer returns.
type result struct {
	plain []byte
	stale bool
	err   string
}

func (r result) String() string { return fmt.Sprintf("%q, stale %t, %s", r.plain, r.stale, r.err) }

func (p *pair) readOurs(t *testing.T, r schema.GroupResource, key string, stored []byte) result {
	plain, stale, err := p.ours.For(r.Group, r.Resource).From(t.Context(), key, bytes.Clone(stored))
	return result{plain, stale, errorText(err)}
}

func (p *pair) readTheirs(t *testing.T, r schema.GroupResource, key string, stored []byte) (is result, panicked bool) {
	defer func() { panicked = recover() != nil }()
	plain, stale, err := p.theirs.TransformerForResource(r).TransformFromStorage(t.Context(), bytes.Clone(stored),
		value.DefaultContext(key))
	return result{plain, stale, errorText(err)}, false
}

// read reads a stored value with both, which must agree.
func (p *pair) read(t *testing.T, r schema.GroupResource, key string, stored []byte) result {
	t.Helper()
	got := p.readOurs(t, r, key, stored)
	want, panicked := p.readTheirs(t, r, key, stored)
	if panicked { // the reference, by a value of aescbc that has no more than a vector
		if got.err == "" {
			t.Errorf("%q is read as %s, and the reference panics", stored, got)
		}
		return got
	}
	// The protobuf library randomizes the text of its errors.
	proto := strings.HasPrefix(got.err, "proto") && strings.HasPrefix(want.err, "proto") ||
		strings.HasPrefix(got.err, "string field") && strings.Contains(want.err, "invalid UTF-8")
	if !bytes.Equal(got.plain, want.plain) || got.stale != want.stale || got.err != want.err && !proto {
		t.Errorf("%s: %q is\n%s, want\n%s", key, stored, got, want)
	}
	return got
}

// write has each of them write a value, and both read it.
func (p *pair) write(t *testing.T, r schema.GroupResource, key string, plain []byte) (stored [2][]byte) {
	t.Helper()
	ours, err := p.ours.For(r.Group, r.Resource).To(t.Context(), key, plain)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := p.theirs.TransformerForResource(r).TransformToStorage(t.Context(), plain, value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) != len(theirs) && !strings.Contains(string(ours), "kms") {
		t.Errorf("%d bytes are stored, want %d", len(ours), len(theirs))
	}
	for _, s := range [][]byte{ours, theirs} {
		if is := p.read(t, r, key, s); is.err != "" || is.stale || !bytes.Equal(is.plain, plain) {
			t.Errorf("%q is read as %s", plain, is)
		}
	}
	return [2][]byte{ours, theirs}
}

// staticKeys is a provider with keys that are made of their names.
func staticKeys(provider string, names ...string) string {
	var keys []string
	for _, name := range names {
		secret := bytes.Repeat([]byte(name), 32)[:32]
		keys = append(keys, fmt.Sprintf("{name: %q, secret: %s}", name, base64.StdEncoding.EncodeToString(secret)))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", provider, strings.Join(keys, ", "))
}

var secrets = schema.GroupResource{Resource: "secrets"}

// Any list of providers reads what any other has written, or fails with the same error; so do all with values that were
// changed, cut, or moved to another key.
//
// SPEC: STORE-5
func TestValues(t *testing.T) {
	kmsV1(t, true)
	plugin, other := plugintest.New(t), plugintest.New(t)
	plugin.Set(func(s *plugintest.State) {
		s.Annotations = map[string][]byte{"a.example.com": []byte("x"), "b.example.com": {}}
	})
	plugin.Start(t)
	other.Start(t)
	kms := func(version, name string, p *plugintest.Plugin) string {
		return fmt.Sprintf("kms: {apiVersion: %s, name: %s, endpoint: %q}", version, name, p.Endpoint)
	}
	var pairs []*pair
	for _, providers := range [][]string{
		{"identity: {}"},
		{staticKeys("aescbc", "a")},
		{staticKeys("aescbc", "a", "b"), "identity: {}"},
		{staticKeys("aescbc", "b"), staticKeys("aescbc", "a")},
		{staticKeys("aesgcm", "a"), staticKeys("aescbc", "a", "b")},
		{"identity: {}", staticKeys("aesgcm", "c", "a")},
		{staticKeys("secretbox", "a", "b"), staticKeys("aesgcm", "a"), "identity: {}"},
		{staticKeys("secretbox", "b", "a")},
		{kms("v2", "p", plugin), staticKeys("secretbox", "a")},
		{kms("v2", "q", other), kms("v2", "p", plugin), "identity: {}"},
		{kms("v1", "p", other), kms("v2", "p2", plugin)},
	} {
		pairs = append(pairs, open(t, "secrets", providers...))
	}
	r := rand.New(rand.NewPCG(1, 2))
	read, failed := 0, 0
	for _, plain := range []string{"", "{}", `{"kind":"Secret"}`, "k8s\x00\n\x0f", strings.Repeat("0123456789abcdef", 4),
		strings.Repeat("long", 10_000)} {
		for i, p := range pairs {
			const key = "/registry/secrets/default/one"
			if p.theirs != nil && strings.HasPrefix(plain, "k8s:enc:") {
				continue
			}
			for _, stored := range p.write(t, secrets, key, []byte(plain)) {
				for j, reader := range pairs {
					if is := reader.read(t, secrets, key, stored); is.err != "" {
						failed++
					} else if read++; i != j && !bytes.Equal(is.plain, []byte(plain)) {
						t.Errorf("%q was read as %q", plain, is.plain)
					}
					if len(plain) > 1000 {
						continue
					}
					reader.read(t, secrets, "/registry/secrets/default/two", stored)
					for range 20 {
						reader.read(t, secrets, key, changed(r, stored))
					}
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	if read < 200 || failed < 400 {
		t.Errorf("%d values were read, %d were not", read, failed)
	}
}

// changed is a value of which a part is changed or missing.
func changed(r *rand.Rand, stored []byte) []byte {
	b := bytes.Clone(stored)
	if len(b) == 0 {
		return []byte("k8s:enc:")
	}
	switch at := r.IntN(len(b)); r.IntN(4) {
	case 0:
		b[at] ^= 1 << r.IntN(8)
	case 1:
		b = b[:at]
	case 2:
		b = append(b[:at:at], b[min(len(b), at+1+r.IntN(16)):]...)
	default:
		b = append(append(b[:at:at], byte(r.Uint32())), stored[at:]...)
	}
	return b
}

// Which rule of a configuration is for a resource.
//
// SPEC: STORE-5
func TestResources(t *testing.T) {
	for _, configured := range []string{"secrets", "'*.'", "'*.apps'", "'*.*'", "deployments.apps, secrets", "events",
		"things.example.com", "'*.example.com', '*.'"} {
		p := open(t, configured, staticKeys("secretbox", "a"))
		for _, r := range []schema.GroupResource{secrets, {Resource: "events"}, {Resource: "pods"},
			{Group: "apps", Resource: "deployments"}, {Group: "example.com", Resource: "things"},
			{Group: "plinth", Resource: "claims"}} {
			stored := p.write(t, r, "/registry/x", []byte("{}"))
			ours, theirs := bytes.HasPrefix(stored[0], []byte("k8s:")), bytes.HasPrefix(stored[1], []byte("k8s:"))
			if ours != theirs {
				t.Errorf("%s with %s: encrypted %t, want %t", r, configured, ours, theirs)
			}
		}
	}
}

// A plugin that changes its key, loses one, or does not answer.
//
// SPEC: STORE-5
func TestPluginKeys(t *testing.T) {
	plugin := plugintest.New(t)
	provider := fmt.Sprintf("kms: {apiVersion: v2, name: p, endpoint: %q, timeout: 50ms}", plugin.Endpoint)
	const key = "/registry/secrets/default/one"

	down := open(t, "secrets", provider)
	if is := down.read(t, secrets, key, []byte("k8s:enc:kms:v2:p:\n\x01\x00")); is.err == "" {
		t.Error("it is read without a plugin")
	}
	_, err := down.ours.For("", "secrets").To(t.Context(), key, nil)
	_, want := down.theirs.TransformerForResource(secrets).TransformToStorage(t.Context(), nil, value.DefaultContext(key))
	if errorText(err) != errorText(want) {
		t.Errorf("%v, want %v", err, want)
	}

	plugin.Start(t)
	first := open(t, "secrets", provider)
	stored := first.write(t, secrets, key, []byte("{}"))
	plugin.Set(func(s *plugintest.State) { s.KeyID = "key-2" })
	second := open(t, "secrets", provider) // as after a restart
	for _, s := range stored {
		if is := second.read(t, secrets, key, s); is.err != "" || !is.stale {
			t.Errorf("it is read as %s", is)
		}
		if is := first.read(t, secrets, key, s); is.err != "" || is.stale {
			t.Errorf("it is read as %s", is)
		}
	}
	plugin.Set(func(s *plugintest.State) { s.Lost = map[string]bool{"key-1": true} })
	third := open(t, "secrets", provider)
	for _, s := range stored {
		if is := third.read(t, secrets, key, s); !strings.Contains(is.err, `no key "key-1"`) {
			t.Errorf("it is read as %s", is)
		}
		if is := second.read(t, secrets, key, s); is.err != "" { // its key is known
			t.Errorf("it is read as %s", is)
		}
	}
	plugin.Set(func(s *plugintest.State) { s.Lost, s.Hang = nil, "Decrypt" })
	fourth := open(t, "secrets", provider)
	for _, s := range stored {
		if is := fourth.read(t, secrets, key, s); !strings.Contains(is.err, "DeadlineExceeded") {
			t.Errorf("it is read as %s", is)
		}
	}
	plugin.Set(func(s *plugintest.State) { s.Hang = "" })
}

// The errors of the health check, for what a plugin may answer.
//
// SPEC: STORE-5
func TestPluginHealth(t *testing.T) {
	for name, set := range map[string]func(*plugintest.State){
		"healthy":       func(*plugintest.State) {},
		"beta":          func(s *plugintest.State) { s.Version = "v2beta1" },
		"unhealthy":     func(s *plugintest.State) { s.Healthz = "sick" },
		"other version": func(s *plugintest.State) { s.Version = "v3" },
		"no key":        func(s *plugintest.State) { s.KeyID = "" },
		"long key":      func(s *plugintest.State) { s.KeyID = strings.Repeat("x", 1025) },
		"two keys":      func(s *plugintest.State) { s.StatusID = "other" },
		"annotations":   func(s *plugintest.State) { s.Annotations = map[string][]byte{"not a name": nil} },
		"large": func(s *plugintest.State) {
			s.Annotations = map[string][]byte{"a.example.com": make([]byte, 33<<10)}
		},
		"all":        func(s *plugintest.State) { s.Healthz, s.Version, s.KeyID = "sick", "v3", "" },
		"hangs":      func(s *plugintest.State) { s.Hang = "Status" },
		"no encrypt": func(s *plugintest.State) { s.Hang = "Encrypt" },
	} {
		t.Run(name, func(t *testing.T) {
			plugin := plugintest.New(t)
			plugin.Set(set)
			plugin.Start(t)
			text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: "+
				"[secrets]\n  providers: [kms: {apiVersion: v2, name: p, endpoint: %q, timeout: 50ms}]\n", plugin.Endpoint)
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			theirs, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "server")
			if err != nil {
				t.Fatal(err)
			}
			ours, err := encryption.Open(ctx, file, false, encryption.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := theirs.HealthChecks[0].Check(requestOf(t))
			got := ours.Check(t.Context(), theirs.HealthChecks[0].Name())
			if withoutUIDs(got) != withoutUIDs(want) {
				t.Errorf("%v, want\n%v", got, want)
			}
		})
	}
}

func requestOf(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)
}

// unequal are the parts of errors that differ from call to call.
var unequal = regexp.MustCompile(`uid="[^"]*"`)

func withoutUIDs(err error) string { return unequal.ReplaceAllString(errorText(err), "uid") }
