package memlog_test

import (
	"testing"

	"plinth/internal/store/storetest"
)

func BenchmarkCommit(b *testing.B)       { storetest.BenchmarkCommit(b, backend) }
func BenchmarkGet(b *testing.B)          { storetest.BenchmarkGet(b, backend) }
func BenchmarkDependents(b *testing.B)   { storetest.BenchmarkDependents(b, backend) }
func BenchmarkSnapshotList(b *testing.B) { storetest.BenchmarkSnapshotList(b, backend) }
func BenchmarkWatchFanout(b *testing.B)  { storetest.BenchmarkWatchFanout(b, backend) }
