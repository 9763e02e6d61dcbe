package apierr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// SPEC: URI-9 (the bodies are those of a kube-apiserver 1.37)
func TestStatus(t *testing.T) {
	configmaps, deployments := Type{Name: "configmaps"}, Type{Group: "apps", Name: "deployments"}
	for _, c := range []struct {
		err  *Error
		want string
	}{
		{NewNotFound(configmaps, "a"),
			`{"apiVersion":"v1","code":404,"details":{"kind":"configmaps","name":"a"},"kind":"Status","message":"configmaps \"a\" not found","metadata":{},"reason":"NotFound","status":"Failure"}`},
		{NewAlreadyExists(deployments, "a"),
			`{"apiVersion":"v1","code":409,"details":{"group":"apps","kind":"deployments","name":"a"},"kind":"Status","message":"deployments.apps \"a\" already exists","metadata":{},"reason":"AlreadyExists","status":"Failure"}`},
		{NewInvalid(Type{Name: "ConfigMap"}, "", field.ErrorList{field.Required(field.NewPath("metadata", "name"),
			"name or generateName is required")}),
			`{"apiVersion":"v1","code":422,"details":{"causes":[{"field":"metadata.name","message":"Required value: name or generateName is required","reason":"FieldValueRequired"}],"kind":"ConfigMap"},"kind":"Status","message":"ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required","metadata":{},"reason":"Invalid","status":"Failure"}`},
		{NewTooLargeVersion("99999", 226),
			`{"apiVersion":"v1","code":504,"details":{"causes":[{"message":"Too large resource version","reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1},"kind":"Status","message":"Timeout: Too large resource version: 99999, current: 226","metadata":{},"reason":"Timeout","status":"Failure"}`},
		{NewUnauthorized(),
			`{"apiVersion":"v1","code":401,"kind":"Status","message":"Unauthorized","metadata":{},"reason":"Unauthorized","status":"Failure"}`},
	} {
		if got := string(object.AppendJSON(nil, c.err.Status())); got != c.want {
			t.Errorf("have %s\nwant %s", got, c.want)
		}
	}
}

func TestFrom(t *testing.T) {
	wire := NewBadRequest("no")
	if got := From(fmt.Errorf("deep down: %w", wire)); got != wire {
		t.Errorf("From of a wrapped *Error: have %v, want the *Error itself", got)
	}
	if got := From(errors.New("disk on fire")); got.Code != 500 || got.Reason != InternalError ||
		got.Message != "Internal error occurred: disk on fire" {
		t.Errorf("From of an ordinary error: have %+v, want 500 InternalError with the text of the error", got)
	}
	if !Is(fmt.Errorf("x: %w", wire), BadRequest) || Is(errors.New("x"), BadRequest) {
		t.Error("Is does not find the reason of a wrapped error")
	}
}

// Errors are left out once the causes are longer than maxInvalid: a rule may show a list of megabytes for each of its
// items.
//
// SPEC: WRITE-6
func TestInvalidIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var errs field.ErrorList
	for i := range 1000 {
		errs = append(errs, field.Invalid(field.NewPath("list").Index(i), long, "no"))
	}
	err := NewInvalid(Type{Name: "ConfigMap"}, "a", errs)
	causes := err.Details.Causes
	if n := len(causes); n != 5 || causes[3].Field != "list[3]" || causes[4] != TooManyCauses {
		t.Errorf("have %d causes, want 4 that show a value of 1 MiB, and %v", n, TooManyCauses)
	}
	if !strings.HasSuffix(err.Message, `": no, too many errors, the list is truncated]`) || len(err.Message) > 5<<20 {
		t.Errorf("the message has %d bytes and ends %q", len(err.Message), err.Message[len(err.Message)-100:])
	}
	all := NewInvalid(Type{Name: "ConfigMap"}, "a", errs[:3])
	if n := len(all.Details.Causes); n != 3 || strings.Contains(all.Message, TooManyCauses.Message) {
		t.Errorf("three errors: have %d causes, want 3", n)
	}
}
