package filelog_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
)

// cutter simulates losses of power: at random operations of a file system, it copies the content that would be left
// after a loss of power there: all synced content, and a random part of the rest, block by block and name by name.
type cutter struct {
	mem *vfs.MemFS

	mu    sync.Mutex
	rng   *rand.Rand
	odds  int // one in odds operations is cut
	left  int // cuts to take
	acked func() int64
	cuts  []cut
}

type cut struct {
	fs    *vfs.MemFS
	acked int64 // the newest revision acknowledged before it
	op    string
}

func (c *cutter) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 || c.rng.IntN(c.odds) > 0 {
		return nil
	}
	c.left--
	acked := c.acked()
	unsynced := []int{0, 100, 50, 10, 90}[c.rng.IntN(5)]
	c.cuts = append(c.cuts, cut{
		fs:    c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: c.rng}),
		acked: acked,
		op:    fmt.Sprintf("%v of %s, %d%% of the unsynced kept", op.Kind, op.Path, unsynced),
	})
	return nil
}

func (c *cutter) String() string { return "cutter" }

// TestPowerCut cuts the power at more than 1,000 random points: under load, while segments and checkpoints are created
// and removed, and while a log is opened after a cut. Afterwards every acknowledged commit exists, every other commit
// exists as a whole or not at all, and the log accepts new commits.
//
// SPEC: STORE-1
func TestPowerCut(t *testing.T) {
	rounds, cuts := 40, 26
	var total atomic.Int64
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(round), 3))
			c := &cutter{mem: vfs.NewCrashableMem(), rng: rng, odds: 25, left: cuts}
			var s atomic.Pointer[store.Store]
			c.acked = func() int64 {
				if s := s.Load(); s != nil {
					return s.Revision()
				}
				return 1
			}
			m := newModel()
			opened := mustOpen(t, errorfs.Wrap(c.mem, c))
			s.Store(opened)
			var wait sync.WaitGroup
			for w := range 1 + round%4 {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(10+w)))
				wait.Go(func() {
					for range 80 {
						if _, err := m.write(opened, rng, w); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
			for _, cut := range c.cuts {
				total.Add(1)
				checkCut(t, m, cut, rng, &total)
			}
		})
	}
	if total.Load() < 1000 {
		t.Errorf("only %d losses of power were simulated", total.Load())
	}
}

// checkCut opens the content that a cut left, checks it, continues to write and cuts again.
func checkCut(t *testing.T, m *model, first cut, rng *rand.Rand, total *atomic.Int64) {
	t.Helper()
	again := &cutter{mem: first.fs, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), odds: 6, left: 1,
		acked: func() int64 { return first.acked }}
	s, err := openStore(errorfs.Wrap(first.fs, again))
	if err != nil {
		t.Fatalf("cut at %s: %v", first.op, err)
	}
	if err := m.check(s, first.acked); err != nil {
		t.Fatalf("cut at %s: %v", first.op, err)
	}
	again.mu.Lock()
	again.left = 0
	again.mu.Unlock()
	for _, second := range again.cuts { // cuts while the log was opened
		total.Add(1)
		s, err := openStore(second.fs)
		if err != nil {
			t.Fatalf("cut at %s, then, while opening, at %s: %v", first.op, second.op, err)
		}
		if err := m.check(s, first.acked); err != nil {
			t.Fatalf("cut at %s, then, while opening, at %s: %v", first.op, second.op, err)
		}
		s.Close()
	}
	// From here on the test writes with a model of its own.
	own := newModel()
	m.mu.Lock()
	for r := int64(2); r <= s.Revision(); r++ {
		own.changes[r] = m.changes[r]
	}
	m.mu.Unlock()
	for range 5 {
		if _, err := own.write(s, rng, 9); err != nil {
			t.Fatalf("cut at %s: a later write: %v", first.op, err)
		}
	}
	acked := s.Revision()
	third := first.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
	s.Close()
	if s, err = openStore(third); err != nil {
		t.Fatalf("cut at %s, and again five commits later: %v", first.op, err)
	}
	if err := own.check(s, acked); err != nil {
		t.Fatalf("cut at %s, and again five commits later: %v", first.op, err)
	}
	s.Close()
}
