package filelog_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// TestRoomAgain: a log whose disk was full goes on by itself when there is room, however much of a write was done. What
// was refused may exist after a crash; what was acknowledged does.
//
// SPEC: STORE-1
func TestRoomAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 8))
	refused := 0
	for range 40 {
		mem := vfs.NewCrashableMem()
		full := &fullFS{FS: mem}
		full.left.Store(1 << 40)
		m := newModel()
		s, err := openStore(full)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			full.left.Store(rng.Int64N(12 << 10))
			for range 30 {
				if _, err := m.write(s, rng, 0); err != nil {
					refused++
					if !errors.Is(err, store.ErrNoRoom) || !errors.Is(err, syscall.ENOSPC) {
						t.Fatal(err)
					}
				}
			}
			if err := s.Healthy(); err != nil {
				t.Fatal(err)
			}
			check(t, m, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng}), s.Revision())
			full.left.Store(1 << 40)
			m.unknown = nil // from here on they must not exist any more: other commits have their revisions
			for range 10 {
				if _, err := m.write(s, rng, 0); err != nil {
					t.Fatalf("there is room again: %v", err)
				}
			}
			check(t, m, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng}), s.Revision())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		check(t, m, mem, int64(len(m.changes)+1))
	}
	if refused < 100 {
		t.Errorf("only %d writes found the disk full", refused)
	}
}

// check opens a disk and compares it with a model. The model learns nothing.
func check(t *testing.T, m *model, disk vfs.FS, acked int64) {
	t.Helper()
	s, err := openStore(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own := newModel()
	for r, ch := range m.changes {
		own.changes[r] = ch
	}
	own.unknown = append(own.unknown, m.unknown...)
	if err := own.check(s, acked); err != nil {
		t.Fatal(err)
	}
}

// TestSyncFindsNoRoom: a sync may be what finds the disk full. The file is never synced again.
//
// SPEC: STORE-1
func TestSyncFindsNoRoom(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var fails string
	after := 0
	disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData {
			return nil
		}
		if fails == "next" && strings.HasSuffix(op.Path, ".log.tmp") { // the name with which it was created
			fails = op.Path
			return syscall.ENOSPC
		}
		if op.Path == fails {
			after++
		}
		return nil
	}))
	m := newModel()
	rng := rand.New(rand.NewPCG(1, 1))
	s := mustOpen(t, disk)
	for range 3 {
		if _, err := m.write(s, rng, 0); err != nil {
			t.Fatal(err)
		}
	}
	fails = "next"
	if _, err := m.write(s, rng, 0); !errors.Is(err, store.ErrNoRoom) {
		t.Fatal(err)
	}
	m.unknown = nil
	for range 3 {
		if _, err := m.write(s, rng, 0); err != nil {
			t.Fatal(err)
		}
	}
	check(t, m, mem.CrashClone(vfs.CrashCloneCfg{RNG: rng}), s.Revision())
	s.Close()
	if after > 0 {
		t.Errorf("%s was synced %d times after a failed sync", fails, after)
	}
}

// TestOpenFull: a log on a full disk opens, and can be read; what it has is durable. It takes commits when there is
// room.
//
// SPEC: STORE-1
func TestOpenFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 8))
	for round := range 30 {
		mem := vfs.NewCrashableMem()
		m := newModel()
		s := mustOpen(t, mem)
		for range 1 + rng.IntN(60) {
			if _, err := m.write(s, rng, 0); err != nil {
				t.Fatal(err)
			}
		}
		acked := s.Revision()
		// Half of the time all that was written is there; otherwise the manifest lags behind, and commits are found without
		// evidence that they were synced.
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * (round % 2), RNG: rng})
		s.Close()
		full := &fullFS{FS: after}
		if s, err := openStore(full); err != nil {
			t.Fatal(err)
		} else {
			if err := m.check(s, acked); err != nil {
				t.Fatal(err)
			}
			if _, err := m.write(s, rng, 0); !errors.Is(err, store.ErrNoRoom) {
				t.Fatal(err)
			}
			m.unknown = nil
			check(t, m, after.CrashClone(vfs.CrashCloneCfg{RNG: rng}), s.Revision())
			full.left.Store(1 << 40)
			for range 3 {
				if _, err := m.write(s, rng, 0); err != nil {
					t.Fatal(err)
				}
			}
			acked = s.Revision()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		check(t, m, after, acked)
	}
}

// TestFilesTakenAway: a log whose files are removed, renamed or replaced while it is open acknowledges nothing more,
// and says so.
//
// SPEC: STORE-1
func TestFilesTakenAway(t *testing.T) {
	for what, take := range map[string]func(dir, segment string) error{
		"all files are removed": func(dir, _ string) error {
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
			}
			return err
		},
		"the segment is renamed": func(_, segment string) error { return os.Rename(segment, segment+".old") },
		"the segment is replaced": func(_, segment string) error {
			b, err := os.ReadFile(segment)
			return errors.Join(err, os.Rename(segment, segment+".old"), os.WriteFile(segment, b, 0o600))
		},
		"the directory is renamed": func(dir, _ string) error { return os.Rename(dir, dir+".old") },
		"the directory is replaced": func(dir, _ string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s, err := openDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			put := func(name string) error {
				_, err := s.Commit(context.Background(), nil,
					[]store.Change{{Key: store.Key{Resource: "/pods", Name: name}, Data: []byte("x")}})
				return err
			}
			if err := put("a"); err != nil {
				t.Fatal(err)
			}
			segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
			if err != nil || len(segments) != 1 {
				t.Fatal(segments, err)
			}
			if err := take(dir, segments[0]); err != nil {
				t.Fatal(err)
			}
			if err := put("b"); !errors.As(err, new(*filelog.MissingError)) {
				t.Errorf("a commit: %v", err)
			}
			if err := put("c"); !errors.Is(err, store.ErrClosed) {
				t.Errorf("the next commit: %v", err)
			}
			if err := s.Healthy(); !errors.Is(err, store.ErrClosed) {
				t.Errorf("the store says that its health is %v", err)
			}
		})
	}
}

// TestLockTakenAway: no file of a directory can be removed so that it can be opened a second time.
//
// SPEC: STORE-1
func TestLockTakenAway(t *testing.T) {
	dir := t.TempDir()
	l, err := filelog.Open(dir, filelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	second, err := filelog.Open(dir, filelog.Options{})
	if err == nil {
		second.Close()
	}
	if !errors.Is(err, filelog.ErrLocked) {
		t.Errorf("the directory is opened a second time: %v", err)
	}
}
