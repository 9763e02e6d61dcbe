package controller

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// A ServiceCIDR gets a finalizer, and is removed when no Service has an address that is in no other ServiceCIDR.
//
// SPEC: DEL-1
func TestServiceCIDRs(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&ServiceCIDRs{Engine: b.Engine, Registry: b.registry, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	cidrs := b.registry.Now().Find("networking.k8s.io", "v1", "servicecidrs")
	to := func(name string) *engine.Request { return &engine.Request{Resource: cidrs, Name: name} }
	create := func(name, cidr string) {
		t.Helper()
		body := object.Fields("metadata", object.Fields("name", object.StringOf(name)), "spec",
			object.Fields("cidrs", object.Strings(cidr)))
		if _, err := b.Create(ctx, to(""), object.Parsed{Value: body}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if _, err := b.Delete(ctx, to(name), engine.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// until waits until a ServiceCIDR contains these texts, or without texts, until it is gone.
	until := func(name string, says ...string) {
		t.Helper()
		last := ""
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			result, err := b.Get(ctx, to(name), "")
			if err != nil {
				if len(says) == 0 && apierr.Is(err, apierr.NotFound) {
					return
				}
				t.Fatal(err)
			}
			last = string(result.Object.Data())
			met := len(says) > 0
			for _, say := range says {
				met = met && strings.Contains(last, say)
			}
			if met {
				return
			}
		}
		t.Fatalf("%s does not come to say %q: %s", name, says, last)
	}
	stays := func(name string) {
		t.Helper()
		time.Sleep(50 * time.Millisecond)
		if _, err := b.Get(ctx, to(name), ""); err != nil {
			t.Fatal(err)
		}
	}

	create("kubernetes", "10.0.0.0/24")
	until("kubernetes", `"finalizers":["networking.k8s.io/service-cidr-finalizer"]`,
		`"message":"Kubernetes Service CIDR is ready"`, `"status":"True"`)
	b.create("services", "gone", `{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.7","ports":[{"port":80}]}}`)

	remove("kubernetes")
	until("kubernetes", `"reason":"Terminating"`, `"status":"False"`)
	stays("kubernetes")
	create("wider", "10.0.0.0/16")
	until("kubernetes")

	until("wider", `"status":"True"`)
	create("other", "10.1.0.0/24")
	until("other", `"status":"True"`)
	remove("other") // no Service has an address of it
	until("other")
	remove("wider")
	until("wider", `"reason":"Terminating"`)
	stays("wider")
	if _, err := b.Delete(ctx, b.request("services", "gone", "s"), engine.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until("wider")
}
