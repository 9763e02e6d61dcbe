package clientgo

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plinth/conformance/internal/harness"
)

// all are the objects of all planes, as client-go's reflector keeps them. Its informers know objects by namespace and
// name alone; those that are made for kcp take the plane from the same annotation.
type all struct{ cache.Store }

func newAll(t *testing.T, ctx context.Context, running *sync.WaitGroup, config *rest.Config) *all {
	t.Helper()
	client := planeClient(t, config, "*")
	known := &all{cache.NewStore(func(o any) (string, error) {
		m := o.(*corev1.ConfigMap)
		return m.Annotations["kcp.io/cluster"] + "/" + m.Name, nil
	})}
	from := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", metav1.NamespaceDefault,
		fields.Everything())
	reflector := cache.NewReflector(from, &corev1.ConfigMap{}, known, 0)
	running.Go(func() { reflector.RunWithContext(ctx) })
	return known
}

// await waits until the objects with these keys are there, or are not.
func (a *all) await(t *testing.T, there bool, keys ...string) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		missing := 0
		for _, key := range keys {
			if _, has, _ := a.GetByKey(key); has != there {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d of %v should be there: %t; there are %v", missing, keys, there, a.ListKeys())
		}
	}
}

func planeClient(t *testing.T, config *rest.Config, plane string) *kubernetes.Clientset {
	t.Helper()
	of := rest.CopyConfig(config)
	of.Host += "/clusters/" + plane
	client, err := kubernetes.NewForConfig(of)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A reflector with one connection follows planes that begin, change and end.
//
// SPEC: BEY-9
func TestReflectorOfAllPlanes(t *testing.T) {
	s, err := harness.Start(harness.Options{Kind: harness.Plinth, Dir: t.TempDir(), Flags: []string{"--planes"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop() //nolint:errcheck // it is over
	config := jsonConfig(t, s)
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	planes := objects.Resource(schema.GroupVersionResource{Group: "plinth", Version: "v1alpha1", Resource: "planes"})
	begin := func(name string, spec map[string]any) {
		t.Helper()
		plane := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "plinth/v1alpha1", "kind": "Plane",
			"metadata": map[string]any{"name": name}, "spec": spec}}
		if _, err := planes.Create(t.Context(), plane, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	begin("a", map[string]any{})
	begin("c", map[string]any{})
	ctx, cancel := context.WithCancel(t.Context())
	create := func(plane, name string) {
		t.Helper()
		of := planeClient(t, config, plane).CoreV1().ConfigMaps(metav1.NamespaceDefault)
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := of.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("a", "own")
	create("c", "own")
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	known := newAll(t, ctx, &running, config)
	known.await(t, true, "a/own", "c/own") // of one name
	create("a", "later")
	known.await(t, true, "a/later")
	begin("b", map[string]any{"from": map[string]any{"name": "a"}})
	known.await(t, true, "a/own", "b/own")
	maps := planeClient(t, config, "b").CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if err := maps.Delete(ctx, "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	known.await(t, false, "b/own")
	known.await(t, true, "a/own")
	if err := planes.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	known.await(t, false, "a/own")
}
