package audit

import (
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
)

// Asked is what is known about a request when its record begins.
type Asked struct {
	ID         string
	URI        string // as the client sent it
	Plane      string // the name of the plane that the request is for; "": the first one
	Attributes access.Attributes
	Known      bool // the user was authenticated
	SourceIPs  []string
	UserAgent  string
	At         time.Time // when the request was received
	// Long says that the request is long-running (a watch, a proxy): the start of its response is a separate event.
	Long bool
}

// Record collects the audit event of one request. It must not be used concurrently.
type Record struct {
	auditor  *Auditor
	decision decision
	long     bool
	begun    bool // the response has started
	early    bool // the request was refused before it was authenticated: ResponseStarted is its only event
	over     bool // there are no further events
	event    event
	object   ObjectRef
	status   Status
}

// PlaneAnnotation has, in all events of a request, the name of the plane that it is for. Those of the first plane have
// none.
const PlaneAnnotation = "plinth/plane"

const (
	maxUserAgent = 1024
	cutUserAgent = "...TRUNCATED"
)

// Begin begins a record with the event RequestReceived. The record is nil if the level is None. ok is false if the
// request must be refused, because the event cannot be written (mode blocking-strict).
func (a *Auditor) Begin(q *Asked) (r *Record, ok bool) {
	if r = a.record(q); r == nil {
		return nil, true
	}
	if ok = r.write(RequestReceived, q.At); !ok {
		a.Counters.Rejected.Add(1)
	}
	return r, ok
}

// Refuse begins the record of a request that is refused before it is authenticated. why is the message of its status,
// unless the response has one.
func (a *Auditor) Refuse(q *Asked, why string) *Record {
	r := a.record(q)
	if r != nil {
		r.early, r.long = true, true
		r.status.Message = why
		r.event.status = &r.status
	}
	return r
}

func (a *Auditor) record(q *Asked) *Record {
	if a == nil {
		return nil
	}
	d := a.policy.evaluate(&q.Attributes, q.Known)
	a.Counters.level(d.level)
	if d.level == None {
		return nil
	}
	agent := q.UserAgent
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent] + cutUserAgent
	}
	t := &q.Attributes
	r := &Record{auditor: a, decision: d, long: q.Long, event: event{
		level: d.level, id: q.ID, uri: q.URI, verb: t.Verb, sourceIPs: q.SourceIPs, userAgent: agent, received: q.At,
	}}
	if q.Known {
		r.event.user = t.User
	}
	if q.Plane != "" { // first, so that nothing within the plane can say otherwise (Annotate)
		r.event.annotations = []annotation{{PlaneAnnotation, q.Plane}}
	}
	if t.IsResource {
		r.object = ObjectRef{
			Resource: t.Resource, Namespace: t.Namespace, Name: t.Name, Group: t.Group, Version: t.Version,
			Subresource: t.Subresource,
		}
		r.event.object = &r.object
	}
	return r
}

// Wants says whether the level of the record is this one or a higher one.
func (r *Record) Wants(level Level) bool {
	return r != nil && slices.Index(levels, r.decision.level) >= slices.Index(levels, level)
}

// OmitsManagedFields says whether bodies are recorded without metadata.managedFields. The record must not be nil.
func (r *Record) OmitsManagedFields() bool { return r.decision.omitManaged }

// Impersonates sets the user as whom the request continues, and the verb that allowed it if impersonation was
// constrained.
func (r *Record) Impersonates(user access.User, constraint string) {
	if r != nil {
		r.event.impersonated, r.event.constraint = &user, constraint
	}
}

// Annotate adds an annotation to the later events of the record, unless it has one with this key.
func (r *Record) Annotate(key, value string) {
	if r == nil {
		return
	}
	at, found := slices.BinarySearchFunc(r.event.annotations, key,
		func(a annotation, key string) int { return strings.Compare(a.key, key) })
	if !found {
		r.event.annotations = slices.Insert(r.event.annotations, at, annotation{key, value})
	}
}

// AnnotateRequest is Annotate if the record has the body of the request.
func (r *Record) AnnotateRequest(key, value string) {
	if r.Wants(Request) {
		r.Annotate(key, value)
	}
}

// Object completes the object of the request with what its body says; what the URL says is kept.
func (r *Record) Object(namespace, name, uid, resourceVersion string) {
	if r == nil {
		return
	}
	for _, part := range []struct {
		to   *string
		from string
	}{
		{&r.object.Namespace, namespace}, {&r.object.Name, name}, {&r.object.UID, uid},
		{&r.object.ResourceVersion, resourceVersion},
	} {
		if *part.to == "" {
			*part.to = strings.Clone(part.from) // so that the record does not keep the whole body in memory
		}
	}
}

// Request sets the body of the request: JSON in one line, which must not be changed afterwards. The caller checks
// Wants(Request) first, so that the JSON is not made in vain; the record must not be nil.
func (r *Record) Request(body []byte) { r.event.request = body }

// Response sets the body of the response, as Request does. The caller checks Wants(RequestResponse) first.
func (r *Record) Response(body []byte) { r.event.response = body }

// Ends sets the status of the response, if the response is a Status.
func (r *Record) Ends(s Status) {
	if r != nil {
		r.status = s
		r.event.status = &r.status
	}
}

// Answers records that the response starts, with this code.
func (r *Record) Answers(code int) {
	if r == nil || r.begun || r.over {
		return
	}
	r.begun = true
	r.status.Code = code
	r.event.status = &r.status
	if r.long {
		r.write(ResponseStarted, time.Time{})
	}
}

// slow is the duration from which on a request is annotated with its latency, as in the reference.
const slow = 500 * time.Millisecond

// End records that the response is complete.
func (r *Record) End() {
	if r == nil || r.early || r.over {
		return
	}
	r.over = true
	if !r.begun && r.event.status == nil {
		r.Ends(Status{Code: 200, Status: "Success", Message: "Connection closed early"})
		if r.long {
			r.write(ResponseStarted, time.Time{})
		}
	}
	if took := r.auditor.now().Sub(r.event.received); took > slow {
		r.Annotate("apiserver.latency.k8s.io/total", took.String())
	}
	r.write(ResponseComplete, time.Time{})
}

// Panicked records that the server panicked while it served the request.
func (r *Record) Panicked(message string) {
	if r == nil || r.early {
		return
	}
	r.Ends(Status{Code: 500, Status: "Failure", Reason: "InternalError", Message: message})
	r.write(Panic, time.Time{})
	r.over = true
}

// write writes the event of a stage to the sinks; at is its time, or zero for now. ok is false if a sink in the
// mode blocking-strict has failed.
func (r *Record) write(stage Stage, at time.Time) (ok bool) {
	if r.decision.omits(stage) {
		return true
	}
	if at.IsZero() {
		at = r.auditor.now()
	}
	r.event.stage, r.event.staged = stage, at
	r.auditor.Counters.Events.Add(1)
	return r.auditor.process(&r.event)
}
