package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/planes/route"
	"plinth/object"
)

// planesBench is the consoles of the first plane and of others, as a process has them. A plane that is in refused knows
// no users.
type planesBench struct {
	*bench
	planes  map[string]*Console
	refused map[string]bool
}

func newPlanesBench(t *testing.T, planes ...string) *planesBench {
	b := &planesBench{newBench(t), map[string]*Console{}, map[string]bool{}}
	b.Planes = true
	for _, name := range planes {
		c := b.Config
		c.Planes = false
		c.Authenticate = func(r *http.Request) (*access.Identity, error) {
			if b.refused[name] {
				return nil, errors.New("this plane does not know the user")
			}
			return b.bench.Authenticate(r)
		}
		b.planes[name] = New(c)
	}
	return b
}

// request sends a request of a page to the console of a plane, and returns the answer, and the path of its cookie.
func (b *planesBench) request(plane string, from browser, method, path, body string,
	header ...string) (int, object.Value, string) {
	b.Helper()
	base, handler := "", http.Handler(b.bench)
	if plane != "" {
		base, handler = route.PathOf(plane), b.planes[plane]
	}
	r := httptest.NewRequest(method, "https://here"+base+Path+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Cookie", cookieName+"="+from.cookie)
	r.Header.Set(keyHeader, from.key)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	_, inner, err := new(route.Router).Route(r)
	if err != nil {
		b.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, inner)
	parsed, err := object.ParseJSON(w.Body.Bytes())
	v := parsed.Value
	if err != nil {
		v = object.MapOf()
	}
	at := ""
	for _, c := range w.Result().Cookies() {
		v, at = v.With("cookie", object.StringOf(c.Value)), c.Path
	}
	return w.Code, v, at
}

// enter goes from the first plane to another, as the page does: the key comes with the first look at the session.
func (b *planesBench) enter(from browser, plane string) browser {
	b.Helper()
	code, answer, at := b.request("", from, http.MethodPost, "/enter", fmt.Sprintf(`{"plane":%q}`, plane))
	if want := "/clusters/" + plane + "/console"; code != 200 || at != want ||
		answer.At("location").Str() != want+"/" {
		b.Fatalf("entering %s: %d, a cookie at %q, %v", plane, code, at, answer)
	}
	there := browser{cookie: answer.At("cookie").Str()}
	_, answer, _ = b.request(plane, there, http.MethodGet, "/session", "")
	there.key = answer.At("key").Str()
	return there
}

// code is how a plane's console answers a request to the API in a session.
func (b *planesBench) code(plane string, s browser) int {
	b.Helper()
	code, _, _ := b.request(plane, s, http.MethodGet, "/api/api/v1/pods", "")
	return code
}

// Whoever has signed in goes to other planes with the same credential. A session is for one plane, and its cookie is
// sent nowhere else; the plane decides at each request whether the credential is valid there.
//
// SPEC: BEY-9, BEY-14
func TestEnter(t *testing.T) {
	b := newPlanesBench(t, "a", "b")
	first := b.signIn(`{"token":"alice"}`)
	if _, answer, _ := b.request("", first, http.MethodGet, "/session", ""); !answer.At("planes").Bool() ||
		answer.At("plane").Str() != "" {
		t.Errorf("the first plane says %v", answer)
	}
	a, other := b.enter(first, "a"), b.enter(first, "b")
	_, answer, _ := b.request("a", a, http.MethodGet, "/session", "")
	if answer.At("user", "username").Str() != "alice" || answer.At("plane").Str() != "a" || !answer.At("planes").Bool() {
		t.Errorf("the plane says %v", answer)
	}
	if a.key == first.key || a.cookie == first.cookie || a.key == other.key || a.cookie == other.cookie {
		t.Error("two sessions have one key or cookie")
	}
	for _, try := range []struct {
		plane string
		of    browser
		code  int
	}{{"", first, 200}, {"a", a, 200}, {"b", other, 200}, {"", a, 401}, {"a", first, 401}, {"b", a, 401},
		{"a", browser{a.cookie, first.key}, 403}} {
		if code := b.code(try.plane, try.of); code != try.code {
			t.Errorf("in %q, a session is answered by %d, and not %d", try.plane, code, try.code)
		}
	}
	b.refused["a"] = true
	if code := b.code("a", a); code != 401 {
		t.Errorf("a plane that does not know the user answers %d", code)
	}
	delete(b.refused, "a")
	if b.code("a", a) != 401 || b.code("b", other) != 200 || b.code("", first) != 200 {
		t.Error("not the session in that plane alone has ended")
	}
	// A second time there is one session still, and the one of before is none.
	again := b.enter(first, "b")
	if b.code("b", other) != 401 || b.code("b", again) != 200 {
		t.Error("there are two sessions of one user who has signed in once")
	}
	// What one gets by entering ends with the sign-in, wherever the user signs out.
	a = b.enter(first, "a")
	if code, _, at := b.request("a", a, http.MethodDelete, "/session", ""); code != 204 || at != "/clusters/a/console" {
		t.Errorf("signing out: %d, a cookie at %q", code, at)
	}
	if b.code("", first) != 401 || b.code("a", a) != 401 || b.code("b", again) != 401 || len(b.Sessions.all) != 0 {
		t.Errorf("%d sessions are left after signing out", len(b.Sessions.all))
	}
}

// Who signs in as somebody else has no session as before, in no plane.
//
// SPEC: BEY-14
func TestSignInAgain(t *testing.T) {
	b := newPlanesBench(t, "a")
	first := b.signIn(`{"token":"alice"}`)
	a := b.enter(first, "a")
	b.request("", first, http.MethodPost, "/session", `{"token":"bob"}`)
	if b.code("", first) != 401 || b.code("a", a) != 401 {
		t.Error("the sessions of alice are there still")
	}
}

// A session begins in another plane only for the page, with the session's key, at the first plane, by POST, and by a
// name that is one. It does not say whether there is a plane of this name.
//
// SPEC: BEY-14
func TestEnterKeepsOut(t *testing.T) {
	b := newPlanesBench(t, "a")
	first := b.signIn(`{"token":"alice"}`)
	a := b.enter(first, "a")
	before := len(b.Sessions.all)
	for name, try := range map[string]struct {
		plane  string
		from   browser
		method string
		body   string
		header []string
		code   int
	}{
		"another site":    {"", first, "POST", `{"plane":"a"}`, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"the same site":   {"", first, "POST", `{"plane":"a"}`, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"no key":          {"", browser{first.cookie, ""}, "POST", `{"plane":"a"}`, nil, 403},
		"another key":     {"", browser{first.cookie, a.key}, "POST", `{"plane":"a"}`, nil, 403},
		"no session":      {"", browser{}, "POST", `{"plane":"a"}`, nil, 401},
		"another's":       {"", a, "POST", `{"plane":"a"}`, nil, 401},
		"GET":             {"", first, "GET", "", nil, 405},
		"within a plane":  {"a", a, "POST", `{"plane":"a"}`, nil, 404},
		"no name":         {"", first, "POST", `{}`, nil, 400},
		"a path":          {"", first, "POST", `{"plane":"../a"}`, nil, 400},
		"all":             {"", first, "POST", `{"plane":"*"}`, nil, 400},
		"another's media": {"", first, "POST", `{"plane":"a"}`, []string{"Content-Type", "text/plain"}, 415},
	} {
		code, answer, at := b.request(try.plane, try.from, try.method, "/enter", try.body, try.header...)
		if code != try.code || at != "" || len(b.Sessions.all) != before {
			t.Errorf("%s: %d, want %d, a cookie at %q, %v", name, code, try.code, at, answer)
		}
	}
	if code, _, at := b.request("", first, http.MethodPost, "/enter", `{"plane":"none"}`); code != 200 || at == "" {
		t.Errorf("a plane that is not there: %d", code)
	}
	b.Planes = false
	if code, _, _ := b.request("", first, http.MethodPost, "/enter", `{"plane":"a"}`); code != 404 {
		t.Errorf("a server without planes answers %d", code)
	}
	b.Planes, b.gone["alice"] = true, true
	if code, _, _ := b.request("", first, http.MethodPost, "/enter", `{"plane":"a"}`); code != 401 {
		t.Errorf("a credential that is not valid any more: %d", code)
	}
}

// A session in another plane does not make the sign-in longer, and is no way around its end without a request.
//
// SPEC: BEY-14
func TestEnteredSessionsEnd(t *testing.T) {
	b := newPlanesBench(t, "a")
	first := b.signIn(`{"token":"alice"}`)
	var a browser
	for range 15 { // seven and a half hours, with requests
		b.now = b.now.Add(sessionIdle / 2)
		a = b.enter(first, "a")
	}
	if b.code("a", a) != 200 {
		t.Error("the session has ended early")
	}
	b.now = b.now.Add(sessionIdle / 2)
	if b.code("a", a) != 401 {
		t.Error("the session has outlived the sign-in")
	}
	first = b.signIn(`{"token":"alice"}`)
	a = b.enter(first, "a")
	b.now = b.now.Add(sessionIdle)
	if b.code("a", a) != 401 || b.code("", first) != 401 {
		t.Error("the sessions have outlived an hour without a request")
	}
}

// Codes are for the plane that has issued them.
//
// SPEC: BEY-14
func TestCodesOfPlanes(t *testing.T) {
	b := newPlanesBench(t, "a", "b")
	for _, elsewhere := range []string{"b", ""} {
		_, answer, _ := b.request("a", browser{}, http.MethodPost, "/code", "", "Authorization", "Bearer alice",
			"Sec-Fetch-Site", "")
		body := fmt.Sprintf(`{"code":%q}`, answer.At("code").Str())
		if code, _, _ := b.request(elsewhere, browser{}, http.MethodPost, "/session", body); code != 401 {
			t.Errorf("a code of a in %q: %d", elsewhere, code)
		}
	}
	_, answer, _ := b.request("a", browser{}, http.MethodPost, "/code", "", "Authorization", "Bearer alice",
		"Sec-Fetch-Site", "")
	body := fmt.Sprintf(`{"code":%q}`, answer.At("code").Str())
	if code, _, _ := b.request("a", browser{}, http.MethodPost, "/session", body); code != 200 {
		t.Errorf("a code of a: %d", code)
	}
}

// Who begins many sessions in one plane ends none of another plane.
//
// SPEC: BEY-9, BEY-14
func TestSessionsOfPlanesAreBounded(t *testing.T) {
	b := newPlanesBench(t, "a")
	first := b.signIn(`{"token":"alice"}`)
	b.now = b.now.Add(time.Second)
	for i := range mostSessions + 8 {
		b.request("a", browser{}, http.MethodPost, "/session", fmt.Sprintf(`{"token":"user-%d"}`, i))
	}
	if n := len(b.Sessions.all); n != mostSessions+1 || !b.works(first) {
		t.Errorf("%d sessions, and the one of the first plane works: %t", n, b.works(first))
	}
	// Of all planes: the one with the most loses one.
	for i := range mostOfAll - mostSessions {
		b.Sessions.begin(&credential{}, "user", fmt.Sprintf("plane-%d", i), b.now)
	}
	of := map[string]int{}
	for _, s := range b.Sessions.all {
		of[s.plane]++
	}
	if n := len(b.Sessions.all); n != mostOfAll || of["a"] != mostSessions-1 || !b.works(first) {
		t.Errorf("%d sessions, %d of them of the plane with the most", n, of["a"])
	}
}
