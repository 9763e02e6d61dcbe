package filelog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// An old snapshot is not rebuilt from the log for a client that has disconnected.
//
// SPEC: LIST-6
func TestRebuildingEndsWithItsContext(t *testing.T) {
	log, err := filelog.Open("data", filelog.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: log, Describe: storetest.Describe, MemoryHistoryBytes: 2 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 600 {
		key := store.Key{Resource: "/pods", Name: fmt.Sprint("ns/", i)}
		if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: key, Data: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.SnapshotContext(over, 5, "/pods"); !errors.Is(err, context.Canceled) {
		t.Errorf("a snapshot for an ended context: %v", err)
	}
	if _, err := s.SnapshotContext(t.Context(), 5, "/pods"); err != nil {
		t.Error(err)
	}
}
