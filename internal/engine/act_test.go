package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// SPEC: URI-1, URI-7
func TestBindAndEvict(t *testing.T) {
	e, registry := builtinEngine(t)
	pods, bindings := registry.Now().Find("", "v1", "pods"), registry.Now().Find("", "v1", "bindings")
	if _, err := e.Create(t.Context(), &engine.Request{Resource: pods, Namespace: "default"}, parse(t, fmt.Sprintf(pod, "a"))); err != nil {
		t.Fatal(err)
	}
	on := func(subresource, name string) *engine.Request {
		return &engine.Request{Resource: pods, Subresource: pods.Subresource(subresource), Namespace: "default", Name: name}
	}
	for _, c := range []struct {
		rq   *engine.Request
		body string
		code int // of the error; 0: done
		text string
	}{
		{on("binding", "a"), `{"metadata":{"name":"b"},"target":{"name":"n"}}`, 400, "name in URL does not match name in Binding object"},
		{on("binding", "z"), `{"metadata":{"name":"z"},"target":{"name":"n"}}`, 404, `pods "z" not found`},
		{on("binding", "a"), `{"metadata":{"name":"a"},"target":{}}`, 422, "target.name: Required value"},
		{on("binding", "a"), `{"metadata":{"name":"a"},"target":{"kind":"Pod","name":"n"}}`, 422, "target.kind: Unsupported value"},
		{&engine.Request{Resource: bindings, Namespace: "default"}, `{"target":{"name":"n"}}`, 400, "Name parameter required."},
		{&engine.Request{Resource: bindings, Namespace: "default"}, `{"metadata":{"name":"a"},"target":{"name":"node-1"}}`, 0, ""},
		{on("binding", "a"), `{"metadata":{"name":"a"},"target":{"name":"node-2"}}`, 409, `pod a is already assigned to node "node-1"`},
	} {
		result, err := e.Create(t.Context(), c.rq, parse(t, c.body))
		if c.code == 0 {
			if err != nil || !result.Created || result.Status.At("status").Str() != "Success" {
				t.Errorf("%s: %+v, %v", c.body, result, err)
			}
			continue
		}
		if err == nil || apierr.From(err).Code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %d %s", c.body, err, c.code, c.text)
		}
	}
	get := func() object.Value {
		t.Helper()
		r, err := e.Get(t.Context(), &engine.Request{Resource: pods, Namespace: "default", Name: "a"}, "")
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, string(r.Object.Data)).Value
	}
	bound := get()
	if bound.At("spec", "nodeName").Str() != "node-1" || bound.At("metadata", "generation").Int() != 1 || bound.At("status", "conditions").Len() != 1 {
		t.Errorf("bound: %s", object.AppendObject(nil, bound))
	}
	dry := on("eviction", "a")
	dry.DryRun = true
	for _, rq := range []*engine.Request{dry, on("eviction", "a")} {
		if _, err := e.Create(t.Context(), rq, parse(t, `{"metadata":{"name":"a"}}`)); err != nil {
			t.Fatal(err)
		}
		if gone := !get().At("metadata", "deletionTimestamp").IsNull(); gone == rq.DryRun {
			t.Errorf("dry run %v: the Pod is being deleted: %v", rq.DryRun, gone)
		}
	}
}
