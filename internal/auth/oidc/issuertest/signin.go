package issuertest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The paths at which users sign in with a browser.
const (
	AuthorizePath = "/authorize"
	TokenPath     = "/token"
)

// Client is what the issuer knows of a program at which users sign in with a browser: the authorization code flow with
// PKCE.
type Client struct {
	ID        string
	Redirects []string // any path below one of them is allowed, for tests that do not know it
	Secret    string   // "": the client is public
	// Named says whether answers name the issuer (RFC 9207).
	Named bool
	// Change changes the claims of an ID token before it is signed; nil: nothing is changed.
	Change func(Claims)
}

// grant is a code that has been given out.
type grant struct {
	user, redirect, nonce, challenge string
}

// SignIns makes users sign in for a client: at AuthorizePath a page asks who they are, and believes it. A client that
// was named before is forgotten. It is called before anybody reads the discovery document.
func (i *Issuer) SignIns(c Client) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.client, i.grants = &c, map[string]grant{}
	i.handlers[AuthorizePath], i.handlers[TokenPath] = i.authorize, i.exchange
}

// page asks who the user is. The form goes to the address of the page.
var page = template.Must(template.New("").Parse(`<!doctype html>
<title>The test issuer</title>
<form method="post"><h1>The test issuer</h1>
<label>Name <input name="user" autofocus></label>
<button name="do" value="allow">Log in</button> <button name="do" value="deny">Deny</button></form>
`))

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := r.URL.Query()
	below := func(allowed string) bool { return strings.HasPrefix(q.Get("redirect_uri"), allowed) }
	switch {
	case q.Get("client_id") != i.client.ID || !slices.ContainsFunc(i.client.Redirects, below):
		http.Error(w, "unknown client or redirect URI", http.StatusBadRequest)
		return
	case q.Get("response_type") != "code" || !slices.Contains(strings.Fields(q.Get("scope")), "openid") ||
		q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("state") == "":
		http.Error(w, "not the authorization code flow with PKCE", http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := page.Execute(w, nil); err != nil {
			i.t.Error(err)
		}
		return
	}
	answer := url.Values{"state": {q.Get("state")}}
	if i.client.Named {
		answer.Set("iss", i.URL)
	}
	if r.PostFormValue("do") == "deny" {
		answer.Set("error", "access_denied")
		answer.Set("error_description", "<b>The user</b> has denied it")
	} else {
		code := rand.Text()
		i.grants[code] = grant{r.PostFormValue("user"), q.Get("redirect_uri"), q.Get("nonce"), q.Get("code_challenge")}
		answer.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+answer.Encode(), http.StatusSeeOther)
}

// LogIn does what a user does with a browser at an address of the issuer's, and returns where the issuer sends the
// browser; do is "allow" or "deny".
func (i *Issuer) LogIn(address, user, do string) *url.URL {
	i.t.Helper()
	client := *i.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.PostForm(address, url.Values{"user": {user}, "do": {do}})
	if err != nil {
		i.t.Fatal(err)
	}
	_ = answer.Body.Close() // only the header counts
	to, err := answer.Location()
	if err != nil {
		i.t.Fatalf("the issuer answers %s at %s: %v", answer.Status, address, err)
	}
	return to
}

func (i *Issuer) exchange(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	g, known := i.grants[r.PostFormValue("code")]
	delete(i.grants, r.PostFormValue("code"))
	c := i.client
	i.mu.Unlock()
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	reply := func(status int, v map[string]string) {
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			i.t.Error(err)
		}
	}
	switch {
	case id != c.ID || secret != c.Secret:
		reply(http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	case r.PostFormValue("grant_type") != "authorization_code" || !known ||
		r.PostFormValue("redirect_uri") != g.redirect || base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge:
		reply(http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": "no such code"})
		return
	}
	claims := Claims{"sub": g.user, "aud": c.ID, "nonce": g.nonce}
	if c.Change != nil {
		c.Change(claims)
	}
	reply(http.StatusOK, map[string]string{"access_token": rand.Text(), "token_type": "Bearer",
		"id_token": i.Token(claims)})
}
