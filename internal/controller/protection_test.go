package controller

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// A claim stays while a Pod on a node uses it, a volume while it is bound, and a class while a claim or a volume has
// it.
//
// SPEC: DEL-1
func TestProtection(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for kind := range ProtectedKind(len(protected)) {
		work.Go(func() {
			(&Protection{Engine: b.Engine, Registry: b.registry, Logger: slog.New(slog.DiscardHandler), Kind: kind}).Run(ctx)
		})
	}
	defer func() { cancel(); work.Wait() }()
	to := func(resource, namespace, name string) *engine.Request {
		group := map[string]string{"volumeattributesclasses": "storage.k8s.io"}[resource]
		return &engine.Request{Resource: b.registry.Now().Find(group, "v1", resource), Namespace: namespace, Name: name}
	}
	create := func(resource, namespace, name, rest string) {
		t.Helper()
		parsed, err := object.ParseJSON([]byte(`{"metadata":{"name":"` + name + `"}` + rest + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(ctx, to(resource, namespace, ""), parsed); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(resource, namespace, name string) {
		t.Helper()
		zero := int64(0)
		_, err := b.Delete(ctx, to(resource, namespace, name), engine.DeleteOptions{GracePeriodSeconds: &zero})
		if err != nil {
			t.Fatal(err)
		}
	}
	finalizer := func(resource, namespace, name string) (has, gone bool) {
		result, err := b.Get(ctx, to(resource, namespace, name), "")
		if apierr.Is(err, apierr.NotFound) {
			return false, true
		}
		if err != nil {
			t.Fatal(err)
		}
		obj, err := parsed(result.Object)
		return obj.At("metadata", "finalizers").Len() > 0, err != nil
	}
	until := func(resource, namespace, name string, wantGone bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if has, gone := finalizer(resource, namespace, name); gone == wantGone && has != wantGone {
				return
			}
		}
		t.Fatalf("%s %s: not protected, or not removed", resource, name)
	}
	stays := func(resource, namespace, name string) {
		t.Helper()
		time.Sleep(50 * time.Millisecond)
		if _, gone := finalizer(resource, namespace, name); gone {
			t.Fatalf("%s %s is removed while it is in use", resource, name)
		}
	}
	create("namespaces", "", "default", "")
	const claimSpec = `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`
	const volumes = `"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]`
	create("persistentvolumeclaims", "default", "c", claimSpec)
	until("persistentvolumeclaims", "default", "c", false)
	create("pods", "default", "bound", `,"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}],`+volumes+`}`)
	create("pods", "default", "free", `,"spec":{"containers":[{"name":"c","image":"i"}],`+volumes+`}`)
	remove("persistentvolumeclaims", "default", "c")
	stays("persistentvolumeclaims", "default", "c")
	remove("pods", "default", "free")
	stays("persistentvolumeclaims", "default", "c")
	remove("pods", "default", "bound")
	until("persistentvolumeclaims", "default", "c", true)

	create("persistentvolumes", "", "v", `,"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"},"persistentVolumeReclaimPolicy":"Retain"}`)
	until("persistentvolumes", "", "v", false)
	setPhase := func(phase string) {
		t.Helper()
		rq := to("persistentvolumes", "", "v")
		rq.Subresource = rq.Resource.Subresource("status")
		if _, err := b.Patch(ctx, rq, engine.Patch{Type: engine.MergePatch,
			Body: []byte(`{"status":{"phase":"` + phase + `"}}`)}); err != nil {
			t.Fatal(err)
		}
	}
	setPhase("Bound")
	remove("persistentvolumes", "", "v")
	stays("persistentvolumes", "", "v")
	setPhase("Released")
	until("persistentvolumes", "", "v", true)

	create("volumeattributesclasses", "", "fast", `,"driverName":"d.example","parameters":{"a":"b"}`)
	until("volumeattributesclasses", "", "fast", false)
	create("persistentvolumeclaims", "default", "d", claimSpec[:len(claimSpec)-1]+`,"volumeAttributesClassName":"fast"}`)
	until("persistentvolumeclaims", "default", "d", false)
	remove("volumeattributesclasses", "", "fast")
	stays("volumeattributesclasses", "", "fast")
	remove("persistentvolumeclaims", "default", "d")
	until("volumeattributesclasses", "", "fast", true)
}
