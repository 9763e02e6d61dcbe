package httpapi

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/wire"
)

// Handler serves the API.
type Handler struct {
	Config
	logs   struct{ refusals, failures, checks sampler }
	forms  *wire.Forms
	offer  wire.Offer             // how answers can be written and bodies read
	slots  [LongRunning]*inFlight // by class; one for both, or one each
	bodies atomic.Int64           // bytes of memory that bodies take while they are being read
}

// inFlight counts the requests that hold a slot.
type inFlight struct {
	limit int64 // 0: none
	taken atomic.Int64
}

// New makes a handler.
func New(c Config) (*Handler, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	h := &Handler{Config: c, forms: wire.NewForms(c.FormBytes), offer: wire.Offer{CBOR: !c.NoCBOR, Lean: !c.NoLean}}
	h.slots[ReadOnly] = &inFlight{limit: int64(c.MaxInFlight)}
	h.slots[Mutating] = h.slots[ReadOnly]
	if c.MaxMutating != nil {
		h.slots[Mutating] = &inFlight{limit: int64(*c.MaxMutating)}
	}
	return h, nil
}

// steps are what every request goes through, in this order. The first one that returns an error ends it.
var steps = [...]func(*Handler, *exchange) error{
	(*Handler).identify,
	(*Handler).aim,
	(*Handler).limitTime,
	(*Handler).authenticate,
	(*Handler).audit,
	(*Handler).impersonate,
	(*Handler).admit,
	(*Handler).authorize,
	(*Handler).skipBody,
	(*Handler).answer,
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.preflight(w, r) {
		return
	}
	if r.ContentLength != 0 {
		growStack()
	}
	x := &exchange{h: h, w: w, r: r, ctx: r.Context(), began: time.Now()}
	defer x.end()
	for _, step := range steps {
		if err := step(h, x); err != nil {
			h.fail(x, err)
			return
		}
	}
}

// end gives back what the exchange held, and sees to it that a panic costs one request and not the server.
func (x *exchange) end() {
	panicked := recover()
	if panicked != nil && panicked != http.ErrAbortHandler {
		x.h.report(&x.h.logs.failures, x, slog.LevelError, "a request has panicked",
			"panic", panicked, "stack", string(debug.Stack()))
		x.record.Panicked(fmt.Sprintf("APIServer panic'd: %v", panicked))
		if x.code == 0 {
			x.h.fail(x, &apierr.Error{
				Code: http.StatusInternalServerError, Reason: apierr.InternalError, Details: &apierr.Details{},
				Message: "This request caused apiserver to panic. Look in the logs for details.",
			})
			panicked = nil
		}
	}
	x.endRecord()
	x.limit.end()
	if x.admitted {
		x.h.slots[x.class].taken.Add(-1)
	}
	if x.counted && x.h.Metrics.InFlight != nil {
		x.h.Metrics.InFlight(x.class, -1)
	}
	if x.h.Metrics.Request != nil {
		x.h.Metrics.Request(x.observation())
	}
	if panicked != nil { // half an answer must not look like a whole one
		panic(http.ErrAbortHandler)
	}
}

// identify gives the request an ID that the client, the log and the audit record share.
func (h *Handler) identify(x *exchange) error {
	header := x.w.Header()
	if given := x.r.Header["Audit-Id"]; len(given) > 0 && given[0] != "" {
		x.auditID = given[0]
	} else {
		x.auditID = newAuditID()
	}
	header["Audit-Id"] = []string{x.auditID}
	header["Cache-Control"] = noCache
	if h.StrictTransport != "" {
		header.Set("Strict-Transport-Security", h.StrictTransport)
	}
	if h.Goaway > 0 && x.r.ProtoMajor == 2 && rand.Float64() < h.Goaway {
		header.Set("Connection", "close") // which net/http makes a GOAWAY of; what is under way on the connection goes on
	}
	return nil
}

var noCache = []string{"no-cache, private"}

// aim finds out what the request is about.
func (h *Handler) aim(x *exchange) error {
	x.target = parseTarget(x.r.Method, x.r.URL.Path, x.query)
	x.class = x.target.class()
	return nil
}

// limitTime sets the deadline of everything but watches and connections.
func (h *Handler) limitTime(x *exchange) error {
	if x.class == LongRunning {
		return nil
	}
	limit := h.RequestTimeout
	if x.r.URL.RawQuery != "" {
		if text := first(x.query(), "timeout"); text != "" {
			asked, err := time.ParseDuration(text)
			if err != nil {
				refused := apierr.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
				x.auditRefusal(refused.Message)
				return refused
			}
			if asked > 0 {
				limit = min(limit, asked)
			}
		}
	}
	x.deadline = x.began.Add(limit)
	x.limit = &limited{Context: x.ctx, deadline: x.deadline}
	x.ctx = x.limit
	return nil
}

// authenticate finds out who asks.
func (h *Handler) authenticate(x *exchange) error {
	id, err := h.Authenticate(x.ctx, x.r)
	if told := h.Metrics.Authenticated; told != nil {
		if err != nil {
			told("error", nil, time.Since(x.began))
		} else {
			told("success", &id.User, time.Since(x.began))
		}
	}
	if err != nil {
		x.auditRefusal(x.attempted())
		h.report(&h.logs.refusals, x, slog.LevelDebug, "nobody is known by these credentials", "error", clip(err.Error()))
		return apierr.NewUnauthorized()
	}
	if x.user, x.noted = id.User, id.Annotations; x.user.Name == "" {
		x.user = access.Nobody()
	}
	x.warn(id.Warnings)
	delete(x.r.Header, "Authorization") // nobody behind needs it
	return nil
}

// admit is the shed point: what is too much is turned away before it costs anything. A request with a body is admitted when
// that is there (readBody), so that clients that send slowly hold no slots.
func (h *Handler) admit(x *exchange) error {
	if x.counted = true; h.Metrics.InFlight != nil {
		h.Metrics.InFlight(x.class, 1)
	}
	x.exempt = x.class == LongRunning || h.slots[x.class].limit == 0 || x.user.In(access.Masters) || x.target.probes()
	if x.sendsBody() && x.readsBody() {
		return nil
	}
	return h.takeSlot(x)
}

// takeSlot takes one of the slots for requests under way. As in the reference's priority level "exempt", probes and the
// masters take none and always get through, so that somebody can look at what is going on.
func (h *Handler) takeSlot(x *exchange) error {
	if x.exempt {
		return nil
	}
	x.admitted = true
	if slots := h.slots[x.class]; slots.taken.Add(1) <= slots.limit {
		return nil
	}
	return x.shed()
}

// shed turns the request away.
func (x *exchange) shed() error {
	x.rejected = true
	return apierr.NewTooManyRequests("Too many requests, please try again later.", 1)
}

// authorized is a decision as the reference's metrics call it.
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

// authorize asks whether the user may do this. An authorizer that fails is told of in plain text, as in the reference.
func (h *Handler) authorize(x *exchange) error {
	x.ask()
	a := &x.asked
	began := time.Now()
	decision, reason, err := h.Authorizer.Authorize(x.ctx, a)
	if told := h.Metrics.Authorized; told != nil {
		told(authorized(decision, err), time.Since(began))
	}
	switch {
	case decision == access.Allow:
		x.auditDecision("allow", reason)
		return nil
	case err != nil:
		x.record.Annotate(reasonAnnotation, "internal error")
		return &plainError{http.StatusInternalServerError, fmt.Sprintf("Internal Server Error: %q: %v", x.r.RequestURI, err)}
	}
	x.auditDecision("forbid", reason)
	x.w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
	return apierr.NewForbidden(apierr.Type{Group: a.Group, Name: a.Resource}, a.Name, a.Refusal(reason))
}

// ask fills in what authorization decides about. Selectors are told where there is one way to tell them: not on the old
// paths of watches, which are those of one object, too.
func (x *exchange) ask() {
	t := &x.target
	x.asked = access.Attributes{User: x.user, Verb: t.verb, Path: t.path}
	if !t.isResource {
		return
	}
	a := &x.asked
	a.IsResource, a.Group, a.Version = true, t.group, t.version
	a.Resource, a.Subresource, a.Namespace, a.Name = t.resource, t.subresource, t.namespace, t.name
	switch t.verb {
	case "list", "watch", "deletecollection":
		if !t.watchPath && x.r.URL.RawQuery != "" {
			a.FieldSelector, a.LabelSelector = first(x.query(), "fieldSelector"), first(x.query(), "labelSelector")
		}
	}
}

// answer has the verb done.
func (h *Handler) answer(x *exchange) error {
	if !x.target.isResource {
		return h.servePath(x)
	}
	if misspelled(x.target.path) {
		return errNotAPath
	}
	verb, err := h.route(x)
	if err != nil {
		return err
	}
	return verb(h, x)
}
