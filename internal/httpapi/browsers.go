package httpapi

import (
	"context"
	"net/http"
	"strings"

	"plinth/internal/apierr"
)

// ofConsole says whether the console answers the requests to a path.
func (h *Handler) ofConsole(path string) bool {
	return h.Console != nil && (path == "/console" || strings.HasPrefix(path, "/console/"))
}

// consoleKey is the key of FromConsole.
type consoleKey struct{}

// FromConsole returns a context for requests of the console's page. They are answered by this server alone: another one
// would get what the session of a browser may do, and could answer with a page of its own.
func FromConsole(ctx context.Context) context.Context {
	return context.WithValue(ctx, consoleKey{}, true)
}

// onlyHere refuses a request of the console that is for another server: an aggregated one, a node, a Pod or a Service.
func (rs *requestState) onlyHere() error {
	if rs.backend == nil && !connects(rs.info.subresource) || rs.ctx.Value(consoleKey{}) == nil {
		return nil
	}
	return &apierr.Error{Code: http.StatusForbidden, Reason: apierr.Forbidden,
		Message: "the console sends no requests to other servers: use kubectl"}
}

// isBrowser says whether a browser sends a request: all of them say for whom, and no page can keep them from it. Those
// that are too old to do so have no sessions here.
func isBrowser(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") != "" }

// sandbox is the policy of what other servers answer to a browser: one that shows it treats it as a page of an origin
// of its own, which has no cookies and no answers of this origin. Its scripts run there. Other clients get what they
// would get of the reference.
var sandbox = []string{"sandbox allow-scripts allow-forms allow-popups allow-downloads"}

// ofAnotherSite says whether a browser sends a request for a page of another site with nothing but its client
// certificate, which it sends for any page. The pages of the allowed origins may have that (CORS).
func (h *Handler) ofAnotherSite(r *http.Request) bool {
	if h.Console == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.Header["Authorization"]) > 0 {
		return false
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && !h.allowsOrigin(r.Header.Get("Origin"))
}
