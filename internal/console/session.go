package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/object"
)

// How long sessions and codes last, and how many there may be. A user who has too many loses the oldest one.
const (
	sessionLife   = 8 * time.Hour
	sessionIdle   = time.Hour // without a request
	codeLife      = time.Minute
	mostSessions  = 1024
	mostOfOneUser = 32
	mostBytes     = 64 << 10 // of a body, and of a credential
)

// cookieName is the name of the cookie that has a session's identifier. Browsers set a cookie of such a name only over
// TLS.
const cookieName = "__Secure-plinth-console"

// keyHeader is the header with the key of the session.
const keyHeader = "X-Plinth-Console"

// credential is what a client has shown of itself: a bearer token or a certificate, and as whom it acts.
type credential struct {
	token        string // the value of the header Authorization
	certificates []*x509.Certificate
	impersonate  http.Header // the headers Impersonate-…
}

// credentialOf is the credential of a request.
func credentialOf(r *http.Request) *credential {
	c := &credential{token: r.Header.Get("Authorization"), impersonate: http.Header{}}
	if r.TLS != nil {
		c.certificates = r.TLS.PeerCertificates
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			c.impersonate[name] = values
		}
	}
	return c
}

// valid returns the user of the credential, and an error if it is none, or is none any more. It is asked for by a
// request that has the credential and nothing of the browser's request: no result of verifying the certificate of the
// browser's connection, and no header of a front proxy.
func (c *Console) valid(ctx context.Context, of *credential) (*access.Identity, error) {
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: Path}, Header: http.Header{}}).
		WithContext(withoutValues{ctx})
	if of.token != "" {
		r.Header["Authorization"] = []string{of.token}
	}
	if len(of.certificates) > 0 {
		r.TLS = &tls.ConnectionState{PeerCertificates: of.certificates}
	}
	if of.token == "" && r.TLS == nil {
		return nil, apierr.NewUnauthorized()
	}
	id, err := c.Authenticate(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", apierr.NewUnauthorized(), err) // the client is not told why
	case id.User.Name == "" || id.User.Name == access.Nobody().Name:
		return nil, apierr.NewUnauthorized()
	}
	return id, nil
}

// withoutValues is a context that ends with another one and has none of its values.
type withoutValues struct{ context.Context }

func (withoutValues) Value(any) any { return nil }

// sessions are the sessions and codes of a console.
type sessions struct {
	mu    sync.Mutex
	all   map[hash]*session
	codes map[hash]*code
}

// hash is that of an identifier or a code. What is kept does not show what a browser has.
type hash [sha256.Size]byte

// session is what a browser with a certain cookie may do.
type session struct {
	of    *credential
	user  string // its name when the session began
	key   string
	begun time.Time
	until time.Time
	used  time.Time // guarded by sessions.mu

	ctx context.Context // ends with the session
	end context.CancelFunc
}

// code is a one-time code.
type code struct {
	of    *credential
	user  string
	until time.Time
}

// begin makes a session and returns its identifier.
func (s *sessions) begin(of *credential, user string, now time.Time) (*session, string) {
	id := rand.Text() + rand.Text()
	n := &session{of: of, user: user, key: rand.Text(), begun: now, until: now.Add(sessionLife), used: now}
	n.ctx, n.end = context.WithTimeout(context.Background(), sessionLife)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[hash]*session{}
	}
	for h, old := range s.all {
		if old.over(now) {
			s.drop(h)
		}
	}
	// oldest is the session of those that count which was used least lately, and how many count.
	oldest := func(counts func(*session) bool) (first hash, number int) {
		var at time.Time
		for h, other := range s.all {
			if counts(other) {
				if number++; number == 1 || other.used.Before(at) {
					first, at = h, other.used
				}
			}
		}
		return first, number
	}
	if h, number := oldest(func(other *session) bool { return other.user == user }); number >= mostOfOneUser {
		s.drop(h)
	} else if h, number := oldest(func(*session) bool { return true }); number >= mostSessions {
		s.drop(h)
	}
	s.all[sha256.Sum256([]byte(id))] = n
	return n, id
}

// drop ends a session. The caller holds the lock.
func (s *sessions) drop(h hash) {
	if old := s.all[h]; old != nil {
		old.end()
		delete(s.all, h)
	}
}

// finish ends the session of an identifier.
func (s *sessions) finish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(sha256.Sum256([]byte(id)))
}

// of returns the session of an identifier, and notes that it is used; nil if there is none.
func (s *sessions) of(id string, now time.Time) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hash(sha256.Sum256([]byte(id)))
	found := s.all[h]
	if found != nil && found.over(now) {
		s.drop(h)
		return nil
	}
	if found != nil {
		found.used = now
	}
	return found
}

// over says whether the session has ended by itself.
func (s *session) over(now time.Time) bool {
	return !now.Before(s.until) || now.Sub(s.used) >= sessionIdle
}

// issue makes a code.
func (s *sessions) issue(of *credential, user string, now time.Time) (string, time.Time) {
	text := rand.Text() + rand.Text()
	n := &code{of: of, user: user, until: now.Add(codeLife)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.codes == nil {
		s.codes = map[hash]*code{}
	}
	first, at, of1 := hash{}, time.Time{}, 0
	for h, other := range s.codes {
		if !now.Before(other.until) {
			delete(s.codes, h)
		} else if other.user == user {
			if of1++; of1 == 1 || other.until.Before(at) {
				first, at = h, other.until
			}
		}
	}
	if of1 >= mostOfOneUser {
		delete(s.codes, first)
	}
	s.codes[sha256.Sum256([]byte(text))] = n
	return text, n.until
}

// redeem returns the credential of a code, once; nil if there is no such code.
func (s *sessions) redeem(text string, now time.Time) *credential {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hash(sha256.Sum256([]byte(text)))
	found := s.codes[h]
	delete(s.codes, h)
	if found == nil || !now.Before(found.until) {
		return nil
	}
	return found.of
}

// cookie is the value that a request has in a cookie.
func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// present returns the session of a request of the console's page, and the user. With key, it has the key of the
// session, too. A session whose credential is not valid any more ends.
func (c *Console) present(r *http.Request, key bool) (*session, *access.Identity, error) {
	if err := fromPage(r); err != nil {
		return nil, nil, err
	}
	s := c.sessions.of(cookie(r, cookieName), c.Now())
	if s == nil {
		return nil, nil, apierr.NewUnauthorized()
	}
	if key && subtle.ConstantTimeCompare([]byte(r.Header.Get(keyHeader)), []byte(s.key)) != 1 {
		return nil, nil, forbidden("the request does not have the key of its session in the header " + keyHeader)
	}
	id, err := c.valid(r.Context(), s.of)
	if err != nil {
		if r.Context().Err() == nil { // nobody has called off the check
			c.sessions.finish(cookie(r, cookieName))
		}
		return nil, nil, err
	}
	return s, id, nil
}

// session answers /console/session: GET says who one is, POST begins a session, DELETE ends it.
func (c *Console) session(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet:
		s, id, err := c.present(r, false)
		if err != nil {
			return err
		}
		s.answer(w, id)
		return nil
	case http.MethodDelete:
		if _, _, err := c.present(r, true); err != nil {
			return err
		}
		c.sessions.finish(cookie(r, cookieName))
		setCookie(w, r, cookieName, "", -1)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPost:
		return c.signIn(w, r)
	}
	return apierr.NewMethodNotAllowed()
}

// signIn begins a session, and ends the one that the browser had.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) error {
	if err := fromPage(r); err != nil {
		return err
	}
	body, err := bodyOf(w, r)
	if err != nil {
		return err
	}
	var of *credential
	switch given, token := body.At("code").Str(), body.At("token").Str(); {
	case given != "" && token != "":
		return apierr.NewBadRequest("console: a code or a token, not both")
	case given != "":
		of = c.sessions.redeem(given, c.Now())
	case token != "":
		of = &credential{token: "Bearer " + token}
	case r.TLS != nil:
		of = &credential{certificates: r.TLS.PeerCertificates}
	}
	if of == nil {
		return apierr.NewUnauthorized()
	}
	id, err := c.valid(r.Context(), of)
	if err != nil {
		return err
	}
	c.welcome(w, r, of, id)
	return nil
}

// welcome begins a session for a credential, ends the one that the browser had, and answers with it.
func (c *Console) welcome(w http.ResponseWriter, r *http.Request, of *credential, id *access.Identity, more ...any) {
	c.sessions.finish(cookie(r, cookieName))
	s, identifier := c.sessions.begin(of, id.User.Name, c.Now())
	c.Logger.Info("a session of the console has begun", "user", id.User.Name, "until", s.until)
	setCookie(w, r, cookieName, identifier, int(sessionLife.Seconds()))
	s.answer(w, id, more...)
}

// bodyTime is how long a body may take to arrive.
const bodyTime = 10 * time.Second

// bodyOf reads the body of a request, which is a map as JSON.
func bodyOf(w http.ResponseWriter, r *http.Request) (object.Value, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return object.Nil, apierr.NewUnsupportedMediaType([]string{"application/json"})
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // only writers of tests have none
	data, err := io.ReadAll(io.LimitReader(r.Body, mostBytes+1))
	if err != nil {
		return object.Nil, apierr.NewBadRequest("console: the body cannot be read: " + err.Error())
	}
	if len(data) > mostBytes {
		return object.Nil, apierr.NewTooLarge("console: the body is too large")
	}
	parsed, err := object.ParseJSON(data)
	if err != nil || parsed.Value.Kind() != object.Map {
		return object.Nil, apierr.NewBadRequest("console: the body is no map as JSON")
	}
	return parsed.Value, nil
}

// setCookie sets a cookie for as many seconds; -1: it takes it away. It is for scripts of no page, and the browser
// sends it with requests of this site alone.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: at(r), MaxAge: seconds, Secure: true,
		HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// answer says whose session it is, and more: names and values.
func (s *session) answer(w http.ResponseWriter, id *access.Identity, more ...any) {
	answer(w, http.StatusOK, object.AppendObject(nil, object.Fields(append([]any{
		"user", object.Fields("username", object.StringOf(id.User.Name), "groups", object.Strings(id.User.Groups...)),
		"key", object.StringOf(s.key), "expires", object.StringOf(s.until.UTC().Format(time.RFC3339)),
	}, more...)...)))
}

// code answers /console/code: it issues a code to a client that has credentials. A browser is none: it sends its
// certificate for pages of anybody.
func (c *Console) code(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return apierr.NewMethodNotAllowed()
	}
	if r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "" {
		return forbidden("a code is for a client that is no browser")
	}
	of := credentialOf(r)
	if of.size() > mostBytes {
		return forbidden("the credential is too large to be kept")
	}
	id, err := c.valid(r.Context(), of)
	if err != nil {
		return err
	}
	if real, err := c.Authenticate(r); err != nil || real.User.Name != id.User.Name {
		return forbidden("a front proxy cannot get a code for the user whom it names")
	}
	text, until := c.sessions.issue(of, id.User.Name, c.Now())
	answer(w, http.StatusCreated, object.AppendObject(nil, object.Fields(
		"code", object.StringOf(text), "expires", object.StringOf(until.UTC().Format(time.RFC3339)))))
	return nil
}

// size is about the memory that a credential takes.
func (c *credential) size() int {
	n := len(c.token)
	for _, certificate := range c.certificates {
		n += len(certificate.Raw)
	}
	for name, values := range c.impersonate {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}
