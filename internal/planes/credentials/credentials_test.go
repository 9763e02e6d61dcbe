package credentials

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/auth"
	"plinth/internal/authz"
	"plinth/internal/pki"
	"plinth/internal/plane"
)

// users are those of a process in tests of keys.
func users(t testing.TB) Process {
	t.Helper()
	authority, err := pki.Open("", "plinth-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return Process{Authentication: auth.Config{Clients: auth.NewAuthorities(authority.Certificate)},
		Signer: authority.Certificate, Administrator: administrator, First: new(authz.Authority)}
}

var created = time.Date(2026, 11, 29, 8, 30, 0, 123, time.FixedZone("", 3600))

// configured is what a plane gets.
func configured(t testing.TB, c *Credentials, uid string) *plane.Config {
	t.Helper()
	config := &plane.Config{}
	if err := c.Of(uid, "a", created, "https://h/clusters/a").Configure(config); err != nil {
		t.Fatal(err)
	}
	return config
}

// published is what others know of a plane's keys.
func published(c *plane.Config) string {
	clients, proxies := c.Self.Trusted()
	return string(clients) + string(proxies) + c.Accounts.Static.Current().Keys[0].ID
}

func open(t testing.TB, dir string) *Credentials {
	t.Helper()
	c, err := Open(dir, users(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The keys of a plane are the same after a restart, others for another UID, and in no file.
//
// SPEC: BEY-9, BEY-11
func TestKeysComeBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	c := open(t, dir)
	seen := map[string]string{}
	for _, uid := range []string{"1", "2", "1\x00", "\x001", "12", "authority of clients"} {
		text := published(configured(t, c, uid))
		if other, ok := seen[text]; ok {
			t.Errorf("%q and %q have the same keys", uid, other)
		}
		seen[text] = uid
		if again := published(configured(t, open(t, dir), uid)); again != text {
			t.Errorf("%q has other keys after a restart", uid)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
	}
	if one, other := open(t, ""), open(t, ""); one.ID() == other.ID() {
		t.Error("two secrets in memory are equal")
	}
	if err := c.Of("", "a", created, "https://h").Configure(&plane.Config{}); err == nil {
		t.Error("a plane without a UID has keys")
	}
}

// The scheme does not change: what was published of a plane stays true with later releases, and later versions of Go.
//
// SPEC: BEY-9
func TestSchemeOfKeys(t *testing.T) {
	dir := t.TempDir()
	text := pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: []byte(strings.Repeat("s", secretSize))})
	if err := os.WriteFile(filepath.Join(dir, File), text, 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir)
	config := configured(t, c, "6f1f3fbb-5a4c-4a8e-8a86-6a0f0f7d8c11")
	digest := func(text []byte) string {
		sum := sha256.Sum256(text)
		return hex.EncodeToString(sum[:])
	}
	clients, proxies := config.Self.Trusted()
	for what, c := range map[string]struct{ have, want string }{
		"id":      {c.ID(), "761eb9b63b3d3c0be221bf485db31f0a"},
		"clients": {digest(clients), "eb256bcd37ffa85a3d8f5008d02e03255a0f628e98e9076d961ee67107af1f34"},
		"proxies": {digest(proxies), "30c2a69df4365ec05d0e07b903506d4b9e533d03c7d873cda6b4b24836095d10"},
		"tokens":  {config.Accounts.Static.Current().Keys[0].ID, "n9dmMChV3TX0PYhZlzmsifnekWxgSCY3y0ZytYaNH8k"},
	} {
		if c.have != c.want {
			t.Errorf("%s: %s", what, c.have)
		}
	}
}

// The certificate of an authority is what package x509 and its callers expect of one.
//
// SPEC: BEY-9
func TestAuthorities(t *testing.T) {
	c := open(t, "")
	serials := map[string]bool{}
	for _, uid := range []string{"1", "2"} {
		config := configured(t, c, uid)
		own := config.Signer.Certificate
		_, proxies := config.Self.Trusted()
		block, _ := pem.Decode(proxies)
		front, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []*x509.Certificate{own, front} {
			if err := a.CheckSignatureFrom(a); err != nil || !a.IsCA || !a.MaxPathLenZero || a.SerialNumber.Sign() <= 0 ||
				len(a.SerialNumber.Bytes()) > 20 || !a.NotBefore.Equal(created.Add(-clockSkew).Truncate(time.Second)) {
				t.Errorf("%q: %v %+v", uid, err, a)
			}
			serials[a.SerialNumber.String()] = true
		}
		for what, get := range map[string]func() (*x509.Certificate, error){
			"front proxy": func() (*x509.Certificate, error) {
				made, err := config.Aggregation.Certificate()
				return made.Leaf, err
			},
			"kubelets": func() (*x509.Certificate, error) {
				made, err := config.Nodes.Kubelets.Certificate()
				return made.Leaf, err
			},
		} {
			leaf, err := get()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := get(); err != nil || again != leaf {
				t.Errorf("%s: it is made for each connection", what)
			}
			by := map[string]*x509.Certificate{"front proxy": front, "kubelets": own}[what]
			if err := leaf.CheckSignatureFrom(by); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if len(serials) != 4 {
		t.Errorf("serial numbers: %v", serials)
	}
	subjects, err := c.Subjects()
	if err != nil || len(subjects) != 2 {
		t.Fatal(subjects, err)
	}
}

// The client certificates that a plane has for itself are made anew before they end.
//
// SPEC: BEY-9, AUTH-11
func TestClientCertificatesAreRenewed(t *testing.T) {
	process := users(t)
	now := created
	process.Authentication.Now = func() time.Time { return now }
	c, err := Open("", process)
	if err != nil {
		t.Fatal(err)
	}
	get := configured(t, c, "1").Aggregation.Certificate
	before, err := get()
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(pki.LeafLife / 2)
	if same, err := get(); err != nil || same != before {
		t.Errorf("it is renewed after half of its life, %v", err)
	}
	now = now.Add(pki.LeafLife / 4)
	if next, err := get(); err != nil || next == before || !next.Leaf.NotAfter.After(before.Leaf.NotAfter) {
		t.Errorf("it is not renewed, %v", err)
	}
}

// A secret that is gone, damaged or another one is an error that says so, and nothing is made in its place.
//
// SPEC: RUN-7
func TestSecretIsGone(t *testing.T) {
	whole := t.TempDir()
	id := open(t, whole).ID()
	other := t.TempDir()
	open(t, other)
	read := func(dir string) map[string]string {
		files := map[string]string{}
		for _, name := range []string{File, idFile} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				files[name] = string(text)
			}
		}
		return files
	}
	all, others := read(whole), read(other)
	if len(all) != 2 {
		t.Fatalf("%q", all)
	}
	for says, c := range map[string]struct {
		files map[string]string
		err   string
	}{
		"whole":         {all, ""},
		"interrupted":   {map[string]string{File: all[File]}, ""},
		"gone":          {map[string]string{idFile: all[idFile]}, "planes.key is missing, though planes.id is there"},
		"empty":         {map[string]string{File: "", idFile: all[idFile]}, "planes.key is damaged"},
		"cut":           {map[string]string{File: all[File][:60]}, "planes.key is damaged"},
		"of another":    {map[string]string{File: others[File], idFile: all[idFile]}, "planes.key is another one"},
		"no ID":         {map[string]string{File: all[File], idFile: ""}, "planes.key is another one"},
		"another block": {map[string]string{File: strings.ReplaceAll(all[File], blockType, "X")}, "planes.key is damaged"},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		made, err := Open(dir, users(t))
		if c.err == "" {
			if err != nil || made.ID() != id || !maps.Equal(read(dir), all) {
				t.Errorf("%s: %v %q", says, err, read(dir))
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), dir) ||
			!maps.Equal(read(dir), c.files) {
			t.Errorf("%s: %v, %q", says, err, slices.Collect(maps.Keys(read(dir))))
		}
	}
}

// A process that does not say who is an administrator of planes has no credentials for them.
func TestIncompleteProcess(t *testing.T) {
	for i, change := range []func(*Process){
		func(p *Process) { p.Authentication.Clients = nil }, func(p *Process) { p.Signer = nil },
		func(p *Process) { p.Administrator = "" }, func(p *Process) { p.First = nil },
	} {
		p := users(t)
		change(&p)
		if _, err := Open("", p); err == nil {
			t.Errorf("%d: it is accepted", i)
		}
	}
}

// What opening a plane costs of its keys.
func BenchmarkConfigure(b *testing.B) {
	c := open(b, "")
	for b.Loop() {
		configured(b, c, "1")
	}
}
