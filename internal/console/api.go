package console

import (
	"context"
	"net/http"
	"strings"

	"plinth/internal/auth"
	"plinth/internal/httpapi"
)

// request sends a request of the page on to the API, in the name of its session.
//
// The API gets it with the user, and without any credential of the browser: neither the cookie nor a certificate. It
// does not send it on to anybody else (httpapi.FromConsole), and ends it with the session.
func (c *Console) request(w http.ResponseWriter, r *http.Request) error {
	s, id, err := c.present(r, true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(auth.As(httpapi.FromConsole(r.Context()), id))
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	inner := r.Clone(ctx)
	for _, name := range []string{"Authorization", "Cookie", keyHeader, "Origin"} {
		inner.Header.Del(name)
	}
	if len(s.of.impersonate) > 0 {
		for name := range inner.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				delete(inner.Header, name)
			}
		}
		for name, values := range s.of.impersonate {
			inner.Header[name] = values
		}
	}
	prefix := Path + "/api"
	inner.URL.Path = strings.TrimPrefix(inner.URL.Path, prefix)
	inner.URL.RawPath = strings.TrimPrefix(inner.URL.RawPath, prefix)
	inner.RequestURI = inner.URL.RequestURI()
	inner.TLS = nil
	c.API.ServeHTTP(w, inner)
	return nil
}
