package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// connection says whether the request is for a subresource of a type of the engine that is sent on. Its type has to be
// routed first: it says which URLs and methods there are, and what is admitted. All other forwarded requests are the
// backend's alone.
func (h *Handler) connection(rs *requestState) bool {
	info := &rs.info
	if info.subresource == "" {
		return false
	}
	r := h.Registry.Now().Find(info.group, info.version, info.resource)
	if r == nil {
		return false
	}
	s := r.Subresource(info.subresource)
	return s != nil && s.Connection != nil
}

// routeConnection is routeSubresource for a connection (URI-7).
func routeConnection(rs *requestState) (func(*Handler, *requestState) error, error) {
	info, s := &rs.info, rs.subresource
	method, every := rs.r.Method, s.Connection.Below
	switch {
	case info.rest != "" && !every:
		return nil, apierr.NewNoSuchPath()
	case every && (method == http.MethodHead || method == http.MethodOptions):
	case method == http.MethodHead, !slices.Contains(s.Verbs, methodVerbs[method]):
		return nil, apierr.NewMethodNotAllowed()
	}
	if info.name == "" { // an empty segment
		return nil, apierr.NewBadRequest("name must be provided")
	}
	return (*Handler).connect, nil
}

// connect admits a connection and lets its backend answer. As in the reference, what is at the other end is looked up
// after that, by the backend, so that the answer to a user who may not connect does not reveal it.
func (h *Handler) connect(rs *requestState) error {
	info, c := &rs.info, rs.subresource.Connection
	if c.Admitted && len(rs.query()["dryRun"]) > 0 {
		return apierr.NewBadRequest("dryRun is not supported")
	}
	if ofAnotherPage(rs.r) {
		return &apierr.Error{Code: http.StatusForbidden, Reason: apierr.Forbidden,
			Message: "a page of another origin cannot open a WebSocket with a client certificate"}
	}
	below := ""
	if c.Below {
		below = info.below()
	}
	options, err := c.Options(rs.query(), below)
	if err != nil {
		return apierr.NewBadRequest(err.Error())
	}
	if !c.Admitted { // a log
		if _, err := rs.negotiate(); err != nil {
			return err
		}
	}
	if c.Admitted {
		result, err := h.Engine.Connect(rs.ctx, rs.request(), options)
		rs.warn(result.GetWarnings())
		if err != nil {
			return err
		}
	}
	if c.Creates && info.verb != "create" {
		if err := h.mayCreate(rs); err != nil {
			return err
		}
	}
	if rs.backend == nil {
		return apierr.NewNotImplemented(
			rs.subresource.Name+" of "+rs.resource.Name+" is not available here: there are no nodes",
			&apierr.Details{Name: info.name, Group: info.group, Kind: info.resource})
	}
	return h.forward(rs)
}

// ofAnotherPage says whether a browser opens a WebSocket for a page of another origin, with the client certificate that
// it sends for any page: such a page could run commands as the user of the browser. With a token, which a page has to
// know, it may. The reference makes no difference.
//
// A web interface such as Headlamp sends its users' requests on, with its own certificate and with their Origin. A page
// cannot set a header of a WebSocket's request, so one with those of a proxy has a proxy's certificate.
func ofAnotherPage(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || !websocket.IsWebSocketUpgrade(r) {
		return false
	}
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	page, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(page.Host, r.Host)
}

// below is the path below the subresource, with the slash at the end that the URL has; "" if there is none.
func (info *requestInfo) below() string {
	path := info.rest
	if path != "" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if strings.HasSuffix(info.path, "/") && !strings.HasSuffix(path, "/") {
		path += "/"
	}
	return path
}

// mayCreate refuses a request that was authorized for another verb unless its user also has the verb create: a browser
// opens a WebSocket by GET, and a user who may only read Pods must not run commands in them. As in the reference, the
// message is the reason of the authorizer alone.
func (h *Handler) mayCreate(rs *requestState) error {
	a := rs.asked
	a.Verb = "create"
	switch decision, reason, err := h.Authorizer.Authorize(rs.ctx, &a); {
	case decision == access.Allow:
		return nil
	case err != nil:
		return err
	default:
		return apierr.NewForbidden(rs.resource.Type(), rs.info.name, reason)
	}
}
