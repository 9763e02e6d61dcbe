package filelog_test

import (
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// asShipped is a log with the sizes of a real server.
var asShipped = storetest.Implementation{
	Durable: true,
	New: storetest.Over(func(t testing.TB) func() (store.Log, error) {
		dir := t.TempDir()
		return func() (store.Log, error) { return filelog.Open(dir, filelog.Options{}) }
	}),
}

func BenchmarkCommit(b *testing.B)       { storetest.BenchmarkCommit(b, asShipped) }
func BenchmarkGet(b *testing.B)          { storetest.BenchmarkGet(b, asShipped) }
func BenchmarkDependents(b *testing.B)   { storetest.BenchmarkDependents(b, asShipped) }
func BenchmarkSnapshotList(b *testing.B) { storetest.BenchmarkSnapshotList(b, asShipped) }
func BenchmarkWatchFanout(b *testing.B)  { storetest.BenchmarkWatchFanout(b, asShipped) }
func BenchmarkReopen10k(b *testing.B)    { storetest.BenchmarkReopen10k(b, asShipped) }
