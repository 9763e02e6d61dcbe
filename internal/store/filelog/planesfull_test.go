package filelog_test

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
)

// A full disk refuses to begin planes and forks, to write in them and to end them: what was refused is not there, as a
// whole, and all else is. When there is room again the same is accepted, with the same IDs. A crash while the disk is
// full may leave the last commit that was refused, as a whole.
//
// SPEC: STORE-1, STORE-7, BEY-9
func TestRoomAgainForPlanes(t *testing.T) {
	begins, forks, ends, writes := 0, 0, 0, 0
	for round := range uint64(16) {
		rng := rand.New(rand.NewPCG(round, 12))
		mem := vfs.NewCrashableMem()
		full := &fullFS{FS: mem}
		full.left.Store(1 << 40)
		s, err := openPlanes(full, 8<<10)
		if err != nil {
			t.Fatal(err)
		}
		m := &planesModel{rng: rand.New(rand.NewPCG(round, 13))}
		for range 4 {
			for range 20 {
				if err := m.write(s); err != nil {
					t.Fatalf("there is room: %v", err)
				}
			}
			full.left.Store(rng.Int64N(6 << 10))
			for range 20 {
				if err := m.write(s); err != nil && (!errors.Is(err, store.ErrNoRoom) || !errors.Is(err, syscall.ENOSPC)) {
					t.Fatal(err)
				}
			}
			for _, e := range m.refused {
				switch _, err := s.Plane(e.begins); {
				case e.begins != "" && !errors.Is(err, store.ErrNoPlane):
					t.Fatalf("the plane %s was refused, and is there: %v", e.begins, err)
				case e.origin != "":
					forks++
				case e.begins != "":
					begins++
				case e.ends != "":
					ends++
				default:
					writes++
				}
			}
			if err := errors.Join(s.Healthy(), m.matches(t, s, len(m.events))); err != nil {
				t.Fatal(err)
			}
			crashed := func() *vfs.MemFS {
				return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			}
			m.mayHave(t, crashed())
			full.left.Store(1 << 40)
			// One that was refused is accepted now. Others may depend on what was refused before them.
			if len(m.refused) > 0 {
				e, of := m.refused[0], s
				if e.plane != "" {
					if of, err = s.Plane(e.plane); err != nil {
						t.Fatal(err)
					}
				}
				if err := m.commit(of, e); err != nil {
					t.Fatalf("there is room again: %v", err)
				}
			}
			m.has(t, crashed())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		m.has(t, mem)
	}
	if min(begins, forks, ends, writes) < 5 {
		t.Errorf("only %d beginnings, %d forks, %d ends and %d writes have found the disk full", begins, forks, ends, writes)
	}
}

// has checks that a file system has exactly what the model has.
func (m *planesModel) has(t *testing.T, fs vfs.FS) {
	t.Helper()
	if err := m.foundOn(t, fs); err != nil {
		t.Fatal(err)
	}
}

func (m *planesModel) foundOn(t *testing.T, fs vfs.FS) error {
	t.Helper()
	s, err := openPlanes(fs, 1<<30)
	if err != nil {
		return err
	}
	defer s.Close()
	return m.matches(t, s, len(m.events))
}

// mayHave is has, or with one of the commits that were refused.
func (m *planesModel) mayHave(t *testing.T, fs *vfs.MemFS) {
	t.Helper()
	errs := []error{m.foundOn(t, fs)}
	if errs[0] == nil {
		return
	}
	for _, e := range m.refused {
		e.first = m.events[len(m.events)-1].last + 1
		e.last = e.first + int64(len(e.changes)+len(e.beginning)) - 1
		with := planesModel{events: append(m.events[:len(m.events):len(m.events)], e)}
		err := with.foundOn(t, fs)
		if err == nil {
			return
		}
		errs = append(errs, err)
	}
	t.Fatal(errors.Join(errs...))
}
