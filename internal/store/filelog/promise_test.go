package filelog_test

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

const later = 10 * time.Millisecond

// A promise that waits for the next commit is written when none comes, and when the log is closed. Damage to the last commit is
// found from then on.
//
// SPEC: STORE-1
func TestPromiseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		log, err := filelog.Open("data", filelog.Options{FS: mem, PromiseAfter: later})
		if err != nil {
			t.Fatal(err)
		}
		revision := int64(1) // a store begins behind that
		appendOne := func() {
			t.Helper()
			revision++
			key := store.Key{Resource: "/pods", Name: "a/b"}
			data := bytes.Repeat([]byte{byte('a' + revision)}, 200)
			version := &store.Version{Key: key, Revision: revision, Data: data, Sidecar: storetest.Describe(key, data)}
			commit := &store.Commit{Revision: revision, Records: []*store.Record{{Key: key, Revision: revision, New: version}}}
			if err := log.Append([]*store.Commit{commit}); err != nil {
				t.Fatal(err)
			}
		}
		// damaged opens what is on the disk with the last commit damaged. The commit is found to be damaged, or there are only
		// those before it, as after a write that was never finished.
		damaged := func() (found bool) {
			t.Helper()
			im := readImage(t, mem)
			name := im.files(".log")[0]
			content := im[name]
			at := bytes.LastIndex(content, bytes.Repeat([]byte{byte('a' + revision)}, 100))
			content[at] ^= 1
			again, err := filelog.Open("data", filelog.Options{FS: im.mount(t, name, content)})
			var damage *filelog.DamageError
			if errors.As(err, &damage) {
				return true
			}
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			commits := int64(0)
			if err := again.Replay(1, func([]byte) error { commits++; return nil }); err != nil || commits != revision-2 {
				t.Fatalf("%d commits are there at revision %d: %v", commits, revision, err)
			}
			return false
		}
		for range 10 {
			appendOne()
			if damaged() {
				t.Error("there is a promise at once")
			}
			time.Sleep(later / 2)
		}
		time.Sleep(2 * later)
		synctest.Wait()
		if !damaged() {
			t.Error("a while later there is none")
		}
		appendOne()
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if !damaged() {
			t.Error("there is none in a log that was closed")
		}
		time.Sleep(time.Second)
	})
}

// A promise that cannot be written ends the log as a commit does: what the disk holds by then is not known.
//
// SPEC: STORE-1
func TestPromiseThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		full := errors.New("no space left")
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if failing.Load() && op.Kind == errorfs.OpFileWrite {
				return full
			}
			return nil
		}))
		log, err := filelog.Open("data", filelog.Options{FS: fs, PromiseAfter: later})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Append([]*store.Commit{{Revision: 2}}); err != nil {
			t.Fatal(err)
		}
		failing.Store(true)
		time.Sleep(2 * later)
		synctest.Wait()
		failing.Store(false)
		if err := log.Append([]*store.Commit{{Revision: 3}}); !errors.Is(err, full) {
			t.Errorf("the next commit gets %v", err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The whole suite with promises that come while other things go on.
func TestStorePromisingLater(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		Durable: true,
		New: func(t testing.TB) func() (store.Log, error) {
			dir := t.TempDir()
			return func() (store.Log, error) {
				return filelog.Open(dir, filelog.Options{SegmentBytes: 8 << 10, PromiseAfter: time.Millisecond})
			}
		},
	})
}
