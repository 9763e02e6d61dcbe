package filelog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
)

var errDisk = errors.New("the disk is broken")

// TestDiskFails makes every single operation of the disk fail in turn, once or from then on. Writes are refused from
// the first one on that could not be made durable, reads continue, and all acknowledged commits exist when the disk
// works again.
//
// SPEC: STORE-1
func TestDiskFails(t *testing.T) {
	for _, forever := range []bool{false, true} {
		t.Run(fmt.Sprint("forever=", forever), func(t *testing.T) {
			for n := int64(0); ; n++ {
				if !diskFails(t, n, forever) {
					if n < 100 {
						t.Fatalf("the load has only %d operations of the disk", n)
					}
					return
				}
			}
		})
	}
}

// diskFails runs a load on a disk whose operation n fails; the result is false when there were fewer operations.
func diskFails(t *testing.T, n int64, forever bool) bool {
	t.Helper()
	mem := vfs.NewMem()
	var count atomic.Int64
	var off atomic.Bool
	failed := func() bool { return count.Load() > n }
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if off.Load() || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		if c := count.Add(1) - 1; c == n || forever && c > n {
			return errDisk
		}
		return nil
	})
	m := newModel()
	acked := int64(1)
	s, err := openStore(errorfs.Wrap(mem, inject))
	if err != nil {
		if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "data directory data") {
			t.Fatalf("operation %d: %v", n, err)
		}
	} else {
		rng := rand.New(rand.NewPCG(uint64(n), 6))
		refused := false
		for range 40 {
			_, err := m.write(s, rng, 0)
			if err == nil && refused {
				t.Fatalf("operation %d: a write was accepted after a failed one", n)
			}
			if err != nil && !errors.Is(err, errDisk) {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err != nil && refused && !errors.Is(err, store.ErrClosed) {
				t.Fatalf("operation %d: a write after a failed one: %v, should be ErrClosed", n, err)
			}
			refused = refused || err != nil
		}
		acked = s.Revision()
		if int(acked) != len(m.changes)+1 {
			t.Fatalf("operation %d: %d changes were acknowledged, and the revision is %d", n, len(m.changes), acked)
		}
		sn, err := s.Snapshot(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := same(stateOf(sn), m.state(acked)); err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		s.Close() // an error is expected: the disk is broken
	}
	all := !failed()
	off.Store(true)
	s = mustOpen(t, mem)
	defer s.Close()
	if err := m.check(s, acked); err != nil {
		t.Fatalf("operation %d: %v", n, err)
	}
	if _, err := s.Commit(context.Background(), nil,
		[]store.Change{{Key: store.Key{Resource: "/pods", Name: "on"}, Data: []byte("it goes")}}); err != nil {
		t.Fatalf("operation %d: %v", n, err)
	}
	return !all
}

// fullFS is a disk with a number of free bytes. A write that does not fit is done in part, as by real file systems.
type fullFS struct {
	vfs.FS
	left atomic.Int64
}

type fullFile struct {
	vfs.File
	fs *fullFS
}

func (f *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return fullFile{file, f}, err
}

func (f fullFile) Write(b []byte) (int, error) {
	if left := f.fs.left.Add(-int64(len(b))); left < 0 {
		n, _ := f.File.Write(b[:max(0, len(b)+int(left))])
		f.fs.left.Store(0)
		return n, syscall.ENOSPC
	}
	return f.File.Write(b)
}

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	if f.fs.left.Load() < int64(len(b)) {
		return 0, syscall.ENOSPC
	}
	f.fs.left.Add(-int64(len(b)))
	return f.File.WriteAt(b, at)
}

// TestDiskFull is the same with a disk that fills up, at any number of bytes, with several writers.
//
// SPEC: STORE-1
func TestDiskFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 60 {
		mem := vfs.NewMem()
		full := &fullFS{FS: mem}
		full.left.Store(rng.Int64N(60 << 10))
		m := newModel()
		acked := int64(1)
		s, err := openStore(full)
		if err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		} else {
			var wait sync.WaitGroup
			for w := range 4 {
				rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(w)))
				wait.Go(func() {
					for range 40 {
						if _, err := m.write(s, rng, w); err != nil && !errors.Is(err, syscall.ENOSPC) {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			acked = s.Revision()
			s.Close()
		}
		full.left.Store(1 << 40)
		if s, err = openStore(full); err != nil {
			t.Fatal(err)
		}
		if err := m.check(s, acked); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}
