package console

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/auth/oidc"
	"plinth/internal/planes/route"
	"plinth/internal/samplelog"
	"plinth/object"
)

// Signing in at an issuer of OpenID Connect (the authorization code flow, oidc.SignIn).
//
//	page     POST /console/oidc {issuer, at}           the issuer's address, and a cookie that is this browser's
//	browser  the issuer, which sends it back to GET /console/oidc/callback/ISSUER?code&state: the page, as anywhere
//	page     takes code and state from its address, and sends POST /console/oidc/callback/ISSUER {code, state}
//	server   gets the token from the issuer, and begins a session with it
//
// The code is not exchanged by the GET. That is a request from another site, with which a browser sends no cookie that
// is for this site alone; nor would it send the session's if the answer set it and redirected. So no request of another
// site does anything here: what the page sends is checked like all that it sends (fromPage).
//
// An attacker may make a browser visit the callback with a code of the attacker's, for the user to work in the
// attacker's name. The state of that code is not one that this browser's cookie belongs to.

// How many sign-ins may be under way, for how long, and how many at once may wait for an issuer. Whoever begins one is
// a stranger yet: a network address that has too many loses its oldest one.
const (
	signInLife       = 10 * time.Minute
	mostSignIns      = 1024
	mostOfOneAddress = 64
	mostExchanges    = 16
	mostOfPage       = 4 << 10 // bytes of the address of the page at which one was
)

// signInCookie has what binds a sign-in to a browser.
const signInCookie = cookieName + "-oidc"

// issuersPath is below Path, and callbackPath below it where issuers send browsers back. Each has a callback of its
// own: so none can make a browser bring here, as its own, the code of another one (RFC 9700, 4.4).
const (
	issuersPath  = "/oidc"
	callbackPath = issuersPath + "/callback/"
)

// signIns are the sign-ins under way.
type signIns struct {
	mu  sync.Mutex
	all map[hash]*signIn // by their states

	exchanges chan struct{} // has an element for each that waits for an issuer
	failed    samplelog.Sampler
}

// signIn is a sign-in under way.
type signIn struct {
	*oidc.SignIn
	browser hash   // of its cookie
	address string // of its network
	at      string // the page at which it was
	until   time.Time
}

// issuers answers /console/oidc: GET says where one can sign in, POST begins to.
func (c *Console) issuers(w http.ResponseWriter, r *http.Request) error {
	if err := fromPage(r); err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet:
		var urls []string
		if c.Issuers != nil {
			urls = c.Issuers.SignIns()
		}
		var all []object.Value
		for i, name := range names(urls) {
			all = append(all, object.Fields("id", object.StringOf(urls[i]), "name", object.StringOf(name)))
		}
		answer(w, http.StatusOK, object.AppendObject(nil, object.Fields("issuers", object.ListOf(all...))))
		return nil
	case http.MethodPost:
		return c.begin(w, r)
	}
	return apierr.NewMethodNotAllowed()
}

// names are the names of issuers: their hosts, with the path where a host has several.
func names(urls []string) []string {
	all, count := make([]string, len(urls)), map[string]int{}
	for i, text := range urls {
		if u, err := url.Parse(text); err == nil {
			all[i] = u.Host
		}
		count[all[i]]++
	}
	for i, host := range all {
		if count[host] > 1 {
			all[i] = strings.TrimPrefix(urls[i], "https://")
		}
	}
	return all
}

// begin begins a sign-in at an issuer, and answers with where the browser has to go.
func (c *Console) begin(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf(w, r)
	if err != nil {
		return err
	}
	issuer, page := body.At("issuer").Str(), body.At("at").Str()
	if !isPage(page, at(r)) {
		return apierr.NewBadRequest("console: at is no page of the console")
	}
	if c.Issuers == nil {
		return apierr.NewBadRequest("console: this server has no issuer")
	}
	origin := "https://" + r.Host // as the issuer knows it
	if given := r.Header.Get("Origin"); given != origin {
		return forbidden("the page is at " + given + ", and the request for " + origin)
	}
	begun, address, err := c.Issuers.Begin(issuer, origin+route.Of(r.Context()).Base+callback(issuer))
	if err != nil {
		return refused(err)
	}
	browser := rand.Text() + rand.Text()
	c.signIns.keep(&signIn{SignIn: begun, browser: sha256.Sum256([]byte(browser)), address: network(r.RemoteAddr),
		at: page, until: c.Now().Add(signInLife)}, c.Now())
	setCookie(w, r, signInCookie, browser, int(signInLife.Seconds()))
	answer(w, http.StatusOK, object.AppendObject(nil, object.Fields("location", object.StringOf(address))))
	return nil
}

// callback is the path to which an issuer sends browsers back, below that of the plane.
func callback(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil {
		return Path + callbackPath // it is no issuer's
	}
	return Path + callbackPath + u.Host + u.EscapedPath()
}

// isPage says whether an address is that of a page of the console at root, without its origin. A browser takes a
// backslash for a slash, and the dots of a path may be escaped.
func isPage(address, root string) bool {
	u, err := url.Parse(address)
	return err == nil && len(address) <= mostOfPage && strings.HasPrefix(address, root+"/") &&
		!strings.Contains(address, `\`) && strings.HasPrefix(path.Clean(u.Path)+"/", root+"/")
}

// network is the network address that counts for mostOfOneAddress. Of IPv6 a customer has 2⁶⁴ addresses.
func network(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	address := at.Addr().Unmap().WithZone("")
	if address.Is6() {
		prefix, _ := address.Prefix(64) // an error is for other lengths
		return prefix.String()
	}
	return address.String()
}

// keep keeps a sign-in. Those that are over go, and the oldest one of its network or of all, if there are too many.
func (s *signIns) keep(n *signIn, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[hash]*signIn{}
	}
	var oldest, oldestOfNetwork hash
	var first, firstOfNetwork time.Time
	ofNetwork := 0
	for h, other := range s.all {
		if !now.Before(other.until) {
			delete(s.all, h)
			continue
		}
		if first.IsZero() || other.until.Before(first) {
			oldest, first = h, other.until
		}
		if other.address == n.address {
			if ofNetwork++; firstOfNetwork.IsZero() || other.until.Before(firstOfNetwork) {
				oldestOfNetwork, firstOfNetwork = h, other.until
			}
		}
	}
	if ofNetwork >= mostOfOneAddress {
		delete(s.all, oldestOfNetwork)
	} else if len(s.all) >= mostSignIns {
		delete(s.all, oldest)
	}
	s.all[sha256.Sum256([]byte(n.State))] = n
}

// take returns the sign-in of a state, once, to the browser that has begun it; nil if there is none.
func (s *signIns) take(state, browser string, now time.Time) *signIn {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hash(sha256.Sum256([]byte(state)))
	found := s.all[h]
	if found == nil || found.browser != sha256.Sum256([]byte(browser)) {
		return nil
	}
	delete(s.all, h)
	if !now.Before(found.until) {
		return nil
	}
	return found
}

// finish ends a sign-in: the page brings what the issuer has answered. It begins a session with the user's token, which
// is accepted or not as that of any client is.
func (c *Console) finish(w http.ResponseWriter, r *http.Request) error {
	if err := fromPage(r); err != nil {
		return err
	}
	body, err := bodyOf(w, r)
	if err != nil {
		return err
	}
	s := c.signIns.take(body.At("state").Str(), cookie(r, signInCookie), c.Now())
	if s == nil || r.URL.EscapedPath() != callback(s.Issuer) {
		return apierr.NewBadRequest("this sign-in was not begun in this browser, was used, or took more than ten minutes: " +
			"begin again")
	}
	setCookie(w, r, signInCookie, "", -1)
	select {
	case c.signIns.exchanges <- struct{}{}:
		defer func() { <-c.signIns.exchanges }()
	default:
		return &apierr.Error{Code: http.StatusTooManyRequests, Reason: apierr.TooManyRequests,
			Message: "too many users are signing in: begin again"}
	}
	token, err := c.Issuers.Finish(r.Context(), s.SignIn, oidc.Answer{Code: body.At("code").Str(),
		Issuer: body.At("iss").Str(), Error: body.At("error").Str(), Description: body.At("error_description").Str()})
	of := &credential{token: "Bearer " + token}
	if err == nil && of.size() > mostBytes {
		err = errors.New("the token is too large to be kept")
	}
	if err != nil {
		c.noteFailure(r, s, err)
		return refused(err)
	}
	id, err := c.valid(r.Context(), of)
	if err != nil {
		c.noteFailure(r, s, err)
		return refused(errors.New("the server does not accept the token of " + s.Issuer))
	}
	c.welcome(w, r, of, id, "at", object.StringOf(s.at))
	return nil
}

// noteFailure logs why a sign-in has failed: a user who is told no more than what concerns a user asks the operator.
func (c *Console) noteFailure(r *http.Request, s *signIn, why error) {
	c.signIns.failed.Log(r.Context(), c.Logger, slog.LevelWarn, "a sign-in at an issuer has failed", "issuer", s.Issuer,
		"error", samplelog.Clip(why.Error()))
}

// refused is the error for a user who cannot sign in at an issuer.
func refused(err error) error {
	if errors.Is(err, oidc.ErrUnavailable) {
		return &apierr.Error{Code: http.StatusServiceUnavailable, Reason: apierr.ServiceUnavailable,
			Message: samplelog.Clip(err.Error())}
	}
	return &apierr.Error{Code: http.StatusUnauthorized, Reason: apierr.Unauthorized, Message: samplelog.Clip(err.Error())}
}
