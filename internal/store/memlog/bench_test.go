package memlog_test

import (
	"testing"

	"plinth/internal/store/storetest"
)

func BenchmarkCommit(b *testing.B)       { storetest.BenchmarkCommit(b, implementation) }
func BenchmarkGet(b *testing.B)          { storetest.BenchmarkGet(b, implementation) }
func BenchmarkDependents(b *testing.B)   { storetest.BenchmarkDependents(b, implementation) }
func BenchmarkSnapshotList(b *testing.B) { storetest.BenchmarkSnapshotList(b, implementation) }
func BenchmarkWatchFanout(b *testing.B)  { storetest.BenchmarkWatchFanout(b, implementation) }
