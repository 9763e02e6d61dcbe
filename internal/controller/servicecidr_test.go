package controller

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/controller/controllertest"
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
		controllertest.Run(ctx, (&ServiceCIDRs{Engine: b.Engine, Registry: b.Registry,
			Logger: slog.New(slog.DiscardHandler)}).Start)
	}()
	defer func() { cancel(); <-done }()
	cidrs := b.Registry.Now().Find("networking.k8s.io", "v1", "servicecidrs")
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
	b.Make("services", "gone", `{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.7","ports":[{"port":80}]}}`)

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
	if _, err := b.Delete(ctx, b.Request("services", "gone", "s"), engine.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until("wider")
}

// Where other servers may not know yet that a ServiceCIDR was deleted, it stays for a while, and longer if one of them
// has given an address of it away.
//
// SPEC: DEL-1
func TestServiceCIDRsStayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newBenchOf(t, builtin.Config{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			controllertest.Run(ctx, (&ServiceCIDRs{Engine: b.Engine, Registry: b.Registry, Logger: slog.New(slog.DiscardHandler),
				Grace: AllocatorsLag}).Start)
		}()
		defer func() { cancel(); <-done }()
		types := b.Registry.Now()
		cidrs := types.Find("networking.k8s.io", "v1", "servicecidrs")
		ips := types.Find("networking.k8s.io", "v1", "ipaddresses")
		create := func(of *engine.Resource, text string) {
			t.Helper()
			body, err := object.ParseJSON([]byte(text))
			if err == nil {
				_, err = b.Create(ctx, &engine.Request{Resource: of}, body)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		remove := func(of *engine.Resource, name string) {
			t.Helper()
			if _, err := b.Delete(ctx, &engine.Request{Resource: of, Name: name}, engine.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		there := func() string {
			synctest.Wait()
			var names []string
			for _, name := range []string{"first", "second"} {
				if _, err := b.Get(ctx, &engine.Request{Resource: cidrs, Name: name}, ""); err == nil {
					names = append(names, name)
				}
			}
			return strings.Join(names, " ")
		}
		expect := func(when, want string) {
			t.Helper()
			if got := there(); got != want {
				t.Errorf("%s: %q are there, not %q", when, got, want)
			}
		}
		create(cidrs, `{"metadata":{"name":"first"},"spec":{"cidrs":["10.1.0.0/24"]}}`)
		create(cidrs, `{"metadata":{"name":"second"},"spec":{"cidrs":["10.2.0.0/24"]}}`)
		synctest.Wait()
		remove(cidrs, "first")
		time.Sleep(4 * time.Second)
		remove(cidrs, "second")
		expect("at once", "first second")
		create(ips, `{"metadata":{"name":"10.2.0.7","labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io",
			"ipaddress.kubernetes.io/ip-family":"IPv4"}},
			"spec":{"parentRef":{"resource":"services","namespace":"default","name":"s"}}}`)
		time.Sleep(5 * time.Second)
		expect("before the end of the grace", "first second")
		time.Sleep(2 * time.Second)
		expect("after the end of the first grace", "second")
		time.Sleep(time.Minute)
		expect("while an address is in use", "second")
		remove(ips, "10.2.0.7")
		expect("after the end of the second grace", "")
	})
}
