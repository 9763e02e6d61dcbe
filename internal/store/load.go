package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"plinth/internal/invariants"
)

// loader makes a new state of a checkpoint and the commits after it.
//
// The problem: the server has to be ready half a second after its start, with tens of thousands of objects. A log lends
// the data that it yields, so all data that stays has to be copied, and most of the time goes into these copies: the
// kernel has to provide memory that a process touches for the first time, page by page. One goroutine that reads and
// copies leaves the other processors idle; and several goroutines cannot read the log, as each commit overwrites the
// buffers of earlier ones. So one goroutine reads, and appends the bytes of versions to a copyBatch, a scratch buffer
// that is reused; other goroutines copy the versions of full batches to their final place. That opens a large store
// in two thirds of the time (docs/decisions/0007).
//
//	the bytes of v are set by copier.finish at the latest; they are not read before that
//
// Sidecars are computed at the end, in parallel: many versions are overwritten during the replay, and computing their
// sidecars would be wasted. Until then Sidecar has what the log has stored, and expires the expiry.
//
// The state is not shared yet, so no lock is taken.
type loader struct {
	state   *State
	expires map[Key]time.Time // of the live versions that expire
	// stored has, for each Form and SealedBy, a sidecar with only these set, which versions share until describe.
	stored map[stored]*Sidecar
	copies copier
}

// stored is what most versions have in common of that which is not part of their bytes.
type stored struct {
	form     uint64
	sealedBy uint32
}

// load brings a new state to the end of its log: versions, indexes, revision and window. It returns the versions that
// expire. After an error the state cannot be used.
func (s *State) load(from *Checkpoint) (expire []*Version, err error) {
	if from.image != nil {
		expire, err = s.loadImage(from)
	} else {
		expire, err = s.loadCheckpoint(from)
	}
	if err != nil {
		return nil, err
	}
	h := &s.history
	// The replay fills no feeds: history from before the start is read from the log, and memory begins with the next
	// commit.
	h.opened, h.all.floor = s.revision, s.revision
	h.trim(s.revision, s.config.Now().UnixNano())
	// Last, as it may move the horizon further than trim has.
	if err := s.findHorizon(); err != nil {
		return nil, err
	}
	if invariants.Enabled {
		s.check()
	}
	return expire, nil
}

// loadCheckpoint copies the versions of a checkpoint and of the commits after it.
func (s *State) loadCheckpoint(from *Checkpoint) (expire []*Version, err error) {
	l := &loader{state: s, expires: map[Key]time.Time{}, stored: map[stored]*Sidecar{},
		copies: copier{packer: &s.packer}}
	err = l.read(from)
	l.copies.finish()
	if err != nil {
		return nil, err
	}
	l.describe()
	for k := range l.expires {
		expire = append(expire, s.live.get(k))
	}
	return expire, nil
}

// read restores the versions of the checkpoint, and then the changes of each commit of the log.
func (l *loader) read(from *Checkpoint) error {
	s := l.state
	// A checkpoint has each key once.
	for v, err := range from.Versions {
		if err != nil {
			return err
		}
		l.restore(v.Key, v, v.Revision)
	}
	// A checkpoint has no deletions, so no collection is known to have been the same since before it.
	s.live.collections.Scan(func(_ string, t *collection) bool {
		t.changed = max(t.changed, from.Revision)
		return true
	})
	// The window is that from before the restart, continued by the times and sizes of the commits that follow.
	h := &s.history
	h.resume(from.Window)
	s.revision, s.live.since = from.Revision, from.Revision
	if s.log == nil {
		return nil
	}
	return s.log.Replay(context.Background(), from.Revision, func(c *Commit) error {
		if c.First() <= s.revision {
			return fmt.Errorf("commit %d to %d follows revision %d", c.First(), c.Revision, s.revision)
		}
		for _, r := range c.Records {
			if !r.empty() {
				l.restore(r.Key, r.New, r.Revision)
				s.replayed += changeBytes(r)
				h.bytes += changeBytes(r)
			}
		}
		s.revision = c.Revision
		h.mark(c.Revision, c.Time)
		return nil
	})
}

// restore makes a copy of a lent version the live one of its key; nil removes the key. The copy of a version that is
// overwritten later is wasted; avoiding that would take a second pass over the log.
func (l *loader) restore(k Key, lent *Version, revision int64) {
	t := l.state.live.writable(k.Resource)
	t.changed = max(t.changed, revision)
	if lent == nil {
		t.names.Delete(k.Name)
		delete(l.expires, k)
		return
	}
	// One string for the resource of a whole collection, and one for the name of all versions of an object.
	v := &Version{Key: Key{Resource: t.resource}, Revision: revision}
	if old, ok := t.names.Get(k.Name); ok {
		v.Key.Name = old.Key.Name
	} else {
		v.Key.Name = strings.Clone(k.Name)
	}
	t.names.Set(v.Key.Name, v)
	// The version is in its place already; only its bytes follow.
	l.copies.add(v, lent.Data())
	if lent.Sidecar.Expire.IsZero() {
		delete(l.expires, v.Key)
	} else {
		l.expires[v.Key] = lent.Sidecar.Expire
	}
	current := stored{lent.Sidecar.Form, lent.Sidecar.SealedBy}
	if why := lent.Sidecar.Unreadable; why != nil { // a reason of its own
		v.Sidecar = &Sidecar{Form: current.form, Undecrypted: lent.Sidecar.Undecrypted, Unreadable: why}
	} else if v.Sidecar = l.stored[current]; v.Sidecar == nil {
		v.Sidecar = &Sidecar{Form: current.form, SealedBy: current.sealedBy}
		l.stored[current] = v.Sidecar
	}
}

// describe computes the sidecars of the live versions, in parallel, and from them the indexes.
func (l *loader) describe() {
	s := l.state
	var live []*Version
	s.live.collections.Scan(func(_ string, t *collection) bool {
		t.names.Scan(func(_ string, v *Version) bool {
			// Counted here and not in restore, where most versions are overwritten by later ones.
			live = append(live, v)
			s.live.bytes += int64(v.Len())
			return true
		})
		return true
	})
	s.live.count = len(live)
	workers := runtime.GOMAXPROCS(0)
	var wait sync.WaitGroup
	// Each worker has a separate part, so no lock is needed.
	for w := range workers {
		part := live[len(live)*w/workers : len(live)*(w+1)/workers]
		wait.Go(func() {
			var buffer []byte
			for _, v := range part {
				current := *v.Sidecar
				current.Expire = l.expires[v.Key]
				data := v.DataIn(buffer[:0])
				v.Sidecar = s.DescribeStored(v.Key, data, &current)
				if v.base != nil {
					buffer = data
				}
			}
		})
	}
	wait.Wait()
	// The indexes are filled by one goroutine: they are not safe for several.
	for _, v := range live {
		s.index(v.Key, nil, v, v.Revision)
	}
}

// findHorizon moves the horizon to the revision at which the log starts: files may have been removed that the
// checkpoint's window includes. It tries the marks, oldest first. Otherwise a watch would be accepted at a revision
// whose history no longer exists, and fail later.
func (s *State) findHorizon() error {
	h := &s.history
	for {
		err := s.reaches(context.Background(), h.horizon)
		switch {
		case !errors.Is(err, ErrCompacted):
			return err
		case h.marks.len() > 0:
			h.horizon = max(h.horizon, h.marks.pop().Revision)
		default:
			h.horizon = s.revision
			return nil
		}
	}
}

// copyBatchBytes is about how many bytes of versions a batch has: enough for a channel operation not to matter, and
// few enough for the processor's cache.
const copyBatchBytes = 256 << 10

// copier gives versions copies of lent bytes. All versions have their bytes when finish
// returns. For a store that fits into one batch no goroutine is started.
//
// A batch is owned by one goroutine at a time, and handed over by two channels: the reader fills it, a worker copies
// from it and gives it back empty.
//
//	made ≤ workers + 2;  filling, full, free and the workers have each batch once
type copier struct {
	filling *copyBatch
	full    chan *copyBatch
	free    chan *copyBatch
	// made is the number of batches that exist.
	made int
	work sync.WaitGroup

	packer *packer
}

// copyBatch is versions and their bytes, one after another: those of version i end at ends[i], where those of version
// i+1 begin.
type copyBatch struct {
	bytes    []byte
	versions []*Version
	ends     []int
}

// add reads lent, which the caller may reuse when it returns, and later gives v a copy of it.
func (c *copier) add(v *Version, lent []byte) {
	if c.filling == nil {
		c.filling = &copyBatch{}
		c.made = 1
	}
	b := c.filling
	if len(b.bytes)+len(lent) > copyBatchBytes && len(b.versions) > 0 {
		b = c.next()
	}
	b.bytes = append(b.bytes, lent...)
	b.versions = append(b.versions, v)
	b.ends = append(b.ends, len(b.bytes))
}

// next gives the full batch to the workers, which the first call starts, and returns an empty one. Two more batches
// than workers keep the reader and all workers busy, and bound the memory.
func (c *copier) next() *copyBatch {
	workers := runtime.GOMAXPROCS(0)
	batches := workers + 2
	if c.full == nil {
		c.full, c.free = make(chan *copyBatch, batches), make(chan *copyBatch, batches)
		for range workers {
			c.work.Go(func() {
				for b := range c.full {
					b.copy(c.packer)
					c.free <- b
				}
			})
		}
	}
	c.full <- c.filling
	if c.made < batches {
		c.made++
		c.filling = &copyBatch{bytes: make([]byte, 0, copyBatchBytes)}
	} else {
		c.filling = <-c.free
	}
	return c.filling
}

// copy gives the versions their bytes, packed, and each in a separate allocation, so that one live version does not
// keep a batch; then it empties the batch.
func (b *copyBatch) copy(packer *packer) {
	begin := 0
	for i, v := range b.versions {
		packer.set(v, b.bytes[begin:b.ends[i]], true)
		begin = b.ends[i]
	}
	clear(b.versions)
	b.bytes, b.versions, b.ends = b.bytes[:0], b.versions[:0], b.ends[:0]
}

// finish returns when all versions have their bytes. It is called once, also after an error, or the workers would
// wait for ever.
func (c *copier) finish() {
	if c.filling != nil {
		c.filling.copy(c.packer)
		c.filling = nil
	}
	if c.full != nil {
		close(c.full)
		c.work.Wait()
	}
}
