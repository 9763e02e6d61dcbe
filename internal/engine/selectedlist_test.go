package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

const listed = 1000

// nodePods is an engine with Pods of about the given number of bytes, a hundredth of them on every node.
func nodePods(tb testing.TB, size int) (*engine.Engine, *engine.Request) {
	tb.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	describe := engine.Describe(registry)
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: describe})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	padding := strings.Repeat("x", size)
	for i := range listed {
		key := store.Key{Resource: "/pods", Name: fmt.Sprintf("default/pod-%04d", i)}
		data := fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"padding":%q},"labels":{"node":"%d"},"name":"pod-%04d","namespace":"default","uid":"u-%d"},"spec":{"nodeName":"node-%d"}}`, padding, i%100, i, i, i%100)
		if _,
			err := s.Commit(tb.Context(), nil, []store.Change{{Key: key, Data: data,
			Sidecar: describe(key, data)}}); err != nil {
			tb.Fatal(err)
		}
	}
	e := engine.New(engine.Config{Store: s, Registry: registry})
	return e, &engine.Request{Resource: registry.Now().Find("", "v1", "pods"), Namespace: "default"}
}

// selections are lists of a hundredth of the Pods: by each sort of selector, with each resourceVersion that means the
// newest state.
func selections(tb testing.TB) map[string]engine.ListOptions {
	tb.Helper()
	node, err := labels.Parse("node in (7)")
	if err != nil {
		tb.Fatal(err)
	}
	byLabel := engine.ListOptions{Labels: node}
	byField := engine.ListOptions{Fields: fields.OneTermEqualSelector("spec.nodeName", "node-7")}
	old, page := byField, byField
	old.ResourceVersion, page.Limit = "0", 5
	return map[string]engine.ListOptions{"label": byLabel, "field": byField, "field, version 0": old,
		"field, a page": page}
}

func count(tb testing.TB, e *engine.Engine, rq *engine.Request, o engine.ListOptions) (n int) {
	list, err := e.List(tb.Context(), rq, o)
	if err != nil {
		tb.Fatal(err)
	}
	for range list.Items {
		n++
	}
	return n
}

// BenchmarkSelectedList reads a hundredth of 1,000 Pods: of 0.3 kB and of 20 kB, most recent and at any version.
func BenchmarkSelectedList(b *testing.B) {
	for _, size := range []int{100, 20_000} {
		e, rq := nodePods(b, size)
		for _, name := range []string{"label", "field", "field, version 0"} {
			o := selections(b)[name]
			b.Run(fmt.Sprintf("size=%d/%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					count(b, e, rq, o)
				}
			})
		}
	}
}
