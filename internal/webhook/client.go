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

	"plinth/object"
)

const (
	// callTimeout is how long a call may take where its webhook does not say, and what the webhook is told of it.
	callTimeout = 30 * time.Second
	// maxAnswer bounds the bytes of an answer, unpacked.
	maxAnswer = 32 << 20
	// maxClients is for how many configurations clients are kept: as many as in the reference.
	maxClients = 200
	// maxReported bounds how much of an answer that is an error stands in a message.
	maxReported = 2048
	// maxRedirects is how often an answer may lead elsewhere.
	maxRedirects = 10
	// defaultPort is the port of a service where its reference names none.
	defaultPort = 443
)

// Clients call webhooks: each by the configuration of its client, a URL or a reference to a service, and the
// certificates that it is trusted by. A client, with its open connections, is kept for each configuration that was
// used lately.
type Clients struct {
	// Endpoint finds the address of a service, "10.0.0.1:8443".
	Endpoint func(ctx context.Context, namespace, service string, port int64) (string, error)

	mu   sync.Mutex
	kept []*client // the one that was used last comes last
}

// client calls the webhook of one configuration.
type client struct {
	config string // as JSON
	url    string
	http   *http.Client
}

// Call posts a body of JSON to the webhook of a client configuration, and returns its answer. An error says what the
// reference says.
func (c *Clients) Call(ctx context.Context, config object.Value, body []byte) ([]byte, error) {
	client, err := c.of(config)
	if err != nil {
		return nil, err
	}
	return post(ctx, client.http, client.url, "kube-apiserver-admission", nil, body)
}

// post posts a body of JSON and returns the answer. An answer whose code is no success is an error. Webhooks know the
// reference by the name of the agent. Show adds credentials to the request; nil: there are none.
func post(ctx context.Context, by *http.Client, url, agent string, show func(*http.Request) error,
	body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("User-Agent", agent)
	if show != nil {
		if err := show(request); err != nil {
			return nil, err
		}
	}
	response, err := by.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent:
		return nil, refused(response, answer)
	}
	return answer, nil
}

// refusal is the error of an answer with a code that tells of one. What it wraps has the words of the reference.
type refusal struct {
	error
	code  int
	after int  // seconds after which to ask again
	again bool // whether the answer says so
}

func (r *refusal) Unwrap() error { return r.error }

// refused is an answer with a code that tells of an error. A Status in it goes before the code.
func refused(response *http.Response, answer []byte) *refusal {
	r := &refusal{code: response.StatusCode}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		r.after, r.again = seconds, r.code == http.StatusTooManyRequests || r.code >= http.StatusInternalServerError
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err == nil && status.Kind == "Status" &&
		status.Status == metav1.StatusFailure {
		r.error = &apierrors.StatusError{ErrStatus: status}
		return r
	}
	told := "unknown"
	if kind := response.Header.Get("Content-Type"); kind == "" || strings.HasPrefix(kind, "text/") {
		told = strings.TrimSpace(string(answer[:min(len(answer), maxReported)]))
	}
	r.error = apierrors.NewGenericServerResponse(r.code, response.Request.Method, schema.GroupResource{}, "", told,
		r.after, true)
	return r
}

// of is the client of a configuration.
func (c *Clients) of(config object.Value) (*client, error) {
	key := string(object.AppendJSON(nil, config))
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.kept, func(k *client) bool { return k.config == key }); i >= 0 {
		found := c.kept[i]
		c.kept = append(slices.Delete(c.kept, i, i+1), found)
		return found, nil
	}
	made, err := c.make(config)
	if err != nil {
		return nil, err
	}
	made.config = key
	if c.kept = append(c.kept, made); len(c.kept) > maxClients {
		c.kept[0].http.CloseIdleConnections()
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	return made, nil
}

// make makes the client of a configuration. It speaks HTTP/1.1, of which several connections reach several backends
// of a service.
func (c *Clients) make(config object.Value) (*client, error) {
	roots, err := rootsOf(config)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: callTimeout, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	address, err := c.address(config, transport)
	if err != nil {
		return nil, err
	}
	query := address.Query()
	query.Set("timeout", callTimeout.String())
	address.RawQuery = query.Encode()
	return &client{
		url:  address.String(),
		http: &http.Client{Transport: transport, Timeout: callTimeout, CheckRedirect: stayPrivate},
	}, nil
}

// stayPrivate keeps what is sent to a webhook from being sent on where everybody can read it.
func stayPrivate(request *http.Request, via []*http.Request) error {
	switch {
	case request.URL.Scheme != "https":
		return fmt.Errorf("the webhook leads to %s, which is not https", request.URL.Redacted())
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// address is where the webhook of a configuration is. The name of a service is never looked up: whenever a connection
// to it is made, it goes to the endpoint that the service has then.
func (c *Clients) address(config object.Value, transport *http.Transport) (*url.URL, error) {
	service := config.At("service")
	if service.IsNull() {
		text := config.At("url").Str()
		if text == "" {
			return nil, errors.New("webhook configuration must have either service or URL")
		}
		address, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("unparsable URL: %w", err)
		}
		return address, nil
	}
	namespace, name, port := service.At("namespace").Str(), service.At("name").Str(), service.At("port").Int()
	if port == 0 {
		port = defaultPort
	}
	host := net.JoinHostPort(name+"."+namespace+".svc", strconv.FormatInt(port, 10))
	dial := transport.DialContext
	transport.Proxy = nil
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == host {
			if c.Endpoint == nil {
				return nil, fmt.Errorf("the address of service %s/%s cannot be found out", namespace, name)
			}
			var err error
			if address, err = c.Endpoint(ctx, namespace, name, port); err != nil {
				return nil, err
			}
		}
		return dial(ctx, network, address)
	}
	return &url.URL{Scheme: "https", Host: host, Path: service.At("path").Str()}, nil
}

// rootsOf are the certificates that the webhook of a configuration is trusted by; nil: those of the system. A bundle
// of white space is none.
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
