package outside

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// User is who sends a request.
type User struct {
	Name   string              `json:"name"`
	Groups []string            `json:"groups"` // system:authenticated is added
	UID    string              `json:"uid"`
	Extra  map[string][]string `json:"extra"`
}

// Transport returns the transport of a client of the plane: of its administrator, or of a user. A request with an
// Authorization header is from whoever its token belongs to.
func (p *Plane) Transport(as ...User) http.RoundTripper {
	p.t.Helper()
	token := struct{ Token string }{p.access.Token}
	if len(as) > 0 {
		p.must(http.MethodPost, "/users", as[0], &token)
	}
	return &transport{p, token.Token}
}

// Driver returns a transport of the administrator for the test itself: no fault concerns its requests, and they are
// not among Requests.
func (p *Plane) Driver() http.RoundTripper { return &transport{p, p.access.DriverToken} }

// transport sends requests with a token, and knows what its clients have read of their watches.
type transport struct {
	plane *Plane
	token string
}

// watchHeader gives a watch a name, by which the other process says how much of it was sent.
const watchHeader = "Plinth-Watch"

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	if sent.Header.Get("Authorization") == "" {
		sent.Header.Set("Authorization", "Bearer "+t.token)
	}
	w := &t.plane.watches
	w.sending.Add(1)
	defer w.sending.Add(-1)
	if watch, _ := strconv.ParseBool(r.URL.Query().Get("watch")); !watch && !strings.Contains(r.URL.Path, "/watch/") {
		return t.plane.service.web.RoundTrip(sent)
	}
	body := w.add()
	sent.Header.Set(watchHeader, body.id)
	response, err := t.plane.service.web.RoundTrip(sent)
	if err != nil {
		w.remove(body)
		return nil, err
	}
	body.ReadCloser = response.Body
	response.Body = body
	return response, nil
}

// watches are the watches of clients of Transport and Driver.
type watches struct {
	sending atomic.Int64 // requests that have no answer yet
	mu      sync.Mutex
	made    int
	all     map[string]*watch
}

func (w *watches) add() *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	one := &watch{of: w, id: strconv.Itoa(w.made)}
	if w.all == nil {
		w.all = map[string]*watch{}
	}
	w.all[one.id] = one
	return one
}

func (w *watches) remove(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one.id)
}

// unread says whether a client has not read what was sent to it, or does not wait for more.
func (w *watches) unread(sent map[string]int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range w.all {
		if bytes, open := sent[id]; open && (!one.waiting.Load() || one.read.Load() < bytes) {
			return true
		}
	}
	return false
}

// watch is the body of the answer to a watch.
type watch struct {
	io.ReadCloser
	of      *watches
	id      string
	read    atomic.Int64
	waiting atomic.Bool // the client waits for the next event
}

// Read implements io.Reader.
func (w *watch) Read(b []byte) (int, error) {
	w.waiting.Store(true)
	n, err := w.ReadCloser.Read(b)
	w.waiting.Store(false)
	w.read.Add(int64(n))
	return n, err
}

// Close implements io.Closer.
func (w *watch) Close() error {
	w.of.remove(w)
	return w.ReadCloser.Close()
}
