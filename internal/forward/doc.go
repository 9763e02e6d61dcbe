// Package forward sends a request on to another server and passes its answer back: to an aggregated API server, or to a
// node, a Pod or a Service. It knows how, and not where to: a [Target] names the server, and its caller has found it.
//
// What the reference forwards with does the work: net/http/httputil.ReverseProxy, within the UpgradeAwareHandler of
// k8s.io/apimachinery/pkg/util/proxy. Bodies are streamed in both directions, parts of an answer whose length is not
// known are flushed as they come, and a connection that is upgraded (SPDY, WebSocket) is copied byte by byte. This
// package adds what a server needs that is not alone in its process and does not trust its clients:
//
//   - Errors are returned. Nothing is printed.
//   - An answer that breaks off ends with a panic of http.ErrAbortHandler, so that a client does not take a part for
//     the whole.
//   - The headers X-Remote-*, by which the other server knows the user, are those of [Target.User] alone. Headers that
//     are meant for one connection only (Connection and those that it names) are not passed on, also where a connection
//     is upgraded; so a client can neither send X-Remote-* itself nor have those of the server removed.
//   - The header of an answer to an upgrade is limited: one without an end would fill the memory.
package forward
