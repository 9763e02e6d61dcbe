package plinthtest

import (
	"fmt"
	"runtime"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"plinth/conformance/internal/realcrds"
	"plinth/plinthtest"
)

// definitionsOf are the definitions of projects as a file system. It is a pointer, so that it is comparable, and read
// once.
func definitionsOf(t testing.TB) *files {
	fsys := files{fstest.MapFS{}}
	for i, d := range realcrds.All(t) {
		fsys.MapFS[fmt.Sprintf("%03d.json", i)] = &fstest.MapFile{Data: d.JSON}
	}
	return &fsys
}

type files struct{ fstest.MapFS }

var certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}

func certificate(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Certificate",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"secretName": "s", "issuerRef": map[string]any{"name": "i"}},
	}}
}

// Planes with the definitions of real projects: their types are served, and a fork has the objects of the image.
func TestDefinitions(t *testing.T) {
	all := definitionsOf(t)
	p := plinthtest.New(t, plinthtest.CRDs(all))
	use := func(p *plinthtest.Plane, name string) int {
		c, err := dynamic.NewForConfig(configOf(p))
		if err != nil {
			t.Fatal(err)
		}
		of := c.Resource(certificates).Namespace("default")
		if _, err := of.Create(t.Context(), certificate(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		list, err := of.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if n := use(p, "a"); n != 1 {
		t.Errorf("the first plane has %d certificates", n)
	}
	image := p.Snapshot()
	for range 3 {
		if n := use(plinthtest.New(t, plinthtest.From(image)), "b"); n != 2 {
			t.Errorf("a fork has %d certificates", n)
		}
	}
	if n := use(plinthtest.New(t, plinthtest.CRDs(all)), "b"); n != 1 {
		t.Errorf("a new plane has %d certificates", n)
	}
}

// BenchmarkFork is a plane that begins with an image with the definitions of real projects; used, also a request for
// the objects of one of them.
func BenchmarkFork(b *testing.B) {
	p := plinthtest.New(b, plinthtest.CRDs(definitionsOf(b)))
	image := p.Snapshot()
	fork := func(b *testing.B, use bool) {
		b.ReportAllocs()
		for b.Loop() {
			plinthtest.With(b, func(p *plinthtest.Plane) {
				if !use {
					return
				}
				c, err := dynamic.NewForConfig(configOf(p))
				if err != nil {
					b.Fatal(err)
				}
				_, err = c.Resource(certificates).Namespace("default").Create(b.Context(), certificate("a"), metav1.CreateOptions{})
				if err != nil {
					b.Fatal(err)
				}
			}, plinthtest.From(image))
		}
	}
	b.Run("idle", func(b *testing.B) { fork(b, false) })
	b.Run("used", func(b *testing.B) { fork(b, true) })
}

// BenchmarkMemory reports the memory of planes with the definitions of real projects.
func BenchmarkMemory(b *testing.B) {
	all := definitionsOf(b)
	for b.Loop() {
		before := heap()
		for range 100 {
			plinthtest.New(b, plinthtest.CRDs(all))
		}
		b.ReportMetric(float64(heap()-before)/100, "B/plane")
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
