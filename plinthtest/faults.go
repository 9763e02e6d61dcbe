package plinthtest

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/plane"
	"plinth/internal/store"
)

// On selects requests of the code under test. Empty members select all.
type On struct {
	Verb      string `json:"verb"`     // as in Request.Verb; "write" is all that change something
	Resource  string `json:"resource"` // "deployments", or with a subresource "deployments/status"
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	User      string `json:"user"` // or field manager, or program, as for Log.By
	Nth       int    `json:"nth"`  // only the nth of the requests that match, from 1; 0: all
}

// Effect is what happens to a request.
type Effect struct {
	latency   time.Duration
	refused   func(*Request) *apierr.Error
	lost      bool // the answer is
	drop      bool
	dropAfter int
	stale     bool
	hit       func(*Request) // called when the effect happens to a request
	done      func()         // called when the request has been carried out
}

// The effects without parameters.
var (
	// Conflict refuses a write: 409, the object has been modified.
	Conflict = Effect{refused: func(q *Request) *apierr.Error {
		return apierr.NewConflict(q.kind(), q.Name,
			"the object has been modified; please apply your changes to the latest version and try again")
	}}
	// TooManyRequests refuses a request: 429, to be tried again after a second.
	TooManyRequests = Effect{refused: func(*Request) *apierr.Error {
		return apierr.NewTooManyRequests("Too many requests, please try again later.", 1)
	}}
	// CommitThenTimeout carries a write out, and answers that it has timed out: 504.
	CommitThenTimeout = Effect{lost: true}
	// DropWatch breaks the connection of a watch instead of sending its next events.
	DropWatch = Effect{drop: true}
	// Expire410 refuses a watch, or a list: 410, its resourceVersion is too old. The client has to list again.
	Expire410 = Effect{refused: func(*Request) *apierr.Error {
		return apierr.NewExpired("The resourceVersion for the provided watch is too old.")
	}}
	// StaleReads answers a GET or a list as a replica would that lags behind: as it was before the last change of the
	// object, or of the objects of the list. A read of what has never changed is answered as usual.
	StaleReads = Effect{stale: true}
)

// Status refuses a request with a status code, a reason such as "ServiceUnavailable", and a message.
func Status(code int, reason, message string) Effect {
	return Effect{refused: func(q *Request) *apierr.Error {
		return &apierr.Error{Code: code, Reason: apierr.Reason(reason), Message: message}
	}}
}

// Latency delays a request.
func Latency(d time.Duration) Effect { return Effect{latency: d} }

// DropWatchAfter is DropWatch after so many events have been sent, or batches of events that came together.
func DropWatchAfter(events int) Effect { return Effect{drop: true, dropAfter: events} }

// kind is the resource of a request in errors.
func (q *Request) kind() apierr.Type { return apierr.Type{Group: q.Group, Name: q.Resource} }

// add adds another effect.
func (e *Effect) add(other *Effect) {
	e.latency += other.latency
	if e.refused == nil {
		e.refused = other.refused
	}
	if other.drop && (!e.drop || other.dropAfter < e.dropAfter) {
		e.drop, e.dropAfter = true, other.dropAfter
	}
	e.lost, e.stale = e.lost || other.lost, e.stale || other.stale
	if e.hit == nil {
		e.hit = other.hit
	}
	if e.done == nil {
		e.done = other.done
	}
}

// Rule is faults for some requests, until it is removed.
type Rule struct {
	front *front
	on    On
	// matches says which requests it concerns, besides on; nil: all.
	matches func(*Request) bool
	effect  Effect
	met     int // requests that match but for Nth; the front's mu guards it
	hits    int
}

// Fault lets the effects happen to the requests that match. If several rules concern a request, all their effects
// happen, and the first rule that refuses it decides how.
func (p *Plane) Fault(on On, effects ...Effect) *Rule {
	rule := &Rule{front: p.front, on: on}
	for i := range effects {
		rule.effect.add(&effects[i])
	}
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	p.front.rules = append(p.front.rules, rule)
	return rule
}

// Remove removes the rule.
func (r *Rule) Remove() {
	r.front.mu.Lock()
	defer r.front.mu.Unlock()
	r.front.rules = slices.DeleteFunc(slices.Clone(r.front.rules), func(other *Rule) bool { return other == r })
}

// Hits is how many requests the rule has concerned.
func (r *Rule) Hits() int {
	r.front.mu.Lock()
	defer r.front.mu.Unlock()
	return r.hits
}

// concerns says whether the rule concerns a request, and counts it. The caller holds the front's mu.
func (r *Rule) concerns(q *Request) bool {
	if !r.on.selects(q) || r.matches != nil && !r.matches(q) {
		return false
	}
	if r.met++; r.on.Nth > 0 && r.met != r.on.Nth {
		return false
	}
	r.hits++
	return true
}

func (on *On) selects(q *Request) bool {
	resource, sub, both := strings.Cut(on.Resource, "/")
	agent, _, _ := strings.Cut(q.Agent, "/")
	switch {
	case on.Verb == "write" && !q.writes(), on.Verb != "" && on.Verb != "write" && on.Verb != q.Verb,
		on.Resource != "" && (resource != q.Resource || both && sub != q.Subresource),
		on.Namespace != "" && on.Namespace != q.Namespace, on.Name != "" && on.Name != q.Name,
		on.User != "" && on.User != q.User && on.User != q.Manager && on.User != agent:
		return false
	}
	return true
}

// serveFault serves a request to which something happens.
func (f *front) serveFault(call *Request, e *Effect, w *outcome, r *http.Request) {
	if e.hit != nil {
		e.hit(call)
	}
	if e.done != nil {
		defer e.done()
	}
	if e.latency > 0 && wait(r.Context(), e.latency) != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	handler := f.plane.current().Handler()
	switch {
	case e.refused != nil:
		refuse(w, e.refused(call))
	case e.stale && (call.Verb == "get" || call.Verb == "list"):
		f.serveStale(call, w, r)
	case e.lost && call.writes():
		f.loseAnswer(handler, w, r)
	case e.drop && call.Verb == "watch":
		cut := &cutting{outcome: w, left: e.dropAfter}
		handler.ServeHTTP(cut, r)
		if cut.cut {
			panic(http.ErrAbortHandler)
		}
	default:
		handler.ServeHTTP(w, r)
	}
}

// loseAnswer carries a request out. If it succeeds, the answer is that it has timed out.
func (f *front) loseAnswer(handler http.Handler, w *outcome, r *http.Request) {
	real := &buffered{header: http.Header{}}
	handler.ServeHTTP(real, r)
	real.WriteHeader(http.StatusOK)
	if real.code < http.StatusMultipleChoices {
		refuse(w, apierr.NewTimeout("request did not complete within the allotted timeout"))
		return
	}
	for name, values := range real.sent {
		w.Header()[name] = values
	}
	w.WriteHeader(real.code)
	_, _ = w.Write(real.body.Bytes()) // the client may have gone
}

// errCut ends the handler of a watch that is broken off.
var errCut = errors.New("plinthtest: the watch is broken off")

// cutting lets so many writes pass, and fails then.
type cutting struct {
	*outcome
	left int
	cut  bool
}

// Write implements http.ResponseWriter.
func (c *cutting) Write(b []byte) (int, error) {
	if c.left == 0 {
		c.cut = true
		return 0, errCut
	}
	c.left--
	return c.outcome.Write(b)
}

// serveStale answers a read by another server, which has the state before the last change of what is read.
func (f *front) serveStale(call *Request, w *outcome, r *http.Request) {
	p := f.plane
	s := p.current()
	t, ok := s.OfResource(call.Group, call.Version, call.Resource)
	records := p.past().since(func(record *store.Record) bool {
		if !ok || record.Key.Resource != t.Key {
			return false
		}
		namespace, name, both := strings.Cut(record.Key.Name, "/")
		if !both {
			namespace, name = "", namespace
		}
		return (call.Name == "" || call.Name == name) &&
			(call.Namespace == "" || !t.Namespaced || call.Namespace == namespace)
	})
	if len(records) == 0 {
		s.Handler().ServeHTTP(w, r)
		return
	}
	// The other one would wait for a revision that it does not have yet.
	query := r.URL.Query()
	if version := query.Get("resourceVersion"); version != "" && version != "0" {
		s.Handler().ServeHTTP(w, r)
		return
	}
	c, err := p.settings.config(p.bubble, s.Before(records), 0, nil)
	if err != nil {
		refuse(w, apierr.NewInternal(err))
		return
	}
	lagging, err := plane.New(r.Context(), *c)
	if err != nil {
		refuse(w, apierr.NewInternal(err))
		return
	}
	defer lagging.Close()
	lagging.Handler().ServeHTTP(w, r)
}
