package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/execution"
)

// Target is the server that gets one request, and how it gets it. The zero value of every field but URL and
// Transport is what most targets have. The fields are those of proxy.UpgradeAwareHandler, whose comments are more
// complete.
type Target struct {
	// URL is that of the request at the other server. Unless OwnQuery is set, its query is not used: that of the
	// request is. OwnQuery is for upgrades alone.
	URL      *url.URL
	OwnQuery bool
	// Transport sends the request. For upgrades, it is an *http.Transport, or wraps one (WrappedRoundTripper): they need
	// its dialer and its TLSClientConfig.
	Transport http.RoundTripper
	// Rewrite sets the headers X-Forwarded-*, and changes the URLs in Location headers and in HTML that name the other
	// server, so that a client gets there through this one.
	Rewrite bool
	// Base comes before the path of the request in the URLs that its client knows, and so in those that Rewrite makes. ""
	// is what there is without planes. It goes with Rewrite, and not with RequestPath.
	Base string
	// UpgradeOnly refuses a request that does not upgrade its connection.
	UpgradeOnly bool
	// RefuseRedirects answers 502 in place of a redirect.
	RefuseRedirects bool
	// OwnHost sends the host of the URL as the Host header; otherwise that of the client is sent.
	OwnHost bool
	// RequestPath sends the path of the request instead of that of the URL; with AppendPath, behind that.
	RequestPath, AppendPath bool
	// BytesPerSecond limits an upgraded connection in each direction; 0: there is no limit.
	BytesPerSecond int64
	// User is whom the headers X-Remote-* name. Nil: none are set, and those of the client are removed all the same.
	User *access.User
	// Answered is told of the answer to a request that does not upgrade its connection, before it is passed on, or why
	// there is none. Nil: nobody is told.
	Answered func(answer *http.Response, err error)
	// Logger notes why an answer broke off. Nil: slog.Default.
	Logger *slog.Logger
}

// maxHTML is the size of an HTML page whose URLs are rewritten, which takes place in memory.
const maxHTML = 8 << 20

// Forward sends the request to the target, and the answer to w. It returns when all of the answer is sent, or when one
// side of an upgraded connection has closed it. If it returns an error, nothing was sent. An error that the reference
// answers with a Status is an *apierr.Error; it answers others with 500 or 503, whatever it forwards to.
func (t *Target) Forward(w http.ResponseWriter, r *http.Request) error {
	x := &exchange{Target: t, transport: t.Transport}
	upgrade := httpstream.IsUpgradeRequest(r)
	// The libraries log what they return or pass on, too.
	out := r.WithContext(klog.NewContext(r.Context(), klog.Logger{}))
	out.Header = r.Header.Clone()
	removeRemote(out.Header)
	if upgrade { // ReverseProxy does it for other requests
		CleanUpgrade(out.Header)
		Identify(out.Header, t.User)
	}
	if plain, ok := t.Transport.(*http.Transport); ok && upgrade {
		// The library waits for the answer to an upgrade whatever becomes of the request.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		transport, upgraded := Upgrading(ctx, plain)
		x.transport, w = transport, &hijacker{w, upgraded}
	}
	if t.Base != "" {
		out.URL = below(t.Base, r.URL)
	}
	location := *t.URL
	if !t.OwnQuery {
		location.RawQuery = r.URL.RawQuery
	}
	handler := proxy.NewUpgradeAwareHandler(&location, x, t.Rewrite, t.UpgradeOnly, x)
	handler.RejectForwardingRedirects = t.RefuseRedirects
	handler.UseLocationHost = t.OwnHost
	handler.UseRequestLocation, handler.AppendLocationPath = t.RequestPath, t.AppendPath
	handler.MaxBytesPerSec = t.BytesPerSecond
	handler.ServeHTTP(w, out)
	if x.failed == nil && x.broken != nil {
		logger := t.Logger
		if logger == nil {
			logger = slog.Default()
		}
		logger.Debug("an answer of another server broke off", "server", t.URL.Host, "error", x.broken)
		panic(http.ErrAbortHandler) // unless ReverseProxy has done so already
	}
	return convert(x.failed)
}

// Readdress returns a request as it is sent to the server at an address, HOST:PORT, at which it has the same path. As
// in the reference its query is printed anew, and the other server's audit log has the Audit-Id that the answer w has.
func Readdress(w http.ResponseWriter, in *http.Request, address string) *http.Request {
	out := in.WithContext(in.Context())
	out.URL = &url.URL{Scheme: "https", Host: address, Path: in.URL.Path, RawQuery: in.URL.Query().Encode()}
	out.Host, out.Header = address, in.Header.Clone()
	if id := w.Header()["Audit-Id"]; id != nil {
		out.Header["Audit-Id"] = id
	}
	return out
}

// below returns the URL of a request as its client knows it.
func below(base string, u *url.URL) *url.URL {
	sent := *u
	sent.Path = base + u.Path
	if u.RawPath != "" {
		sent.RawPath = base + u.RawPath
	}
	return &sent
}

// exchange is one request on its way. It is the RoundTripper that ReverseProxy calls, and the one that is told of
// errors.
type exchange struct {
	*Target
	transport http.RoundTripper
	failed    error // before anything was sent
	broken    error // while the body was sent
}

// Error is proxy.ErrorResponder.
func (x *exchange) Error(_ http.ResponseWriter, _ *http.Request, err error) { x.failed = err }

// WrappedRoundTripper lets the library reach the dialer of the transport.
func (x *exchange) WrappedRoundTripper() http.RoundTripper { return x.transport }

// RoundTrip sends the request with the headers of the user. They are set here, and not before: a client can name any
// header in Connection, and ReverseProxy has removed those.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	Identify(r.Header, x.User) // they are ReverseProxy's own copy
	execution.AssertOutside(r.Context(), "another server")
	answer, err := x.transport.RoundTrip(r)
	if x.Answered != nil {
		x.Answered(answer, err)
	}
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		// Nobody asked for it: upgrades are sent in another way. ReverseProxy refuses it, and leaves the connection open.
		_ = answer.Body.Close()
	}
	b := &body{ReadCloser: answer.Body, of: x, left: -1}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	if x.Rewrite && strings.TrimSpace(kind) == "text/html" {
		b.left = maxHTML
	}
	answer.Body = b
	return answer, nil
}

// hijacker is a ResponseWriter that calls hijacked before its connection is taken over.
type hijacker struct {
	http.ResponseWriter
	hijacked func()
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.hijacked()
	return http.NewResponseController(h.ResponseWriter).Hijack()
}

// body notes why an answer broke off. ReverseProxy prints such an error, unless it is that the request was cancelled.
type body struct {
	io.ReadCloser
	of   *exchange
	left int64 // bytes that may follow; negative: any number
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left >= 0 {
		if b.left -= int64(n); b.left < 0 {
			return n, fmt.Errorf("a page of more than %d bytes cannot be rewritten", maxHTML)
		}
	}
	if err == nil || err == io.EOF { // io.Copy compares in this way, too
		return n, err
	}
	b.of.broken = err
	return n, context.Canceled
}

// convert makes an *apierr.Error of an error of the reference's library that has a Status.
func convert(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	s := status.Status()
	return &apierr.Error{Code: int(s.Code), Reason: apierr.Reason(s.Reason), Message: s.Message}
}

// hopByHop are the headers for one connection only, as in ReverseProxy, but for those that make it an upgrade.
var hopByHop = []string{"Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding"}

// CleanUpgrade removes what is not passed on from a request that upgrades its connection: the headers for one
// connection only, and those by which a client may try to be someone else.
func CleanUpgrade(h http.Header) {
	removeRemote(h)
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = textproto.TrimString(name); name != "" && !strings.EqualFold(name, "upgrade") {
				h.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
	h["Connection"] = []string{"Upgrade"}
}
