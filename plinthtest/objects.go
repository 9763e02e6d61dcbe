package plinthtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/plane"
	"plinth/object"
)

// create creates the objects of a text.
func (p *Plane) create(ctx context.Context, text []byte) error {
	all, err := object.Documents(text)
	if err != nil {
		return fmt.Errorf("Objects: %w", err)
	}
	for _, o := range all {
		if err := create(ctx, p.plane, o); err != nil {
			return err
		}
	}
	return nil
}

// administrator is who owns a plane.
var administrator = access.User{Name: "admin", Groups: []string{access.Masters, access.Authenticated}}

// create creates an object, and writes its status if it has one.
func create(ctx context.Context, s *plane.Plane, o object.Value) error {
	apiVersion, kind := o.At("apiVersion").Str(), o.At("kind").Str()
	name, namespace := o.At("metadata", "name").Str(), o.At("metadata", "namespace").Str()
	t, ok := s.OfKind(apiVersion, kind)
	if !ok {
		return fmt.Errorf("%s %s: there is no kind %s of %s", kind, name, kind, apiVersion)
	}
	path := t.Path
	if t.Namespaced {
		if namespace == "" {
			namespace = "default"
		}
		path += "/namespaces/" + namespace
	}
	path += "/" + t.Resource
	made, err := send(ctx, s, http.MethodPost, path, o)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	status := o.At("status")
	if status.IsNull() || !t.Status || kind == "CustomResourceDefinition" { // the server sets theirs
		return nil
	}
	if _, err := send(ctx, s, http.MethodPut, path+"/"+made.At("metadata", "name").Str()+"/status",
		made.With("status", status)); err != nil {
		return fmt.Errorf("the status of %s %s: %w", kind, name, err)
	}
	return nil
}

// send sends a request as the administrator, and returns the object of the answer. The answer of an error is an
// error.
func send(ctx context.Context, s *plane.Plane, method, path string, body object.Value) (object.Value, error) {
	request, err := http.NewRequestWithContext(auth.As(ctx, &access.Identity{User: administrator}), method, path,
		bytes.NewReader(object.AppendObject(nil, body)))
	if err != nil {
		return object.Nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "plinthtest")
	answer := &buffered{header: http.Header{}}
	s.Handler().ServeHTTP(answer, request)
	parsed, err := object.ParseJSON(answer.body.Bytes())
	if err != nil {
		return object.Nil, fmt.Errorf("%d %s", answer.code, answer.body.Bytes())
	}
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusAccepted}, answer.code) {
		return object.Nil, errors.New(parsed.Value.At("message").Str())
	}
	return parsed.Value, nil
}
