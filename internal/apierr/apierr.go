// Package apierr has the error type of the API: a Kubernetes Status with its HTTP code, reason, message, causes and
// retry delay (URI-9). Code that decides how a request fails returns an *Error; all other errors of the server are
// ordinary Go errors. Package httpapi alone writes them to clients, with [From].
//
// The constructors match those of k8s.io/apimachinery/pkg/api/errors: their messages and details are the reference's,
// and clients compare them.
package apierr

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Reason is the machine-readable reason of a Status, as metav1.StatusReason.
type Reason string

// The reasons that this server gives. Their values are those of metav1.StatusReason.
const (
	Unauthorized          Reason = "Unauthorized"
	Forbidden             Reason = "Forbidden"
	NotFound              Reason = "NotFound"
	AlreadyExists         Reason = "AlreadyExists"
	Conflict              Reason = "Conflict"
	Gone                  Reason = "Gone"
	Invalid               Reason = "Invalid"
	ServerTimeout         Reason = "ServerTimeout"
	Timeout               Reason = "Timeout"
	TooManyRequests       Reason = "TooManyRequests"
	BadRequest            Reason = "BadRequest"
	MethodNotAllowed      Reason = "MethodNotAllowed"
	NotAcceptable         Reason = "NotAcceptable"
	RequestEntityTooLarge Reason = "RequestEntityTooLarge"
	UnsupportedMediaType  Reason = "UnsupportedMediaType"
	InternalError         Reason = "InternalError"
	Expired               Reason = "Expired"
	ServiceUnavailable    Reason = "ServiceUnavailable"
	StoreReadError        Reason = "StorageReadError"

	// PreconditionFailed is not in the reference, which ignores preconditions in headers (If-Match).
	PreconditionFailed Reason = "PreconditionFailed"
)

// Error is a Status with status Failure. *Error implements error; it must not be changed once it is returned, since
// an error may be shared.
type Error struct {
	Code    int // the HTTP status code
	Reason  Reason
	Message string
	Details *Details // nil: the Status has none
	// Continue is the token with which a list whose snapshot has expired can go on at the current revision (LIST-5).
	// It is written to metadata.continue.
	Continue string
}

// Details says what the error is about, as metav1.StatusDetails. Kind is the kind or the resource, see [Type].
type Details struct {
	Name, Group, Kind, UID string
	Causes                 []Cause
	RetryAfterSeconds      int // 0: the client is not told to retry
}

// Cause is one of several causes of an error, as metav1.StatusCause.
type Cause struct {
	Reason  string // metav1.CauseType, "FieldValueRequired"
	Message string
	Field   string // "spec.containers[0].name"
}

func (e *Error) Error() string { return e.Message }

// From returns the *Error in the chain of err. An error without one becomes an internal error (500) with its text.
func From(err error) *Error {
	var wire *Error
	if errors.As(err, &wire) {
		return wire
	}
	return NewInternal(err)
}

// Is says whether the chain of err has an *Error with this reason.
func Is(err error, reason Reason) bool {
	var wire *Error
	return errors.As(err, &wire) && wire.Reason == reason
}

// Status returns the error as the object that clients get.
func (e *Error) Status() object.Value {
	members := []object.Member{
		{Key: "kind", Value: object.StringOf("Status")},
		{Key: "apiVersion", Value: object.StringOf("v1")},
		{Key: "metadata", Value: object.MapOf(appendText(nil, "continue", e.Continue)...)},
		{Key: "status", Value: object.StringOf("Failure")},
		{Key: "code", Value: object.IntOf(int64(e.Code))},
	}
	members = appendText(members, "message", e.Message)
	members = appendText(members, "reason", string(e.Reason))
	if e.Details != nil {
		members = append(members, object.Member{Key: "details", Value: e.Details.value()})
	}
	return object.MapOf(members...)
}

func (d *Details) value() object.Value {
	var members []object.Member
	members = appendText(members, "name", d.Name)
	members = appendText(members, "group", d.Group)
	members = appendText(members, "kind", d.Kind)
	members = appendText(members, "uid", d.UID)
	if d.RetryAfterSeconds > 0 {
		members = append(members, object.Member{Key: "retryAfterSeconds", Value: object.IntOf(int64(d.RetryAfterSeconds))})
	}
	if len(d.Causes) > 0 {
		causes := make([]object.Value, len(d.Causes))
		for i, c := range d.Causes {
			causes[i] = c.value()
		}
		members = append(members, object.Member{Key: "causes", Value: object.ListOf(causes...)})
	}
	return object.MapOf(members...)
}

func (c Cause) value() object.Value {
	var members []object.Member
	members = appendText(members, "reason", c.Reason)
	members = appendText(members, "message", c.Message)
	members = appendText(members, "field", c.Field)
	return object.MapOf(members...)
}

func appendText(members []object.Member, key, text string) []object.Member {
	if text == "" {
		return members
	}
	return append(members, object.Member{Key: key, Value: object.StringOf(text)})
}

// Type names what an error is about: a group with a resource ("deployments") or with a kind ("Deployment"). Which of
// the two depends on the error: in the reference, Invalid has the kind, and most others have the resource.
type Type struct{ Group, Name string }

// String returns "deployments.apps", or "pods" in the core group.
func (t Type) String() string {
	if t.Group == "" {
		return t.Name
	}
	return t.Name + "." + t.Group
}

func (t Type) details(name string) *Details {
	return &Details{Name: name, Group: t.Group, Kind: t.Name}
}

// NewBadRequest returns 400: the request is malformed.
func NewBadRequest(message string) *Error {
	return &Error{Code: http.StatusBadRequest, Reason: BadRequest, Message: message}
}

// NewUnauthorized returns 401: the credentials of the request are missing or invalid.
func NewUnauthorized() *Error {
	return &Error{Code: http.StatusUnauthorized, Reason: Unauthorized, Message: "Unauthorized"}
}

// NewForbidden returns 403: the request is refused, by authorization or by admission, because of why. The name may be
// empty, and so may the type, for a path that is not a resource.
func NewForbidden(resource Type, name, why string) *Error {
	e := &Error{Code: http.StatusForbidden, Reason: Forbidden, Details: resource.details(name)}
	switch {
	case resource == Type{}:
		e.Message = "forbidden: " + why
	case name == "":
		e.Message = fmt.Sprintf("%s is forbidden: %s", resource, why)
	default:
		e.Message = fmt.Sprintf("%s %q is forbidden: %s", resource, name, why)
	}
	return e
}

// NewNotFound returns 404 for an object.
func NewNotFound(resource Type, name string) *Error {
	return &Error{
		Code: http.StatusNotFound, Reason: NotFound, Details: resource.details(name),
		Message: fmt.Sprintf("%s %q not found", resource, name),
	}
}

// NewNoSuchPath returns 404 for a URL that this server does not serve.
func NewNoSuchPath() *Error {
	return &Error{
		Code: http.StatusNotFound, Reason: NotFound, Details: &Details{},
		Message: "the server could not find the requested resource",
	}
}

// NewMethodNotAllowed returns 405: the resource has no such verb.
func NewMethodNotAllowed() *Error {
	return &Error{
		Code: http.StatusMethodNotAllowed, Reason: MethodNotAllowed, Details: &Details{},
		Message: "the server does not allow this method on the requested resource",
	}
}

// NewAlreadyExists returns 409: the name is taken.
func NewAlreadyExists(resource Type, name string) *Error {
	return &Error{
		Code: http.StatusConflict, Reason: AlreadyExists, Details: resource.details(name),
		Message: fmt.Sprintf("%s %q already exists", resource, name),
	}
}

// NewConflict returns 409: the object has changed since the client read it, or fields of an apply have other owners.
func NewConflict(resource Type, name, why string) *Error {
	return &Error{
		Code: http.StatusConflict, Reason: Conflict, Details: resource.details(name),
		Message: fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", resource, name, why),
	}
}

// NewPreconditionFailed returns 412: the object does not match a precondition in the headers of the request.
func NewPreconditionFailed(resource Type, name, why string) *Error {
	return &Error{
		Code: http.StatusPreconditionFailed, Reason: PreconditionFailed, Details: resource.details(name),
		Message: fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", resource, name, why),
	}
}

// NewInvalid returns 422 with one cause per field error. Errors with the same text appear once in the message. The Type
// is a kind, not a resource. Errors beyond maxInvalid bytes of text are left out; TooManyCauses stands for them.
func NewInvalid(kind Type, name string, fields field.ErrorList) *Error {
	e := &Error{Code: http.StatusUnprocessableEntity, Reason: Invalid, Details: kind.details(name)}
	length := 0
	for _, f := range fields {
		if length > maxInvalid {
			e.Details.Causes = append(e.Details.Causes, TooManyCauses)
			break
		}
		cause := Cause{Reason: string(f.Type), Message: f.ErrorBody(), Field: f.Field}
		e.Details.Causes = append(e.Details.Causes, cause)
		length += len(cause.Field) + len(cause.Message)
	}
	e.Message = fmt.Sprintf("%s %q is invalid", kind, name)
	if len(fields) > 0 {
		e.Message += ": " + joinCauses(e.Details.Causes)
	}
	return e
}

// maxInvalid is the length of causes, in bytes, after which NewInvalid leaves out the rest. An error shows the value
// that it is about, and a value of n bytes can have about n errors: 40,000 owner references with controller: true are a
// body of 3 MiB, and 40,000 causes of 3 MiB each; so are 500,000 unprintable characters in the name of a manager. The
// texts are made here and not by the rules (field.Error keeps the value), so errors that are left out are never
// formatted. The reference has no such bound.
const maxInvalid = 4 << 20

// TooManyCauses stands for the causes that an error leaves out. Its text is the one of the reference for lists of
// unreadable objects.
var TooManyCauses = Cause{Reason: "FieldValueTooMany", Message: "too many errors, the list is truncated"}

// joinCauses returns the text of causes as apimachinery's ErrorList.ToAggregate().Error() has it: each text once, in
// brackets if there are several. Aggregate itself is not used: it copies the whole text for each error that it appends,
// which takes minutes for a body with 50,000 invalid ports.
func joinCauses(causes []Cause) string {
	seen := make(map[string]bool, len(causes))
	var texts []string
	for _, c := range causes {
		text := c.Field + ": " + c.Message
		if c == TooManyCauses {
			text = c.Message
		}
		if !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// NewNotAcceptable returns 406 with the media types that could be sent.
func NewNotAcceptable(accepted []string) *Error {
	return &Error{
		Code: http.StatusNotAcceptable, Reason: NotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}
}

// NewUnsupportedMediaType returns 415 with the media types that are accepted.
func NewUnsupportedMediaType(accepted []string) *Error {
	return &Error{
		Code: http.StatusUnsupportedMediaType, Reason: UnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join(accepted, ", "),
	}
}

// NewTooLarge returns 413: the body or what it expands to is over its limit (WRITE-6).
func NewTooLarge(message string) *Error {
	return &Error{
		Code: http.StatusRequestEntityTooLarge, Reason: RequestEntityTooLarge,
		Message: "Request entity too large: " + message,
	}
}

// NewNotImplemented returns 501: the API has it, this server does not.
func NewNotImplemented(message string, details *Details) *Error {
	return &Error{Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: message, Details: details}
}

// NewExpired returns 410: the requested resourceVersion is no longer kept (LIST-6, WATCH-3).
func NewExpired(message string) *Error {
	return &Error{Code: http.StatusGone, Reason: Expired, Message: message}
}

// NewTooLargeVersion returns 504: the requested resourceVersion is greater than the current one, even after waiting
// for it (LIST-6). The client is to retry after a second.
func NewTooLargeVersion(want string, have int64) *Error {
	return &Error{
		Code: http.StatusGatewayTimeout, Reason: Timeout,
		Message: fmt.Sprintf("Timeout: Too large resource version: %s, current: %d", want, have),
		Details: &Details{
			RetryAfterSeconds: 1,
			Causes:            []Cause{{Reason: "ResourceVersionTooLarge", Message: "Too large resource version"}},
		},
	}
}

// NewTimeout returns 504: the deadline of the request has passed.
func NewTimeout(message string) *Error {
	return &Error{Code: http.StatusGatewayTimeout, Reason: Timeout, Message: "Timeout: " + message, Details: &Details{}}
}

// NewTooManyRequests returns 429: the client is to retry after this many seconds; 0: it is not told to retry.
func NewTooManyRequests(message string, retryAfterSeconds int) *Error {
	return &Error{
		Code: http.StatusTooManyRequests, Reason: TooManyRequests, Message: message,
		Details: &Details{RetryAfterSeconds: retryAfterSeconds},
	}
}

// NewUnavailable returns 503: the server cannot serve the request for now.
func NewUnavailable(message string) *Error {
	return &Error{Code: http.StatusServiceUnavailable, Reason: ServiceUnavailable, Message: message}
}

// NewStoreRead returns 500: the stored bytes of the object in details cannot be read.
func NewStoreRead(message string, details *Details) *Error {
	return &Error{Code: http.StatusInternalServerError, Reason: StoreReadError, Message: message, Details: details}
}

// NewInternal returns 500: the server failed, and not because of the request.
func NewInternal(err error) *Error {
	return &Error{
		Code: http.StatusInternalServerError, Reason: InternalError,
		Message: "Internal error occurred: " + err.Error(),
		Details: &Details{Causes: []Cause{{Message: err.Error()}}},
	}
}
