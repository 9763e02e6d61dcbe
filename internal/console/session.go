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
	"plinth/internal/objectmeta"
	"plinth/internal/planes/route"
	"plinth/object"
)

// How long sessions and codes last, and how many there may be. A user who has too many loses the oldest one.
const (
	sessionLife   = 8 * time.Hour
	sessionIdle   = time.Hour // without a request
	codeLife      = time.Minute
	mostSessions  = 1024 // of a plane
	mostOfAll     = 4096 // of all planes
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

// Sessions are the sessions and codes of the consoles of a process. They are not those of a plane: a plane is closed
// when nobody has used it for a while, and its users stay signed in.
//
// A session and a code are for one plane: elsewhere they have no meaning.
type Sessions struct {
	mu    sync.Mutex
	all   map[hash]*session
	codes map[hash]*code
}

// hash is that of an identifier or a code. What is kept does not show what a browser has.
type hash [sha256.Size]byte

// session is what a browser with a certain cookie may do in a plane.
type session struct {
	*signedIn
	plane string // its name; "": the first one
	key   string

	ctx context.Context // ends with the session
	end context.CancelFunc
}

// signedIn is that a user has signed in: what the sessions have in common with which the user has gone from one plane
// to others. They end together, by themselves or when the user signs out in one of them. Each plane decides for itself
// who has the credential, and whether it is valid.
type signedIn struct {
	of    *credential
	user  string // its name then
	until time.Time
	used  time.Time // guarded by Sessions.mu
}

// code is a one-time code.
type code struct {
	of    *credential
	plane string
	user  string
	until time.Time
}

// begin makes the session of a user who signs in, and returns its identifier.
func (s *Sessions) begin(of *credential, user, plane string, now time.Time) (*session, string) {
	return s.add(&signedIn{of: of, user: user, until: now.Add(sessionLife), used: now}, plane, now)
}

// enter makes a session in another plane for a user who has signed in. It replaces one that there was of the same user.
func (s *Sessions) enter(from *session, plane string, now time.Time) (*session, string) {
	s.mu.Lock()
	for h, old := range s.all {
		if old.signedIn == from.signedIn && old.plane == plane {
			s.drop(h)
		}
	}
	s.mu.Unlock()
	return s.add(from.signedIn, plane, now)
}

// add adds a session. What is too much ends: of a user in a plane, of a plane, and of all planes. Then the plane with
// the most loses one, so that nobody can end the sessions of other planes by beginning many.
func (s *Sessions) add(who *signedIn, plane string, now time.Time) (*session, string) {
	id := rand.Text() + rand.Text()
	n := &session{signedIn: who, plane: plane, key: rand.Text()}
	n.ctx, n.end = context.WithTimeout(context.Background(), who.until.Sub(now))
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
	in := func(plane string) func(*session) bool {
		return func(other *session) bool { return other.plane == plane }
	}
	if h, number := oldest(func(other *session) bool {
		return other.plane == plane && other.user == who.user
	}); number >= mostOfOneUser {
		s.drop(h)
	} else if h, number := oldest(in(plane)); number >= mostSessions {
		s.drop(h)
	} else if len(s.all) >= mostOfAll {
		h, _ := oldest(in(s.fullest()))
		s.drop(h)
	}
	s.all[sha256.Sum256([]byte(id))] = n
	return n, id
}

// fullest is the plane with the most sessions. The caller holds the lock.
func (s *Sessions) fullest() (plane string) {
	of := map[string]int{}
	for _, one := range s.all {
		if of[one.plane]++; of[one.plane] > of[plane] {
			plane = one.plane
		}
	}
	return plane
}

// drop ends a session. The caller holds the lock.
func (s *Sessions) drop(h hash) {
	if old := s.all[h]; old != nil {
		old.end()
		delete(s.all, h)
	}
}

// finish ends the session of an identifier in a plane.
func (s *Sessions) finish(id, plane string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := hash(sha256.Sum256([]byte(id))); s.all[h] != nil && s.all[h].plane == plane {
		s.drop(h)
	}
}

// signOut ends all sessions of a user who has signed in.
func (s *Sessions) signOut(who *signedIn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, one := range s.all {
		if one.signedIn == who {
			s.drop(h)
		}
	}
}

// of returns the session of an identifier in a plane, and notes that it is used; nil if there is none.
func (s *Sessions) of(id, plane string, now time.Time) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hash(sha256.Sum256([]byte(id)))
	found := s.all[h]
	if found != nil && found.plane != plane {
		return nil
	}
	if found != nil && found.over(now) {
		s.drop(h)
		return nil
	}
	if found != nil {
		found.used = now
	}
	return found
}

// over says whether the sessions have ended by themselves.
func (s *signedIn) over(now time.Time) bool {
	return !now.Before(s.until) || now.Sub(s.used) >= sessionIdle
}

// issue makes a code for a plane.
func (s *Sessions) issue(of *credential, user, plane string, now time.Time) (string, time.Time) {
	text := rand.Text() + rand.Text()
	n := &code{of: of, plane: plane, user: user, until: now.Add(codeLife)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.codes == nil {
		s.codes = map[hash]*code{}
	}
	first, at, of1 := hash{}, time.Time{}, 0
	for h, other := range s.codes {
		if !now.Before(other.until) {
			delete(s.codes, h)
		} else if other.user == user && other.plane == plane {
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

// redeem returns the credential of a code in its plane, once; nil if there is no such code.
func (s *Sessions) redeem(text, plane string, now time.Time) *credential {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hash(sha256.Sum256([]byte(text)))
	found := s.codes[h]
	delete(s.codes, h)
	if found == nil || found.plane != plane || !now.Before(found.until) {
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
	s := c.Sessions.of(cookie(r, cookieName), nameOf(r), c.Now())
	if s == nil {
		return nil, nil, apierr.NewUnauthorized()
	}
	if key && subtle.ConstantTimeCompare([]byte(r.Header.Get(keyHeader)), []byte(s.key)) != 1 {
		return nil, nil, forbidden("the request does not have the key of its session in the header " + keyHeader)
	}
	id, err := c.valid(r.Context(), s.of)
	if err != nil {
		if r.Context().Err() == nil { // nobody has called off the check
			c.Sessions.finish(cookie(r, cookieName), nameOf(r))
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
		c.answer(w, r, s, id)
		return nil
	case http.MethodDelete:
		s, _, err := c.present(r, true)
		if err != nil {
			return err
		}
		c.Sessions.signOut(s.signedIn)
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
		of = c.Sessions.redeem(given, nameOf(r), c.Now())
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
	if old := c.Sessions.of(cookie(r, cookieName), nameOf(r), c.Now()); old != nil {
		c.Sessions.signOut(old.signedIn)
	}
	s, identifier := c.Sessions.begin(of, id.User.Name, nameOf(r), c.Now())
	c.Logger.Info("a session of the console has begun", "user", id.User.Name, "until", s.until)
	setCookie(w, r, cookieName, identifier, int(sessionLife.Seconds()))
	c.answer(w, r, s, id, more...)
}

// enter begins a session in another plane for a user who has one here, with the same credential, whose cookie is for
// that plane alone. Whether there is such a plane, whether it accepts the credential and what the user may do there,
// that plane says to the first request: nothing of it is known here.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return apierr.NewMethodNotAllowed()
	}
	if !c.Planes || nameOf(r) != "" {
		return apierr.NewNoSuchPath()
	}
	s, _, err := c.present(r, true)
	if err != nil {
		return err
	}
	body, err := bodyOf(w, r)
	if err != nil {
		return err
	}
	name := body.At("plane").Str()
	if !objectmeta.IsLabel(name) {
		return apierr.NewBadRequest("console: this is not the name of a plane")
	}
	entered, identifier := c.Sessions.enter(s, name, c.Now())
	there := route.PathOf(name) + Path
	setCookieAt(w, there, cookieName, identifier, int(entered.until.Sub(c.Now()).Seconds()))
	answer(w, http.StatusOK, object.AppendObject(nil, object.Fields("location", object.StringOf(there+"/"))))
	return nil
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
	setCookieAt(w, at(r), name, value, seconds)
}

// setCookieAt is setCookie for the console at another path.
func setCookieAt(w http.ResponseWriter, path, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: path, MaxAge: seconds, Secure: true,
		HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// answer says whose session it is, in which plane, and more: names and values.
func (c *Console) answer(w http.ResponseWriter, r *http.Request, s *session, id *access.Identity, more ...any) {
	plane := route.Of(r.Context())
	answer(w, http.StatusOK, object.AppendObject(nil, object.Fields(append([]any{
		"user", object.Fields("username", object.StringOf(id.User.Name), "groups", object.Strings(id.User.Groups...)),
		"key", object.StringOf(s.key), "expires", object.StringOf(s.until.UTC().Format(time.RFC3339)),
		// By its host name a plane does not lead to others.
		"plane", object.StringOf(plane.Plane), "planes", object.BoolOf(c.Planes || plane.Base != ""),
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
	text, until := c.Sessions.issue(of, id.User.Name, nameOf(r), c.Now())
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
