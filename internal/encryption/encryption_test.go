package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/encryption/plugintest"
)

// The tests that compare with the reference are in conformance/oracle/encryption.

// config is a file of a configuration; each text is one of its groups: resources, a colon, and providers.
func config(t testing.TB, groups ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	write(t, file, groups...)
	return file
}

func write(t testing.TB, file string, groups ...string) {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	for _, g := range groups {
		resources, providers, _ := strings.Cut(g, ": ")
		text += fmt.Sprintf("- resources: [%s]\n  providers: [%s]\n", resources, providers)
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// static is a provider with keys that are made of their names.
func static(provider string, names ...string) string {
	var keys []string
	for _, name := range names {
		secret := bytes.Repeat([]byte(name), 32)[:32]
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", name, base64.StdEncoding.EncodeToString(secret)))
	}
	return fmt.Sprintf("{%s: {keys: [%s]}}", provider, strings.Join(keys, ", "))
}

func byPlugin(p *plugintest.Plugin) string {
	return fmt.Sprintf("{kms: {apiVersion: v2, name: test, endpoint: %q, timeout: 1s}}", p.Endpoint)
}

// open opens a file until the test ends.
func open(t testing.TB, file string, reloads bool, o Options) *Transformers {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	all, err := Open(ctx, file, reloads, o)
	if err != nil {
		end()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		all.wait.Wait()
	})
	return all
}

// The ID of a Seal is that of its provider and key, in each process, and a value is stale if it has another one.
//
// SPEC: STORE-5
func TestSealIDs(t *testing.T) {
	const key = "/registry/secrets/ns/a"
	ids := map[uint32]string{}
	for _, providers := range []string{static("aescbc", "one"), static("aescbc", "two"), static("aesgcm", "one"),
		static("secretbox", "one"), "{identity: {}}"} {
		file := config(t, "secrets: "+providers)
		r := open(t, file, false, Options{}).For("", "secrets")
		s, err := r.Seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if other := ids[s.ID]; other != "" {
			t.Errorf("%s has the ID of %s", providers, other)
		}
		ids[s.ID] = providers
		again, err := open(t, file, false, Options{}).For("", "secrets").Seal(t.Context())
		if now, known := r.Current(); err != nil || again.ID != s.ID || now != s.ID || !known {
			t.Errorf("%s has the IDs %d, %d and %d (%v)", providers, s.ID, again.ID, now, err)
		}
		stored := s.Append([]byte("before"), key, []byte("plain"))[len("before"):]
		o, err := r.Open(t.Context(), key, stored)
		if err != nil || string(o.Plain) != "plain" || o.By != s.ID || o.Stale {
			t.Errorf("%s: %q is %+v (%v)", providers, stored, o, err)
		}
		// As another key, after a rotation.
		file = config(t, "secrets: "+static("secretbox", "new")+", "+providers)
		rotated := open(t, file, false, Options{}).For("", "secrets")
		o, err = rotated.Open(t.Context(), key, stored)
		if now, _ := rotated.Current(); err != nil || !o.Stale || o.By != s.ID || now == s.ID {
			t.Errorf("%s: %q is %+v (%v)", providers, stored, o, err)
		}
	}
	if ids[0] != "{identity: {}}" {
		t.Errorf("%v", ids)
	}
}

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A plugin that fails leaves the key in use for three minutes. Then writes fail, and reads do not.
//
// SPEC: STORE-5
func TestWriteTTL(t *testing.T) {
	p := plugintest.New(t)
	p.Start(t)
	c := &clock{now: time.Unix(1_700_000_000, 0)}
	file := config(t, "secrets: "+byPlugin(p))
	all := open(t, file, false, Options{Now: c.Now, Interval: time.Hour, RetryInterval: time.Hour})
	r := all.For("", "secrets")
	const key = "/registry/secrets/ns/a"
	stored, err := r.To(t.Context(), key, []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	if err := all.Check(t.Context(), "kms-providers"); err != nil || p.Calls("Status") != 1 {
		t.Errorf("%v after %d calls: a result is not reused", err, p.Calls("Status"))
	}
	p.Set(func(s *plugintest.State) { s.Healthz = "sick" })
	c.advance(2 * time.Minute)
	if err := all.Check(t.Context(), "kms-providers"); err == nil || !strings.Contains(err.Error(), "sick") {
		t.Errorf("%v", err)
	}
	// The plugin has named its key all the same, as in the reference.
	c.advance(2 * time.Minute)
	if _, err := r.To(t.Context(), key, nil); err != nil {
		t.Error(err)
	}
	p.Stop()
	c.advance(2 * time.Minute)
	if err := all.Check(t.Context(), "kms-providers"); err == nil {
		t.Error("a plugin that is stopped is healthy")
	}
	if _, err := r.To(t.Context(), key, nil); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("%v", err)
	}
	if id, known := r.Current(); id == 0 || !known {
		t.Error("the current key is not known")
	}
	if plain, stale, err := r.From(t.Context(), key, stored); err != nil || stale || string(plain) != "plain" {
		t.Errorf("%q, %t, %v", plain, stale, err)
	}
	p.Set(func(s *plugintest.State) { s.Healthz = "" })
	p.Start(t)
	c.advance(time.Minute)
	if err := all.Check(t.Context(), "kms-providers"); err != nil {
		t.Error(err)
	}
	if _, err := r.To(t.Context(), key, nil); err != nil || p.Calls("Encrypt") != 1 {
		t.Errorf("%v; %d keys were made", err, p.Calls("Encrypt"))
	}
	p.Set(func(s *plugintest.State) { s.KeyID = "key-2" })
	c.advance(time.Minute)
	if err := all.Check(t.Context(), "kms-providers"); err != nil || p.Calls("Encrypt") != 2 {
		t.Errorf("%v; %d keys were made", err, p.Calls("Encrypt"))
	}
	if _, stale, err := r.From(t.Context(), key, stored); err != nil || !stale {
		t.Errorf("%t, %v", stale, err)
	}
}

// A plugin that does not answer is called once for many values, and not for each.
//
// SPEC: STORE-5
func TestFailedCalls(t *testing.T) {
	p := plugintest.New(t)
	p.Start(t)
	c := &clock{now: time.Unix(1_700_000_000, 0)}
	file := config(t, "secrets: "+byPlugin(p))
	const key = "/registry/secrets/ns/a"
	stored, err := open(t, file, false, Options{}).For("", "secrets").To(t.Context(), key, []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, file, false, Options{Now: c.Now, Interval: time.Hour}).For("", "secrets") // a restart
	p.Set(func(s *plugintest.State) { s.Hang = "Decrypt" })
	for range 50 {
		if _, _, err := r.From(t.Context(), key, stored); err == nil {
			t.Fatal("it is read without the plugin")
		}
	}
	if n := p.Calls("Decrypt"); n != 1 {
		t.Errorf("%d calls", n)
	}
	p.Set(func(s *plugintest.State) { s.Hang = "" })
	c.advance(2 * failedTTL)
	for range 50 {
		if plain, _, err := r.From(t.Context(), key, stored); err != nil || string(plain) != "plain" {
			t.Fatalf("%q, %v", plain, err)
		}
	}
	if n := p.Calls("Decrypt"); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// A new configuration is used only if its plugins are healthy; the old plugins are then called no more.
//
// SPEC: STORE-5
func TestReload(t *testing.T) {
	good, bad := plugintest.New(t), plugintest.New(t)
	good.Start(t)
	file := config(t, "secrets: "+static("aescbc", "one"))
	all := open(t, file, true, Options{Interval: time.Hour, Patience: time.Millisecond})
	ctx, end := context.WithCancel(t.Context())
	results := make(chan error)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.Run(ctx, time.Millisecond, func(hash string, err error) {
			if err == nil && hash != all.Hash() {
				err = fmt.Errorf("the hash is %s, not %s", hash, all.Hash())
			}
			results <- err
		})
	}()
	r := all.For("", "secrets")
	by := func() uint32 {
		t.Helper()
		id, _ := r.Current()
		return id
	}
	first := by()
	write(t, file, "secrets: "+static("aescbc", "two"))
	if err := <-results; err != nil || by() == first {
		t.Errorf("%v", err)
	}
	second := by()
	write(t, file, "secrets: {aescbc: {}}")
	if err := <-results; err == nil || !strings.HasPrefix(err.Error(), "error processing encryption config file "+file+
		": error while parsing file: resources[0].providers[0].aescbc.keys: Required value") || by() != second {
		t.Errorf("%v", err)
	}
	write(t, file, "secrets: "+byPlugin(good))
	for err := range results { // the refused file may be read once more
		if err == nil {
			break
		}
	}
	if by() == second {
		t.Error("the plugin is not in use")
	}
	third := by()
	write(t, file, "secrets: "+byPlugin(bad))
	const failed = "health check for new transformers failed"
	if err := <-results; err == nil || !strings.Contains(err.Error(), failed) || by() != third {
		t.Errorf("%v", err)
	}
	if err := all.Check(t.Context(), "kms-providers"); err != nil {
		t.Error(err)
	}
	go func() { // further attempts
		for range results {
		}
	}()
	end()
	<-ended
	close(results)
}

// Any stored value is read as a value or as an error, and what is read is written in the same way.
func FuzzOpen(f *testing.F) {
	p := plugintest.New(f)
	p.Set(func(s *plugintest.State) { s.Annotations = map[string][]byte{"a.example.com": []byte("x")} })
	p.Start(f)
	const key = "/registry/secrets/ns/a"
	var all []*Resource
	for _, providers := range []string{static("aescbc", "one", "two"), static("aesgcm", "one"), static("secretbox", "one"),
		"{identity: {}}", byPlugin(p)} {
		r := open(f, config(f, "secrets: "+providers), false, Options{}).For("", "secrets")
		stored, err := r.To(f.Context(), key, []byte(`{"kind":"Secret"}`))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stored)
		all = append(all, r)
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		for _, r := range all {
			plain, _, err := r.From(t.Context(), key, stored)
			if err != nil {
				if plain != nil && !errors.Is(err, ErrEncrypted) {
					t.Errorf("%q with %v", plain, err)
				}
				continue
			}
			again, err := r.To(t.Context(), key, plain)
			if err != nil {
				t.Fatal(err)
			}
			if back, stale, err := r.From(t.Context(), key, again); err != nil || stale || !bytes.Equal(back, plain) {
				t.Errorf("%q is %q, %t, %v", plain, back, stale, err)
			}
		}
	})
}

// FuzzEnvelope: an envelope that parses is the same when it is written and parsed again.
func FuzzEnvelope(f *testing.F) {
	e := envelope{data: []byte("x"), keyID: "k", source: []byte("s"), kind: sourceSeed,
		annotations: map[string][]byte{"a.example.com": []byte("x"), "b.example.com": {}}}
	f.Add(e.appendHead([]byte{1<<3 | 2, 1, 'x'}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEnvelope(b)
		if err != nil {
			return
		}
		again, err := parseEnvelope(e.appendHead(append([]byte{1<<3 | 2}, lengthOf(e.data)...)))
		if err != nil || again.hash() != e.hash() || !bytes.Equal(again.data, e.data) {
			t.Errorf("%+v is %+v (%v)", e, again, err)
		}
	})
}

// lengthOf is bytes with their length before them.
func lengthOf(b []byte) []byte {
	out := []byte{}
	n := len(b)
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(append(out, byte(n)), b...)
}
