package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
)

func authenticator(t *testing.T, tokens string) *Authenticator {
	t.Helper()
	static := &TokenFile{}
	if none, err := static.Take([]byte(tokens)); err != nil || none != (tokens == "") {
		t.Fatal(none, err)
	}
	return New(Config{Tokens: []Tokens{static}})
}

func sameError(got, want error) bool {
	return (got == nil) == (want == nil) && (want == nil || strings.Contains(got.Error(), want.Error()))
}

// SPEC: AUTH-1
func TestAuthenticate(t *testing.T) {
	a := authenticator(t, "sesame,alice,u1,\"devs,ops\"\nbare,bob,u2\n")
	alice := access.User{Name: "alice", UID: "u1", Groups: []string{"devs", "ops", access.Authenticated}}
	bob := access.User{Name: "bob", UID: "u2", Groups: []string{access.Authenticated}}
	anonymous := access.Nobody()
	for _, c := range []struct {
		header string
		want   access.User
		err    error
	}{
		{"", anonymous, nil},
		{"Bearer sesame", alice, nil},
		{" bearer sesame ", alice, nil},
		{"Bearer sesame street", alice, nil},
		{"Bearer  sesame", anonymous, nil},
		{"Bearer bare", bob, nil},
		{"Bearer wrong", access.User{}, ErrInvalid},
		{"Bearer", anonymous, nil},
		{"Basic c2VzYW1l", anonymous, nil},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		got, err := authenticate(r.Context(), a, r)
		if !reflect.DeepEqual(got.User, c.want) || !sameError(err, c.err) {
			t.Errorf("Authorization %q: have %+v, %v, want %+v, %v", c.header, got.User, err, c.want, c.err)
		}
	}
}

// SPEC: AUTH-1
func TestAnonymousAtSomePaths(t *testing.T) {
	a := authenticator(t, "sesame,alice,u1\n")
	a.AnonymousPaths = []string{"/livez", "/readyz"}
	for path, let := range map[string]bool{"/livez": true, "/readyz": true, "/livez/": false, "/livez/ping": false,
		"/": false, "/api": false, "/Livez": false} {
		r := httptest.NewRequest("GET", path+"?verbose", nil)
		if _, err := authenticate(r.Context(), a, r); (err == nil) != let {
			t.Errorf("%s without credentials: have the error %v, want none: %v", path, err, let)
		}
		r.Header.Set("Authorization", "Bearer sesame")
		if id, err := authenticate(r.Context(), a, r); err != nil || id.User.Name != "alice" {
			t.Errorf("%s with a token: have %+v, %v, want alice", path, id.User, err)
		}
	}
	a.NoAnonymous = true
	r := httptest.NewRequest("GET", "/livez", nil)
	if _, err := authenticate(r.Context(), a, r); err == nil {
		t.Error("with NoAnonymous, a request without credentials is accepted")
	}
}

// tokensFunc lets a function be Tokens.
type tokensFunc func(ctx context.Context, token string, audiences []string) (*access.Identity, error)

func (f tokensFunc) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	return f(ctx, token, audiences)
}

// Results are cached for their lifetime, errors are not. Changes of a request to its identity are not cached. A panic
// becomes an error.
//
// SPEC: AUTH-1
func TestCached(t *testing.T) {
	now, asked := time.Unix(1000, 0), 0
	c := Cached(tokensFunc(func(_ context.Context, token string, _ []string) (*access.Identity, error) {
		asked++
		switch token {
		case "good":
			return &access.Identity{User: access.User{Name: "alice"}}, nil
		case "wrong":
			return nil, ErrInvalid
		case "panic":
			panic("at the disco")
		}
		return nil, nil
	}), 10*time.Second, 5*time.Second, func() time.Time { return now })
	for _, step := range []struct {
		token string
		after time.Duration
		asked int
		err   bool
	}{
		{"good", 0, 1, false}, {"good", 9 * time.Second, 1, false}, {"good", 2 * time.Second, 2, false}, {"bad", 0, 3, false},
		{"bad", 4 * time.Second, 3, false},
		{"bad", 2 * time.Second, 4, false}, {"wrong", 0, 5, true}, {"wrong", 0, 6, true}, {"panic", 0, 7, true},
		{"panic", 0, 8, true},
	} {
		now = now.Add(step.after)
		id, err := c.Token(t.Context(), step.token, nil)
		if (err != nil) != step.err || (id != nil) != (step.token == "good") || asked != step.asked {
			t.Errorf("%s after %s: have %v, %v and %d lookups, want %d", step.token, step.after, id, err, asked, step.asked)
		}
		if id != nil {
			authenticated(id)
			if again, _ := c.Token(t.Context(), step.token, nil); len(again.User.Groups) != 0 {
				t.Errorf("a group that a request added is cached: %+v", again.User)
			}
		}
	}
	if _, err := c.Token(t.Context(), "good", []string{"other"}); err != nil || asked != 9 {
		t.Errorf("for other audiences: have %d lookups and %v, want a lookup of their own", asked, err)
	}
}

// Lookups outlive their requests, so their number is limited to maxLookups. Cached results do not need one.
//
// SPEC: AUTH-1
func TestLookupsAreBounded(t *testing.T) {
	began, goOn := make(chan bool, maxLookups+1), make(chan bool)
	c := Cached(tokensFunc(func(_ context.Context, token string, _ []string) (*access.Identity, error) {
		if token != "known" {
			began <- true
			<-goOn
		}
		return &access.Identity{User: access.User{Name: "alice"}}, nil
	}), time.Hour, time.Hour, time.Now)
	if _, err := c.Token(t.Context(), "known", nil); err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for i := range maxLookups {
		if _, err := c.Token(gone, strconv.Itoa(i), nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("a request that was cancelled: have %v, want Canceled", err)
		}
		<-began
	}
	if _, err := c.Token(t.Context(), "one more", nil); !errors.Is(err, errManyLookups) {
		t.Errorf("with %d lookups running: have %v, want %v", maxLookups, err, errManyLookups)
	}
	if id, err := c.Token(t.Context(), "known", nil); id == nil || err != nil {
		t.Errorf("a cached token with %d lookups running: have %v, %v", maxLookups, id, err)
	}
	soon, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := c.Token(soon, "0", nil); !errors.Is(err, context.DeadlineExceeded) { // it has waited
		t.Errorf("a request with a token that is looked up: have %v, want it to wait", err)
	}
	close(goOn)
	for c.(*cached).running.Load() > 0 {
		runtime.Gosched()
	}
	if id, err := c.Token(t.Context(), "one more", nil); id == nil || err != nil {
		t.Errorf("after the lookups have ended: have %v, %v", id, err)
	}
}

// Only the compact form has an issuer, and refusing any other text takes time linear in its length.
//
// SPEC: AUTH-1
func TestUnverifiedIssuer(t *testing.T) {
	part := base64.RawURLEncoding.EncodeToString
	for token, want := range map[string]string{
		"x." + part([]byte(`{"iss":"https://a"}`)) + ".y": "https://a",
		"x." + part([]byte(`{}`)) + ".y":                  "",
		"x." + part([]byte(`{"iss":1}`)) + ".y":           "error",
		"x.{}.y":                                          "error",
		"x.e30":                                           "error",
		"x.e30.y.z":                                       "error",
		` {"payload":"e30"}.e30.x`:                        "error",
	} {
		issuer, err := UnverifiedIssuer(token)
		if err != nil {
			issuer = "error"
		}
		if issuer != want {
			t.Errorf("%s: have %q (%v), want %q", token, issuer, err, want)
		}
	}
	dots := strings.Repeat(".", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := UnverifiedIssuer(dots); err == nil {
		t.Error("a text of dots is taken for a token")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("a text of 1 MiB of dots: %d bytes were allocated, want less than 1 MiB", n)
	}
}

// Concurrent requests with one token cause one lookup, which continues if the first of them is cancelled.
//
// SPEC: AUTH-1
func TestCachedAsksOnce(t *testing.T) {
	began, goOn := make(chan bool), make(chan bool)
	c := Cached(tokensFunc(func(ctx context.Context, _ string, _ []string) (*access.Identity, error) {
		began <- true
		<-goOn
		return &access.Identity{User: access.User{Name: "alice"}}, ctx.Err()
	}), 0, 0, time.Now)
	ctx, leave := context.WithCancel(t.Context())
	left, stayed := make(chan error), make(chan error)
	go func() {
		_, err := c.Token(ctx, "x", nil)
		left <- err
	}()
	<-began
	for range 3 {
		go func() {
			_, err := c.Token(t.Context(), "x", nil)
			stayed <- err
		}()
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the request that was cancelled: have %v, want Canceled", err)
	}
	time.Sleep(10 * time.Millisecond) // the others are waiting now
	close(goOn)
	for range 3 {
		select {
		case err := <-stayed:
			if err != nil {
				t.Errorf("a request that waited: have %v, want the result of the lookup", err)
			}
		case <-began:
			t.Fatal("there was a second lookup")
		}
	}
}

// A browser sends its token among the subprotocols of a WebSocket, from which the authenticator removes it.
//
// SPEC: AUTH-1
func TestAuthenticateByWebSocket(t *testing.T) {
	const sesame = "base64url.bearer.authorization.k8s.io.c2VzYW1l"
	a := authenticator(t, "sesame,alice,u1\nbare,bob,u2\n")
	for _, c := range []struct {
		protocols []string
		header    string
		user      string
		left      string
		err       error
	}{
		{protocols: []string{sesame + ", a"}, user: "alice", left: "a"},
		{protocols: []string{"a", "b , " + sesame}, user: "alice", left: "a,b"},
		{protocols: []string{sesame, "a"}, header: "Bearer bare", user: "bob", left: sesame},
		{protocols: []string{"a"}, user: access.Anonymous, left: "a"},
		{user: access.Anonymous},
		{protocols: []string{sesame}, err: ErrInvalid, left: sesame},
		{protocols: []string{sesame, sesame, "a"}, err: ErrInvalid, left: sesame},
		{protocols: []string{"base64url.bearer.authorization.k8s.io.d3Jvbmc, a"}, err: ErrInvalid, left: "a"},
		{protocols: []string{"base64url.bearer.authorization.k8s.io.c2VzYW1l==, a"}, err: ErrInvalid,
			left: "base64url.bearer.authorization.k8s.io.c2VzYW1l==, a"},
		{protocols: []string{"base64url.bearer.authorization.k8s.io., a"}, err: ErrInvalid,
			left: "base64url.bearer.authorization.k8s.io., a"},
		{protocols: []string{"base64url.bearer.authorization.k8s.io._w, a"}, err: ErrInvalid, // not UTF-8
			left: "base64url.bearer.authorization.k8s.io._w, a"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Upgrade", "WebSocket")
		r.Header["Sec-Websocket-Protocol"] = c.protocols
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		got, err := authenticate(r.Context(), a, r)
		if got.User.Name != c.user || !sameError(err, c.err) || r.Header.Get("Sec-WebSocket-Protocol") != c.left {
			t.Errorf("%q: have %q, %v and the header %q, want %q, %v and %q", c.protocols, got.User.Name, err,
				r.Header["Sec-Websocket-Protocol"], c.user, c.err, c.left)
		}
	}
}

// signed returns a certificate that is signed by an authority; without one, it is an authority that signs itself.
func signed(t testing.TB, subject pkix.Name, by *tls.Certificate, edit func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	c, err := sign(subject, by, edit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sign returns a certificate like signed, or an error for a subject that a certificate cannot have.
func sign(subject pkix.Name, by *tls.Certificate, edit func(*x509.Certificate)) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, parentKey := template, any(key)
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		template.ExtKeyUsage = nil
	} else {
		parent, parentKey = by.Leaf, by.PrivateKey
	}
	if edit != nil {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// withUIDs returns a subject with these UIDs.
func withUIDs(uids ...string) pkix.Name {
	subject := pkix.Name{CommonName: "carol"}
	for _, uid := range uids {
		subject.ExtraNames = append(subject.ExtraNames, pkix.AttributeTypeAndValue{Type: uidType, Value: uid})
	}
	return subject
}

// A certificate for system:anonymous does not make its user a member of system:authenticated.
//
// SPEC: AUTH-1
func TestAnonymousIsNotAuthenticated(t *testing.T) {
	own := signed(t, pkix.Name{CommonName: "own"}, nil, nil)
	a := authenticator(t, "sesame,alice,u1\n")
	a.Clients = NewAuthorities(own.Leaf)
	for name, groups := range map[string][]string{
		access.Anonymous: {"devs"}, "carol": {"devs", access.Authenticated},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		shown := signed(t, pkix.Name{CommonName: name, Organization: []string{"devs"}}, own, nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown.Leaf}}
		got, err := authenticate(r.Context(), a, r)
		if err != nil || got.User.Name != name || !slices.Equal(got.User.Groups, groups) {
			t.Errorf("a certificate for %s: have %+v, %v, want the groups %v", name, got.User, err, groups)
		}
	}
}

// SPEC: AUTH-1
func TestAuthenticateByCertificate(t *testing.T) {
	own, foreign := signed(t, pkix.Name{CommonName: "own"}, nil, nil),
		signed(t, pkix.Name{CommonName: "foreign"}, nil, nil)
	a := authenticator(t, "sesame,alice,u1\n")
	a.Clients = NewAuthorities(own.Leaf)
	subject := pkix.Name{CommonName: "carol", Organization: []string{access.Masters}}
	alice := access.User{Name: "alice", UID: "u1", Groups: []string{access.Authenticated}}
	good, bad := signed(t, subject, own, nil), signed(t, subject, foreign, nil)
	fingerprint := sha256.Sum256(good.Leaf.Raw)
	carol := access.User{
		Name: "carol", Groups: []string{access.Masters, access.Authenticated},
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"X509SHA256=" +
			hex.EncodeToString(fingerprint[:])}},
	}
	for _, c := range []struct {
		name, token string
		cert        *tls.Certificate
		want        access.User
		err         error
	}{
		{"a certificate", "", good, carol, nil},
		{"a certificate beside a token", "sesame", good, carol, nil},
		{"a certificate beside a wrong token", "wrong", good, carol, nil},
		{"a foreign certificate", "", bad, access.User{}, ErrInvalid},
		{"a foreign certificate beside a token", "sesame", bad, alice, nil},
		{"a foreign certificate beside a wrong token", "wrong", bad, access.User{}, ErrInvalid},
		{"an expired one", "", signed(t, subject, own,
			func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), access.User{}, ErrInvalid},
		{"a server's", "", signed(t, subject, own,
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), access.User{},
			ErrInvalid},
		{"nobody's", "", signed(t, pkix.Name{}, own, nil), access.Nobody(), nil},
		{"of somebody with two UIDs", "", signed(t, withUIDs("1", "2"), own, nil), access.User{}, ErrInvalid},
		{"of somebody with an empty UID", "", signed(t, withUIDs(""), own, nil), access.User{}, ErrInvalid},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.cert.Leaf}}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		for range 2 { // without a connection that keeps the result, and with one
			got, err := authenticate(r.Context(), a, r)
			if !reflect.DeepEqual(got.User, c.want) || (err != nil) != (c.err != nil) {
				t.Errorf("%s: have %+v, %v, want %+v, %v", c.name, got.User, err, c.want, c.err)
			}
			r = r.WithContext(Remember(r.Context(), nil))
		}
	}
	a.Clients = nil // then no certificate is valid: not even one of an authority of the system
	r := httptest.NewRequest("GET", "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{good.Leaf}}
	if got, err := authenticate(r.Context(), a, r); err != nil || got.User.Name != access.Anonymous {
		t.Errorf("without authorities: have %+v, %v, want %s", got.User, err, access.Anonymous)
	}
}

// A connection may last longer than the certificate of its client, or than that of an authority, and may be opened
// before a certificate becomes valid.
//
// SPEC: AUTH-1
func TestCertificateExpiresDuringConnection(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	valid := func(from, to time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = start.Add(from), start.Add(to) }
	}
	root := signed(t, pkix.Name{CommonName: "root"}, nil, valid(0, time.Hour))
	middle := signed(t, pkix.Name{CommonName: "middle"}, root, func(c *x509.Certificate) {
		valid(0, time.Minute)(c)
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	carol := pkix.Name{CommonName: "carol"}
	for _, c := range []struct {
		name  string
		shown []*tls.Certificate
		valid map[time.Duration]bool // by the time that has passed
		order []time.Duration
	}{
		{"the client's own ends", []*tls.Certificate{signed(t, carol, root, valid(0, 10*time.Second))},
			map[time.Duration]bool{0: true, 10 * time.Second: true, 10*time.Second + 1: false, time.Minute: false},
			[]time.Duration{0, 10 * time.Second, 10*time.Second + 1, time.Minute}},
		{"that of the authority between ends", []*tls.Certificate{signed(t, carol, middle, valid(0, time.Hour)), middle},
			map[time.Duration]bool{0: true, time.Minute: true, 2 * time.Minute: false},
			[]time.Duration{0, time.Minute, 2 * time.Minute}},
		{"it begins", []*tls.Certificate{signed(t, carol, root, valid(10*time.Second, time.Minute))},
			map[time.Duration]bool{0: false, 9 * time.Second: false, 10 * time.Second: true, 2 * time.Minute: false},
			[]time.Duration{0, 9 * time.Second, 10 * time.Second, 2 * time.Minute}},
	} {
		passed := time.Duration(0)
		a := authenticator(t, "")
		a.Clients, a.Now = NewAuthorities(root.Leaf), func() time.Time { return start.Add(passed) }
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{}
		for _, s := range c.shown {
			r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, s.Leaf)
		}
		r = r.WithContext(Remember(r.Context(), nil))
		for _, passed = range c.order {
			id, err := authenticate(r.Context(), a, r)
			if ok := err == nil && id.User.Name == "carol"; ok != c.valid[passed] {
				t.Errorf("%s: after %v: have %q, %v, want carol: %v", c.name, passed, id.User.Name, err, c.valid[passed])
			}
		}
	}
}

func TestTokenFileErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"ok,a,b\nshort,a\n": "line 2",
		",a,b\n":            "line 1",
		"\"open":            "quote",
	} {
		err := StaticTokens{}.read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to name %s", text, err, want)
		}
	}
}

// The headers of a trusted front proxy name the user of a request; the headers of others are ignored.
//
// SPEC: AUTH-1
func TestFrontProxy(t *testing.T) {
	own, proxies := signed(t, pkix.Name{CommonName: "own"}, nil, nil),
		signed(t, pkix.Name{CommonName: "proxies"}, nil, nil)
	a := authenticator(t, "sesame,alice,u1\n")
	a.Clients = NewAuthorities(own.Leaf)
	a.Proxy = &FrontProxy{
		Authorities: NewAuthorities(proxies.Leaf), AllowedNames: []string{"proxy"},
		UserHeaders: []string{"X-Remote-User", "X-User"},
		UIDHeaders:  []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"},
		ExtraPrefixes: []string{"X-Remote-Extra-"},
	}
	proxy := signed(t, pkix.Name{CommonName: "proxy"}, proxies, nil)
	other := signed(t, pkix.Name{CommonName: "other"}, proxies, nil)
	client := signed(t, pkix.Name{CommonName: "carol"}, own, nil)
	said := map[string][]string{
		"X-Remote-User": {"jane"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"a", "", "b"},
		"X-Remote-Extra-Example.com%2fscopes": {"x", "y"},
	}
	jane := access.User{
		Name: "jane", UID: "7", Groups: []string{"a", "b", access.Authenticated},
		Extra: map[string][]string{"example.com/scopes": {"x", "y"}},
	}
	for _, c := range []struct {
		name, token string
		cert        *tls.Certificate
		header      map[string][]string
		want        string
	}{
		{"a proxy", "", proxy, said, "jane"},
		{"a proxy, beside a token", "sesame", proxy, said, "jane"},
		{"a proxy that says nothing", "", proxy, nil, ""},
		{"a proxy that says nothing, beside a token", "sesame", proxy, nil, "alice"},
		{"the second header", "", proxy, map[string][]string{"X-User": {"joe"}}, "joe"},
		{"another name", "", other, said, ""},
		{"a client", "", client, said, "carol"},
		{"nobody", "", nil, said, access.Anonymous},
		{"a token", "sesame", nil, said, "alice"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{}
		if c.cert != nil {
			r.TLS.PeerCertificates = []*x509.Certificate{c.cert.Leaf}
		}
		for name, values := range c.header {
			r.Header[name] = values
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		ctx := Remember(r.Context(), nil)
		for range 2 { // the second time with the kept result
			id, err := authenticate(ctx, a, r)
			if id.User.Name != c.want || (err == nil) != (c.want != "") || c.want == "jane" &&
				!reflect.DeepEqual(id.User, jane) {
				t.Errorf("%s: have %+v, %v, want %q", c.name, id.User, err, c.want)
			}
		}
	}
}

// Without a known token, a request is anonymous or refused, and the error does not contain the credentials.
//
// SPEC: AUTH-1
func FuzzAuthenticate(f *testing.F) {
	for _, seed := range []string{"Bearer sesame", "Bearer  x", "bearer eyJhbGciOiJub25lIn0.e30.", "Basic x", " ",
		"Bearer \xff\x00"} {
		f.Add(seed, "base64url.bearer.authorization.k8s.io.c2VzYW1l, a")
	}
	a := New(Config{Tokens: []Tokens{StaticTokens{}}})
	f.Fuzz(func(t *testing.T, header, protocols string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Authorization"], r.Header["Upgrade"], r.Header["Sec-Websocket-Protocol"] = []string{header},
			[]string{"websocket"}, []string{protocols}
		id, err := authenticate(r.Context(), a, r)
		if err == nil && id.User.Name != access.Anonymous {
			t.Errorf("%q: have %+v, want %s or an error", header, id.User, access.Anonymous)
		}
		if _, token, ok := strings.Cut(strings.TrimSpace(header), " "); ok && len(token) > 12 && err != nil &&
			strings.Contains(err.Error(), token) {
			t.Errorf("%q: the error contains the token: %v", header, err)
		}
	})
}

// authenticate is a.Authenticate, with the zero identity instead of nil.
func authenticate(ctx context.Context, a *Authenticator, r *http.Request) (access.Identity, error) {
	id, err := a.Authenticate(ctx, r)
	if id == nil {
		return access.Identity{}, err
	}
	return *id, err
}

// notAfter is within the validity of a certificate, as in crypto/x509: a cached verification expires after it.
// The earliest notAfter counts in a chain, and the latest one of several chains.
//
// SPEC: AUTH-1
func TestLastEnd(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	chain := func(hours ...time.Duration) (c []*x509.Certificate) {
		for _, h := range hours {
			c = append(c, &x509.Certificate{NotAfter: began.Add(h * time.Hour)})
		}
		return c
	}
	for _, c := range []struct {
		chains [][]*x509.Certificate
		want   time.Duration
	}{
		{[][]*x509.Certificate{chain(1)}, time.Hour},
		{[][]*x509.Certificate{chain(3, 2, 4)}, 2 * time.Hour},
		{[][]*x509.Certificate{chain(3, 2), chain(5, 4), chain(9, 1)}, 4 * time.Hour},
	} {
		end := lastEnd(c.chains)
		if last := began.Add(c.want); !end.After(last) || end.Sub(last) > time.Second {
			t.Errorf("chains end at %v, want right after %v", end, last)
		}
	}
}
