package console

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// bench is a console with a clock of its own, on which the token NAME is that of the user NAME, unless it is gone.
type bench struct {
	*testing.T
	*Console
	now  time.Time
	gone map[string]bool
	api  []*http.Request // what the API got
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), gone: map[string]bool{}}
	b.Console = New(Config{
		API: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { b.api = append(b.api, r) }),
		Authenticate: func(r *http.Request) (*access.Identity, error) {
			name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch {
			case !ok:
				return &access.Identity{User: access.Nobody()}, nil
			case b.gone[name]:
				return nil, errors.New("gone")
			}
			if as := r.Header.Get("X-Remote-User"); as != "" {
				name = as
			}
			return &access.Identity{User: access.User{Name: name}}, nil
		},
		Now: func() time.Time { return b.now }, Logger: slog.New(slog.DiscardHandler),
	})
	return b
}

// browser is what a browser has of a session.
type browser struct{ cookie, key string }

// send sends a request of the page.
func (b *bench) send(from browser, method, path, body string, header ...string) (int, object.Value) {
	b.Helper()
	r := httptest.NewRequest(method, "https://here"+path, strings.NewReader(body))
	r.TLS = &tls.ConnectionState{}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if from.cookie != "" {
		r.Header.Set("Cookie", cookieName+"="+from.cookie)
		r.Header.Set(keyHeader, from.key)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if header != nil && header[0] == "Authorization" { // a client that is no browser
		r.Header.Del("Sec-Fetch-Site")
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	parsed, err := object.ParseJSON(w.Body.Bytes())
	if err != nil {
		return w.Code, object.Nil
	}
	v := parsed.Value
	for _, c := range w.Result().Cookies() {
		v = v.With("cookie", object.StringOf(c.Value))
	}
	return w.Code, v
}

// signIn begins a session.
func (b *bench) signIn(body string) browser {
	b.Helper()
	code, answer := b.send(browser{}, http.MethodPost, "/console/session", body)
	if code != http.StatusOK {
		b.Fatalf("signing in with %s: %d %v", body, code, answer)
	}
	return browser{answer.At("cookie").Str(), answer.At("key").Str()}
}

// works says whether a session is one.
func (b *bench) works(s browser) bool {
	b.Helper()
	code, _ := b.send(s, http.MethodGet, "/console/session", "")
	if code != http.StatusOK && code != http.StatusUnauthorized {
		b.Errorf("a session is answered by %d", code)
	}
	return code == http.StatusOK
}

// issue gets a code.
func (b *bench) issue(user string, header ...string) (int, string) {
	b.Helper()
	code, answer := b.send(browser{}, http.MethodPost, "/console/code", "",
		append([]string{"Authorization", "Bearer " + user}, header...)...)
	return code, answer.At("code").Str()
}

// A session ends after its life, after a time without a request, and with its credential. None is kept for longer.
//
// SPEC: BEY-14
func TestSessionsEnd(t *testing.T) {
	b := newBench(t)
	s := b.signIn(`{"token":"alice"}`)
	for range 9 { // a request every 50 minutes, until 20 minutes before the eighth hour
		if !b.works(s) {
			t.Fatal("the session has ended early")
		}
		b.now = b.now.Add(50 * time.Minute)
	}
	b.now = b.now.Add(-20 * time.Minute)
	if !b.works(s) {
		t.Error("the session has ended early")
	}
	b.now = b.now.Add(50 * time.Minute)
	if b.works(s) {
		t.Error("the session has outlived its life")
	}
	idle, busy := b.signIn(`{"token":"alice"}`), b.signIn(`{"token":"alice"}`)
	b.now = b.now.Add(sessionIdle - 1)
	if !b.works(busy) {
		t.Error("the session has ended before it was idle")
	}
	b.now = b.now.Add(1)
	if b.works(idle) || !b.works(busy) {
		t.Error("the idle session has not ended, or the other one has")
	}
	b.gone["alice"] = true
	if b.works(busy) {
		t.Error("the session has outlived its credential")
	}
	delete(b.gone, "alice")
	if b.works(busy) {
		t.Error("the session is back")
	}
	last := b.signIn(`{"token":"alice"}`)
	b.now = b.now.Add(sessionLife)
	b.signIn(`{"token":"bob"}`)
	if n := len(b.Sessions.all); n != 1 || b.works(last) {
		t.Errorf("%d sessions are kept", n)
	}
}

// A code is valid once, for a minute; it has the credential of the client that asked, and as whom that acts.
//
// SPEC: BEY-14
func TestCodes(t *testing.T) {
	b := newBench(t)
	_, first := b.issue("alice", "Impersonate-User", "bob")
	s := b.signIn(`{"code":"` + first + `"}`)
	if code, _ := b.send(s, http.MethodGet, "/console/api/api/v1/pods?limit=1", "", "Impersonate-User", "root",
		"Impersonate-Group", "system:masters"); code != http.StatusOK {
		t.Errorf("the request is answered by %d", code)
	}
	got := b.api[0]
	if got.Header.Get("Impersonate-User") != "bob" || got.Header.Get("Impersonate-Group") != "" ||
		got.URL.RequestURI() != "/api/v1/pods?limit=1" || got.RequestURI != got.URL.RequestURI() ||
		got.TLS != nil || len(got.Header["Cookie"])+len(got.Header[keyHeader])+len(got.Header["Authorization"]) != 0 {
		t.Errorf("the API gets %s %v", got.RequestURI, got.Header)
	}
	if code, _ := b.send(browser{}, http.MethodPost, "/console/session", `{"code":"`+first+`"}`); code != 401 {
		t.Errorf("the code is answered by %d the second time", code)
	}
	_, late := b.issue("alice")
	b.now = b.now.Add(codeLife)
	for _, bad := range []string{late, "", "x"} {
		if code, _ := b.send(browser{}, http.MethodPost, "/console/session", `{"code":"`+bad+`"}`); code != 401 {
			t.Errorf("the code %q is answered by %d", bad, code)
		}
	}
	for _, row := range []struct {
		user, header, value string
		code                int
	}{
		{"alice", "X-Other", "", 201}, {"alice", "Sec-Fetch-Site", "same-origin", 403},
		{"alice", "Origin", "https://here", 403}, {"proxy", "X-Remote-User", "alice", 403},
		{strings.Repeat("x", mostBytes), "X-Other", "", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "https://here/console/code", nil)
		r.Header.Set("Authorization", "Bearer "+row.user)
		r.Header.Set(row.header, row.value)
		if row.value == "" {
			r.Header.Del(row.header)
		}
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		if w.Code != row.code {
			t.Errorf("%.20s with %s: %s: %d %s", row.user, row.header, row.value, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "https://here/console/code", nil))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("without a credential: %d", w.Code)
	}
}

// A user who has too many sessions or codes loses the oldest, and nobody else does. There is a limit on all, too.
//
// SPEC: BEY-14
func TestSessionsAreBounded(t *testing.T) {
	b := newBench(t)
	other := b.signIn(`{"token":"bob"}`)
	var all []browser
	var codes []string
	for range mostOfOneUser + 1 {
		b.now = b.now.Add(time.Millisecond)
		all = append(all, b.signIn(`{"token":"alice"}`))
		_, code := b.issue("alice")
		codes = append(codes, code)
	}
	for i, s := range all {
		if works := b.works(s); works != (i > 0) {
			t.Errorf("session %d works: %t", i, works)
		}
	}
	if !b.works(other) {
		t.Error("the session of another user has ended")
	}
	for i, code := range codes {
		if given := b.Sessions.redeem(code, "", b.now); (given != nil) != (i > 0) {
			t.Errorf("code %d is valid: %t", i, given != nil)
		}
	}
	for i := range mostSessions {
		b.now = b.now.Add(time.Millisecond)
		b.signIn(fmt.Sprintf(`{"token":"user-%d"}`, i))
	}
	if n := len(b.Sessions.all); n > mostSessions {
		t.Errorf("%d sessions are kept", n)
	}
}

// Every path below the console's that is no file is the page, which a browser may keep.
//
// SPEC: BEY-14
func TestPaths(t *testing.T) {
	b := newBench(t)
	for path, code := range map[string]int{"/console": 301, "/console/": 200, "/console/r/core/v1/pods": 200,
		"/console/static/": 404, "/console/static/../session": 404, "/console/api": 200, "/console/api/": 401} {
		r := httptest.NewRequest(http.MethodGet, "https://here"+path, nil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		if w.Code != code || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	r := httptest.NewRequest(http.MethodGet, "https://here/console/", nil)
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	r.Header.Set("If-None-Match", w.Header().Get("Etag"))
	again := httptest.NewRecorder()
	b.ServeHTTP(again, r)
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("the page again: %d, %d bytes", again.Code, again.Body.Len())
	}
}
