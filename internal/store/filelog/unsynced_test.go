package filelog_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// An unsynced log works, and syncs nothing.
//
// SPEC: RUN-2
func TestUnsynced(t *testing.T) {
	var synced atomic.Int64
	watch := errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			synced.Add(1)
			return errors.New("synced")
		}
		return nil
	})
	storetest.Run(t, storetest.Implementation{
		Durable: true,
		New: storetest.Over(func(t testing.TB) func() (store.Log, error) {
			dir, fs := t.TempDir(), errorfs.Wrap(vfs.Default, watch)
			return func() (store.Log, error) {
				return filelog.Open(dir, filelog.Options{FS: fs, SegmentBytes: 8 << 10, NoSync: true})
			}
		}),
	})
	if n := synced.Load(); n > 0 {
		t.Errorf("%d syncs with NoSync", n)
	}
}
