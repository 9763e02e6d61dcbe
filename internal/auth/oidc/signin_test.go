package oidc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"plinth/internal/auth/oidc/issuertest"
)

const redirect = "https://console.example/back"

// atIssuer returns a Reloader for an issuer at which users sign in, after its discovery.
func atIssuer(t *testing.T, i *issuertest.Issuer, config Config) *Reloader {
	t.Helper()
	return found(t, configuration(i, bySub, ""), config)
}

// found returns a Reloader for a configuration, after the discovery of its issuers.
func found(t *testing.T, text string, config Config) *Reloader {
	t.Helper()
	r, err := NewReloader(parsed(t, text), nil, nil, config, Reloads{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.current.Load().Close)
	r.current.Load().Start()
	if err := r.Healthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// begun begins a sign-in, logs the user in, and returns the issuer's answer.
func begun(t *testing.T, r *Reloader, i *issuertest.Issuer, do string) (*SignIn, Answer) {
	t.Helper()
	s, address, err := r.Begin(i.URL, redirect)
	if err != nil {
		t.Fatal(err)
	}
	q := i.LogIn(address, "ann", do).Query()
	if q.Get("state") != s.State {
		t.Errorf("the state that comes back is %q", q.Get("state"))
	}
	return s, Answer{Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error"),
		Description: q.Get("error_description")}
}

// A user signs in: the token that the issuer gives is one that the authenticators accept. An answer that is not for
// this sign-in, and a token that is not, are refused, and no error shows a code or a token.
//
// SPEC: BEY-14
func TestSignIn(t *testing.T) {
	i := issuertest.Start(t)
	client := issuertest.Client{ID: "me", Redirects: []string{redirect}}
	i.SignIns(client)
	r := atIssuer(t, i, quiet())
	if got := r.SignIns(); !slices.Equal(got, []string{i.URL}) {
		t.Fatalf("one can sign in at %v", got)
	}
	s, answer := begun(t, r, i, "allow")
	token, err := r.Finish(t.Context(), s, answer)
	if err != nil {
		t.Fatal(err)
	}
	if who := asked(t, r, token); who != "x:ann []" {
		t.Errorf("the user is %s", who)
	}
	if _, err := r.Finish(t.Context(), s, answer); err == nil {
		t.Error("a code was exchanged twice")
	}
	for name, row := range map[string]struct {
		change func(issuertest.Claims)
		alter  func(*SignIn, *Answer)
		want   string
	}{
		"another nonce":    {change: func(c issuertest.Claims) { c["nonce"] = "other" }, want: "another nonce"},
		"no nonce":         {change: func(c issuertest.Claims) { delete(c, "nonce") }, want: "another nonce"},
		"a nonce as list":  {change: func(c issuertest.Claims) { c["nonce"] = []string{"x"} }, want: "nonce of type string"},
		"another audience": {change: func(c issuertest.Claims) { c["aud"] = "other" }, want: "expected audience"},
		"another issuer":   {change: func(c issuertest.Claims) { c["iss"] = "https://o" }, want: "by a different provider"},
		"expired":          {change: func(c issuertest.Claims) { c["exp"] = 1 }, want: "expired"},
		"another verifier": {alter: func(s *SignIn, _ *Answer) { s.verifier += "x" }, want: "invalid_grant: no such code"},
		"another redirect": {alter: func(s *SignIn, _ *Answer) { s.Redirect += "x" }, want: "invalid_grant"},
		"another code":     {alter: func(_ *SignIn, a *Answer) { a.Code = "SECRETCODE" }, want: "invalid_grant"},
		"no code":          {alter: func(_ *SignIn, a *Answer) { a.Code = "" }, want: "no code"},
		"named otherwise":  {alter: func(_ *SignIn, a *Answer) { a.Issuer = "https://e" }, want: `of the issuer "https://e"`},
		"an error":         {alter: func(_ *SignIn, a *Answer) { a.Error = "oops" }, want: "refuses: oops"},
		"unknown issuer":   {alter: func(s *SignIn, _ *Answer) { s.Issuer += "x" }, want: "is no issuer of this server"},
	} {
		t.Run(name, func(t *testing.T) {
			var sent issuertest.Claims
			with := client
			with.Change = func(c issuertest.Claims) {
				if row.change != nil {
					row.change(c)
				}
				sent = maps.Clone(c)
			}
			i.SignIns(with)
			s, answer := begun(t, r, i, "allow")
			if row.alter != nil {
				row.alter(s, &answer)
			}
			token, err := r.Finish(t.Context(), s, answer)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("the error is %v; the claims are %v", err, sent)
			}
			if err != nil && (answer.Code != "" && strings.Contains(err.Error(), answer.Code) ||
				token != "" && strings.Contains(err.Error(), token)) {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
	s, answer = begun(t, r, i, "deny")
	if _, err := r.Finish(t.Context(), s, answer); err == nil ||
		err.Error() != "the issuer refuses: access_denied: <b>The user</b> has denied it" {
		t.Errorf("denied: %v", err)
	}
}

// With several audiences, this server is the first one: a token for another one is not an answer to its request.
//
// SPEC: BEY-14
func TestSignInIsForTheFirstAudience(t *testing.T) {
	i := issuertest.Start(t)
	client := issuertest.Client{ID: "me", Redirects: []string{redirect}}
	i.SignIns(client)
	r := found(t, strings.Replace(configuration(i, bySub, ""), "audiences: [me]",
		"audiences: [me, you]\n    audienceMatchPolicy: MatchAny", 1), quiet())
	s, answer := begun(t, r, i, "allow")
	if _, err := r.Finish(t.Context(), s, answer); err != nil {
		t.Error(err)
	}
	client.Change = func(c issuertest.Claims) { c["aud"] = "you" }
	i.SignIns(client)
	s, answer = begun(t, r, i, "allow")
	if _, err := r.Finish(t.Context(), s, answer); err == nil || !strings.Contains(err.Error(), `for the client "me"`) {
		t.Errorf("a token for another audience: %v", err)
	}
}

// An issuer that says in its discovery document that it names itself in answers has to (RFC 9207).
//
// SPEC: BEY-14
func TestIssuerThatNamesItself(t *testing.T) {
	i := issuertest.Start(t)
	i.SignIns(issuertest.Client{ID: "me", Redirects: []string{redirect}, Named: true})
	r := atIssuer(t, i, quiet())
	s, answer := begun(t, r, i, "allow")
	if answer.Issuer != i.URL {
		t.Fatalf("the answer names %q", answer.Issuer)
	}
	if _, err := r.Finish(t.Context(), s, answer); err != nil {
		t.Error(err)
	}
	s, answer = begun(t, r, i, "allow")
	answer.Issuer = ""
	if _, err := r.Finish(t.Context(), s, answer); err == nil || !strings.Contains(err.Error(), "of the issuer") {
		t.Errorf("without a name: %v", err)
	}
}

// A client with a secret shows it, in the way that the issuer says; one without shows none.
//
// SPEC: BEY-14
func TestSecretOfTheClient(t *testing.T) {
	for _, row := range []struct {
		secret  string
		methods string // of the discovery document
		basic   bool
	}{{"", "", false}, {"s%cret", "", true}, {"s%cret", `["client_secret_post"]`, false},
		{"s%cret", `["private_key_jwt","client_secret_basic"]`, true}} {
		t.Run(row.secret+row.methods, func(t *testing.T) {
			i := issuertest.Start(t)
			var got *http.Request
			document := fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q,"authorization_endpoint":%q,"token_endpoint":%q`, i.URL,
				i.URL+issuertest.KeysPath, i.URL+"/a", i.URL+"/t")
			if row.methods != "" {
				document += `,"token_endpoint_auth_methods_supported":` + row.methods
			}
			i.Handle(issuertest.DiscoveryPath, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprint(w, document+"}") // the client is part of the test
			})
			i.Handle("/t", func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseForm(); err != nil {
					t.Error(err)
				}
				got = r
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprint(w, `{"error":"invalid_grant"}`) // the client is part of the test
			})
			config := quiet()
			config.Secret = func(issuer string) (string, error) {
				if issuer != i.URL {
					t.Errorf("the secret for %s is asked for", issuer)
				}
				return row.secret, nil
			}
			r := atIssuer(t, i, config)
			s, _, err := r.Begin(i.URL, redirect)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Finish(t.Context(), s, Answer{Code: "c"}); err == nil || errors.Is(err, ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
			id, secret, basic := got.BasicAuth()
			if secret, err = url.QueryUnescape(secret); err != nil {
				t.Error(err)
			}
			if !basic {
				id, secret = got.PostForm.Get("client_id"), got.PostForm.Get("client_secret")
			}
			if id != "me" || secret != row.secret || basic != row.basic ||
				!basic && got.PostForm.Has("client_secret") != (row.secret != "") {
				t.Errorf("the client is %q with %q, by header: %t", id, secret, basic)
			}
		})
	}
	i := issuertest.Start(t)
	i.SignIns(issuertest.Client{ID: "me", Redirects: []string{redirect}})
	config := quiet()
	config.Secret = func(string) (string, error) { return "", errors.New("no such file") }
	r := atIssuer(t, i, config)
	s, answer := begun(t, r, i, "allow")
	if _, err := r.Finish(t.Context(), s, answer); !errors.Is(err, ErrUnavailable) || i.Asked(issuertest.TokenPath) != 0 {
		t.Errorf("a secret that cannot be read: %v", err)
	}
}

// Scopes are those that the issuer knows, and groups only if the configuration has a use for them.
//
// SPEC: BEY-14
func TestScopes(t *testing.T) {
	for _, row := range []struct{ supported, mappings, want string }{
		{`[]`, bySub, "openid profile email"},
		{`["openid","groups","offline_access"]`, bySub, "openid groups"},
		{`["openid","email","groups"]`, `{username: {claim: sub, prefix: ""}}`, "openid email"},
	} {
		i := issuertest.Start(t)
		i.Handle(issuertest.DiscoveryPath, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"authorization_endpoint":"https://a/?x=1","token_endpoint":"https://t",
				"scopes_supported":%s}`, i.URL, i.URL+issuertest.KeysPath, row.supported) // the client is part of the test
		})
		r := found(t, configuration(i, row.mappings, ""), quiet())
		s, address, err := r.Begin(i.URL, redirect)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if q.Get("scope") != row.want || q.Get("x") != "1" || q.Get("redirect_uri") != redirect || q.Get("nonce") == "" ||
			q.Get("client_id") != "me" || strings.Contains(address, s.verifier) {
			t.Errorf("%s: %s", row.supported, address)
		}
	}
}

// Nobody can sign in at an issuer whose endpoints are not there, not secure, or without PKCE. Its tokens are accepted
// all the same.
//
// SPEC: BEY-14
func TestIssuersWithoutSignIn(t *testing.T) {
	for name, more := range map[string]string{
		"none":         ``,
		"no token":     `,"authorization_endpoint":"https://a"`,
		"http":         `,"authorization_endpoint":"http://a","token_endpoint":"https://t"`,
		"http token":   `,"authorization_endpoint":"https://a","token_endpoint":"http://t"`,
		"script":       `,"authorization_endpoint":"javascript:alert(1)","token_endpoint":"https://t"`,
		"user":         `,"authorization_endpoint":"https://u:p@a","token_endpoint":"https://t"`,
		"fragment":     `,"authorization_endpoint":"https://a#x","token_endpoint":"https://t"`,
		"plain":        `,"authorization_endpoint":"https://a","token_endpoint":"https://t","code_challenge_methods_supported":["plain"]`,
		"a wrong type": `,"authorization_endpoint":"https://a","token_endpoint":"https://t","scopes_supported":7`,
	} {
		t.Run(name, func(t *testing.T) {
			i := issuertest.Start(t)
			i.Handle(issuertest.DiscoveryPath, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q%s}`, i.URL, i.URL+issuertest.KeysPath, more) // as above
			})
			r := atIssuer(t, i, quiet())
			if got := r.SignIns(); len(got) != 0 {
				t.Errorf("one can sign in at %v", got)
			}
			if _, _, err := r.Begin(i.URL, redirect); err == nil || errors.Is(err, ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
			if who := asked(t, r, i.Token(issuertest.Claims{"sub": "ann", "aud": "me"})); who != "x:ann []" {
				t.Errorf("the user is %s", who)
			}
		})
	}
}

// An issuer that fails is not available, whatever it answers. The code goes to no other server, also if the issuer
// redirects.
//
// SPEC: BEY-14
func TestIssuerThatFailsDuringSignIn(t *testing.T) {
	i := issuertest.Start(t)
	i.SignIns(issuertest.Client{ID: "me", Redirects: []string{redirect}})
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the code goes elsewhere")
	}))
	t.Cleanup(elsewhere.Close)
	r := atIssuer(t, i, quiet())
	for name, handler := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"500":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "SECRET", http.StatusInternalServerError) },
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "SECRET") },
		"too large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("a", 8<<20))) },
		"cut": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		i.Handle(issuertest.TokenPath, handler)
		s, answer := begun(t, r, i, "allow")
		_, err := r.Finish(t.Context(), s, answer)
		if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "SECRET") ||
			strings.Contains(err.Error(), answer.Code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	i.Handle(issuertest.TokenPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"access_token":"a","token_type":"Bearer"}`) // the client is part of the test
	})
	s, answer := begun(t, r, i, "allow")
	if _, err := r.Finish(t.Context(), s, answer); err == nil || !strings.Contains(err.Error(), "no ID token") {
		t.Errorf("without an ID token: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Finish(ctx, s, answer); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
}

// Before the discovery has succeeded an issuer is there, and not available.
//
// SPEC: BEY-14
func TestSignInBeforeDiscovery(t *testing.T) {
	i := issuertest.Start(t)
	c := parsed(t, configuration(i, bySub, ""))
	r, err := NewReloader(c, nil, nil, quiet(), Reloads{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.current.Load().Close()
	if got := r.SignIns(); !slices.Equal(got, []string{i.URL}) {
		t.Errorf("one can sign in at %v", got)
	}
	if _, _, err := r.Begin(i.URL, redirect); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
}
