package controller

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// A claim stays while a Pod on a node uses it, a volume while it is bound, a class while a claim or a volume has it,
// and a PodGroup while it has a Pod that has not ended.
//
// SPEC: DEL-1
func TestProtection(t *testing.T) {
	set, _, err := features.Parse("GenericWorkload=true")
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchOf(t, builtin.Config{Features: set}.Every())
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		(&Claims{Engine: b.Engine, Registry: b.Registry, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	})
	for kind := range ProtectedKind(len(protected)) {
		work.Go(func() {
			(&Protection{Engine: b.Engine, Registry: b.Registry, Logger: slog.New(slog.DiscardHandler), Kind: kind}).Run(ctx)
		})
	}
	defer func() { cancel(); work.Wait() }()
	to := func(resource, namespace, name string) *engine.Request {
		group := map[string]string{"volumeattributesclasses": "storage.k8s.io", "podgroups": "scheduling.k8s.io"}[resource]
		version := map[string]string{"podgroups": "v1beta1"}[resource]
		return &engine.Request{Resource: b.Registry.Now().Find(group, cmp.Or(version, "v1"), resource),
			Namespace: namespace, Name: name}
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

	const group = `,"spec":{"schedulingPolicy":{"basic":{}}}`
	const protects = `,"finalizers":["scheduling.k8s.io/podgroup-protection","example.com/other"]`
	member := func(name, group string) {
		t.Helper()
		create("pods", "default", name, `,"spec":{"nodeName":"n1","schedulingGroup":{"podGroupName":"`+group+
			`"},"containers":[{"name":"c","image":"i"}]}`)
	}
	create("podgroups", "default", "bare", group)
	if has, gone := finalizer("podgroups", "default", "bare"); has || gone { // that is for the plugin to do
		t.Errorf("a PodGroup without the finalizer: has %v, gone %v", has, gone)
	}
	remove("podgroups", "default", "bare")
	until("podgroups", "default", "bare", true)
	create("podgroups", "default", `gang"`+protects+`,"namespace":"default`, group)
	member("one", "gang")
	member("two", "gang")
	member("three", "gang-two")
	remove("podgroups", "default", "gang")
	stays("podgroups", "default", "gang")
	remove("pods", "default", "one")
	stays("podgroups", "default", "gang")
	ended := to("pods", "default", "two")
	ended.Subresource = ended.Resource.Subresource("status")
	if _, err := b.Patch(ctx, ended, engine.Patch{Type: engine.MergePatch,
		Body: []byte(`{"status":{"phase":"Succeeded"}}`)}); err != nil {
		t.Fatal(err)
	}
	finalizers := func() (all []string) {
		result, err := b.Get(ctx, to("podgroups", "default", "gang"), "")
		if err != nil {
			t.Fatal(err)
		}
		obj, err := parsed(result.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range obj.At("metadata", "finalizers").Items() {
			all = append(all, v.Str())
		}
		return all
	}
	for deadline := time.Now().Add(20 * time.Second); len(finalizers()) > 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the finalizer of a PodGroup whose last Pod has ended stays")
		}
	}
	if left := finalizers(); !slices.Equal(left, []string{"example.com/other"}) {
		t.Errorf("left are %q", left)
	}
}
