package filelog

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/storetest"
)

// The entry of the manifest that is written after every sync takes no allocation.
func TestNotesAllocateNothing(t *testing.T) {
	l, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := testing.AllocsPerRun(100, func() {
		if err := l.manifest.writeUnsynced(func(e *entry) { e.end = l.manifest.end }); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for an entry", n)
	}
}

// The scratch buffer is kept while commits are about as large as the largest one. It is not kept after a huge commit,
// nor after one that is much smaller than the buffer.
func TestScratchBufferIsKept(t *testing.T) {
	l, err := Open("data", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: l, Describe: storetest.Describe})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, commit := range []struct {
		size int
		kept bool
	}{
		{100 << 10, true},
		{100 << 10, true},
		{40 << 10, true},
		{100, false},
		{100, true}, // a small buffer
		{40 << 10, true},
		{100, true},
		{2 << 20, false},
		{100 << 10, true},
	} {
		change := store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprint(i)},
			Data: append([]byte("1 "), bytes.Repeat([]byte("x"), commit.size)...)}
		if _, err := s.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
		l.appending.Lock()
		if kept := l.buffer != nil; kept != commit.kept {
			t.Errorf("commit %d, %d bytes: the buffer is kept: %v; its capacity is %d", i, commit.size, kept, cap(l.buffer))
		}
		l.appending.Unlock()
	}
}
