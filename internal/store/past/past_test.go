package past

import (
	"path/filepath"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// implementation has small packs over small segments, so that there are many.
var implementation = storetest.Implementation{
	Durable: true,
	Past:    true,
	New: storetest.Over(func(t testing.TB) func() (store.Log, error) {
		dir := t.TempDir()
		return func() (store.Log, error) {
			log, err := filelog.Open(dir, filelog.Options{SegmentBytes: 8 << 10, NoSync: true})
			if err != nil {
				return nil, err
			}
			return Open(filepath.Join(dir, "past"), log,
				Options{NoSync: true, Retention: 1000 * time.Hour, Bytes: 1 << 30, PackBytes: 8 << 10})
		}
	}),
}

func TestStore(t *testing.T) { storetest.Run(t, implementation) }
