package store

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// loading makes a new state of a checkpoint and of the commits behind it.
//
// A log lends what it yields, so all that stays has to be copied. To read a log and to check its sums is quick; most of the time
// goes into the copies, because memory that a process touches for the first time has to be given to it page by page. That can be
// done by all processors, but a log can be read by one only, as each commit says what has become of those before it. So the reader
// puts the bytes of versions behind one another into a portion, which is memory that is used again and again, and goes on; whoever
// is free copies the versions of a portion to where they stay. Until then a version has no bytes, and nobody asks for them.
type loading struct {
	state   *State
	expires map[Key]time.Time   // of the live versions that expire
	forms   map[uint64]*Sidecar // of each form a sidecar that holds nothing else, until describe
	copies  copies
}

// load brings a new state to where the past ends.
func (s *State) load(from *Checkpoint) error {
	l := &loading{state: s, expires: map[Key]time.Time{}, forms: map[uint64]*Sidecar{}}
	err := l.read(from)
	l.copies.finish()
	if err != nil {
		return err
	}
	l.describe()
	h := &s.history
	h.opened, h.all.floor = s.revision, s.revision
	h.trim(s.revision, s.config.Now().UnixNano())
	return s.findHorizon()
}

// read restores what the checkpoint has, and then what each commit of the past changes.
func (l *loading) read(from *Checkpoint) error {
	s := l.state
	for v, err := range from.Versions {
		if err != nil {
			return err
		}
		l.restore(v.Key, v, v.Revision)
	}
	// A checkpoint does not tell of what was deleted before it, so nothing is known to have been the same for longer.
	s.live.collections.Scan(func(_ string, t *collection) bool {
		t.changed = max(t.changed, from.Revision)
		return true
	})
	h := &s.history
	h.resume(from.Window)
	s.revision = from.Revision
	if s.past == nil {
		return nil
	}
	return s.past.Replay(from.Revision, func(c *Commit) error {
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

// restore makes a copy of a version that is lent the live one of its key, or removes what is there where it is nil.
func (l *loading) restore(k Key, lent *Version, revision int64) {
	t := l.state.live.writable(k.Resource)
	t.changed = max(t.changed, revision)
	if lent == nil {
		t.names.Delete(k.Name)
		delete(l.expires, k)
		return
	}
	v := &Version{Key: Key{Resource: t.resource}, Revision: revision}
	if old, ok := t.names.Get(k.Name); ok {
		v.Key.Name = old.Key.Name
	} else {
		v.Key.Name = strings.Clone(k.Name)
	}
	t.names.Set(v.Key.Name, v)
	l.copies.add(v, lent.Data)
	if lent.Sidecar.Expire.IsZero() {
		delete(l.expires, v.Key)
	} else {
		l.expires[v.Key] = lent.Sidecar.Expire
	}
	form := lent.Sidecar.Form
	if v.Sidecar = l.forms[form]; v.Sidecar == nil {
		v.Sidecar = &Sidecar{Form: form}
		l.forms[form] = v.Sidecar
	}
}

// describe computes the sidecars of what was loaded, and what is known by them: only now, as many versions do not outlive
// the replay.
func (l *loading) describe() {
	s := l.state
	var live []*Version
	s.live.collections.Scan(func(_ string, t *collection) bool {
		t.names.Scan(func(_ string, v *Version) bool {
			live = append(live, v)
			s.live.bytes += int64(len(v.Data))
			return true
		})
		return true
	})
	s.live.count = len(live)
	workers := runtime.GOMAXPROCS(0)
	var wait sync.WaitGroup
	for w := range workers {
		part := live[len(live)*w/workers : len(live)*(w+1)/workers]
		wait.Go(func() {
			for _, v := range part {
				v.Sidecar = s.Describe(v.Key, v.Data, l.expires[v.Key], v.Sidecar.Form)
			}
		})
	}
	wait.Wait()
	for _, v := range live {
		s.owners.change(v.Key, nil, v.Sidecar.Owners)
	}
	for k := range l.expires {
		if v := s.live.get(k); v != nil {
			s.expiry.track(&Record{Key: v.Key, Revision: v.Revision, New: v})
		}
	}
}

// findHorizon moves the horizon to where the past really reaches back.
func (s *State) findHorizon() error {
	h := &s.history
	for {
		err := s.reaches(h.horizon)
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

// portionBytes is how many bytes of versions are copied at a time.
const portionBytes = 256 << 10

// copies gives versions copies of bytes that are lent. The zero value is ready. A version has its bytes when finish returns; a
// store that fits into one portion starts no goroutine.
type copies struct {
	filling *portion
	full    chan *portion
	free    chan *portion
	made    int // portions there are
	work    sync.WaitGroup
}

// portion is versions and their bytes, one behind the other.
type portion struct {
	bytes    []byte
	versions []*Version
	ends     []int // of the bytes of each version
}

// add takes over bytes that are lent until it returns.
func (c *copies) add(v *Version, lent []byte) {
	if c.filling == nil {
		c.filling = &portion{}
		c.made = 1
	}
	b := c.filling
	if len(b.bytes)+len(lent) > portionBytes && len(b.versions) > 0 {
		b = c.next()
	}
	b.bytes = append(b.bytes, lent...)
	b.versions = append(b.versions, v)
	b.ends = append(b.ends, len(b.bytes))
}

// next gives the portion that is full to the workers, which it starts if it is the first one, and returns an empty one.
func (c *copies) next() *portion {
	workers := runtime.GOMAXPROCS(0)
	portions := workers + 2
	if c.full == nil {
		c.full, c.free = make(chan *portion, portions), make(chan *portion, portions)
		for range workers {
			c.work.Go(func() {
				for b := range c.full {
					b.copy()
					c.free <- b
				}
			})
		}
	}
	c.full <- c.filling
	if c.made < portions {
		c.made++
		c.filling = &portion{bytes: make([]byte, 0, portionBytes)}
	} else {
		c.filling = <-c.free
	}
	return c.filling
}

// copy gives the versions their bytes, and leaves the portion empty.
func (b *portion) copy() {
	begin := 0
	for i, v := range b.versions {
		v.Data = bytes.Clone(b.bytes[begin:b.ends[i]])
		begin = b.ends[i]
	}
	clear(b.versions)
	b.bytes, b.versions, b.ends = b.bytes[:0], b.versions[:0], b.ends[:0]
}

// finish returns when all versions have their bytes.
func (c *copies) finish() {
	if c.filling != nil {
		c.filling.copy()
		c.filling = nil
	}
	if c.full != nil {
		close(c.full)
		c.work.Wait()
	}
}
