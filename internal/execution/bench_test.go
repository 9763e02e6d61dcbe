package execution

import (
	"context"
	"sync"
	"testing"
)

// BenchmarkAlone measures what a request without others does to its place: it enters, goes outside once, and exits.
func BenchmarkAlone(b *testing.B) {
	l := New(4, 1)
	band := l.Share(1).Band()
	b.ReportAllocs()
	for b.Loop() {
		var p Place
		_ = p.Enter(context.Background(), band, 1) // a place is free
		if p.Leave() {
			_ = p.Return(context.Background())
		}
		p.Exit()
	}
}

// BenchmarkFlood measures the same while 64 requests of 8 flows in 2 bands want 4 places.
func BenchmarkFlood(b *testing.B) {
	l := New(4, 4)
	l.polled = func() {}
	share := l.Share(1)
	bands := []*Band{share.Band(), share.Band()}
	var wait sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range 64 {
		wait.Go(func() {
			for n := i; n < b.N; n += 64 {
				var p Place
				_ = p.Enter(context.Background(), bands[i%2], uint64(i%8)) // its context does not end
				if p.Leave() {
					_ = p.Return(context.Background())
				}
				p.Exit()
			}
		})
	}
	wait.Wait()
}
