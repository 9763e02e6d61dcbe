package oidc

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth/oidc/issuertest"
)

// configuration returns the text of a configuration of one issuer. mappings are the lines of its claimMappings, and
// rest those of the other members of its authenticator.
func configuration(i *issuertest.Issuer, mappings, rest string) string {
	ca, err := json.Marshal(string(i.CA))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: %s\n    audiences: [me]\n"+
			"    certificateAuthority: %s\n  claimMappings: %s\n%s", i.URL, ca, mappings, rest)
}

const bySub = `{username: {claim: sub, prefix: "x:"}, groups: {claim: groups, prefix: "g:"}}`

func parsed(t *testing.T, text string) *Configuration {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func quiet() Config { return Config{Logger: slog.New(slog.DiscardHandler), Now: time.Now} }

// started returns the authenticators of a configuration, after the discovery of their issuers.
func started(t *testing.T, text string) *Authenticators {
	t.Helper()
	a, err := New(parsed(t, text), quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	a.Start()
	if err := a.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

// asked returns the user of a token as "name [groups]", or the error.
func asked(t *testing.T, a interface {
	Token(context.Context, string, []string) (*access.Identity, error)
}, token string) string {
	t.Helper()
	id, err := a.Token(t.Context(), token, nil)
	switch {
	case err != nil:
		return err.Error()
	case id == nil:
		return "nobody"
	}
	return fmt.Sprint(id.User.Name, " ", id.User.Groups)
}

// SPEC: AUTH-1
func TestTokens(t *testing.T) {
	i, other := issuertest.Start(t), issuertest.Start(t)
	a := started(t, configuration(i, bySub, ""))
	now := time.Now()
	claims := func(c issuertest.Claims) issuertest.Claims {
		all := issuertest.Claims{"sub": "jane", "aud": "me", "groups": []string{"devs"}}
		for name, value := range c {
			all[name] = value
		}
		return all
	}
	payload := fmt.Sprintf(`{"iss":%q,"sub":"jane","aud":"me","exp":%d}`, i.URL, now.Add(time.Hour).Unix())
	good := i.Token(claims(nil))
	for _, c := range []struct{ name, token, want string }{
		{"a good one", good, "x:jane [g:devs]"},
		{"one without groups", i.Token(claims(issuertest.Claims{"groups": nil})), "x:jane []"},
		{"one group", i.Token(claims(issuertest.Claims{"groups": "devs"})), "x:jane [g:devs]"},
		{"groups that are none", i.Token(claims(issuertest.Claims{"groups": 1})), "oidc: parse groups claim"},
		{"no name", i.Token(claims(issuertest.Claims{"sub": nil})), `oidc: parse username claims "sub": claim not present`},
		{"a name that is none", i.Token(claims(issuertest.Claims{"sub": 1})),
			"oidc: verify token: oidc: failed to unmarshal claims"},
		{"another audience", i.Token(claims(issuertest.Claims{"aud": "you"})),
			`oidc: verify token: oidc: expected audience "me" got ["you"]`},
		{"several audiences", i.Token(claims(issuertest.Claims{"aud": []string{"you", "me"}})), "x:jane [g:devs]"},
		{"expired", i.Token(claims(issuertest.Claims{"exp": now.Add(-time.Minute).Unix()})),
			"oidc: verify token: oidc: token is expired"},
		{"no end", i.Token(claims(issuertest.Claims{"exp": nil})), "oidc: verify token: oidc: token is expired"},
		{"a minute early", i.Token(claims(issuertest.Claims{"nbf": now.Add(50 * time.Second).Unix()})), "x:jane [g:devs]"},
		{"two minutes early", i.Token(claims(issuertest.Claims{"nbf": now.Add(2 * time.Minute).Unix()})),
			"oidc: verify token: oidc: current time"},
		{"another issuer", other.Token(claims(nil)), "nobody"},
		{"another issuer's key", other.Key().Sign(t, "", payload), "oidc: verify token: failed to verify signature"},
		{"alg none", i.Key().Sign(t, `{"alg":"none"}`, payload),
			`oidc: verify token: oidc: id token signed with unsupported algorithm`},
		{"alg HS256", i.Key().Sign(t, `{"alg":"HS256"}`, payload),
			`oidc: verify token: oidc: id token signed with unsupported algorithm`},
		{"another alg than the key's", i.Key().Sign(t, fmt.Sprintf(`{"alg":"RS512","kid":%q}`, i.Key().ID), payload),
			"oidc: verify token: failed to verify signature"},
		{"no signature", good[:strings.LastIndex(good, ".")+1], "oidc: verify token: failed to verify signature"},
		{"a text", "sesame", "nobody"},
		{"dots", "..", "nobody"},
		{"JSON", `{"a":1}.e30.x`, "nobody"},
	} {
		if got := asked(t, a, c.token); got != c.want && !(strings.HasPrefix(got, c.want) &&
			strings.HasPrefix(c.want, "oidc")) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// SPEC: AUTH-1
func TestKeysAreReplaced(t *testing.T) {
	i := issuertest.Start(t)
	a := started(t, configuration(i, bySub, ""))
	old := i.Token(issuertest.Claims{"sub": "jane", "aud": "me"})
	for range 3 {
		if got := asked(t, a, old); got != "x:jane []" {
			t.Fatal(got)
		}
	}
	if n := i.Asked(issuertest.KeysPath); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	i.Rotate()
	if got := asked(t, a, i.Token(issuertest.Claims{"sub": "joe", "aud": "me"})); got != "x:joe []" {
		t.Error(got)
	}
	if got := asked(t, a, old); !strings.Contains(got, "failed to verify signature") {
		t.Errorf("a token of the old key: %s", got)
	}
	for _, algorithm := range []string{"ES256", "ES384", "ES512", "PS256", "RS512"} {
		i.Use(i.NewKey(algorithm))
		if got := asked(t, a, i.Token(issuertest.Claims{"sub": algorithm, "aud": "me"})); got != "x:"+algorithm+" []" {
			t.Error(got)
		}
	}
}

// Discovery is retried if the issuer is unavailable, and the document of another issuer is refused.
//
// SPEC: AUTH-1
func TestIssuerThatIsNotThere(t *testing.T) {
	i := issuertest.Start(t)
	i.Handle(issuertest.DiscoveryPath, func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write(i.Discovery("https://other.example.com"))
	})
	a, err := New(parsed(t, configuration(i, bySub, "")), quiet())
	if err != nil {
		t.Fatal(err)
	}
	a.Start()
	token := i.Token(issuertest.Claims{"sub": "jane", "aud": "me"})
	for a.Healthy() == nil || !strings.Contains(a.Healthy().Error(), "other.example.com") {
		time.Sleep(time.Millisecond)
	}
	if got := asked(t, a, token); got != "oidc: authenticator not initialized" {
		t.Error(got)
	}
	a.Close() // it ends at once, in the middle of the pause
	for _, endless := range []string{issuertest.DiscoveryPath, issuertest.KeysPath} {
		i := issuertest.Start(t)
		i.Handle(endless, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"a":"` + strings.Repeat("x", maxDocument) + `"}`))
		})
		a, err := New(parsed(t, configuration(i, bySub, "")), quiet())
		if err != nil {
			t.Fatal(err)
		}
		a.Start()
		got := ""
		for !strings.Contains(got, "longer than") {
			time.Sleep(time.Millisecond)
			if err := a.Healthy(); err != nil {
				got = err.Error()
			} else {
				got = asked(t, a, i.Token(issuertest.Claims{"sub": "jane", "aud": "me"}))
			}
		}
		a.Close()
	}
}

// SPEC: AUTH-1
func TestMappings(t *testing.T) {
	i := issuertest.Start(t)
	claims := issuertest.Claims{
		"sub": "jane", "aud": []string{"me", "you"}, "email": "jane@example.com", "email_verified": false, "jti": "7",
		"groups": []string{"devs", ""},
		"nested": map[string]any{"role": "boss", "example.com/x": "y"}, "number": 3,
	}
	for _, c := range []struct{ mappings, rest, want string }{
		{mappings: `{username: {expression: "'x:' + claims.nested.role"}}`,
			want: "x:boss  [] map[authentication.kubernetes.io/credential-id:[JTI=7]]"},
		{mappings: `{username: {expression: "claims.nested.example__dot__com__slash__x"}, groups: {expression: "claims.groups"}, uid: {claim: nested.role}}`,
			want: `oidc: parse uid claim "nested.role": claim not present`},
		{mappings: `{username: {claim: sub, prefix: ""}, groups: {expression: "claims.groups + ['ops']"}, uid: {expression: "claims.jti"},` +
			` extra: [{key: example.com/a, valueExpression: "claims.groups"}, {key: example.com/b, valueExpression: "''"}]}`,
			want: "jane 7 [devs ops] map[authentication.kubernetes.io/credential-id:[JTI=7] example.com/a:[devs]]"},
		{mappings: `{username: {claim: email, prefix: ""}}`, want: "oidc: email not verified"},
		{mappings: `{username: {expression: "claims.number"}}`,
			want: "oidc: error evaluating username claim expression: username claim expression must return a string"},
		{mappings: `{username: {expression: "''"}}`, want: "oidc: empty username via CEL expression is not allowed"},
		{mappings: `{username: {expression: "claims.missing"}}`,
			want: "oidc: error evaluating username claim expression: expression 'claims.missing' resulted in error: no such key: missing"},
		{mappings: `{username: {claim: sub, prefix: ""}, groups: {expression: "claims.number"}}`,
			want: "oidc: error evaluating group claim expression: expression must return a string or a list of strings"},
		{mappings: `{username: {claim: sub, prefix: ""}}`,
			rest: "  claimValidationRules:\n  - {claim: sub, requiredValue: joe}\n",
			want: "oidc: required claim sub value does not match. Got = jane, want = joe"},
		{mappings: `{username: {claim: sub, prefix: ""}}`,
			rest: "  claimValidationRules:\n  - {claim: missing, requiredValue: joe}\n",
			want: "oidc: required claim missing not present in ID token"},
		{mappings: `{username: {claim: sub, prefix: ""}}`,
			rest: "  claimValidationRules:\n  - {expression: 'claims.number > 5.0', message: too small}\n",
			want: "oidc: error evaluating claim validation expression: validation expression 'claims.number > 5.0' failed: too small"},
		{mappings: `{username: {claim: sub, prefix: "system:"}}`,
			rest: "  userValidationRules:\n  - {expression: \"!user.username.startsWith('system:')\", message: refused}\n",
			want: "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' failed: refused"},
	} {
		a := started(t, configuration(i, c.mappings, c.rest))
		got := ""
		if id, err := a.Token(t.Context(), i.Token(claims), nil); err != nil {
			got = err.Error()
		} else {
			u := id.User
			got = fmt.Sprint(u.Name, " ", u.UID, " ", u.Groups, " ", u.Extra)
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.mappings, c.rest, got, c.want)
		}
	}
}

// SPEC: AUTH-1
func TestDistributedClaims(t *testing.T) {
	i := issuertest.Start(t)
	elsewhere := issuertest.Claims{"aud": "me", "groups": []string{"devs"}}
	shown := ""
	i.Handle("/groups", func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(i.Token(elsewhere)))
	})
	a := started(t, configuration(i, bySub, ""))
	token := func(endpoint string) string {
		return i.Token(issuertest.Claims{
			"sub": "jane", "aud": "me", "_claim_names": map[string]string{"groups": "src"},
			"_claim_sources": map[string]any{"src": map[string]string{"endpoint": endpoint, "access_token": "sesame"}},
		})
	}
	first := asked(t, a, token(i.URL+"/groups"))
	if !strings.Contains(first, "verifier not initialized for issuer") {
		t.Errorf("before the issuer is known: %s", first)
	}
	got := first
	for deadline := time.Now().Add(10 * time.Second); got == first && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
		got = asked(t, a, token(i.URL+"/groups"))
	}
	if got != "x:jane [g:devs]" || shown != "Bearer sesame" {
		t.Errorf("%s, and the endpoint was shown %q", got, shown)
	}
	delete(elsewhere, "groups")
	if got = asked(t, a, token(i.URL+"/groups")); !strings.Contains(got, "did not contain claim: groups") {
		t.Error(got)
	}
	if got = asked(t, a, token(i.URL+"/nothing")); !strings.Contains(got,
		"error while getting distributed claim JWT: 404 Not Found") {
		t.Error(got)
	}
}

// SPEC: AUTH-1
func TestDiscoveryElsewhere(t *testing.T) {
	i := issuertest.Start(t)
	const name = "https://issuer.invalid"
	i.Handle("/elsewhere", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(i.Discovery(name)) })
	text := strings.Replace(configuration(i, bySub, ""), "url: "+i.URL,
		"url: "+name+"\n    discoveryURL: "+i.URL+"/elsewhere", 1)
	a := started(t, text)
	if got := asked(t, a, i.Token(issuertest.Claims{"iss": name, "sub": "jane", "aud": "me"})); got != "x:jane []" {
		t.Error(got)
	}
	if got := asked(t, a, i.Token(issuertest.Claims{"sub": "jane", "aud": "me"})); got != "nobody" {
		t.Error(got)
	}
	if n := i.Asked(issuertest.DiscoveryPath); n != 0 {
		t.Errorf("%d requests for the well-known path", n)
	}
}

// SPEC: AUTH-1
func TestReload(t *testing.T) {
	one, two := issuertest.Start(t), issuertest.Start(t)
	for _, i := range []*issuertest.Issuer{one, two} {
		i.SignIns(issuertest.Client{ID: "me", Redirects: []string{redirect}})
	}
	file := filepath.Join(t.TempDir(), "config")
	first := configuration(one, bySub, "anonymous: {enabled: true, conditions: [{path: /livez}]}\n")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	c, text, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 10)
	r, err := NewReloader(c, text, Parse, quiet(), Reloads{Reloaded: func(_ []byte, err error) { told <- err }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, file) })
	defer running.Wait()
	defer stop()
	if err := r.current.Load().wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ofOne, ofTwo := one.Token(issuertest.Claims{"sub": "jane", "aud": "me"}),
		two.Token(issuertest.Claims{"sub": "joe", "aud": "me"})
	expect := func(when, wantOne, wantTwo string) {
		t.Helper()
		if gotOne, gotTwo := asked(t, r, ofOne), asked(t, r, ofTwo); gotOne != wantOne || gotTwo != wantTwo {
			t.Errorf("%s: %s, %s; want %s, %s", when, gotOne, gotTwo, wantOne, wantTwo)
		}
	}
	expect("at first", "x:jane []", "nobody")
	before, answer := begun(t, r, one, "allow")
	for _, bad := range []string{"", "x", strings.Replace(first, "sub", "sub, expression: x", 1),
		strings.Replace(first, "/livez", "/readyz", 1)} {
		write(bad)
		if err := <-told; err == nil {
			t.Errorf("%q was taken", bad)
		}
		expect("after a bad one", "x:jane []", "nobody")
	}
	write(strings.NewReplacer(one.URL, two.URL, marshaled(one.CA), marshaled(two.CA)).Replace(first))
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	expect("after a good one", "nobody", "x:joe []")
	if !reflect.DeepEqual(r.current.Load().issuers(), []string{two.URL}) {
		t.Error(r.current.Load().issuers())
	}
	if got := r.SignIns(); !reflect.DeepEqual(got, []string{two.URL}) {
		t.Errorf("one can sign in at %v", got)
	}
	if _, err := r.Finish(t.Context(), before, answer); err == nil || one.Asked(issuertest.TokenPath) != 0 {
		t.Errorf("a sign-in at an issuer that is gone: %v", err)
	}
	s, answer := begun(t, r, two, "allow")
	if _, err := r.Finish(t.Context(), s, answer); err != nil {
		t.Error(err)
	}
}

func marshaled(text []byte) string {
	b, err := json.Marshal(string(text))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// SPEC: AUTH-1
func TestBadSettings(t *testing.T) {
	i := issuertest.Start(t)
	c := parsed(t, configuration(i, bySub, ""))
	config := quiet()
	config.Algorithms = []string{"RS256", "none"}
	if _, err := New(c, config); err == nil || err.Error() != `oidc: unsupported signing alg: "none"` {
		t.Error(err)
	}
	config = quiet()
	config.Own = []string{i.URL}
	if _, err := New(c, config); err == nil || !strings.Contains(err.Error(),
		"URL must not overlap with disallowed issuers") {
		t.Error(err)
	}
	c.JWT[0].Issuer.EgressSelectorType = "cluster"
	if _, err := New(c, quiet()); err == nil ||
		err.Error() != `oidc: egress lookup required with egress selector type "cluster"` {
		t.Error(err)
	}
}

// A configuration is refused by Parse, or it is unchanged after it is encoded and parsed again; New then returns either
// authenticators or an error.
func FuzzConfiguration(f *testing.F) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	f.Add([]byte(head + "anonymous: {enabled: true, conditions: [{path: /livez}]}"))
	f.Add([]byte(head + "jwt:\n- issuer: {url: https://a.example, audiences: [me]}\n  claimMappings: " + bySub))
	f.Add([]byte(head + `jwt:
- issuer: {url: https://a.example, discoveryURL: https://b.example/x, audiences: [a, b], audienceMatchPolicy: MatchAny}
  claimValidationRules: [{claim: hd, requiredValue: a}, {expression: "claims.exp - claims.nbf < 86400", message: long}]
  claimMappings:
    username: {expression: "claims.sub"}
    groups: {expression: "claims.?roles.orValue([])"}
    uid: {claim: sub}
    extra: [{key: example.com/tenant, valueExpression: "claims.tenant"}]
  userValidationRules: [{expression: "!user.username.startsWith('system:')", message: reserved}]
`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(written)
		if err != nil {
			t.Fatalf("%s is refused when it is read again: %v", written, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Errorf("%s becomes %s (%v) when it is read again", written, twice, err)
		}
		a, err := New(c, quiet()) // sends no request before Start
		if (a == nil) != (err != nil) {
			t.Errorf("%s: %v, %v", written, a, err)
		}
		if a != nil {
			a.Close()
		}
	})
}
