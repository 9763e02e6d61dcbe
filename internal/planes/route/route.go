// Package route says for which plane a request is, and makes of it the request that this plane's handler sees. It looks
// at the request alone, and does not know which planes there are.
//
// A plane has two addresses:
//
//	https://HOST/clusters/NAME/api/v1/…     by path, as kcp has it; HOST is any name of the server
//	https://NAME.DOMAIN/api/v1/…            by host name, if the router has a domain, for clients that drop the path
//
// All else is for the first plane, whose name is "", and remains as it is. /clusters/*/… is for all planes ([All]).
// Behind the address comes what a lone server has at /: [Router.Route] makes the request that a lone server would get
// for that, and the context of the request has the [Address], for those who write paths into answers, logs or audit
// records.
//
// The rules are made so that no two readers can see two planes in one request. A name is a DNS label, and is there
// literally: an escaped one, or an escaped slash beside it, is no name. What is not exactly an address is no plane
// (404): neither another one, nor the first. Nothing is decoded twice, and no path is cleaned. Only the path, the host
// (Host, :authority, or that of a request URI in absolute form, which net/http puts in their place) and the server name
// of the connection count. Headers of proxies (X-Forwarded-Host, X-Forwarded-Prefix, Forwarded) do not: any client can
// send them.
//
// By host name, the server name of the connection (SNI) has to be the same name (RFC 9110, 15.5.20: 421), and the other
// way round. Who is between a client and the server, and passes on or refuses connections by their server name, has
// decided by it: a request for another plane on that connection would circumvent it. A browser may use a connection to
// one plane for another one, because the certificate is for both; with 421 it opens another. For the same reason a
// connection without a server name is for no host name of a plane: whoever stands between lets it pass, or not, without
// knowing what it is for. A client that connects to a bare address sends none; it has the path, and has not verified
// that the server has the name of the plane. Which of the other names of the server a connection and a request have
// does not matter: all lead to the first plane. A request that did not come over TLS is from the same process, and has
// no server name to compare with.
//
// CONNECT and "OPTIONS *" are requests with other paths: net/http answers the latter itself, before any handler.
package route

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/objectmeta"
)

// All is, in place of the name of a plane, that of requests to all planes.
const All = "*"

// folder is where planes are, by path.
const folder = "/clusters"

// PathOf is where a plane is, by path.
func PathOf(plane string) string { return folder + "/" + plane }

// Router finds the planes of requests. It may be used concurrently.
type Router struct {
	// Domain has the names of planes as host names, NAME.Domain. It is in lower case and does not end in a dot. "": there
	// are none.
	Domain string
}

// Route returns the name of the plane that a request is for, "" for the first one and All for all, and the request as
// the plane's handler is to see it. It is r itself for the first plane; otherwise a copy, which shares header and body.
// An error is an *apierr.Error with the code 404 or 421.
func (rt *Router) Route(r *http.Request) (plane string, inner *http.Request, err error) {
	host, err := rt.ofHost(r)
	if err != nil {
		return "", nil, err
	}
	path, ok := ofPath(r.URL)
	switch {
	case !ok, host != "" && path != "":
		return "", nil, apierr.NewNoSuchPath()
	case host != "":
		return host, r.WithContext(With(r.Context(), Address{Plane: host})), nil
	case path == "":
		return "", r, nil
	}
	if inner = below(r, path); inner == nil {
		return "", nil, apierr.NewNoSuchPath()
	}
	return path, inner, nil
}

// ofHost returns the plane whose host name the request is for; "": the request is for none.
func (rt *Router) ofHost(r *http.Request) (plane string, err error) {
	if rt.Domain == "" {
		return "", nil
	}
	host, _, _ := strings.Cut(r.Host, ":")
	name, ok := rt.label(host)
	if r.TLS != nil {
		if sent, also := rt.label(r.TLS.ServerName); ok != also || name != sent {
			return "", &apierr.Error{Code: http.StatusMisdirectedRequest, Message: "the host of the request is another one " +
				"than the server name of the connection: both have to name the same plane"}
		}
	}
	if ok && !objectmeta.IsLabel(name) {
		return "", apierr.NewNoSuchPath()
	}
	return name, nil
}

// label returns what a host name below the domain has before it.
func (rt *Router) label(host string) (name string, ok bool) {
	host = strings.TrimSuffix(host, ".")
	end := len(host) - len(rt.Domain) - 1
	if end < 0 || host[end] != '.' || lower(host[end+1:]) != rt.Domain {
		return "", false
	}
	return lower(host[:end]), true
}

// lower is strings.ToLower for ASCII alone: a name with other letters is none, and must not become one.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if c := b[i]; 'A' <= c && c <= 'Z' {
					b[i] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// isIn says whether a path is that of a folder, or below it.
func isIn(path, folder string) bool {
	return strings.HasPrefix(path, folder) && (len(path) == len(folder) || path[len(folder)] == '/')
}

// ofPath returns the plane that a URL names by its path; "" if it names none. It is not ok if the path is in the folder
// of planes, and is not that of a plane.
func ofPath(u *url.URL) (plane string, ok bool) {
	if !isIn(u.Path, folder) {
		return "", true
	}
	if len(u.Path) == len(folder) {
		return "", false
	}
	plane, _, _ = strings.Cut(u.Path[len(folder)+1:], "/")
	if plane != All && !objectmeta.IsLabel(plane) {
		return "", false
	}
	base := u.Path[:len(folder)+1+len(plane)]
	// RawPath is the path as the client sent it, if that is not how Path would be written.
	return plane, u.RawPath == "" || isIn(u.RawPath, base)
}

// below returns the request for what is below a plane; nil if there is nothing.
func below(r *http.Request, plane string) *http.Request {
	base := r.URL.Path[:len(folder)+1+len(plane)]
	u := *r.URL
	u.Path = u.Path[len(base):]
	if u.RawPath != "" {
		u.RawPath = u.RawPath[len(base):]
		if plane == All && u.RawPath == (&url.URL{Path: u.Path}).EscapedPath() {
			u.RawPath = "" // it was set for the asterisk
		}
	}
	a := Address{Plane: plane, Base: base, bare: u.Path == ""}
	if a.bare {
		u.Path = "/"
	}
	if isIn(u.Path, folder) { // a plane has no planes
		return nil
	}
	inner := r.WithContext(With(r.Context(), a))
	inner.URL, inner.RequestURI = &u, without(r.RequestURI, base)
	return inner
}

// without returns a request URI without the beginning of its path. In absolute form the path is behind the scheme and
// the host.
func without(uri, base string) string {
	at := 0
	if !strings.HasPrefix(uri, "/") {
		at = strings.IndexByte(uri, ':') + 1
		if rest, ok := strings.CutPrefix(uri[at:], "//"); ok {
			at = len(uri) - len(rest)
			if i := strings.IndexByte(rest, '/'); i >= 0 {
				at += i
			}
		}
	}
	rest, ok := strings.CutPrefix(uri[at:], base)
	if !ok { // the request is from this process, and has none
		return uri
	}
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return uri[:at] + rest
}

// Address is how a client has reached a plane. That of the first plane is the zero value.
type Address struct {
	Plane string // its name
	// Base is what comes before all paths of the plane in URLs: "/clusters/NAME"; "" if it was reached by its host name.
	Base string
	bare bool // the client's path was Base itself
}

// URI is what the client sent for a URL that the plane's handler sees.
func (a Address) URI(u *url.URL) string {
	uri := u.RequestURI()
	if a.bare && u.Path == "/" {
		uri = uri[1:]
	}
	return a.Base + uri
}

type addressKey struct{}

// With returns a context for requests that reach a plane by an address.
func With(ctx context.Context, a Address) context.Context {
	return context.WithValue(ctx, addressKey{}, a)
}

// Of returns the address of a request's context.
func Of(ctx context.Context) Address {
	a, _ := ctx.Value(addressKey{}).(Address)
	return a
}
