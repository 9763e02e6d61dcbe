package plinthtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/auth"
	"plinth/internal/httpapi"
	"plinth/object"
)

// front is the handler through which all requests of clients pass: it records them, decides which faults concern
// them, and passes them to the current server.
type front struct {
	plane   *Plane
	streams streams

	mu       sync.Mutex
	closed   bool
	requests int // all so far
	started  int // requests and watches under way
	working  int // requests under way, watches aside
	idle     sync.Cond
	log      []*Request
	rules    []*Rule
	// callers are who clients at the port are, by their tokens, besides those that the plane knows.
	callers map[string]*caller
	sent    map[string]int64 // bytes of the watches at the port that have a name (watchHeader)
	limit   int              // over is called when there are more requests; 0: never
	over    func()           // ends the code under test
}

func newFront(p *Plane) *front {
	f := &front{plane: p}
	f.idle.L = &f.mu
	return f
}

// enter counts a request. It returns false when the plane is closed.
func (f *front) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.started++
	f.requests++
	return true
}

func (f *front) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started--; f.started == 0 {
		f.idle.Broadcast()
	}
}

// underWay is how many requests are under way, watches aside.
func (f *front) underWay() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.working
}

// count is how many requests there have been, those of the driver included.
func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// work counts a request that is no watch.
func (f *front) work(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.working += n
}

// close refuses new requests, breaks watches off, and waits for the requests under way.
func (f *front) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.endWatches()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.started > 0 {
		f.idle.Wait()
	}
}

// endWatches breaks all watches off.
func (f *front) endWatches() { f.streams.end() }

// forget forgets the requests so far.
func (f *front) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = nil
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.enter() {
		http.Error(w, errClosed.Error(), http.StatusServiceUnavailable)
		return
	}
	defer f.leave()
	if httpapi.Parse(r).Verb != "watch" {
		f.work(1)
		defer f.work(-1)
	} else if f.plane.bubble {
		endless(r)
	}
	if id := r.Header.Get(watchHeader); id != "" {
		w = f.counted(id, w)
		defer f.uncount(id)
	}
	s := f.plane.current()
	from, local := r.Context().Value(callerKey{}).(*caller)
	if !local {
		from, local = f.caller(r)
	}
	ctx := r.Context()
	if local {
		ctx = auth.As(ctx, &access.Identity{User: from.user})
		r = r.WithContext(ctx)
		if from.driver {
			s.Handler().ServeHTTP(w, r)
			return
		}
	}
	call := &Request{Time: time.Now(), Agent: r.UserAgent()}
	if id, err := s.Authenticate(r); err == nil {
		call.User = id.User.Name
	}
	call.read(r)
	effect := f.record(call)
	out := &outcome{ResponseWriter: w, front: f, call: call}
	if effect == nil {
		s.Handler().ServeHTTP(out, r)
		return
	}
	f.serveFault(call, effect, out, r)
}

// endless removes the timeoutSeconds of an informer's watch. Informers choose it at random, from five to ten minutes.
// In a bubble that would be a hundred thousand new watches a year, at other moments in each run.
func endless(r *http.Request) {
	query := r.URL.Query()
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err != nil || seconds < leastInformer {
		return
	}
	query.Del("timeoutSeconds")
	r.URL.RawQuery = query.Encode()
}

// leastInformer is the least timeoutSeconds of the watches of client-go's informers.
const leastInformer = 300

// record appends a request to the log, and returns the faults that concern it.
func (f *front) record(call *Request) *Effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	call.number = len(f.log) + 1
	f.log = append(f.log, call)
	if f.limit > 0 && call.number == f.limit {
		f.over()
	}
	var all *Effect
	for _, rule := range f.rules {
		if rule.concerns(call) {
			if all == nil {
				all = &Effect{}
			}
			all.add(&rule.effect)
		}
	}
	return all
}

// outcome is a ResponseWriter that records the status of an answer.
type outcome struct {
	http.ResponseWriter
	front *front
	call  *Request
}

// WriteHeader implements http.ResponseWriter.
func (o *outcome) WriteHeader(code int) {
	o.note(code, 0)
	o.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (o *outcome) Write(b []byte) (int, error) {
	o.note(http.StatusOK, 1)
	return o.ResponseWriter.Write(b)
}

// note records the first status, and counts writes.
func (o *outcome) note(code, writes int) {
	o.front.mu.Lock()
	defer o.front.mu.Unlock()
	if o.call.Code == 0 && code >= http.StatusOK {
		o.call.Code = code
	}
	o.call.batches += writes
}

// Flush implements http.Flusher.
func (o *outcome) Flush() {
	if f, ok := o.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets an http.ResponseController reach the connection.
func (o *outcome) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// read fills in what a request asks for. A create has the name in its body, which is read and given back therefore.
func (q *Request) read(r *http.Request) {
	asked := httpapi.Parse(r)
	q.Verb, q.Path = asked.Verb, r.URL.Path
	q.Group, q.Version, q.Resource, q.Subresource = asked.Group, asked.Version, asked.Resource, asked.Subresource
	q.Namespace, q.Name = asked.Namespace, asked.Name
	query := r.URL.Query()
	q.DryRun = len(query["dryRun"]) > 0
	if q.Manager = query.Get("fieldManager"); q.Manager == "" {
		q.Manager, _, _ = strings.Cut(q.Agent, "/")
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
		q.Verb = "apply"
	}
	if asked.Verb != "create" || asked.Name != "" || r.Body == nil {
		return
	}
	text, err := io.ReadAll(r.Body)
	r.Body = &again{bytes.NewReader(text), err, r.Body}
	if name, generate := nameIn(text); name != "" {
		q.Name = name
	} else if generate != "" {
		q.Name = generate + "*"
	}
}

// again is a body that was read already, and the error after it.
type again struct {
	text *bytes.Reader
	err  error
	io.Closer
}

// Read implements io.Reader.
func (a *again) Read(b []byte) (int, error) {
	n, err := a.text.Read(b)
	if err == io.EOF && a.err != nil {
		err = a.err
	}
	return n, err
}

// nameIn returns metadata.name and metadata.generateName of an object in JSON, YAML, protobuf or CBOR; "" if it has
// none or cannot be read.
func nameIn(text []byte) (name, generate string) {
	if message, ok := bytes.CutPrefix(text, []byte("k8s\x00")); ok {
		meta := part(part(message, 2), 1)
		return string(part(meta, 1)), string(part(meta, 2))
	}
	parsed, err := object.ParseCBOR(text)
	if !bytes.HasPrefix(text, []byte("\xd9\xd9\xf7")) {
		parsed, err = object.ParseYAML(text) // or JSON
	}
	if err != nil || parsed.Value.Kind() != object.Map {
		return "", ""
	}
	meta := parsed.Value.At("metadata")
	return meta.At("name").Str(), meta.At("generateName").Str()
}

// part returns the last field of this number of a protobuf message: of runtime.Unknown 2 is the object, of an object
// 1 its metadata, of that 1 the name and 2 the generateName.
func part(message []byte, number protowire.Number) (found []byte) {
	for len(message) > 0 {
		n, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil
		}
		message = message[tag:]
		size := protowire.ConsumeFieldValue(n, typ, message)
		if size < 0 {
			return nil
		}
		if n == number && typ == protowire.BytesType {
			found, _ = protowire.ConsumeBytes(message)
		}
		message = message[size:]
	}
	return found
}

// refuse answers with an error, as JSON, which every client reads.
func refuse(w http.ResponseWriter, err *apierr.Error) {
	if after := err.Details; after != nil && after.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(err.Code)
	_, _ = w.Write(object.AppendObject(nil, err.Status())) // the client may have gone
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Request is a request of the code under test, as it was recorded.
type Request struct {
	Time    time.Time `json:"time"`    // by the clock of the plane
	User    string    `json:"user"`    // "" if the credentials were not valid
	Agent   string    `json:"agent"`   // the User-Agent
	Manager string    `json:"manager"` // the field manager: of the request, or the first word of Agent
	// Verb is that of authorization (get, list, watch, create, update, patch, delete, deletecollection), or apply.
	Verb string `json:"verb"`
	Path string `json:"path"`
	// Group to Subresource are "" outside of the resources.
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"` // of a create it may end with "*": it is generated
	DryRun      bool   `json:"dryRun"`
	Code        int    `json:"code"` // the status of the answer; 0: it has not come, or the connection broke

	number  int // in the order of the requests, from 1
	batches int // of a watch: how often events were written
}

// String is a line about the request, without its time: "update apps/deployments/status default/web 200".
func (q *Request) String() string {
	resource := q.Path
	if q.Resource != "" {
		resource = q.Resource
		if q.Group != "" {
			resource = q.Group + "/" + resource
		}
		if q.Subresource != "" {
			resource += "/" + q.Subresource
		}
	}
	name := q.Name
	if q.Namespace != "" && q.Resource != "namespaces" {
		name = q.Namespace + "/" + q.Name
	}
	words := []string{q.Verb, resource}
	if name != "" {
		words = append(words, name)
	}
	if q.DryRun {
		words = append(words, "(dry run)")
	}
	if q.Code > 0 {
		words = append(words, itoa(q.Code))
	}
	return strings.Join(words, " ")
}

// Writes says whether the request is to change something.
func (q *Request) writes() bool {
	return q.Resource != "" && !q.DryRun &&
		slices.Contains([]string{"create", "update", "patch", "apply", "delete", "deletecollection"}, q.Verb)
}
