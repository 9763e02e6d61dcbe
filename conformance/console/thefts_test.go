package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

const sessionCookie = "__Secure-plinth-console"

// cookie is the session's, as the browser has it.
func (b *tab) cookie() string {
	b.t.Helper()
	var value string
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		all, err := cdp.Call(ctx, t, network.GetCookies, network.GetCookiesParams{URLs: []string{b.server.URL + "/console/"}})
		for _, c := range all.Cookies {
			if c.Name == sessionCookie {
				value = c.Value
				if !c.HTTPOnly || !c.Secure || c.SameSite != network.CookieSameSiteStrict || c.Path != "/console" {
					b.t.Errorf("the cookie is %+v", c)
				}
			}
		}
		return err
	}))
	return value
}

// A cookie that a browser was given before the sign-in has no meaning after it; one that is copied to another client
// has none without the key, and none anywhere outside of the console.
//
// SPEC: BEY-14
func TestCookies(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.visit("")
	b.sees("Sign in")
	const planted = "planted-by-somebody-else"
	yes := true
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: sessionCookie, Value: planted,
			URL: server.URL + "/console/", Path: "/console", Secure: &yes, HTTPOnly: &yes,
			SameSite: network.CookieSameSiteStrict})
		return err
	}))
	b.typeToken(harness.AdminToken)
	b.sees("Sign out")
	own := b.cookie()
	if own == "" || own == planted {
		t.Fatalf("after the sign-in the cookie is %q", own)
	}
	client := server.Client()
	defer client.CloseIdleConnections()
	for _, test := range []struct {
		name, cookie, path, site string
		code                     int
	}{
		{"the planted one", planted, "/console/session", "same-origin", 401},
		{"the user's, by a client that is no browser", own, "/console/session", "", 403},
		{"the user's without the key", own, "/console/api/api/v1/namespaces", "same-origin", 403},
		{"the user's outside of the console", own, "/api/v1/namespaces", "same-origin", 403},
	} {
		rq, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("Cookie", sessionCookie+"="+test.cookie)
		if test.site != "" {
			rq.Header.Set("Sec-Fetch-Site", test.site)
		}
		answer, err := client.Do(rq)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != test.code {
			t.Errorf("%s: %s, want %d", test.name, answer.Status, test.code)
		}
	}
}

// A page of another origin does nothing by what a browser sends without asking the server first: forms, a script of the
// console's, a WebSocket.
//
// SPEC: BEY-14
func TestOtherPages(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("victim"))
	const evil = `<!doctype html><title>evil</title><iframe name="answer"></iframe>
<form method="post" enctype="text/plain" target="answer" action="%[1]s/console/api%[2]s">
<input name='{"metadata":{"name":"planted"},"x":"' value='"}'></form>
<form method="post" target="answer" action="%[1]s/console/session"><input name="token" value="x"></form><script>
const server = "%[1]s", found = {};
const settle = (name, start, answer = (e) => e.type) => new Promise((done) => start((e) => (found[name] = answer(e), done())));
(async () => {
  for (const form of document.forms) {
    await settle("form" + [...document.forms].indexOf(form), (done) => (document.querySelector("iframe").onload = done, form.submit()));
  }
  await settle("script", (done) => {
    const script = document.createElement("script");
    script.onload = script.onerror = done;
    script.src = server + "/console/static/main.js";
    document.body.append(script);
  });
  await settle("socket", (done) => {
    const socket = new WebSocket(server.replace("https", "wss") + "/console/api%[2]s?watch=1");
    socket.onopen = socket.onerror = done;
  });
  window.found = found;
})();
</script>`
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, evil, server.URL, configMaps)
	}))
	t.Cleanup(other.Close)
	b := open(t, server)
	b.signIn()
	b.run(chromedp.Navigate(other.URL))
	b.wait("window.found")
	got := result(b, chromedp.Evaluate[map[string]string]("window.found"))
	for name, want := range map[string]string{"script": "error", "socket": "error", "form0": "load", "form1": "load"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	b.mu.Lock()
	b.wrong = nil // the browser says what it has refused
	b.mu.Unlock()
	b.visit("r/core/v1/configmaps?ns=default")
	b.sees("victim") // the session is the user's, as before
	b.misses("planted")
}
