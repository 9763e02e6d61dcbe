package console

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
	"plinth/internal/auth/oidc/issuertest"
)

// issued is a server that is at localhost for the browser, and an issuer at 127.0.0.1: two sites, as they are for
// users.
type issued struct {
	*harness.Server
	issuer *issuertest.Issuer
	at     string // the origin of the console
}

func startWithIssuer(t *testing.T) *issued {
	t.Helper()
	issuer := issuertest.Start(t)
	issuer.SignIns(issuertest.Client{ID: "console", Redirects: []string{"https://localhost:"}, Named: true})
	server := harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: []string{"--oidc-issuer-url=" + issuer.URL,
		"--oidc-ca-file=" + issuer.CAFile(), "--oidc-client-id=console", "--oidc-username-prefix=-"}})
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &issued{server, issuer, "https://localhost:" + u.Port()}
	for end := time.Now().Add(tooLong); ; time.Sleep(10 * time.Millisecond) { // until the server has found the issuer
		code, text := s.begin(t)
		if code == http.StatusOK {
			return s
		}
		if code != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("beginning to sign in: %d %s", code, text)
		}
	}
}

// goTo opens an address of any origin.
func (b *tab) goTo(address string) {
	b.t.Helper()
	b.run(chromedp.Navigate(address))
}

// who waits until a user is signed in.
func (b *tab) who(user string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`document.querySelector("header .user")?.textContent.trim() === %q`, user))
}

// begin begins a sign-in, as a program that says it is a browser.
func (s *issued) begin(t *testing.T) (int, []byte) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	rq, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.at+"/console/oidc",
		strings.NewReader(jsonOf(map[string]string{"issuer": s.issuer.URL, "at": "/console/"})))
	if err != nil {
		t.Fatal(err)
	}
	rq.Header.Set("Content-Type", "application/json")
	rq.Header.Set("Sec-Fetch-Site", "same-origin")
	rq.Header.Set("Origin", s.at)
	answer, err := client.Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, data
}

// expected takes errors of the browser that have one of the texts from what went wrong. Each text must be in one.
func (b *tab) expected(texts ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range texts {
		if !slices.ContainsFunc(b.wrong, func(w string) bool { return strings.Contains(w, text) }) {
			b.t.Errorf("the browser does not say %q: %q", text, b.wrong)
		}
	}
	b.wrong = slices.DeleteFunc(b.wrong, func(w string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(w, text) })
	})
}

// link is the address to which the issuer sends the browser of a user who has begun to sign in with that program.
func (s *issued) link(t *testing.T, user string) string {
	t.Helper()
	code, data := s.begin(t)
	var to struct{ Location string }
	if err := json.Unmarshal(data, &to); err != nil || code != http.StatusOK {
		t.Fatalf("beginning to sign in: %v %d %s", err, code, data)
	}
	return s.issuer.LogIn(to.Location, user, "allow").String()
}

// A user signs in at an issuer, by keys and by mouse, and is at the page at which the sign-in began.
//
// SPEC: BEY-14
func TestSignInAtIssuer(t *testing.T) {
	server := startWithIssuer(t)
	const page = "/console/r/core/v1/configmaps?ns=default&q=a%2Fb"
	button := "Sign in with " + strings.TrimPrefix(server.issuer.URL, "https://")
	back := fmt.Sprintf(`location.href === %q`, server.at+page)
	for name, signIn := range map[string]func(b *tab){
		"by keys": func(b *tab) {
			b.wait(fmt.Sprintf(`[...document.querySelectorAll("button")].find((e) => e.textContent === %q)?.disabled === false`,
				button))
			for range 10 {
				b.keys(kb.Tab)
				if result(b, chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement.textContent === %q`, button))) {
					break
				}
			}
			b.keys(kb.Enter)
			b.wait(`document.title === "The test issuer" && document.activeElement.name === "user"`)
			b.keys("ann" + kb.Enter)
		},
		"by mouse": func(b *tab) {
			b.click("button", button)
			b.wait(`document.title === "The test issuer" && document.activeElement.name === "user"`)
			b.keys("ann")
			b.click("button", "Log in")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, server.Server)
			b.goTo(server.at + page)
			b.sees(button)
			b.picture("issuer-" + strings.ReplaceAll(name, " ", "-"))
			signIn(b)
			b.who("ann")
			b.wait(back)
			b.sees(`User "ann" cannot list resource "configmaps"`)
			b.goTo(server.at + page) // the cookie is the browser's
			b.who("ann")
			b.wait(`sessionStorage.length === 0 && document.cookie === "" &&
				Object.keys(localStorage).every((k) => !localStorage[k].includes("."))`)
			b.click("button", "Sign out")
			b.sees(button)
		})
	}
}

// A user who is refused by the issuer reads why, as text.
//
// SPEC: BEY-14
func TestSignInIsDenied(t *testing.T) {
	server := startWithIssuer(t)
	b := open(t, server.Server)
	b.goTo(server.at + "/console/")
	b.click("button", "Sign in with")
	b.click("button", "Deny")
	b.sees("the issuer refuses: access_denied: <b>The user</b> has denied it")
	b.wait(`location.href.endsWith("/console/") && document.querySelector("[role=alert]")`)
	b.harmless()
	b.goTo(server.at + "/console/oidc/callback/" + strings.TrimPrefix(server.issuer.URL, "https://") +
		"?state=x&error=x&error_description=" + url.QueryEscape("Call 555-1234 "+payloads[1]))
	b.sees("was not begun in this browser")
	b.misses("555-1234")
	b.harmless()
}

// A browser that is made to visit an answer to somebody else's sign-in, or an answer again, does not work in another
// name after that than before. The code is not even exchanged.
//
// SPEC: BEY-14
func TestForgedSignIns(t *testing.T) {
	server := startWithIssuer(t)
	b := open(t, server.Server)
	b.goTo(server.link(t, "mallory"))
	b.sees("was not begun in this browser")
	b.click("button", "Sign in with") // now the browser has a cookie of a sign-in, and the attacker's answer comes
	b.wait(`document.title === "The test issuer"`)
	b.goTo(server.link(t, "mallory"))
	b.sees("was not begun in this browser")
	if n := server.issuer.Asked(issuertest.TokenPath); n != 0 {
		t.Errorf("%d codes were exchanged", n)
	}

	b.click("button", "Sign in with")
	b.wait(`document.title === "The test issuer" && document.activeElement.name === "user"`)
	address := result(b, chromedp.Evaluate[string](`location.href`))
	answer := server.issuer.LogIn(address, "ann", "allow").String() // what the form does, and the browser does not do yet
	b.goTo(answer)
	b.who("ann")
	b.wait(`location.pathname === "/console/"`)
	exchanged := server.issuer.Asked(issuertest.TokenPath)
	for _, forged := range []string{answer, server.link(t, "mallory")} {
		b.goTo(forged)
		b.who("ann")
		b.wait(`location.pathname === "/console/" && location.search === ""`)
	}
	b.click("button", "Sign out")
	b.sees("Sign in with")
	b.goTo(answer)
	b.sees("was not begun in this browser")
	if n := server.issuer.Asked(issuertest.TokenPath); n != exchanged {
		t.Errorf("%d codes more were exchanged", n-exchanged)
	}
}

// A page of another origin can neither begin nor finish a sign-in, nor look at the console's page while one is under
// way.
//
// SPEC: BEY-14
func TestSignInFromAnotherOrigin(t *testing.T) {
	server := startWithIssuer(t)
	link, err := url.Parse(server.link(t, "mallory"))
	if err != nil {
		t.Fatal(err)
	}
	body := jsonOf(map[string]string{"state": link.Query().Get("state"), "code": link.Query().Get("code"),
		"iss": link.Query().Get("iss")})
	begin := jsonOf(map[string]string{"issuer": server.issuer.URL, "at": "/console/"})
	server.issuer.Handle("/evil", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>evil</title><iframe src="%[1]s/console/" name="frame"></iframe><script>
const send = (path, body, type) => fetch(%[1]q + path, { method: "POST", mode: type ? "cors" : "no-cors",
	credentials: "include", body, headers: type ? { "Content-Type": type } : {} }).then((r) => r.type, () => "failed");
window.sent = Promise.all([send("/console/oidc", %[2]q), send("/console/oidc", %[2]q, "application/json"),
	send(%[3]q, %[4]q), send(%[3]q, %[4]q, "application/json")]).then((all) => (window.done = all.join(" ")));
</script>`, server.at, begin, link.EscapedPath(), body) // the browser is part of the test
	})
	b := open(t, server.Server)
	b.goTo(server.at + "/console/")
	b.sees("Sign in with")
	b.goTo(server.issuer.URL + "/evil")
	b.wait(`window.done`)
	if done := result(b, chromedp.Evaluate[string](`window.done`)); done != "failed failed failed failed" {
		t.Errorf("the page of another origin gets %q", done)
	}
	b.expected("Framing 'https://localhost", "/console/oidc' from origin 'https://127.0.0.1", "blocked by CORS policy")
	b.goTo(server.at + "/console/")
	b.sees("Sign in with")
	if n := server.issuer.Asked(issuertest.TokenPath); n != 0 {
		t.Errorf("%d codes were exchanged", n)
	}
}
