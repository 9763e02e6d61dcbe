package past

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

var changes = flag.Int("changes", 100_000, "how many changes a benchmark makes; of 10,000 objects of 2 kB")

// BenchmarkPast makes changes, and reads what objects were at random revisions. The metrics are for all changes that
// are kept, on disk, and in memory beside that of a store without a past.
func BenchmarkPast(b *testing.B) {
	const objects = 10_000
	dir := b.TempDir()
	log, err := filelog.Open(dir, filelog.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	kept, err := Open(filepath.Join(dir, "past"), log, Options{Retention: time.Hour, Bytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(store.Config{Describe: storetest.Describe, Log: kept, HistoryBytes: 64 << 20,
		MemoryHistoryBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx, rng := context.Background(), rand.New(rand.NewPCG(1, 2))
	key := func(i int) store.Key { return store.Key{Resource: "/pods", Name: fmt.Sprintf("ns/pod-%05d", i)} }
	began := time.Now()
	for i := range *changes {
		n := rng.IntN(objects)
		if i < objects {
			n = i
		}
		change := store.Change{Key: key(n), Data: podOf(n, i)}
		if i%objects == objects-1 {
			change.Data = nil
		}
		if _, err := s.Commit(ctx, nil, []store.Change{change}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/float64(*changes), "µs/commit")
	if err := kept.Pack(ctx); err != nil {
		b.Fatal(err)
	}
	size, raw, held := int64(0), int64(0), 0
	for _, p := range kept.packs {
		size, raw = size+p.size, raw+p.Raw
		held += len(p.Objects) + len(p.Keys)*96
	}
	b.ReportMetric(float64(size)/1e6, "MB-on-disk")
	b.ReportMetric(float64(raw)/float64(size), "times-smaller")
	b.ReportMetric(float64(held)/1e6, "MB-of-indexes")
	b.ReportMetric(float64(len(kept.packs)), "packs")
	var gets, lists, records []time.Duration
	took := func(all *[]time.Duration, f func() error) {
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		*all = append(*all, time.Since(began))
	}
	for range 5000 {
		at := objects + rng.Int64N(s.Revision()-objects)
		took(&gets, func() error {
			_, err := s.At(ctx, key(rng.IntN(objects)), at)
			return err
		})
	}
	for range 10 {
		at := objects + rng.Int64N(s.Revision()-objects)
		runtime.GC()
		took(&lists, func() error {
			_, err := s.Snapshot(at, "/pods")
			return err
		})
	}
	for range 200 {
		took(&records, func() error {
			return s.Changes(ctx, key(rng.IntN(objects)), 0, func(*store.PastChange) bool { return true })
		})
	}
	for _, of := range []struct {
		name string
		all  []time.Duration
	}{{"get", gets}, {"list", lists}, {"record", records}} {
		slices.Sort(of.all)
		b.ReportMetric(float64(of.all[len(of.all)/2].Microseconds())/1e3, "ms-"+of.name+"-p50")
		b.ReportMetric(float64(of.all[len(of.all)*99/100].Microseconds())/1e3, "ms-"+of.name+"-p99")
	}
}

// BenchmarkRestart opens a store with these changes in turns with its past and without. The directory is the same, and
// nothing is written in between.
func BenchmarkRestart(b *testing.B) {
	const objects, atOnce, turns = 10_000, 20, 15
	dir := b.TempDir()
	open := func(with bool) *store.Store {
		var log store.Log
		files, err := filelog.Open(dir, filelog.Options{NoSync: true})
		if log = files; err == nil && with {
			log, err = Open(filepath.Join(dir, "past"), files, Options{NoSync: true, Retention: time.Hour, Bytes: 256 << 20})
		}
		if err != nil {
			b.Fatal(err)
		}
		s, err := store.Open(store.Config{Describe: storetest.Describe, Log: log})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open(true)
	for i := 0; i < *changes; i += atOnce {
		var all []store.Change
		for j := range atOnce {
			n := (i + j) % objects
			all = append(all, store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprintf("ns/pod-%05d", n)},
				Data: podOf(n, i+j)})
		}
		if _, err := s.Commit(context.Background(), nil, all); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	var took [2][]time.Duration
	var ratios []float64
	for turn := range turns {
		var of [2]time.Duration
		for i := range 2 {
			with := (i + turn) % 2
			runtime.GC()
			began := time.Now()
			s := open(with == 1)
			of[with] = time.Since(began)
			took[with] = append(took[with], of[with])
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		ratios = append(ratios, float64(of[1])/float64(of[0]))
	}
	slices.Sort(ratios)
	for i, name := range []string{"ms-without", "ms-with"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][turns/2].Microseconds())/1e3, name)
	}
	b.ReportMetric(ratios[turns/2], "ratio")
}

// podOf is about 2 kB of JSON as a pod has it, of which a change changes some.
func podOf(n, change int) []byte {
	b := fmt.Appendf(nil, `{"metadata":{"name":"pod-%05d","namespace":"ns","uid":"%08x-1c2d-4e5f-8a9b-%012x","generation":%d,`+
		`"labels":{"app":"app-%d","tier":"backend","version":"v%d"},"managedFields":[`, n, n*2654435761, n*40503, change, n%100,
		n%7)
	for _, f := range []string{"spec", "status", "metadata"} {
		b = fmt.Appendf(b, `{"manager":"controller-%s","operation":"Update","time":"2026-01-%02dT%02d:%02d:%02dZ",`+
			`"fieldsType":"FieldsV1","fieldsV1":{"f:%s":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},`+
			`"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}},`,
			f, change/86400%28+1, change/3600%24, change/60%60, change%60, f)
	}
	b = fmt.Appendf(b, `{}]},"spec":{"nodeName":"node-%d","containers":[{"name":"main","image":"example.com/app:%d","env":[`,
		n%50, n%300)
	for i := range 8 {
		b = fmt.Appendf(b, `{"name":"SETTING_%d","value":"%x"},`, i, uint64(n+1)*uint64(i+7)*0x9E3779B97F4A7C15)
	}
	return fmt.Appendf(b, `{}]}]},"status":{"phase":"Running","podIP":"10.%d.%d.%d","startTime":"2026-01-01T00:00:00Z",`+
		`"conditions":[{"type":"Ready","status":"%t","lastTransitionTime":"2026-01-%02dT%02d:%02d:%02dZ","message":"%x"}]}}`,
		n>>16, n>>8&255, n&255, change%2 == 0, change/86400%28+1, change/3600%24, change/60%60, change%60,
		uint64(change)*0x9E3779B97F4A7C15)
}

// BenchmarkPurge purges one object of many, whose changes are in all packs. The metrics are the time, the bytes of the
// packs that were rewritten, and what the heap has had in use at most beside what it had before.
func BenchmarkPurge(b *testing.B) {
	const objects, atOnce = 10_000, 100
	dir := b.TempDir()
	log, err := filelog.Open(dir, filelog.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	kept, err := Open(filepath.Join(dir, "past"), log, Options{Retention: time.Hour, Bytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(store.Config{Describe: storetest.Describe, Log: kept, HistoryBytes: 64 << 20,
		MemoryHistoryBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx, rng := context.Background(), rand.New(rand.NewPCG(1, 2))
	key := func(i int) store.Key { return store.Key{Resource: "/pods", Name: fmt.Sprintf("ns/pod-%05d", i)} }
	for i := 0; i < *changes; i += atOnce {
		all := map[int]store.Change{}
		for len(all) < atOnce {
			n := rng.IntN(objects)
			all[n] = store.Change{Key: key(n), Data: podOf(n, i+len(all))}
		}
		all[7] = store.Change{Key: key(7), Data: podOf(7, i)}
		if _, err := s.Commit(ctx, nil, slices.Collect(maps.Values(all))); err != nil {
			b.Fatal(err)
		}
	}
	if err := kept.Pack(ctx); err != nil {
		b.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	runtime.GC()
	before, most := heap(), uint64(0)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			most = max(most, heap())
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	began := time.Now()
	p, err := s.Purge(ctx, key(7), false)
	took := time.Since(began)
	close(done)
	<-watched
	if err != nil || p.Versions < *changes/atOnce-1 {
		b.Fatalf("%+v, %v", p, err)
	}
	size := int64(0)
	for _, p := range kept.packs {
		size += p.size
	}
	b.ReportMetric(float64(took.Milliseconds()), "ms/purge")
	b.ReportMetric(float64(size)/1e6, "MB-of-packs")
	b.ReportMetric(float64(p.Versions), "versions")
	b.ReportMetric((float64(most)-float64(before))/1e6, "MB-of-heap")
}
