package console

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/auth/oidc"
	"plinth/internal/planes/route"
	"plinth/internal/samplelog"
	"plinth/object"
)

// Path is where the console is, below the path of its plane.
const Path = "/console"

// at is where the client of a request has the console.
func at(r *http.Request) string { return route.Of(r.Context()).Base + Path }

// nameOf is the name of the plane that a request is for; "": the first one.
func nameOf(r *http.Request) string { return route.Of(r.Context()).Plane }

// Config says which API the console is for.
type Config struct {
	// API answers the requests of sessions. Their context says whose they are (auth.As). It is set before the first one.
	API http.Handler
	// Authenticate returns the user of a request.
	Authenticate func(*http.Request) (*access.Identity, error)
	// Issuers are those at which users can sign in; nil if there are none.
	Issuers *oidc.Reloader
	// Sessions are those of the process; nil: the console has its own.
	Sessions *Sessions
	// Planes says that there may be others, which users can enter.
	Planes bool
	Now    func() time.Time
	Logger *slog.Logger
}

// Console is a handler of /console and of everything below it. All it does before its first request is to exist.
type Console struct {
	Config
	signIns signIns
	failed  samplelog.Sampler
}

// New makes a console.
func New(c Config) *Console {
	if c.Sessions == nil {
		c.Sessions = &Sessions{}
	}
	return &Console{Config: c, signIns: signIns{exchanges: make(chan struct{}, mostExchanges)}}
}

// ServeHTTP answers one request to /console or to something below it.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range pageHeaders {
		header[name] = value
	}
	var err error
	switch path := strings.TrimPrefix(r.URL.Path, Path); {
	case path == "/session":
		err = c.session(w, r)
	case path == "/code":
		err = c.code(w, r)
	case path == "/enter":
		err = c.enter(w, r)
	case path == issuersPath:
		err = c.issuers(w, r)
	case strings.HasPrefix(path, callbackPath) && r.Method == http.MethodPost:
		err = c.finish(w, r)
	case strings.HasPrefix(path, "/api/"):
		err = c.request(w, r)
	default:
		err = c.page(w, r)
	}
	if err != nil {
		c.fail(w, r, err)
	}
}

// pageHeaders are in every answer of the console.
var pageHeaders = http.Header{
	"Content-Security-Policy": {"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"},
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"}, // for browsers that do not know frame-ancestors
	"Referrer-Policy":              {"no-referrer"},
	"Cross-Origin-Opener-Policy":   {"same-origin"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Cache-Control":                {"no-store"},
}

// fail answers with an error, as a Status.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	refused := apierr.From(err)
	if refused.Code >= http.StatusInternalServerError {
		c.failed.Log(r.Context(), c.Logger, slog.LevelError, "a request of the console has failed", "error", err)
	}
	answer(w, refused.Code, object.AppendObject(nil, refused.Status()))
}

// answer sends JSON.
func answer(w http.ResponseWriter, code int, body []byte) {
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client has gone, if it fails
}

// forbidden is the error of a request that the console refuses.
func forbidden(why string) error {
	return &apierr.Error{Code: http.StatusForbidden, Reason: apierr.Forbidden, Message: "console: " + why}
}

// fromPage returns an error unless a request is from a page of this origin. Browsers say so in a header that pages
// cannot set.
func fromPage(r *http.Request) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin":
		return nil
	case "":
		return forbidden("this is for the page at " + Path + "/, in a browser that sends Sec-Fetch-Site")
	default:
		return forbidden("the request is not from the console's page (Sec-Fetch-Site: " + site + ")")
	}
}
