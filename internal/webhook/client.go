package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/egress"
	"plinth/internal/execution"
	"plinth/object"
)

const (
	// callTimeout limits a call unless its caller sets another limit. It is sent to the webhook in the query parameter
	// timeout.
	callTimeout = 30 * time.Second
	// maxResponse is the limit of a response body in bytes, after decompression.
	maxResponse = 32 << 20
	// maxClients is how many clients are kept, as in the reference.
	maxClients = 200
	// maxErrorBody is how many bytes of the body of an error response are in the error.
	maxErrorBody = 2048
	maxRedirects = 10
	// maxSized is the longest body for which memory is taken because its header says how long it is.
	maxSized = 16 << 10
	// defaultPort is the port of a service reference without a port.
	defaultPort = 443
)

// Config is a client configuration: the members url or service, and caBundle.
type Config struct {
	value object.Value
	text  func() string // as JSON; made for the first call
}

// NewConfig makes a configuration of its value.
func NewConfig(v object.Value) *Config {
	return &Config{v, sync.OnceValue(func() string { return string(object.AppendJSON(nil, v)) })}
}

// Clients calls webhooks by their client configurations. It may be used concurrently.
//
// A client has a pool of open connections, and TLS handshakes cost more than most calls, so clients are kept: those of
// the 200 configurations that were used last. The key is the whole configuration as JSON, so that a changed caBundle
// takes effect at the next call.
type Clients struct {
	// Endpoint returns the address of a port of a service, such as "10.0.0.1:8443". Nil: services cannot be called.
	Endpoint func(ctx context.Context, namespace, service string, port int64) (string, error)
	// InProcess finds webhooks in this process; nil: all are in the network.
	InProcess InProcess
	// Credentials are those with which this server authenticates at webhooks; nil: it does not.
	Credentials *Credentials
	Egress      egress.Policy // where connections may lead, redirects included

	mu   sync.Mutex
	kept []*client // by last use, the latest last; len(kept) ≤ maxClients
}

// InProcess returns who answers the requests to a host in this process, in place of the network; nil: the network does.
// The host is that of the URL, and NAME.NAMESPACE.svc:PORT for a service.
type InProcess func(host string) http.RoundTripper

// client calls the webhook of one configuration.
type client struct {
	config string // as JSON
	url    url.URL
	http   *http.Client
	// authenticate adds credentials to a request; nil: there are none.
	authenticate func(*http.Request) error
}

// Call posts a JSON body to the webhook of a client configuration and returns the body of its response. A response with
// an error code, and one over the limit, are errors; their messages are those of the reference.
func (c *Clients) Call(ctx context.Context, config object.Value, body []byte) ([]byte, error) {
	return c.CallWithin(ctx, NewConfig(config), callTimeout, body)
}

// CallWithin is Call with another time limit that the webhook is told. It ends with ctx, or after 30 s.
func (c *Clients) CallWithin(ctx context.Context, config *Config, limit time.Duration, body []byte) ([]byte, error) {
	client, err := c.of(ctx, config)
	if err != nil {
		return nil, err
	}
	// A Timeout of the http.Client would cost a goroutine for each call.
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > callTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	address := client.url
	if address.RawQuery == "" {
		address.RawQuery = "timeout=" + limit.String()
	} else {
		query := address.Query()
		query.Set("timeout", limit.String())
		address.RawQuery = query.Encode()
	}
	return post(ctx, client.http, address.String(), "kube-apiserver-admission", client.authenticate, body)
}

// post posts a JSON body and returns the body of the response; a code other than success is a *statusError. The user
// agents are those of the reference, which webhooks may log or check. authenticate adds credentials to the request;
// nil: there are none.
func post(ctx context.Context, by *http.Client, url, agent string, authenticate func(*http.Request) error,
	body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("User-Agent", agent)
	var response *http.Response
	var text []byte
	execution.Outside(ctx, func() {
		execution.AssertOutside(ctx, "a webhook")
		if authenticate != nil {
			if err = authenticate(request); err != nil {
				return
			}
		}
		if response, err = by.Do(request); err == nil {
			text, err = readBody(response)
			_ = response.Body.Close() // it was read
		}
	})
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxResponse:
		return nil, fmt.Errorf("the response of the webhook is longer than %d bytes", maxResponse)
	case response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent:
		return nil, newStatusError(response, text)
	}
	return text, nil
}

// readBody returns the body of a response, or its beginning if it has more than maxResponse bytes.
func readBody(response *http.Response) ([]byte, error) {
	var text bytes.Buffer
	if n := response.ContentLength; n >= 0 && n <= maxSized {
		text.Grow(int(n) + bytes.MinRead)
	}
	_, err := text.ReadFrom(io.LimitReader(response.Body, maxResponse+1))
	return text.Bytes(), err
}

// statusError is the error of a response with an error code. It wraps an error with the message of the reference.
type statusError struct {
	error
	retryAfter int  // seconds
	retry      bool // whether the response asks for a retry after retryAfter
}

func (e *statusError) Unwrap() error { return e.error }

// newStatusError returns the error of a response with an error code. If the body is a Status, its message and reason
// are used, otherwise those that the reference has for the code.
func newStatusError(response *http.Response, body []byte) *statusError {
	code := response.StatusCode
	e := &statusError{}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		e.retryAfter, e.retry = seconds, code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && status.Kind == "Status" &&
		status.Status == metav1.StatusFailure {
		e.error = &apierrors.StatusError{ErrStatus: status}
		return e
	}
	message := "unknown"
	if kind := response.Header.Get("Content-Type"); kind == "" || strings.HasPrefix(kind, "text/") {
		message = strings.TrimSpace(string(body[:min(len(body), maxErrorBody)]))
	}
	e.error = apierrors.NewGenericServerResponse(code, response.Request.Method, schema.GroupResource{}, "", message,
		e.retryAfter, true)
	return e
}

// of returns the client of a configuration: the one that is kept, or a new one. It is made without the lock, because
// its credentials may be in files. If two are made at one time, the first one that is kept is the one.
func (c *Clients) of(ctx context.Context, config *Config) (*client, error) {
	key := config.text()
	if found := c.find(key, nil); found != nil {
		return found, nil
	}
	made, err := c.make(ctx, config.value)
	if err != nil {
		return nil, err
	}
	made.config = key
	return c.find(key, made), nil
}

// find returns the client that is kept for a configuration. If there is none, it is added from now on; nil: none is.
func (c *Clients) find(key string, added *client) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.kept, func(k *client) bool { return k.config == key }); i >= 0 {
		found := c.kept[i]
		c.kept = append(slices.Delete(c.kept, i, i+1), found)
		return found
	}
	if added == nil {
		return nil
	}
	if c.kept = append(c.kept, added); len(c.kept) > maxClients {
		c.kept[0].http.CloseIdleConnections()
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	return added
}

// make returns a new client of a configuration. It speaks HTTP/1.1: its connections are distributed among the endpoints
// of a service, while one HTTP/2 connection would send all calls to a single endpoint. A webhook on this machine may
// speak HTTP/2.
func (c *Clients) make(ctx context.Context, config object.Value) (*client, error) {
	roots, err := rootsOf(config)
	if err != nil {
		return nil, err
	}
	transport := newTransport(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, c.Egress)
	made := &client{http: &http.Client{Transport: transport, CheckRedirect: checkRedirect}}
	if service := config.At("service"); service.IsNull() {
		err = made.toURL(config.At("url").Str(), transport)
	} else {
		c.toService(made, service, transport)
	}
	if err != nil {
		return nil, err
	}
	if c.InProcess != nil {
		if here := c.InProcess(made.url.Host); here != nil {
			made.http.Transport = here
		}
	}
	made.http.Transport = counting{made.http.Transport}
	execution.Outside(ctx, func() {
		made.authenticate, err = c.Credentials.of(target(&made.url), transport.TLSClientConfig, made.http)
	})
	return made, err
}

// target is the host and port of an address, which Credentials are for.
func target(address *url.URL) string {
	if address.Port() != "" {
		return address.Host
	}
	return net.JoinHostPort(address.Hostname(), strconv.Itoa(defaultPort))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// checkRedirect refuses redirects to plain HTTP: the body may contain Secrets.
func checkRedirect(request *http.Request, via []*http.Request) error {
	switch {
	case request.URL.Scheme != "https":
		return fmt.Errorf("the webhook redirects to %s, which is not an https URL", request.URL.Redacted())
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// toURL makes a client call a URL.
func (c *client) toURL(text string, transport *http.Transport) error {
	if text == "" {
		return errors.New("webhook configuration must have either service or URL")
	}
	address, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("unparsable URL: %w", err)
	}
	c.url = *address
	transport.Protocols.SetHTTP2(isLoopback(address.Hostname()))
	return nil
}

// toService makes a client call a service. The host is NAME.NAMESPACE.svc, which its certificate must be for. That name
// is not resolved by DNS, and HTTP proxies of the environment are not used for services.
func (c *Clients) toService(made *client, service object.Value, transport *http.Transport) {
	namespace, name, port := service.At("namespace").Str(), service.At("name").Str(), service.At("port").Int()
	if port == 0 {
		port = defaultPort
	}
	domain := name + "." + namespace + ".svc"
	host := join(domain, port)
	made.url = url.URL{Scheme: "https", Host: host, Path: service.At("path").Str()}
	transport.Protocols.SetHTTP2(false)
	transport.Proxy = nil
	transport.TLSClientConfig.ServerName = domain
	made.http.Transport = &toService{transport, host, func(ctx context.Context) (string, error) {
		if c.Endpoint == nil {
			return "", fmt.Errorf("service %s/%s cannot be called: this server does not resolve services", namespace, name)
		}
		return c.Endpoint(ctx, namespace, name, port)
	}}
}

// rootsOf returns the CA certificates of a configuration; nil if its caBundle is empty or white space: then those of
// the system are used.
func rootsOf(config object.Value) (*x509.CertPool, error) {
	bundle, err := base64.StdEncoding.DecodeString(config.At("caBundle").Str())
	if err != nil {
		return nil, fmt.Errorf("caBundle: %w", err)
	}
	if len(bytes.TrimSpace(bundle)) == 0 {
		return nil, nil
	}
	return CABundle(bundle)
}
