package filelog_test

import (
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// implementation is a log on the real disk, with segments that are small, so that there are many.
var implementation = storetest.Implementation{
	Durable: true,
	New: storetest.Over(func(t testing.TB) func() (store.Log, error) {
		dir := t.TempDir()
		return func() (store.Log, error) { return filelog.Open(dir, filelog.Options{SegmentBytes: 8 << 10}) }
	}),
}

func TestStore(t *testing.T) { storetest.Run(t, implementation) }
