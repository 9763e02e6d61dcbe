package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

// A page of another origin, on the same host and on another one, learns nothing of a session and cannot use it; nor can
// somebody who has the cookie without the key, the key without the cookie, or both after the sign-out.
//
// SPEC: BEY-14
func TestOtherOrigins(t *testing.T) {
	server := start(t)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>other</title><p>another origin")
	}))
	t.Cleanup(other.Close)
	b := open(t, server)
	b.signIn()
	key := result(b, chromedp.Evaluate[string](`fetch("/console/session").then((r) => r.json()).then((s) => s.key)`, awaited))
	if key == "" {
		t.Fatal("the session has no key")
	}
	const use = `fetch(%q + "/console/api/api/v1/namespaces", {headers: {"X-Plinth-Console": %q}, credentials: "include"}).then(
		(r) => String(r.status), () => "refused")`
	if got := result(b, chromedp.Evaluate[string](fmt.Sprintf(use, "", key), awaited)); got != "200" {
		t.Errorf("the page itself gets %s", got)
	}
	if got := result(b, chromedp.Evaluate[string](fmt.Sprintf(use, "", "x"), awaited)); got != "403" {
		t.Errorf("the cookie without the key gets %s", got)
	}
	for _, origin := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)} {
		b.run(chromedp.Navigate(origin))
		b.sees("another origin")
		if got := result(b, chromedp.Evaluate[string](fmt.Sprintf(use, server.URL, key), awaited)); got != "refused" {
			t.Errorf("%s gets %s with the key", origin, got)
		}
		const read = `fetch(%q + "/console/session", {credentials: "include"}).then((r) => r.text(), () => "refused")`
		if got := result(b, chromedp.Evaluate[string](fmt.Sprintf(read, server.URL), awaited)); got != "refused" {
			t.Errorf("%s reads %s", origin, got)
		}
	}
	b.mu.Lock()
	b.wrong = nil // the browser says what it has refused
	b.mu.Unlock()

	stranger := open(t, server) // another browser, with the key alone
	stranger.visit("")
	stranger.sees("Sign in")
	if got := result(stranger, chromedp.Evaluate[string](fmt.Sprintf(use, "", key), awaited)); got != "401" {
		t.Errorf("the key without the cookie gets %s", got)
	}
	b.visit("")
	b.click("button", "Sign out")
	b.sees("plinth console")
	if got := result(b, chromedp.Evaluate[string](fmt.Sprintf(use, "", key), awaited)); got != "401" {
		t.Errorf("the session gets %s after the sign-out", got)
	}
	b.typeToken(harness.AdminToken)
	b.sees("Sign out")
	if got := result(b, chromedp.Evaluate[string](fmt.Sprintf(use, "", key), awaited)); got != "403" {
		t.Errorf("the key of the session before gets %s in a new one", got)
	}
}
