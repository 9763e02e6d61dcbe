package quota

import (
	"fmt"
	"runtime"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

// BenchmarkFirstQuota measures what the first quota of a namespace costs that has 100,000 Pods: time, and memory for
// each Pod.
func BenchmarkFirstQuota(b *testing.B) {
	const n = 100_000
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	for b.Loop() {
		b.StopTimer()
		s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry),
			Charge: (&Charges{}).Of, Rules: Quotas})
		if err != nil {
			b.Fatal(err)
		}
		put := func(resource, name, text string) {
			ch := store.Change{Key: store.Key{Resource: resource, Name: "ns/" + name}, Data: []byte(text)}
			if _, err := s.Commit(b.Context(), nil, []store.Change{ch}); err != nil {
				b.Fatal(err)
			}
		}
		for i := range n {
			put(pods, fmt.Sprint("p", i),
				fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","namespace":"ns",`+
					`"uid":"u%d"},"spec":{"containers":[{"image":"i","name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"},`+
					`"requests":{"cpu":"%dm","memory":"64Mi"}}}]},"status":{"phase":"Running","qosClass":"Burstable"}}`,
					i, i, i%200))
		}
		put(Quotas, "q",
			`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":"ns","uid":"q"},`+
				`"spec":{"hard":{"requests.cpu":"1","pods":"5"}}}`)
		before := held()
		b.StartTimer()
		if _, _, err := s.Rules(b.Context(), "ns"); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(held()-before)/n, "bytes/Pod")
		_ = s.Close()
		b.StartTimer()
	}
}

// held is the memory of live values.
func held() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
