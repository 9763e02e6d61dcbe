package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/internal/store"
)

// object is about as large as a Pod with two containers, and as hard to compress.
func object(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	var b strings.Builder
	for b.Len() < 4000 {
		fmt.Fprintf(&b, `"key%d":{"value":"%x","n":%d},`, r.IntN(1000), r.Uint64(), r.IntN(100))
	}
	return []byte(b.String()[:4000])
}

func objects(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = object(i)
	}
	return out
}

// quick is a sidecar without any work: the cost of a real one is not the store's.
func quick(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }

func benchStore(b *testing.B, implementation Implementation, configure ...func(*store.Config)) *testStore {
	return newStore(b, implementation, append(configure, func(c *store.Config) { c.Describe = quick })...)
}

// BenchmarkCommit measures creations of 4 kB objects, by one writer and by 32, and updates of a few bytes, without
// owners and with one owner for ten objects.
func BenchmarkCommit(b *testing.B, implementation Implementation) {
	data := objects(1000)
	owned := make([]store.Sidecar, 1000)
	for i := range owned {
		owned[i].Owners = []string{fmt.Sprintf("6d1f2a34-0000-4000-8000-%012d", i/10)}
	}
	for _, writers := range []int{1, 32} {
		run := func(name string, change func(i int) store.Change) {
			b.Run(fmt.Sprintf("%s/writers=%d", name, writers), func(b *testing.B) {
				x := benchStore(b, implementation)
				var at atomic.Int64
				var wait sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				before := ProcessorTime()
				for range writers {
					wait.Go(func() {
						for i := at.Add(1); i <= int64(b.N); i = at.Add(1) {
							ch := change(int(i))
							if ch.Sidecar == nil {
								ch.Sidecar = &store.Sidecar{}
							}
							if _, err := x.Commit(context.Background(), nil, []store.Change{ch}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wait.Wait()
				b.ReportMetric(float64((ProcessorTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
		run("create", func(i int) store.Change {
			return store.Change{Key: pod(fmt.Sprintf("ns/pod-%08d", i)), Data: data[i%len(data)]}
		})
		run("createOwned", func(i int) store.Change {
			return store.Change{Key: pod(fmt.Sprintf("ns/pod-%08d",
				i)), Data: data[i%len(data)], Sidecar: &owned[i%1000]}
		})
		run("update", func(i int) store.Change {
			d := append([]byte(nil), data[i%1000]...)
			copy(d[2000:], fmt.Sprint(i))
			return store.Change{Key: pod(fmt.Sprintf("ns/pod-%08d", i%1000)), Data: d}
		})
		run("updateOwned", func(i int) store.Change {
			d := append([]byte(nil), data[i%1000]...)
			copy(d[2000:], fmt.Sprint(i))
			return store.Change{Key: pod(fmt.Sprintf("ns/pod-%08d", i%1000)), Data: d, Sidecar: &owned[i%1000]}
		})
	}
}

// fill creates n objects.
func (x *testStore) fill(n int) {
	data := objects(1000)
	for i := 0; i < n; i += 50 {
		var changes []store.Change
		for j := i; j < min(n, i+50); j++ {
			changes = append(changes, store.Change{Key: pod(fmt.Sprintf("ns%d/pod-%06d",
				j%10, j)), Data: data[j%1000], Sidecar: &store.Sidecar{}})
		}
		x.commit(changes...)
	}
}

// BenchmarkGet reads single objects of 10,000.
func BenchmarkGet(b *testing.B, implementation Implementation) {
	x := benchStore(b, implementation)
	x.fill(10000)
	keys := make([]store.Key, 10000)
	for i := range keys {
		keys[i] = pod(fmt.Sprintf("ns%d/pod-%06d", i%10, i))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i += 7919 {
			if _, ok := x.Get(keys[i%len(keys)]); !ok {
				b.Fatal("an object is missing")
			}
		}
	})
}

// BenchmarkDependents finds the ten dependents of an owner among 10,000 objects, and those of an object without
// dependents.
func BenchmarkDependents(b *testing.B, implementation Implementation) {
	x := benchStore(b, implementation)
	x.fill(9000)
	for i := range 1000 {
		x.commit(store.Change{
			Key:     pod(fmt.Sprintf("owned/pod-%06d", i)),
			Data:    object(i),
			Sidecar: &store.Sidecar{Owners: []string{fmt.Sprint("owner-", i/10)}},
		})
	}
	for _, bench := range []struct {
		name, uid string
		want      int
	}{{"ten", "owner-77", 10}, {"none", "nobody", 0}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if x.Dependents(bench.uid, func(*store.Version) bool { n++; return true }); n != bench.want {
					b.Fatal(n)
				}
			}
		})
	}
}

// BenchmarkSnapshotList lists 5,000 objects: of the newest revision, with a write between lists, and of an older one.
func BenchmarkSnapshotList(b *testing.B, implementation Implementation) {
	x := benchStore(b, implementation)
	x.fill(5000)
	list := func(b *testing.B, revision int64) {
		sn := x.snapshot(revision, "/pods")
		n := 0
		sn.Ascend("/pods", "", "", func(*store.Version) bool { n++; return true })
		if n != 5000 {
			b.Fatal(n)
		}
	}
	b.Run("now", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			list(b, 0)
		}
	})
	b.Run("written", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			x.put(pod(fmt.Sprintf("ns%d/pod-%06d", i%10, i%10)), "x")
			list(b, 0)
		}
	})
	b.Run("undo1000", func(b *testing.B) {
		revision := x.Revision()
		for i := range 1000 {
			x.put(pod(fmt.Sprintf("ns%d/pod-%06d", i%10, i)), "x")
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			list(b, revision+int64(i%100)) // more revisions than snapshots are kept
		}
	})
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		sn := x.snapshot(0)
		for b.Loop() {
			if sn.CountFrom("/pods", "ns3/", "ns3/pod-000400") == 0 {
				b.Fatal("none")
			}
		}
	})
}

// BenchmarkWatchFanout has 200 cursors follow 8 writers. An operation is one event delivered.
//
// The window holds all events of the run. With the default one the cursors of a store in memory are lost: a wake-up
// may be delayed by the throttle for 20 ms, in which writers that wait for no disk write more than the 16 MiB of
// history that memory holds, and a log in memory has nothing older.
func BenchmarkWatchFanout(b *testing.B, implementation Implementation) {
	const watchers, writers, size = 200, 8, 1300
	events := max(1, b.N/watchers)
	x := benchStore(b, implementation, func(c *store.Config) {
		c.MemoryHistoryBytes = int64(events+1) * 2 * size
		c.HistoryBytes = 2 * c.MemoryHistoryBytes
	})
	data := object(1)[:size]
	var wait sync.WaitGroup
	var waits atomic.Int64
	for range watchers {
		c := x.watch("/pods", "", 1)
		wait.Go(func() {
			for seen := 0; seen < events; {
				records, err := c.Next(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				seen += len(records)
				waits.Add(1)
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	var at atomic.Int64
	for range writers {
		wait.Go(func() {
			for i := at.Add(1); i <= int64(events); i = at.Add(1) {
				ch := store.Change{Key: pod(fmt.Sprintf("ns/pod-%d", i%1000)), Data: data, Sidecar: &store.Sidecar{}}
				if _, err := x.Commit(context.Background(), nil, []store.Change{ch}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.ReportMetric(float64(events*watchers)/float64(waits.Load()), "events/wake")
	b.ReportMetric(float64(events*watchers)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkReopen10k opens a store of 10,000 objects of 4 kB.
func BenchmarkReopen10k(b *testing.B, implementation Implementation) {
	x := benchStore(b, implementation)
	if !implementation.Durable {
		b.Log("a log in memory has nothing to reopen")
		return
	}
	data := objects(1000)
	var wait sync.WaitGroup
	for w := range 50 {
		wait.Go(func() {
			for i := w; i < 10000; i += 50 {
				x.commit(store.Change{Key: pod(fmt.Sprintf("ns/pod-%06d",
					i)), Data: data[i%1000], Sidecar: &store.Sidecar{}})
			}
		})
	}
	wait.Wait()
	var live float64
	for b.Loop() {
		b.StopTimer()
		if err := x.Store.Close(); err != nil {
			b.Fatal(err)
		}
		x.Store = nil
		runtime.GC()
		before := heap()
		b.StartTimer()
		x.start()
		b.StopTimer()
		live = float64(heap()-before) / (10000 * 4000)
		b.StartTimer()
	}
	if n := x.snapshot(0).Count("/pods", ""); n != 10000 {
		b.Fatal(n)
	}
	b.ReportMetric(live, "heap/data")
}
