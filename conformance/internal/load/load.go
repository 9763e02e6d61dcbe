// Package load puts load on a server with as little CPU in the client as possible, because they share the processors:
// HTTP/2 through net/http, no client-go, bodies from templates, and events of watches counted by their newlines.
package load

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plinth/conformance/internal/harness"
)

// Client is a number of connections to one server.
type Client struct {
	URL   string
	conns []*http.Client
	next  atomic.Uint64
}

// New makes a client with the given number of connections, each with its own TLS session.
func New(s *harness.Server, connections int) *Client {
	c := &Client{URL: s.URL}
	for range connections {
		c.conns = append(c.conns, s.Client())
	}
	return c
}

// Close closes the connections.
func (c *Client) Close() {
	for _, conn := range c.conns {
		conn.CloseIdleConnections()
	}
}

// Request is one request; Accept and ContentType default to JSON.
type Request struct {
	Method, Path        string
	Body                []byte
	ContentType, Accept string
	Header              http.Header
	Token               string    // "" for the administrator's
	Stream              io.Reader // the body, instead of Body
}

// Start sends a request on the next connection and returns the open response. Any status but 2xx is a StatusError.
func (c *Client) Start(ctx context.Context, rq Request) (*http.Response, error) {
	var body io.Reader
	if rq.Body != nil {
		body = bytes.NewReader(rq.Body)
	} else if rq.Stream != nil {
		body = rq.Stream
	}
	request, err := http.NewRequestWithContext(ctx, rq.Method, c.URL+rq.Path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range rq.Header {
		request.Header[name] = values
	}
	request.Header.Set("Authorization", "Bearer "+cmp.Or(rq.Token, harness.AdminToken))
	request.Header.Set("User-Agent", "load/1.0")
	request.Header.Set("Accept", "application/json")
	if rq.Accept != "" {
		request.Header.Set("Accept", rq.Accept)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
		if rq.ContentType != "" {
			request.Header.Set("Content-Type", rq.ContentType)
		}
	}
	conn := c.conns[c.next.Add(1)%uint64(len(c.conns))]
	response, err := conn.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return nil, errors.Join(&StatusError{response.StatusCode, string(text), time.Duration(seconds) * time.Second}, err)
	}
	return response, nil
}

// StatusError is a response with a status other than 2xx.
type StatusError struct {
	Code int
	Text string
	// RetryAfter is when the server wants the request again; 0: it does not say.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d: %.300s", e.Code, e.Text) }

// Refused says whether a response means that the server does not support the request at all.
func Refused(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) {
		return false
	}
	switch status.Code {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType,
		http.StatusNotImplemented:
		return true
	}
	return false
}

// Do sends a request and returns the body of the response.
func (c *Client) Do(ctx context.Context, rq Request) ([]byte, error) {
	response, err := c.Start(ctx, rq)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.ContentLength > 0 {
		body := make([]byte, response.ContentLength)
		_, err := io.ReadFull(response.Body, body)
		return body, err
	}
	return io.ReadAll(response.Body)
}

// Discard sends a request, discards the body of the response, and returns its length.
func (c *Client) Discard(ctx context.Context, rq Request) (int64, error) {
	response, err := c.Start(ctx, rq)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return io.Copy(io.Discard, response.Body)
}

// Each calls f for 0 … n-1 from a number of workers, and returns the first error.
func Each(workers, n int, f func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	wait.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Namespace creates a namespace.
func (c *Client) Namespace(ctx context.Context, name string) error {
	_, err := c.Do(ctx, Request{Method: http.MethodPost, Path: "/api/v1/namespaces",
		Body: []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `"}}`)})
	return err
}

// ResourceVersion returns the resourceVersion of an object or a list, "" if it has none. It is the first in the body,
// as the metadata of a list is before its items.
func ResourceVersion(body []byte) string {
	_, after, ok := bytes.Cut(body, []byte(`"resourceVersion":"`))
	if !ok {
		return ""
	}
	rv, _, _ := bytes.Cut(after, []byte(`"`))
	return string(rv)
}

// Revision is a resourceVersion as a number.
func Revision(body []byte) (uint64, error) { return strconv.ParseUint(ResourceVersion(body), 10, 64) }

// Pod returns a Pod with two containers, like those that controllers create: 1.3 kB in the store.
func Pod(namespace, name string, serial int) []byte {
	return []byte(strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "SERIAL",
		strconv.Itoa(serial)).Replace(podTemplate))
}

const podTemplate = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","namespace":"NAMESPACE","labels":{"app":"web","pod-template-hash":"5d59d67564","serial":"SERIAL"}},` +
	`"spec":{"containers":[{"name":"web","image":"registry.example.com/team/web:v1.25.3","ports":[{"containerPort":8080,"name":"http"}],` +
	`"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],` +
	`"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},` +
	`"readinessProbe":{"httpGet":{"path":"/healthz","port":"http"},"periodSeconds":5}},` +
	`{"name":"proxy","image":"registry.example.com/mesh/proxy:v1.20.1","args":["--drain","30s"],` +
	`"resources":{"requests":{"cpu":"10m","memory":"40Mi"}}}]}}`
