package engine

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"plinth/internal/apierr"
	"plinth/internal/store"
)

// sharedWriter is the writer of a store to which other processes write, too, such as an etcd.
type sharedWriter struct{ store.Writer }

// A purge where others keep what objects were is an error that says so, and changes nothing.
//
// SPEC: BEY-4, STORE-2
func TestPurgeOnEtcd(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"a"}}`)
	shared := New(Config{Store: &store.Store{State: b.store.State, Writer: sharedWriter{b.store.Writer}},
		Registry: b.registry})
	rq := b.request("a")
	rq.Name = "a"
	for _, dryRun := range []bool{true, false} {
		_, err := shared.Purge(t.Context(), rq, dryRun)
		var status *apierr.Error
		if !errors.As(err, &status) || status.Code != http.StatusNotImplemented ||
			!strings.Contains(status.Message, "compacted and defragmented") {
			t.Errorf("dry run %t: %v", dryRun, err)
		}
	}
	if _, err := b.Purge(t.Context(), rq, false); err != nil {
		t.Error(err)
	}
}
