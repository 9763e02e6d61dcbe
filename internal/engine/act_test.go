package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// SPEC: URI-1, URI-7
func TestBindAndEvict(t *testing.T) {
	e, registry := builtinEngine(t)
	pods, bindings := registry.Now().Find("", "v1", "pods"), registry.Now().Find("", "v1", "bindings")
	if _, err := e.Create(t.Context(), &engine.Request{Resource: pods, Namespace: "default"},
		parse(t, fmt.Sprintf(pod, "a"))); err != nil {
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
		{on("binding", "a"), `{"metadata":{"name":"b"},"target":{"name":"n"}}`, 400,
			"name in URL does not match name in Binding object"},
		{on("binding", "z"), `{"metadata":{"name":"z"},"target":{"name":"n"}}`, 404, `pods "z" not found`},
		{on("binding", "a"), `{"metadata":{"name":"a"},"target":{}}`, 422, "target.name: Required value"},
		{on("binding", "a"), `{"metadata":{"name":"a"},"target":{"kind":"Pod","name":"n"}}`, 422,
			"target.kind: Unsupported value"},
		{&engine.Request{Resource: bindings, Namespace: "default"}, `{"target":{"name":"n"}}`, 400,
			"Name parameter required."},
		{&engine.Request{Resource: bindings, Namespace: "default"}, `{"metadata":{"name":"a"},"target":{"name":"node-1"}}`, 0,
			""},
		{on("binding", "a"), `{"metadata":{"name":"a"},"target":{"name":"node-2"}}`, 409,
			`pod a is already assigned to node "node-1"`},
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
		return parse(t, string(r.Object.Data())).Value
	}
	bound := get()
	if bound.At("spec", "nodeName").Str() != "node-1" || bound.At("metadata", "generation").Int() != 1 ||
		bound.At("status", "conditions").Len() != 1 {
		t.Errorf("the Pod after the binding: %s", object.AppendObject(nil, bound))
	}
	dry := on("eviction", "a")
	dry.DryRun = true
	for _, rq := range []*engine.Request{dry, on("eviction", "a")} {
		if _, err := e.Create(t.Context(), rq, parse(t, `{"metadata":{"name":"a"}}`)); err != nil {
			t.Fatal(err)
		}
		if gone := !get().At("metadata", "deletionTimestamp").IsNull(); gone == rq.DryRun {
			t.Errorf("eviction with dry run %v: the Pod is marked as deleted: %v", rq.DryRun, gone)
		}
	}
}

// Of concurrent evictions, a budget allows exactly its number, and the status of the budget agrees with the deleted
// Pods.
//
// SPEC: URI-1, DEL-2
func TestEvictionsShareABudget(t *testing.T) {
	e, registry := builtinEngine(t)
	pods, budgets := registry.Now().Find("", "v1", "pods"), registry.Now().Find("policy", "v1", "poddisruptionbudgets")
	on := func(r *engine.Resource, name, subresource string) *engine.Request {
		return &engine.Request{Resource: r, Namespace: "default", Name: name, Subresource: r.Subresource(subresource)}
	}
	make := func(r *engine.Resource, name, body, status string) {
		t.Helper()
		if _, err := e.Create(t.Context(), on(r, "", ""), parse(t, body)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Patch(t.Context(), on(r, name, "status"),
			engine.Patch{Type: engine.MergePatch, Body: []byte(`{"status":` + status + `}`)}); err != nil {
			t.Fatal(err)
		}
	}
	const n, allowed = 12, 5
	make(budgets, "b", `{"metadata":{"name":"b"},"spec":{"selector":{}}}`,
		fmt.Sprintf(`{"observedGeneration":1,"disruptionsAllowed":%d,"currentHealthy":9,"desiredHealthy":2,"expectedPods":9}`,
			allowed))
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		make(pods, name, `{"metadata":{"name":"`+name+`"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`,
			`{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`)
	}
	var done atomic.Int64
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			name := fmt.Sprintf("p%d", i)
			_, err := e.Create(t.Context(), on(pods, name, "eviction"), parse(t, `{"metadata":{"name":"`+name+`"}}`))
			if err == nil {
				done.Add(1)
			} else if !apierr.Is(err, apierr.TooManyRequests) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	gone := 0
	for i := range n {
		live, err := e.Get(t.Context(), on(pods, fmt.Sprintf("p%d", i), ""), "")
		if err != nil {
			t.Fatal(err)
		}
		marked := strings.Contains(string(live.Object.Data()), `"DisruptionTarget"`)
		if marked != live.Object.Sidecar.Deleting {
			t.Errorf("p%d is marked as deleted: %v, has DisruptionTarget: %v; should be equal",
				i, live.Object.Sidecar.Deleting, marked)
		}
		if marked {
			gone++
		}
	}
	live, err := e.Get(t.Context(), on(budgets, "b", ""), "")
	if err != nil {
		t.Fatal(err)
	}
	status := parse(t, string(live.Object.Data())).Value.At("status")
	if done.Load() != allowed || gone != allowed || status.At("disruptedPods").Len() != allowed ||
		status.At("disruptionsAllowed").Int() != 0 {
		t.Errorf("the budget allowed %d evictions, %d succeeded, %d Pods are deleted; status of the budget: %s",
			allowed, done.Load(), gone,
			object.AppendJSON(nil, status))
	}
}
