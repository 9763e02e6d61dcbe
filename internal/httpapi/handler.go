package httpapi

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/execution"
	"plinth/internal/fairness"
	"plinth/internal/features"
	"plinth/internal/samplelog"
	"plinth/internal/stack"
	"plinth/internal/webhook"
	"plinth/internal/wire"
)

// Handler serves the API. It is used by all requests at the same time: Config does not change after New, and every
// other field is immutable, atomic or has its own lock.
type Handler struct {
	Config
	logs   struct{ refusals, failures, checks samplelog.Sampler }
	cache  *wire.EncodedCache
	offer  wire.Offer   // how answers can be written and bodies read
	bodies atomic.Int64 // bytes of memory that the bodies of requests without a slot take, see requestState.held
	stalls stalls       // the writes that wait for their clients
	// watchers are the watches under way, for the estimates of writes.
	watchers fairness.Watchers
}

// New makes a handler, or returns what is wrong with the configuration.
func New(c Config) (*Handler, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Handler{Config: c, cache: wire.NewEncodedCache(c.EncodedBytes),
		offer: wire.Offer{CBOR: c.Features.On(features.CBORServingAndStorage),
			Lean: c.Features.On(features.ManagedFieldsOptOut)}, stalls: stalls{limit: c.StallMemory}}, nil
}

// filters are called for every request, in this order. The first one that returns an error ends the request. Reasons
// for the order:
//
//   - identify, resolveInfo and limitTime only look at headers and URL. Every later filter may wait, and runs under the
//     deadline that limitTime sets, except in watches.
//   - resolveInfo also finds out who answers, the engine or a backend, since the body of a forwarded request must not
//     be read. All filters apply to forwarded requests, too.
//   - refuseAtTheEnd comes before all that takes a client's time. It has to know the class of the request.
//   - authenticate comes before audit, since the record needs the user, and both before limitInFlight, since
//     administrators and probes take no slot. So a client without credentials is refused before it takes a slot.
//   - audit comes before impersonate: the record names both users, and a refused impersonation is recorded, too.
//     All later filters see only the impersonated user.
//   - authorize needs no body, so the body of a forbidden request is never read. It comes before the type is looked
//     up: the answer to a user who may not read a resource does not reveal whether the resource exists.
//   - skipBody reads the bodies that no verb reads. Only the verbs, in answer, read the others.
//
// It is the order in which the reference's handlers run (DefaultBuildHandlerChain, read from the bottom up), with one
// difference: the reference takes the slot before it reads a body.
//
// Nested handlers, as middleware, would keep a stack frame per filter below every waiting watch, and would hide the
// order in the code that nests them.
var filters = [...]func(*Handler, *requestState) error{
	(*Handler).identify,
	(*Handler).resolveInfo,
	(*Handler).refuseAtTheEnd,
	(*Handler).limitTime,
	(*Handler).authenticate,
	(*Handler).audit,
	(*Handler).impersonate,
	(*Handler).limitInFlight,
	(*Handler).authorize,
	(*Handler).skipBody,
	(*Handler).answer,
}

// ServeHTTP answers one request. CORS preflights are answered before the filters: a browser sends them without
// credentials, and the answer shows only what the operator has configured. The console is no part of the API; it is
// asked here, and not by a handler around this one, whose frames would lie below every waiting watch. The stack grows
// when a body follows, so that it grows once, and not in steps while the body is parsed.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.ofConsole(r.URL.Path) {
		h.Console.ServeHTTP(w, r)
		return
	}
	if h.preflight(w, r) {
		return
	}
	if r.ContentLength != 0 {
		stack.Grow()
	}
	rs := &requestState{h: h, w: w, r: r, ctx: r.Context(), began: time.Now()}
	defer rs.end()
	for _, filter := range filters {
		if err := filter(h, rs); err != nil {
			h.fail(rs, err)
			return
		}
	}
}

// end releases what the request held, and turns a panic into a failure of this request alone. It is deferred, so it
// runs after a panic, too.
//
// If no byte of the answer has been sent, the client gets 500. Otherwise the connection is broken off, so that half
// an answer does not look like a whole one.
func (rs *requestState) end() {
	panicked := recover()
	if panicked != nil && panicked != http.ErrAbortHandler {
		rs.h.report(&rs.h.logs.failures, rs, slog.LevelError, "a request has panicked",
			"panic", panicked, "stack", string(debug.Stack()))
		rs.dropSlot()
		rs.record.Panicked(fmt.Sprintf("APIServer panic'd: %v", panicked))
		if rs.code == 0 {
			rs.h.fail(rs, &apierr.Error{
				Code: http.StatusInternalServerError, Reason: apierr.InternalError, Details: &apierr.Details{},
				Message: "This request caused apiserver to panic. Look in the logs for details.",
			})
			panicked = nil
		}
	}
	// Who writes the record may be slow. As in the reference, the request waits for it without slot, seats and place.
	rs.dropSlot()
	rs.endRecord()
	rs.limit.end()
	rs.dropBody()
	rs.forgetWatcher()
	rs.countInFlight(-1)
	rs.endDrained()
	if rs.h.Metrics.Request != nil {
		rs.h.Metrics.Request(rs.observation())
	}
	// net/http recovers from this panic, logs nothing, and closes the connection or resets the stream.
	if panicked != nil {
		panic(http.ErrAbortHandler)
	}
}

// identify gives the request an ID that the client, the log and the audit record share.
func (h *Handler) identify(rs *requestState) error {
	header := rs.w.Header()
	if given := rs.r.Header["Audit-Id"]; len(given) > 0 && given[0] != "" {
		rs.auditID = given[0]
	} else {
		rs.auditID = uuid.NewString()
	}
	header["Audit-Id"] = []string{rs.auditID}
	header["Cache-Control"] = noCache
	if h.StrictTransport != "" {
		header.Set("Strict-Transport-Security", h.StrictTransport)
	}
	// net/http sends a GOAWAY frame for this header. Requests under way on the connection are finished.
	if h.Goaway > 0 && rs.r.ProtoMajor == 2 && rand.Float64() < h.Goaway {
		header.Set("Connection", "close")
	}
	return nil
}

var noCache = []string{"no-cache, private"}

// resolveInfo parses the URL. It does not look up the resource, so authorization cannot depend on what exists. No URL
// is an error here: a path that is not a resource is authorized as a path (nonResourceURLs), and servePath answers 404
// if nothing is served there. A request of the console that another server would answer is refused (onlyHere).
func (h *Handler) resolveInfo(rs *requestState) error {
	rs.info = parseRequestInfo(rs.r.Method, rs.r.URL.Path, rs.query)
	rs.class = rs.info.class()
	if _, lasts := h.handler(rs.r.URL.Path).(LastingHandler); lasts && rs.class == ReadOnly {
		rs.class = LongRunning
	}
	if rs.backend = h.backend(&rs.info); rs.backend == nil {
		rs.backend = h.peer(rs)
	}
	return rs.onlyHere()
}

// limitTime sets the deadline of every request except watches and connections: the server's limit or the client's
// (?timeout=), whichever is shorter. From here on the context has the place of the request, so that whoever waits for
// something can give it back (execution.Outside).
func (h *Handler) limitTime(rs *requestState) error {
	if rs.needsSeats() {
		rs.ctx = execution.With(rs.ctx, &rs.place)
	}
	if rs.class == LongRunning {
		return nil
	}
	limit := h.RequestTimeout
	if rs.r.URL.RawQuery != "" {
		if text := first(rs.query(), "timeout"); text != "" {
			asked, err := time.ParseDuration(text)
			if err != nil {
				refused := apierr.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
				rs.auditRefusal(refused.Message)
				return refused
			}
			if asked > 0 {
				limit = min(limit, asked)
			}
		}
	}
	rs.deadline = rs.began.Add(limit)
	rs.limit = &limited{Context: rs.ctx, deadline: rs.deadline}
	rs.ctx = rs.limit
	return nil
}

// authenticate finds the user. The answer does not contain the error: an attacker must not learn which part of the
// credentials is right.
func (h *Handler) authenticate(rs *requestState) error {
	if h.ofAnotherSite(rs.r) {
		return &apierr.Error{Code: http.StatusForbidden, Reason: apierr.Forbidden,
			Message: "a page of another site cannot use a browser's client certificate"}
	}
	if h.Auditor != nil {
		rs.ctx, rs.calls = webhook.Noting(rs.ctx)
	}
	id, err := h.Authenticate(rs.ctx, rs.r)
	if observe := h.Metrics.Authenticated; observe != nil {
		if err != nil {
			observe("error", nil, time.Since(rs.began))
		} else {
			observe("success", &id.User, time.Since(rs.began))
		}
	}
	if err != nil {
		rs.auditRefusal(rs.attempted())
		h.report(&h.logs.refusals, rs, slog.LevelDebug, "authentication has failed", "error", samplelog.Clip(err.Error()))
		return apierr.NewUnauthorized()
	}
	if rs.user, rs.noted = id.User, id.Annotations; rs.user.Name == "" && len(rs.user.Groups) == 0 {
		rs.user = access.Nobody()
	}
	rs.warn(id.Warnings)
	// No later filter needs the credentials.
	delete(rs.r.Header, "Authorization")
	return nil
}

// limitInFlight takes the slot of the request, or its seats, or refuses it when too many are under way.
//
// A verb that reads a body takes the slot itself, when the body has arrived (readBody). Clients that send slowly would
// otherwise hold slots while they send, and a few hundred of them would keep all others out.
func (h *Handler) limitInFlight(rs *requestState) error {
	rs.counted = true
	rs.countInFlight(1)
	rs.ask()
	if rs.needsSeats() {
		rs.classify()
	}
	if rs.sendsBody() && rs.readsBody() {
		return nil
	}
	return rs.acquire()
}

// countInFlight counts the request among those that are under way, or ends that.
func (rs *requestState) countInFlight(delta int) {
	if observe := rs.h.Metrics.InFlight; rs.counted && observe != nil && rs.class != LongRunning {
		observe(rs.class, delta)
	}
	if delta < 0 && rs.routed {
		rs.countLongRunning(delta)
	}
}

// countLongRunning counts a request that lasts long, from when it is known for which resource it is.
func (rs *requestState) countLongRunning(delta int) {
	if observe := rs.h.Metrics.LongRunning; observe != nil && rs.class == LongRunning {
		rs.routed = delta > 0
		observe(rs.observation(), delta)
	}
}

// acquire takes the slot of the request, or its seats.
func (rs *requestState) acquire() (err error) {
	switch {
	case rs.needsSeats():
		return rs.takeSeats()
	case rs.h.Fairness != nil:
		return nil
	}
	rs.release, err = rs.h.Acquire(rs.ctx, rs.class, &rs.asked)
	rs.rejected = err != nil
	return err
}

// dropSlot gives the slot back, or the seats.
func (rs *requestState) dropSlot() {
	rs.dropSeats()
	if rs.release != nil {
		rs.release()
		rs.release = nil
	}
}

// authorized returns the name of a decision in the reference's metrics.
func authorized(decision access.Decision, err error) string {
	switch {
	case decision == access.Allow:
		return "allowed"
	case err != nil:
		return "error"
	case decision == access.Deny:
		return "denied"
	}
	return "no-opinion"
}

// authorize checks whether the user may do this. The error of an authorizer is sent in plain text, as in the reference.
func (h *Handler) authorize(rs *requestState) error {
	a := &rs.asked
	began := time.Now()
	decision, reason, err := h.Authorizer.Authorize(rs.ctx, a)
	if observe := h.Metrics.Authorized; observe != nil {
		observe(authorized(decision, err), time.Since(began))
	}
	switch {
	case decision == access.Allow:
		rs.auditDecision("allow", reason)
		return nil
	case err != nil:
		rs.record.Annotate(reasonAnnotation, "internal error")
		return &plainError{http.StatusInternalServerError, fmt.Sprintf("Internal Server Error: %q: %v", rs.r.RequestURI, err)}
	}
	rs.auditDecision("forbid", reason)
	rs.w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
	return apierr.NewForbidden(apierr.Type{Group: a.Group, Name: a.Resource}, a.Name, a.Refusal(reason))
}

// ask fills in rs.asked, the access attributes. They include the selectors, except on the old watch paths, which select
// one object by the path.
func (rs *requestState) ask() {
	info := &rs.info
	rs.asked = access.Attributes{User: rs.user, Verb: info.verb, Path: info.path}
	if !info.isResource {
		return
	}
	a := &rs.asked
	a.IsResource, a.Group, a.Version = true, info.group, info.version
	a.Resource, a.Subresource, a.Namespace, a.Name = info.resource, info.subresource, info.namespace, info.name
	switch info.verb {
	case "list", "watch", "deletecollection":
		if !info.watchPath && rs.r.URL.RawQuery != "" {
			a.FieldSelector, a.LabelSelector = first(rs.query(), "fieldSelector"), first(rs.query(), "labelSelector")
		}
	}
}

// answer forwards the request, calls the verb, or serves a path outside of the resources.
func (h *Handler) answer(rs *requestState) error {
	if rs.backend != nil && !h.connection(rs) {
		return h.forward(rs)
	}
	if !rs.info.isResource {
		return h.servePath(rs)
	}
	if misspelled(rs.info.path) {
		return errNotAPath
	}
	verb, err := h.route(rs)
	if err != nil {
		return err
	}
	rs.countLongRunning(1)
	return verb(h, rs)
}
