package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/object"
)

// volumeBench is a bench in virtual time with a controller of claims.
type volumeBench struct {
	*bench
	ctx context.Context
}

func (b *volumeBench) to(resource, name string) *engine.Request {
	return &engine.Request{Resource: b.Registry.Now().Find("", "v1", resource), Namespace: "default", Name: name}
}

func (b *volumeBench) create(resource, name, rest string) {
	b.Helper()
	parsed, err := object.ParseJSON([]byte(`{"metadata":{"name":"` + name + `"}` + rest + `}`))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.Create(b.ctx, b.to(resource, ""), parsed); err != nil {
		b.Fatal(err)
	}
}

func (b *volumeBench) patch(resource, name, subresource, body string) {
	b.Helper()
	rq := b.to(resource, name)
	rq.Subresource = rq.Resource.Subresource(subresource)
	if _, err := b.Patch(b.ctx, rq, engine.Patch{Type: engine.MergePatch, Body: []byte(body)}); err != nil {
		b.Fatal(err)
	}
}

func (b *volumeBench) remove(resource, name string) {
	b.Helper()
	zero := int64(0)
	if _, err := b.Delete(b.ctx, b.to(resource, name), engine.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		b.Fatal(err)
	}
}

// unused is the status, the reason and the time of the condition of a claim, once the controller has nothing to do.
func (b *volumeBench) unused(name string) string {
	b.Helper()
	synctest.Wait()
	result, err := b.Get(b.ctx, b.to("persistentvolumeclaims", name), "")
	if err != nil {
		b.Fatal(err)
	}
	obj, err := engine.ObjectOf(result.Object)
	if err != nil {
		b.Fatal(err)
	}
	var all []string
	for _, c := range obj.At("status", "conditions").Items() {
		if c.At("type").Str() == "Unused" {
			at, _ := time.Parse(time.RFC3339, c.At("lastTransitionTime").Str())
			all = append(all, fmt.Sprintf("%s %s after %s", c.At("status").Str(), c.At("reason").Str(), at.Sub(began)))
		}
	}
	return strings.Join(all, ", ")
}

// began is when the time of a bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const boundClaim = `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`

// The condition Unused of a bound claim says since when no Pod refers to it, on a node or not, that has not ended.
//
// SPEC: DEL-1
func TestUnusedClaims(t *testing.T) {
	withClaims(t, true, func(b *volumeBench) {
		expect := func(want string) {
			b.Helper()
			if got := b.unused("c"); got != want {
				b.Errorf("the claim is %q, want %q", got, want)
			}
		}
		const pod = `,"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v",` +
			`"persistentVolumeClaim":{"claimName":"c"}}]}`
		b.create("persistentvolumeclaims", "c", boundClaim)
		expect("") // it is not bound
		b.patch("persistentvolumeclaims", "c", "status", `{"status":{"phase":"Bound"}}`)
		expect("True NoPodsUsingPVC after 0s")
		time.Sleep(time.Minute)
		b.create("pods", "p", pod)
		expect("False PodUsingPVC after 1m0s")
		time.Sleep(time.Minute)
		b.create("pods", "q", pod)
		b.remove("pods", "p")
		expect("False PodUsingPVC after 1m0s")
		b.patch("pods", "q", "status", `{"status":{"phase":"Succeeded"}}`)
		expect("True NoPodsUsingPVC after 2m0s")
		b.create("pods", "other", strings.ReplaceAll(pod, `"c"}`, `"d"}`))
		b.create("pods", "none", `,"spec":{"containers":[{"name":"c","image":"i"}]}`)
		expect("True NoPodsUsingPVC after 2m0s")
		// The claim of an ephemeral volume belongs to the Pod of its name, by UID.
		b.create("persistentvolumeclaims", "e-v", boundClaim)
		b.patch("persistentvolumeclaims", "e-v", "status", `{"status":{"phase":"Bound"}}`)
		b.create("pods", "e", `,"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","ephemeral":{`+
			`"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}}]}`)
		if got := b.unused("e-v"); got != "True NoPodsUsingPVC after 2m0s" {
			b.Errorf("a claim that has only the name of another one is %q", got)
		}
		// What happened while Pods did not matter is found later.
		b.patch("persistentvolumeclaims", "c", "status", `{"status":{"phase":"Lost"}}`)
		b.create("pods", "r", pod)
		expect("True NoPodsUsingPVC after 2m0s")
		b.patch("persistentvolumeclaims", "c", "status", `{"status":{"phase":"Bound"}}`)
		expect("False PodUsingPVC after 2m0s")
	})
	withClaims(t, false, func(b *volumeBench) {
		b.create("persistentvolumeclaims", "c", boundClaim)
		b.patch("persistentvolumeclaims", "c", "status", `{"status":{"phase":"Bound"}}`)
		if got := b.unused("c"); got != "" {
			b.Errorf("without the feature gate a claim is %q", got)
		}
	})
}

// A Pod whose volumes are gone, and that is held by a finalizer, keeps the claim of an ephemeral volume no more: it may
// wait for that claim.
//
// SPEC: DEL-1
func TestClaimOfAPodThatIsShutDown(t *testing.T) {
	withClaims(t, true, func(b *volumeBench) {
		const pod = `,"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v",` +
			`"ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{` +
			`"storage":"1Gi"}}}}}}]}`
		b.create("pods", `e","finalizers":["example.com/hold"],"namespace":"default`, pod)
		result, err := b.Get(b.ctx, b.to("pods", "e"), "")
		if err != nil {
			b.Fatal(err)
		}
		b.create("persistentvolumeclaims", `e-v","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"e","uid":"`+
			result.Object.Sidecar.UID+`","controller":true}],"namespace":"default`, boundClaim)
		synctest.Wait()
		b.remove("persistentvolumeclaims", "e-v")
		synctest.Wait()
		if _, err := b.Get(b.ctx, b.to("persistentvolumeclaims", "e-v"), ""); err != nil {
			b.Errorf("the claim of a Pod that runs: %v", err)
		}
		b.remove("pods", "e")
		synctest.Wait()
		if _, err := b.Get(b.ctx, b.to("persistentvolumeclaims", "e-v"), ""); err == nil {
			b.Error("the claim stays")
		}
	})
}

// Pods that go at the same time leave no claim behind that is used by none.
func TestClaimsOfManyPods(t *testing.T) {
	withClaims(t, true, func(b *volumeBench) {
		const n = 200
		for i := range n {
			name := fmt.Sprintf("c%d", i)
			b.create("persistentvolumeclaims", name, boundClaim)
			b.patch("persistentvolumeclaims", name, "status", `{"status":{"phase":"Bound"}}`)
			b.create("pods", name, `,"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v",`+
				`"persistentVolumeClaim":{"claimName":"`+name+`"}}]}`)
		}
		for i := range n {
			if got := b.unused(fmt.Sprintf("c%d", i)); !strings.HasPrefix(got, "False") {
				b.Fatalf("claim %d is %q", i, got)
			}
		}
		for i := range n {
			b.remove("pods", fmt.Sprintf("c%d", i))
		}
		for i := range n {
			if got := b.unused(fmt.Sprintf("c%d", i)); !strings.HasPrefix(got, "True") {
				b.Fatalf("claim %d is %q", i, got)
			}
		}
	})
}

// withClaims calls f in a bubble with a controller of claims.
func withClaims(t *testing.T, unused bool, f func(b *volumeBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &volumeBench{bench: newBenchOf(t, builtin.Config{}), ctx: ctx}
		done := make(chan struct{})
		go func() {
			controllertest.Run(ctx, (&Claims{Engine: b.Engine, Registry: b.Registry, Logger: slog.New(slog.DiscardHandler),
				Unused: unused}).Start)
			close(done)
		}()
		b.create("namespaces", "default", "")
		f(b)
		cancel()
		<-done
	})
}
