// Package apierr is the one error that goes out on the wire: a Kubernetes Status with its code, reason, message,
// causes and retry (URI-9). Inside the server errors are ordinary Go errors; whoever decides what a client is told
// makes one of these, and package httpapi alone writes them.
package apierr

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Reason is a machine-readable word for what went wrong, as metav1.StatusReason.
type Reason string

// The reasons that this server gives.
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

	// not among the reference's, which does not know preconditions in headers
	PreconditionFailed Reason = "PreconditionFailed"
)

// Error is a failed Status. It is an error by value of its pointer; use errors.As to find it in a chain.
type Error struct {
	Code    int // HTTP
	Reason  Reason
	Message string
	Details *Details // nil: the Status has none
	// Continue is a token with which an expired list may go on inconsistently (LIST-5); it stands in the metadata.
	Continue string
}

// Details say what the error is about.
type Details struct {
	Name, Group, Kind, UID string
	Causes                 []Cause
	RetryAfterSeconds      int
}

// Cause is one of the things that went wrong.
type Cause struct {
	Reason  string // metav1.CauseType, "FieldValueRequired"
	Message string
	Field   string // "spec.containers[0].name"
}

func (e *Error) Error() string { return e.Message }

// From finds the wire error in err; any other error is an internal one (500).
func From(err error) *Error {
	var wire *Error
	if errors.As(err, &wire) {
		return wire
	}
	return NewInternal(err)
}

// Is says whether err is a wire error of this reason.
func Is(err error, reason Reason) bool {
	var wire *Error
	return errors.As(err, &wire) && wire.Reason == reason
}

// Status is the error as the object that clients get.
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

// Type names what an error is about: a group and a resource type (lower-case plural) or a kind, as the reference's
// messages use either.
type Type struct{ Group, Name string }

// String is "deployments.apps", or "pods" in the core group.
func (t Type) String() string {
	if t.Group == "" {
		return t.Name
	}
	return t.Name + "." + t.Group
}

func (t Type) details(name string) *Details {
	return &Details{Name: name, Group: t.Group, Kind: t.Name}
}

// NewBadRequest is 400: the request makes no sense.
func NewBadRequest(message string) *Error {
	return &Error{Code: http.StatusBadRequest, Reason: BadRequest, Message: message}
}

// NewUnauthorized is 401: nobody knows who asks.
func NewUnauthorized() *Error {
	return &Error{Code: http.StatusUnauthorized, Reason: Unauthorized, Message: "Unauthorized"}
}

// NewForbidden is 403: who asks may not, for this reason.
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

// NewNotFound is 404 for an object.
func NewNotFound(resource Type, name string) *Error {
	return &Error{
		Code: http.StatusNotFound, Reason: NotFound, Details: resource.details(name),
		Message: fmt.Sprintf("%s %q not found", resource, name),
	}
}

// NewNoSuchPath is 404 for a URL that this server does not serve.
func NewNoSuchPath() *Error {
	return &Error{
		Code: http.StatusNotFound, Reason: NotFound, Details: &Details{},
		Message: "the server could not find the requested resource",
	}
}

// NewMethodNotAllowed is 405.
func NewMethodNotAllowed() *Error {
	return &Error{
		Code: http.StatusMethodNotAllowed, Reason: MethodNotAllowed, Details: &Details{},
		Message: "the server does not allow this method on the requested resource",
	}
}

// NewAlreadyExists is 409 for a name that is taken.
func NewAlreadyExists(resource Type, name string) *Error {
	return &Error{
		Code: http.StatusConflict, Reason: AlreadyExists, Details: resource.details(name),
		Message: fmt.Sprintf("%s %q already exists", resource, name),
	}
}

// NewConflict is 409: the object is not what the writer took it for.
func NewConflict(resource Type, name, why string) *Error {
	return &Error{
		Code: http.StatusConflict, Reason: Conflict, Details: resource.details(name),
		Message: fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", resource, name, why),
	}
}

// NewPreconditionFailed is 412: the object is not what a header of the request says that it has to be.
func NewPreconditionFailed(resource Type, name, why string) *Error {
	return &Error{
		Code: http.StatusPreconditionFailed, Reason: PreconditionFailed, Details: resource.details(name),
		Message: fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", resource, name, why),
	}
}

// NewInvalid is 422 with a cause for each field that validation refuses. Kind is the kind with its group. Of the errors
// that are longer than maxInvalid together, the first ones are in it.
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
		e.Message += ": " + together(e.Details.Causes)
	}
	return e
}

// maxInvalid is the length of the causes after which NewInvalid leaves out the rest. An error quotes the value that it
// is about, and a rule may be about a whole list once for each of its items: 40,000 owner references that all say
// controller: true are a body of 3 MiB, and 40,000 causes of 3 MiB each. Texts are made here and not by the rules
// (field.Error keeps the value), so what is left out costs nothing. The reference has no such bound.
const maxInvalid = 4 << 20

// TooManyCauses stands for the causes that an error leaves out. Its text is the reference's, of a list of unreadable
// objects.
var TooManyCauses = Cause{Reason: "FieldValueTooMany", Message: "too many errors, the list is truncated"}

// together is the text of causes as apimachinery's Aggregate has it: each once, and in brackets where there are
// several. That one copies what it has for each error: with 50,000 wrong ports in one body it takes minutes.
func together(causes []Cause) string {
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

// NewNotAcceptable is 406, listing what there would be.
func NewNotAcceptable(accepted []string) *Error {
	return &Error{
		Code: http.StatusNotAcceptable, Reason: NotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}
}

// NewUnsupportedMediaType is 415, listing what is read.
func NewUnsupportedMediaType(accepted []string) *Error {
	return &Error{
		Code: http.StatusUnsupportedMediaType, Reason: UnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join(accepted, ", "),
	}
}

// NewTooLarge is 413 (WRITE-6).
func NewTooLarge(message string) *Error {
	return &Error{
		Code: http.StatusRequestEntityTooLarge, Reason: RequestEntityTooLarge,
		Message: "Request entity too large: " + message,
	}
}

// NewExpired is 410: the version asked for is no longer kept.
func NewExpired(message string) *Error {
	return &Error{Code: http.StatusGone, Reason: Expired, Message: message}
}

// NewTooLargeVersion is 504: the version asked for has not happened yet, even after waiting for it (LIST-6).
func NewTooLargeVersion(want, have int64) *Error {
	return &Error{
		Code: http.StatusGatewayTimeout, Reason: Timeout,
		Message: fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", want, have),
		Details: &Details{
			RetryAfterSeconds: 1,
			Causes:            []Cause{{Reason: "ResourceVersionTooLarge", Message: "Too large resource version"}},
		},
	}
}

// NewTimeout is 504: the request took longer than it may.
func NewTimeout(message string) *Error {
	return &Error{Code: http.StatusGatewayTimeout, Reason: Timeout, Message: "Timeout: " + message, Details: &Details{}}
}

// NewTooManyRequests is 429: come back after so many seconds.
func NewTooManyRequests(message string, retryAfterSeconds int) *Error {
	return &Error{
		Code: http.StatusTooManyRequests, Reason: TooManyRequests, Message: message,
		Details: &Details{RetryAfterSeconds: retryAfterSeconds},
	}
}

// NewUnavailable is 503: the server cannot do this now.
func NewUnavailable(message string) *Error {
	return &Error{Code: http.StatusServiceUnavailable, Reason: ServiceUnavailable, Message: message}
}

// NewStoreRead is 500: what is stored is no object. The details name it.
func NewStoreRead(message string, details *Details) *Error {
	return &Error{Code: http.StatusInternalServerError, Reason: StoreReadError, Message: message, Details: details}
}

// NewInternal is 500: something is wrong with the server.
func NewInternal(err error) *Error {
	return &Error{
		Code: http.StatusInternalServerError, Reason: InternalError,
		Message: "Internal error occurred: " + err.Error(),
		Details: &Details{Causes: []Cause{{Message: err.Error()}}},
	}
}
