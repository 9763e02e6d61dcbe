package audit

import (
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
)

// Asked is what is known of a request when its record begins.
type Asked struct {
	ID         string
	URI        string // as the client sent it
	Attributes access.Attributes
	Known      bool // the user was authenticated
	SourceIPs  []string
	UserAgent  string
	At         time.Time
	// Long says that the answer may go on for long: that it has begun is an event of its own.
	Long bool
}

// Record is what is written down of one request. It is for the request's goroutine alone.
type Record struct {
	auditor *Auditor
	verdict verdict
	long    bool
	begun   bool // the answer has
	early   bool // the request has ended before it was authenticated: its only event is that its answer begins
	over    bool // nothing comes any more
	event   event
	object  ObjectRef
	status  Status
}

const (
	maxUserAgent = 1024
	cutUserAgent = "...TRUNCATED"
)

// Begin begins a record, and writes down that the request has come. The record is nil if the policy wants none. Not ok
// says that the request has to be refused, since it cannot be written down (mode blocking-strict).
func (a *Auditor) Begin(q *Asked) (r *Record, ok bool) {
	if r = a.record(q); r == nil {
		return nil, true
	}
	if ok = r.tell(RequestReceived, q.At); !ok {
		a.Counters.Rejected.Add(1)
	}
	return r, ok
}

// Refuse begins the record of a request that is refused before it was authenticated. why is told where the answer does
// not say it.
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
	v := a.policy.judge(&q.Attributes, q.Known)
	a.Counters.level(v.level)
	if v.level == None {
		return nil
	}
	agent := q.UserAgent
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent] + cutUserAgent
	}
	t := &q.Attributes
	r := &Record{auditor: a, verdict: v, long: q.Long, event: event{
		level: v.level, id: q.ID, uri: q.URI, verb: t.Verb, sourceIPs: q.SourceIPs, userAgent: agent, received: q.At,
	}}
	if q.Known {
		r.event.user = t.User
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

// Wants says whether the record is kept at this level, or at one that holds more.
func (r *Record) Wants(level Level) bool {
	return r != nil && slices.Index(levels, r.verdict.level) >= slices.Index(levels, level)
}

// OmitsManagedFields says that bodies are written down without metadata.managedFields.
func (r *Record) OmitsManagedFields() bool { return r.verdict.omitManaged }

// Impersonates says as whom the request goes on, and by which verb that was allowed, if impersonation was constrained.
func (r *Record) Impersonates(user access.User, constraint string) {
	if r != nil {
		r.event.impersonated, r.event.constraint = &user, constraint
	}
}

// Annotate adds to what is written down beside the request. What was said first stands.
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

// Object adds what the body of the request says of the object that the request is about, where the URL does not say it.
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
			*part.to = strings.Clone(part.from) // the body is not to stay in memory for it
		}
	}
}

// Request is the body of the request, as JSON in one line. Whoever has it asks Wants before making it.
func (r *Record) Request(body []byte) { r.event.request = body }

// Response is the body of the answer, as JSON in one line.
func (r *Record) Response(body []byte) { r.event.response = body }

// Ends says how the request has ended, where the answer is a Status.
func (r *Record) Ends(s Status) {
	if r != nil {
		r.status = s
		r.event.status = &r.status
	}
}

// Answers says that the answer begins, with this code.
func (r *Record) Answers(code int) {
	if r == nil || r.begun || r.over {
		return
	}
	r.begun = true
	r.status.Code = code
	r.event.status = &r.status
	if r.long {
		r.tell(ResponseStarted, time.Time{})
	}
}

// slow is from when on it is written down how long a request took.
const slow = 500 * time.Millisecond

// End says that the answer is complete.
func (r *Record) End() {
	if r == nil || r.early || r.over {
		return
	}
	r.over = true
	if !r.begun && r.event.status == nil {
		r.Ends(Status{Code: 200, Status: "Success", Message: "Connection closed early"})
		if r.long {
			r.tell(ResponseStarted, time.Time{})
		}
	}
	if took := r.auditor.now().Sub(r.event.received); took > slow {
		r.Annotate("apiserver.latency.k8s.io/total", took.String())
	}
	r.tell(ResponseComplete, time.Time{})
}

// Panicked says that the server has panicked while it served the request.
func (r *Record) Panicked(message string) {
	if r == nil || r.early {
		return
	}
	r.Ends(Status{Code: 500, Status: "Failure", Reason: "InternalError", Message: message})
	r.tell(Panic, time.Time{})
	r.over = true
}

// tell hands an event to the backends. It is not ok if one of them needs to have it and has not got it.
func (r *Record) tell(stage Stage, at time.Time) (ok bool) {
	if r.verdict.omits(stage) {
		return true
	}
	if at.IsZero() {
		at = r.auditor.now()
	}
	r.event.stage, r.event.staged = stage, at
	r.auditor.Counters.Events.Add(1)
	return r.auditor.process(&r.event)
}
