package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/planes/route"
)

// Backend answers a request in place of the engine, by forwarding it to another server. The request has passed all
// filters, and its body has not been read; asked has its user. If Backend returns an error before it has sent anything,
// the error is the answer.
//
// The writer passes on what is flushed, and is an http.Hijacker: a backend may take over an HTTP/1 connection. The
// context of the request ends at its deadline. That of a long-running request, which has none, ends when the server
// closes.
type Backend func(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error

// backend finds who answers the requests to a URL; nil is the engine. It looks at the URL alone, so it may run before
// authorization.
func (h *Handler) backend(info *requestInfo) Backend {
	if h.Backends == nil || misspelled(info.path) {
		return nil
	}
	if info.isResource {
		return h.Backends(info.group, info.version, info.resource, info.subresource)
	}
	if parts := strings.Split(strings.Trim(info.path, "/"), "/"); len(parts) == 3 && parts[0] == "apis" {
		return h.Backends(parts[1], parts[2], "", "")
	}
	return nil
}

// peerProxied is the header of a request that another server has forwarded, since it does not serve the resource.
const peerProxied = "X-Kubernetes-Peer-Proxied"

// peer finds who answers a request for a resource that is not served here.
func (h *Handler) peer(rs *requestState) Backend {
	info := &rs.info
	if h.Peers == nil || !info.isResource {
		return nil
	}
	backend := h.Peers(info.group, info.version, info.resource)
	if backend == nil || misspelled(info.path) || rs.r.Header.Get(peerProxied) == "true" {
		return nil
	}
	return backend
}

// forward lets the backend answer. A client that stops reading ends the request, as it ends an answer of the engine,
// unless the request is a connection to a node or a Pod: there the client may be a pager.
func (h *Handler) forward(rs *requestState) error {
	rs.place.Exit() // from here on the request only waits
	// What another plane answers at this host has the origin of the console, whatever that plane has.
	if (h.Console != nil || route.Of(rs.ctx).Plane != "") && isBrowser(rs.r) {
		rs.w.Header()["Content-Security-Policy"] = sandbox
	}
	if rs.info.verb == "watch" {
		rs.dropSeats() // as in the reference: when its initial events have been sent is not known here
	}
	ctx := rs.ctx
	if rs.class == LongRunning {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(h.Closing, cancel)
		defer stop()
	}
	if !connects(rs.info.subresource) {
		rs.stall = rs.guard()
		defer rs.stall.end()
	}
	// A Transport returns only when nothing reads the body any more, so reading ends with the request.
	if rs.class != LongRunning && rs.sendsBody() {
		done := make(chan struct{})
		stop := context.AfterFunc(rs.ctx, func() {
			_ = http.NewResponseController(rs.w).SetReadDeadline(time.Unix(1, 0)) // only writers of tests have none
			close(done)
		})
		defer func() {
			if !stop() {
				<-done
			}
		}()
	}
	err := rs.backend(rs, rs.r.WithContext(ctx), &rs.asked)
	if rs.code != http.StatusSwitchingProtocols { // the connection is still the server's
		rs.leaveBody()
	}
	return err
}
