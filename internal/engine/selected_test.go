package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/internal/store/storetest"
)

// BenchmarkSelectedWatch has watchers that follow the Pods of one node each, as kubelets do, while Pods change. An
// operation is one change and the event of the watcher that it concerns: it should cost the same among thousands.
func BenchmarkSelectedWatch(b *testing.B) {
	for _, watchers := range []int{1, 5000} {
		b.Run(fmt.Sprint("watchers=", watchers), func(b *testing.B) { selectedWatch(b, watchers) })
	}
}

func selectedWatch(b *testing.B, watchers int) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	describe := engine.Describe(registry)
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: describe})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	e := engine.New(engine.Config{Store: s, Registry: registry})
	pods := registry.Now().Find("", "v1", "pods")
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	told := make(chan struct{}, watchers)
	for i := range watchers {
		selector := fields.OneTermEqualSelector("spec.nodeName", fmt.Sprint("node-", i))
		w, err := e.Watch(ctx, &engine.Request{Resource: pods},
			engine.WatchOptions{ListOptions: engine.ListOptions{Fields: selector}})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for {
				events, err := w.Next(ctx)
				if err != nil {
					return
				}
				for range events {
					told <- struct{}{}
				}
			}
		}()
	}
	for s.Stats().Waiting < watchers {
		time.Sleep(time.Millisecond)
	}
	began := storetest.ProcessorTime()
	b.ResetTimer()
	for n := range b.N {
		node := n % watchers
		key := store.Key{Resource: "/pods", Name: fmt.Sprint("default/pod-", node)}
		data := fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"web"},"name":"pod-%d","namespace":"default","uid":"u-%d"},"spec":{"nodeName":"node-%d"},"status":{"podIP":"10.0.0.%d"}}`, node, node, node, n)
		if _, err := s.Commit(ctx, nil, []store.Change{{Key: key, Data: data, Sidecar: describe(key, data)}}); err != nil {
			b.Fatal(err)
		}
		<-told
	}
	b.StopTimer()
	b.ReportMetric(float64((storetest.ProcessorTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
