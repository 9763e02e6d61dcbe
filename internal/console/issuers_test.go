package console

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth/oidc"
	"plinth/internal/auth/oidc/issuertest"
	"plinth/object"
)

// issuerBench is a bench with issuers at which users sign in. Their tokens are those of the users sub.
type issuerBench struct {
	*bench
	log *bytes.Buffer
}

func newIssuerBench(t *testing.T, issuers ...*issuertest.Issuer) *issuerBench {
	b := &issuerBench{bench: newBench(t), log: &bytes.Buffer{}}
	b.Logger = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	none, configured := "", &oidc.Configuration{}
	for _, i := range issuers {
		i.SignIns(issuertest.Client{ID: "me", Redirects: []string{"https://here/console/oidc/callback/"}})
		configured.JWT = append(configured.JWT, oidc.Authenticator{
			Issuer:        oidc.Issuer{URL: i.URL, CertificateAuthority: string(i.CA), Audiences: []string{"me"}},
			ClaimMappings: oidc.Mappings{Username: oidc.Prefixed{Claim: "sub", Prefix: &none}}})
	}
	all, err := oidc.NewReloader(configured, nil, nil, oidc.Config{Logger: b.Logger, Now: time.Now}, oidc.Reloads{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended }) // after t.Context has ended
	go func() {
		defer close(ended)
		all.Run(t.Context(), "")
	}()
	if err := all.Healthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Issuers = all
	names := b.Authenticate
	b.Authenticate = func(r *http.Request) (*access.Identity, error) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if strings.Count(token, ".") != 2 {
			return names(r)
		}
		id, err := all.Token(r.Context(), token, nil)
		if err == nil && b.gone[id.User.Name] {
			err = fmt.Errorf("%s is gone", id.User.Name)
		}
		return id, err
	}
	return b
}

// way is what a browser has of a sign-in.
type way struct {
	address, cookie string
	path, answer    string // where it comes back, and the body that the page makes of that
}

// post sends a request of the page, from a network address, with a cookie of a sign-in.
func (b *issuerBench) post(remote, path, body, cookie string, header ...string) (int, object.Value, []*http.Cookie) {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "https://here"+path, strings.NewReader(body))
	r.RemoteAddr = remote
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", "https://here")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	parsed, err := object.ParseJSON(w.Body.Bytes())
	if err != nil {
		b.Errorf("%s is answered by %d %s", path, w.Code, w.Body)
		return w.Code, object.Nil, nil
	}
	for _, c := range w.Result().Cookies() {
		if c.Path != Path || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			b.Errorf("the cookie is %s", c)
		}
	}
	return w.Code, parsed.Value, w.Result().Cookies()
}

const here = "192.0.2.7:1234"

// begin begins a sign-in.
func (b *issuerBench) begin(i *issuertest.Issuer, remote, at string) *way {
	b.Helper()
	code, answer, cookies := b.post(remote, "/console/oidc", fmt.Sprintf(`{"issuer":%q,"at":%q}`, i.URL, at), "")
	if code != http.StatusOK || len(cookies) != 1 || cookies[0].Name != signInCookie || cookies[0].MaxAge != 600 {
		b.Fatalf("beginning: %d %v %v", code, answer, cookies)
	}
	return &way{address: answer.At("location").Str(), cookie: signInCookie + "=" + cookies[0].Value}
}

// logIn logs a user in at the issuer.
func (w *way) logIn(i *issuertest.Issuer, user, do string) {
	to := i.LogIn(w.address, user, do)
	w.path = to.EscapedPath()
	members := []any{}
	for name, values := range to.Query() {
		members = append(members, name, object.StringOf(values[0]))
	}
	w.answer = string(object.AppendObject(nil, object.Fields(members...)))
}

// finish brings the answer.
func (b *issuerBench) finish(w *way, header ...string) (int, object.Value, []*http.Cookie) {
	b.Helper()
	return b.post(here, w.path, w.answer, w.cookie, header...)
}

// A user signs in at an issuer, and is at the page at which the sign-in began. The session is like any other: it is
// another one than the browser had before, which ends, and it ends with the token.
//
// SPEC: BEY-14
func TestSignInAtIssuer(t *testing.T) {
	i := issuertest.Start(t)
	b := newIssuerBench(t, i)
	code, listed := b.send(browser{}, http.MethodGet, "/console/oidc", "")
	if all := listed.At("issuers").Items(); code != 200 || len(all) != 1 || all[0].At("id").Str() != i.URL ||
		all[0].At("name").Str() != strings.TrimPrefix(i.URL, "https://") {
		t.Errorf("the issuers are %d %v", code, listed)
	}
	const at = "/console/r/core/v1/pods?ns=default&q=%2F"
	w := b.begin(i, here, at)
	w.logIn(i, "ann", "allow")
	before := b.signIn(`{"token":"alice"}`)
	w.cookie += "; " + cookieName + "=" + before.cookie
	code, answer, cookies := b.finish(w)
	if code != http.StatusOK || answer.At("at").Str() != at || answer.At("user").At("username").Str() != "ann" {
		t.Fatalf("finishing: %d %v", code, answer)
	}
	session := browser{key: answer.At("key").Str()}
	for _, c := range cookies {
		switch {
		case c.Name == signInCookie && c.MaxAge < 0:
		case c.Name == cookieName:
			session.cookie = c.Value
		default:
			t.Errorf("the cookie %s is set", c)
		}
	}
	if len(cookies) != 2 || session.cookie == before.cookie || b.works(before) || !b.works(session) {
		t.Errorf("the session is not a new one: %v", cookies)
	}
	b.gone["ann"] = true
	if b.works(session) {
		t.Error("the session has outlived its token")
	}
	delete(b.gone, "ann")

	for name, value := range map[string]string{"code": `"code":"`, "state": `"state":"`} {
		_, secret, _ := strings.Cut(w.answer, value)
		secret, _, _ = strings.Cut(secret, `"`)
		if secret == "" || strings.Contains(b.log.String(), secret) {
			t.Errorf("the %s %q is in the log: %s", name, secret, b.log)
		}
	}
}

// An answer of an issuer is taken once, within ten minutes, at the path of that issuer, from a page of this origin in
// the browser that has begun.
//
// SPEC: BEY-14
func TestWhoMayFinishASignIn(t *testing.T) {
	i, evil := issuertest.Start(t), issuertest.Start(t)
	b := newIssuerBench(t, i, evil)
	var attacker *way
	finished := func(do func(w *way)) int {
		t.Helper()
		attacker = b.begin(i, here, "/console/")
		attacker.logIn(i, "attacker", "allow")
		w := b.begin(i, here, "/console/")
		w.logIn(i, "ann", "allow")
		do(w)
		code, answer, cookies := b.finish(w)
		if code != http.StatusOK && (answer.At("kind").Str() != "Status" || answer.At("message").Str() == "") {
			t.Errorf("the error is %v", answer)
		}
		for _, c := range cookies {
			if code != http.StatusOK && c.Name == cookieName {
				t.Errorf("an error sets %s", c)
			}
		}
		return code
	}
	for name, row := range map[string]struct {
		do   func(w *way)
		code int
	}{
		"as it is":                   {func(*way) {}, 200},
		"again":                      {func(w *way) { b.finish(w) }, 400},
		"no cookie":                  {func(w *way) { w.cookie = "" }, 400},
		"the cookie of another":      {func(w *way) { w.cookie = attacker.cookie }, 400},
		"the answer to another":      {func(w *way) { w.answer = attacker.answer }, 400},
		"no state":                   {func(w *way) { w.answer = strings.Replace(w.answer, `"state"`, `"other"`, 1) }, 400},
		"the path of another issuer": {func(w *way) { w.path = callback(evil.URL) }, 400},
		"no issuer's path":           {func(w *way) { w.path = "/console/oidc/callback/x" }, 400},
		"just in time":               {func(*way) { b.now = b.now.Add(signInLife - 1) }, 200},
		"late":                       {func(*way) { b.now = b.now.Add(signInLife) }, 400},
		"named as another": {func(w *way) {
			w.answer = strings.Replace(w.answer, "{", `{"iss":"`+evil.URL+`",`, 1)
		}, 401},
		"a token that is not accepted": {func(*way) { b.gone["ann"] = true }, 401},
		"a token that is too large": {func(w *way) {
			i.SignIns(issuertest.Client{ID: "me", Redirects: []string{"https://"},
				Change: func(c issuertest.Claims) { c["x"] = strings.Repeat("x", mostBytes) }})
			*w = *b.begin(i, here, "/console/")
			w.logIn(i, "ann", "allow")
		}, 401},
	} {
		if code := finished(row.do); code != row.code {
			t.Errorf("%s: %d, want %d", name, code, row.code)
		}
		delete(b.gone, "ann")
		i.SignIns(issuertest.Client{ID: "me", Redirects: []string{"https://here/console/oidc/callback/"}})
	}
	w := b.begin(i, here, "/console/")
	w.logIn(i, "ann", "allow")
	for _, site := range []string{"cross-site", "same-site", "none", ""} {
		if code, _, _ := b.finish(w, "Sec-Fetch-Site", site); code != 403 {
			t.Errorf("from %q: %d", site, code)
		}
		if code, _, _ := b.post(here, "/console/oidc", `{"issuer":"`+i.URL+`","at":"/console/"}`, "", "Sec-Fetch-Site",
			site); code != 403 {
			t.Errorf("beginning from %q: %d", site, code)
		}
	}
	if code, _, _ := b.finish(w); code != 200 {
		t.Errorf("after requests of other sites: %d", code)
	}
	w = b.begin(i, here, "/console/")
	w.logIn(i, "ann", "deny")
	code, answer, _ := b.finish(w)
	if code != 401 || answer.At("message").Str() != "the issuer refuses: access_denied: <b>The user</b> has denied it" {
		t.Errorf("denied: %d %v", code, answer)
	}
}

// A sign-in begins at an issuer of the server, for a page of the console, at the origin that the request is for.
//
// SPEC: BEY-14
func TestBeginningOfSignIns(t *testing.T) {
	i := issuertest.Start(t)
	b := newIssuerBench(t, i)
	for at, code := range map[string]int{
		"/console/": 200, "/console/r/core/v1/pods/default/a%2Fb?q=//evil": 200, "/console": 400, "": 400,
		"https://evil/console/": 400, "//evil/console/": 400, `/\evil/console/`: 400, "/console/../api": 400,
		"/console/%2e%2e/api": 400, `/console/..\api`: 400, "/consoles/": 400, "javascript:alert(1)": 400, "/console/\n": 400,
		"/console/" + strings.Repeat("x", mostOfPage): 400,
	} {
		body := string(object.AppendObject(nil, object.Fields("issuer", object.StringOf(i.URL), "at", object.StringOf(at))))
		if got, answer, _ := b.post(here, "/console/oidc", body, ""); got != code {
			t.Errorf("at %.100q: %d %v", at, got, answer)
		}
	}
	good := `{"issuer":"` + i.URL + `","at":"/console/"}`
	for _, row := range []struct {
		body, header, value string
		code                int
	}{
		{good, "X", "", 200}, {good, "Origin", "https://evil", 403}, {good, "Origin", "http://here", 403},
		{good, "Origin", "null", 403}, {good, "Content-Type", "text/plain", 415}, {`[]`, "X", "", 400},
		{`{"issuer":"https://evil","at":"/console/"}`, "X", "", 401}, {`{"issuer":"%zz","at":"/console/"}`, "X", "", 401},
		{`{"at":"/console/"}`, "X", "", 401},
	} {
		if code, answer, _ := b.post(here, "/console/oidc", row.body, "", row.header, row.value); code != row.code {
			t.Errorf("%s with %s: %s: %d %v", row.body, row.header, row.value, code, answer)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		for _, path := range []string{"/console/oidc", "/console/oidc/callback/x"} {
			if code, _ := b.send(browser{}, method, path, ""); code != 405 {
				t.Errorf("%s %s: %d", method, path, code)
			}
		}
	}
	w := b.begin(i, here, "/console/")
	u, err := url.Parse(w.address)
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://here" + callback(i.URL); u.Query().Get("redirect_uri") != want {
		t.Errorf("the issuer sends the browser to %s", u.Query().Get("redirect_uri"))
	}
	b.Issuers = nil
	if code, answer := b.send(browser{}, http.MethodGet, "/console/oidc", ""); code != 200 ||
		len(answer.At("issuers").Items()) != 0 {
		t.Errorf("without issuers: %d %v", code, answer)
	}
	if code, _, _ := b.post(here, "/console/oidc", good, ""); code != 400 {
		t.Errorf("beginning without issuers: %d", code)
	}
}

// The answer of an issuer is the page for a browser, which brings no cookie then; nothing else happens.
//
// SPEC: BEY-14
func TestCallbackIsThePage(t *testing.T) {
	i := issuertest.Start(t)
	b := newIssuerBench(t, i)
	w := b.begin(i, here, "/console/")
	to := i.LogIn(w.address, "ann", "allow")
	r := httptest.NewRequest(http.MethodGet, to.String(), nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Cookie", w.cookie)
	answer := httptest.NewRecorder()
	b.ServeHTTP(answer, r)
	if answer.Code != 200 || !strings.Contains(answer.Body.String(), "<!doctype html>") ||
		len(answer.Result().Cookies()) != 0 || i.Asked(issuertest.TokenPath) != 0 {
		t.Errorf("the callback is answered by %d %v", answer.Code, answer.Header())
	}
}

// Sign-ins under way are bounded: by network address, in all, and in how many wait for an issuer.
//
// SPEC: BEY-14
func TestSignInsAreBounded(t *testing.T) {
	i := issuertest.Start(t)
	b := newIssuerBench(t, i)
	states := func(ways []*way) (alive []bool) {
		for _, w := range ways {
			u, err := url.Parse(w.address)
			if err != nil {
				t.Fatal(err)
			}
			_, value, _ := strings.Cut(w.cookie, "=")
			alive = append(alive, b.signIns.take(u.Query().Get("state"), value, b.now) != nil)
		}
		return alive
	}
	var flood, other []*way
	other = append(other, b.begin(i, "[2001:db8:0:1::9]:1", "/console/"))
	for n := range mostOfOneAddress + 2 {
		b.now = b.now.Add(time.Millisecond)
		flood = append(flood, b.begin(i, fmt.Sprintf("[2001:db8::%x]:1", n), "/console/"))
	}
	for n, alive := range states(flood) {
		if alive != (n >= 2) {
			t.Errorf("sign-in %d of one network is there: %t", n, alive)
		}
	}
	if !states(other)[0] {
		t.Error("the sign-in of another network is gone")
	}
	for n := range mostSignIns + 2 {
		b.now = b.now.Add(time.Millisecond)
		other = append(other, b.begin(i, fmt.Sprintf("10.0.%d.%d:1", n/256, n%256), "/console/"))
	}
	if n := len(b.signIns.all); n != mostSignIns {
		t.Errorf("%d sign-ins are kept", n)
	}
	if alive := states(other[1:4]); alive[0] || alive[1] || !alive[2] {
		t.Errorf("the oldest ones are there: %v", alive)
	}
	b.now = b.now.Add(signInLife)
	b.begin(i, here, "/console/")
	if n := len(b.signIns.all); n != 1 {
		t.Errorf("%d sign-ins are kept that are over", n)
	}

	arrived, release := make(chan struct{}, mostExchanges+1), make(chan struct{})
	i.Handle(issuertest.TokenPath, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-t.Context().Done(): // the test has failed
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	})
	var waiting []*way
	for range mostExchanges + 1 {
		w := b.begin(i, here, "/console/")
		w.logIn(i, "ann", "allow")
		waiting = append(waiting, w)
	}
	codes := make(chan int, len(waiting))
	for _, w := range waiting[1:] {
		go func() {
			code, _, _ := b.finish(w)
			codes <- code
		}()
		select {
		case <-arrived:
		case code := <-codes:
			t.Fatalf("one of those that may wait: %d", code)
		}
	}
	go func() {
		code, _, _ := b.finish(waiting[0])
		codes <- code
	}()
	select {
	case code := <-codes:
		if code != 429 {
			t.Errorf("one more: %d", code)
		}
	case <-arrived:
		t.Fatal("one more waits for the issuer")
	}
	close(release)
	for range mostExchanges {
		if code := <-codes; code != 503 {
			t.Errorf("an issuer that fails: %d", code)
		}
	}
}

// Issuers have the names of their hosts, and those that share one the path, too.
//
// SPEC: BEY-14
func TestNamesOfIssuers(t *testing.T) {
	got := names([]string{"https://a", "https://b:8/realms/x", "https://c/1", "https://c/2", ""})
	if want := "[a b:8 c/1 c/2 ]"; fmt.Sprint(got) != want {
		t.Errorf("the names are %v", got)
	}
	if got := callback("https://b:8/realms/x%20y/"); got != "/console/oidc/callback/b:8/realms/x%20y/" {
		t.Errorf("the path is %s", got)
	}
}
