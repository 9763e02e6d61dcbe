package engine_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// The benchmarks of this file are of many objects on a real disk, and the same as those of conformance/load/scale,
// without HTTP.

// onDisk opens an engine on a directory. The store is closed by the caller.
func onDisk(tb testing.TB, dir string, o filelog.Options) (*engine.Engine, *engine.Registry, *store.Store) {
	tb.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	log, err := filelog.Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: log, Describe: engine.Describe(registry)})
	if err != nil {
		tb.Fatal(err)
	}
	return engine.New(engine.Config{Store: s, Registry: registry}), registry, s
}

const lease = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":%[1]q,"leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:%02[2]d.000000Z"}}`

// many creates n objects in ten namespaces.
func many(tb testing.TB, e *engine.Engine, registry *engine.Registry, r *engine.Resource, n int,
	body func(name string) string) {
	tb.Helper()
	for i := range 10 {
		_, err := e.Create(tb.Context(), &engine.Request{Resource: registry.Now().Find("", "v1", "namespaces")},
			parse(tb, fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i)))
		if err != nil {
			tb.Fatal(err)
		}
	}
	for i := range n {
		rq := &engine.Request{Resource: r, Namespace: fmt.Sprintf("n%d", i%10), FieldManager: "many"}
		if _, err := e.Create(tb.Context(), rq, parse(tb, body(fmt.Sprintf("n%07d", i/10)))); err != nil {
			tb.Fatal(err)
		}
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkReopen opens a store with many objects, and says what each of them takes in memory then.
func BenchmarkReopen(b *testing.B) {
	for _, bench := range []struct {
		name, group, resource string
		n                     int
		body                  func(name string) string
	}{
		{"pods", "", "pods", 100_000, func(name string) string { return fmt.Sprintf(pod, name) }},
		{"leases", "coordination.k8s.io", "leases", 1_000_000,
			func(name string) string { return fmt.Sprintf(lease, name, 0) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			dir := b.TempDir()
			e, registry, s := onDisk(b, dir, filelog.Options{NoSync: true})
			many(b, e, registry, registry.Now().Find(bench.group, "v1", bench.resource), bench.n, bench.body)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			var used uint64
			var spent time.Duration
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				before, began := liveHeap(), storetest.ProcessorTime()
				b.StartTimer()
				_, _, s := onDisk(b, dir, filelog.Options{NoSync: true})
				b.StopTimer()
				spent += storetest.ProcessorTime() - began
				used = liveHeap() - before
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(used)/float64(bench.n), "B/object")
			b.ReportMetric(spent.Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkUpdateLeases is updates of different Leases by many clients at a time. Each of them is answered when it is
// synced to the disk; those that come during a sync share the next one.
func BenchmarkUpdateLeases(b *testing.B) {
	const renewed = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,"namespace":%q,` +
		`"resourceVersion":"%d"},"spec":{"holderIdentity":%[1]q,"leaseDurationSeconds":40,` +
		`"renewTime":"2026-01-01T00:%02[4]d:%02[5]d.000000Z"}}`
	for _, bench := range []struct{ clients, leases int }{{64, 640}, {512, 5120}, {2048, 20480}, {512, 1_000_000}} {
		clients := bench.clients
		b.Run(fmt.Sprintf("clients=%d,leases=%d", clients, bench.leases), func(b *testing.B) {
			dir := b.TempDir()
			e, registry, s := onDisk(b, dir, filelog.Options{NoSync: true})
			leases := registry.Now().Find("coordination.k8s.io", "v1", "leases")
			many(b, e, registry, leases, bench.leases, func(name string) string { return fmt.Sprintf(lease, name, 0) })
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			e, registry, s = onDisk(b, dir, filelog.Options{})
			defer s.Close()
			leases = registry.Now().Find("coordination.k8s.io", "v1", "leases")
			var at atomic.Int64
			var work sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			before := storetest.ProcessorTime()
			for client := range clients {
				work.Go(func() {
					revisions := [10]int64{}
					for i := at.Add(1); i <= int64(b.N); i = at.Add(1) {
						rq := &engine.Request{Resource: leases, Namespace: fmt.Sprintf("n%d", i%10), FieldManager: "many",
							Name: fmt.Sprintf("n%07d", client)}
						if revisions[i%10] == 0 {
							read, err := e.Get(b.Context(), rq, "")
							if err != nil {
								b.Error(err)
								return
							}
							revisions[i%10] = read.Object.Revision
						}
						written, err := e.Update(b.Context(), rq, parse(b, fmt.Sprintf(renewed, rq.Name, rq.Namespace,
							revisions[i%10], i/60%60, i%60)))
						if err != nil {
							b.Error(err)
							return
						}
						revisions[i%10] = written.Object.Revision
					}
				})
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
			b.ReportMetric(float64((storetest.ProcessorTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}
