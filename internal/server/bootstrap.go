package server

import (
	"context"
	"fmt"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// systemNamespaces are there from the beginning, and again at every start if somebody has deleted them.
var systemNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// bootstrap makes what a new server has to have.
func bootstrap(ctx context.Context, e *engine.Engine, registry *engine.Registry) error {
	namespaces := registry.Builtin().Find("", "v1", "namespaces")
	for _, name := range systemNamespaces {
		rq := &engine.Request{Resource: namespaces, Name: name, FieldManager: "plinth"}
		if _, err := e.Get(ctx, rq, ""); err == nil {
			continue
		}
		rq.Name = ""
		body := object.Fields("metadata", object.Fields("name", object.StringOf(name)))
		if _, err := e.Create(ctx, rq, object.Parsed{Value: body}); err != nil && !apierr.Is(err, apierr.AlreadyExists) {
			return fmt.Errorf("making namespace %s: %w", name, err)
		}
	}
	return nil
}
