package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"plinth/internal/invariants"
)

// loader makes the states of a log: of a checkpoint and the commits after it.
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
// A plane that begins with another one's content needs its indexes, too, so that content is brought up to date before
// (complete). From then on dirty has the keys that were changed since, with the versions that the indexes have:
//
//	completed  ⇒  the indexes are those of live, but for the keys in dirty, for which they have dirty[k]
//	not completed  ⇒  the indexes are empty, and dirty too
//
// So the content of ten thousand planes that begin with the same one costs ten thousand roots and what each has of its
// own. Nothing is shared with others yet, so no lock is taken.
type loader struct {
	config *Config
	log    Replayer
	window *window
	packer *packer
	planes map[string]*loading
	// stored has, for each Form and SealedBy, a sidecar with only these set, which versions share until they are
	// described.
	stored   map[stored]*Sidecar
	copies   copier
	revision int64
	replayed int64 // bytes of the changes after the checkpoint
	layered  int64 // bytes of the layers in the checkpoint

	states map[string]*State // the result, by plane
}

// loading is a state that is being loaded.
type loading struct {
	plane string
	content
	origin    *origin
	revision  int64
	begun     int64
	resting   int64             // see Layer
	expires   map[Key]time.Time // of the versions that are not described and expire
	completed bool
	dirty     map[Key]*Version // nil while the indexes are empty
}

// stored is what most versions have in common of that which is not part of their bytes.
type stored struct {
	form     uint64
	sealedBy uint32
}

func newLoader(c *Config, log Replayer) *loader {
	l := &loader{config: c, log: log, window: newWindow(c), planes: map[string]*loading{}, stored: map[stored]*Sidecar{},
		packer: newPacker()}
	l.copies.packer = l.packer
	return l
}

// load makes the states as of the end of the log. After an error none can be used.
func (l *loader) load(from *Checkpoint) error {
	err := l.read(from)
	l.copies.finish()
	if err != nil {
		return err
	}
	l.states = make(map[string]*State, len(l.planes))
	for plane, p := range l.planes {
		l.complete(p)
		s := newState(l.config, l.window, l.packer, l.log, plane, p.content, p.revision)
		s.origin, s.begun, s.resting = p.origin, p.begun, p.resting
		l.states[plane] = s
	}
	l.window.newest = l.revision
	if err := l.window.begins(l.config.Now().UnixNano(), l.reaches); err != nil {
		return err
	}
	for _, s := range l.states {
		s.history.horizon = max(s.begun, min(l.window.horizon, s.revision))
		if s.history.horizon < s.revision {
			s.aging = true
			l.window.aging[s] = struct{}{}
		}
		if invariants.Enabled {
			s.check()
		}
	}
	return nil
}

// reaches says whether the log has all commits after a revision.
func (l *loader) reaches(after int64) (bool, error) {
	err := reaches(context.Background(), l.log, after, nil)
	if errors.Is(err, ErrCompacted) {
		return false, nil
	}
	return err == nil, err
}

// read restores the versions of the checkpoint, and then the changes of each commit of the log.
func (l *loader) read(from *Checkpoint) error {
	l.revision = from.Revision
	// The window is that from before the restart, continued by the times and sizes of the commits that follow.
	l.window.resume(from.Window)
	if err := l.readFirst(from); err != nil {
		return err
	}
	if from.Layers != nil {
		if err := l.readLayers(from.Layers); err != nil {
			return err
		}
	}
	if l.log == nil {
		return nil
	}
	return l.log.Replay(context.Background(), from.Revision, nil, func(c *Commit) error {
		if from.image != nil {
			return fmt.Errorf("store: commit %d to %d follows an image", c.First(), c.Revision)
		}
		return l.commit(c)
	})
}

// readFirst restores the content of the first plane, which has no origin.
func (l *loader) readFirst(from *Checkpoint) error {
	p := &loading{content: newContent(), revision: from.Revision, expires: map[Key]time.Time{}}
	l.planes[""] = p
	if from.image != nil {
		p.content, p.completed, p.dirty = from.image.begin(from.Revision), true, map[Key]*Version{}
		return nil
	}
	// A checkpoint has each key once.
	for v, err := range from.Versions {
		if err != nil {
			return err
		}
		l.restore(p, v.Key, v, v.Revision)
	}
	// A checkpoint has no deletions, so no collection is known to have been the same since before it.
	p.live.collections.Scan(func(_ string, t *collection) bool {
		t.changed = max(t.changed, from.Revision)
		return true
	})
	p.live.since = from.Revision
	return nil
}

// readLayers restores what the other planes have. A layer begins with the content of its origin.
func (l *loader) readLayers(all iter.Seq2[*Layer, error]) error {
	origins := map[int]*loading{}
	for layer, err := range all {
		if err != nil {
			return err
		}
		plane := strings.Clone(layer.Plane)
		p := &loading{plane: plane, content: newContent(), revision: layer.Revision, begun: layer.Begun,
			resting: layer.Resting, expires: map[Key]time.Time{}}
		if layer.Origin != 0 {
			from := origins[layer.Origin]
			if from == nil {
				return fmt.Errorf("layer %d is the difference from %d, which is none", layer.Number, layer.Origin)
			}
			p.content, p.completed, p.dirty, p.origin = from.fork(), true, map[Key]*Version{}, from.origin
		}
		changed := slices.Clone(layer.Collections)
		for i := range changed {
			changed[i].Resource = strings.Clone(changed[i].Resource)
		}
		p.live.since = layer.Since
		for v, err := range layer.Versions {
			if err != nil {
				return err
			}
			if v.Sidecar == nil {
				l.restore(p, v.Key, nil, 0)
			} else {
				l.layered += int64(v.Len())
				l.restore(p, v.Key, v, v.Revision)
			}
		}
		for _, c := range changed {
			t := p.live.writable(c.Resource)
			t.changed = max(t.changed, c.Changed)
		}
		switch {
		case plane == "":
			l.complete(p)
			p.origin = originOf(&p.content, p.revision, p.origin)
			origins[layer.Number] = p
		case l.planes[plane] != nil:
			return fmt.Errorf("there are two layers of the plane %q", plane)
		default:
			l.complete(p)
			l.planes[plane] = p
		}
	}
	return nil
}

// commit makes the changes of a commit, and begins or ends a plane.
func (l *loader) commit(c *Commit) error {
	if c.First() <= l.revision {
		return fmt.Errorf("commit %d to %d follows revision %d", c.First(), c.Revision, l.revision)
	}
	p := l.planes[c.Plane]
	if p == nil {
		return fmt.Errorf("commit %d to %d is of the plane %q, which does not exist", c.First(), c.Revision, c.Plane)
	}
	bytes := int64(0)
	for _, r := range c.Records {
		if !r.empty() {
			l.restore(p, r.Key, r.New, r.Revision)
			bytes += changeBytes(r)
		}
	}
	p.revision, l.revision = c.Revision, c.Revision
	if b := c.Begins; b != nil {
		more, err := l.begin(b, c.Revision)
		if err != nil {
			return fmt.Errorf("commit %d to %d: %w", c.First(), c.Revision, err)
		}
		bytes += more
	}
	if c.Ends != "" {
		if l.planes[c.Ends] == nil {
			return fmt.Errorf("commit %d to %d ends the plane %q, which does not exist", c.First(), c.Revision, c.Ends)
		}
		delete(l.planes, strings.Clone(c.Ends))
	}
	l.replayed += bytes
	l.window.replayed(c, bytes)
	return nil
}

// begin makes a plane with the content that its origin has now, and its first changes.
func (l *loader) begin(b *Beginning, revision int64) (bytes int64, err error) {
	plane := strings.Clone(b.Plane)
	if l.planes[plane] != nil {
		return 0, fmt.Errorf("it begins the plane %q, which exists", plane)
	}
	p := &loading{plane: plane, content: newContent(), expires: map[Key]time.Time{}, revision: revision, begun: revision}
	rests := false
	if b.Origin != "" {
		from := l.planes[b.Origin]
		if from == nil {
			return 0, fmt.Errorf("the plane %q begins with %q, which does not exist", plane, b.Origin)
		}
		l.complete(from)
		from.origin = originOf(&from.content, from.revision, from.origin)
		p.content, p.completed, p.dirty, p.origin = from.fork(), true, map[Key]*Version{}, from.origin
		rests = from.resting == from.revision
	}
	l.planes[plane] = p
	for _, r := range b.Records {
		rests = rests && r.New != nil && p.live.get(r.Key) != nil
		l.restore(p, r.Key, r.New, r.Revision)
		bytes += changeBytes(r)
	}
	if rests {
		p.resting = revision
	}
	return bytes, nil
}

// restore makes a copy of a lent version the live one of its key; nil removes the key. The copy of a version that is
// overwritten later is wasted; avoiding that would take a second pass over the log.
func (l *loader) restore(p *loading, k Key, lent *Version, revision int64) {
	t := p.live.writable(k.Resource)
	t.changed = max(t.changed, revision)
	old, found := t.names.Get(k.Name)
	if found {
		k = old.Key // one string for the name of all versions of an object
	}
	if p.completed {
		if k = (Key{t.resource, k.Name}); !found {
			k.Name = strings.Clone(k.Name)
		}
		if _, seen := p.dirty[k]; !seen {
			p.dirty[k] = old
		}
	}
	if lent == nil {
		t.names.Delete(k.Name)
		delete(p.expires, k)
		return
	}
	// One string for the resource of a whole collection, too.
	v := &Version{Key: Key{Resource: t.resource, Name: k.Name}, Revision: revision}
	if !found && !p.completed {
		v.Key.Name = strings.Clone(k.Name)
	}
	t.names.Set(v.Key.Name, v)
	// The version is in its place already; only its bytes follow.
	l.copies.add(p.plane, v, lent.Data())
	if lent.Sidecar.Expire.IsZero() {
		delete(p.expires, v.Key)
	} else {
		p.expires[v.Key] = lent.Sidecar.Expire
	}
	switch current := (stored{lent.Sidecar.Form, lent.Sidecar.SealedBy}); {
	case lent.Sidecar.UID != "": // it describes the version already
		v.Sidecar = lent.Sidecar
	case lent.Sidecar.Unreadable != nil: // for a reason of its own
		v.Sidecar = &Sidecar{Form: current.form, Undecrypted: lent.Sidecar.Undecrypted, Unreadable: lent.Sidecar.Unreadable}
	default:
		if v.Sidecar = l.stored[current]; v.Sidecar == nil {
			v.Sidecar = &Sidecar{Form: current.form, SealedBy: current.sealedBy}
			l.stored[current] = v.Sidecar
		}
	}
}

// complete computes the sidecars of the versions that were restored, and brings the indexes up to date.
func (l *loader) complete(p *loading) {
	if p.completed && len(p.dirty) == 0 {
		return
	}
	l.copies.finish()
	if !p.completed {
		var live []*Version
		p.live.scan(func(v *Version) bool {
			// Counted here and not in restore, where most versions are overwritten by later ones.
			live = append(live, v)
			p.live.bytes += int64(v.Len())
			return true
		})
		p.live.count = len(live)
		l.describe(p, live)
		// The indexes are filled by one goroutine: they are not safe for several.
		for _, v := range live {
			p.index(v.Key, nil, v)
		}
		p.completed, p.dirty = true, map[Key]*Version{}
		return
	}
	changed := make([]*Version, 0, len(p.dirty))
	for k := range p.dirty {
		if v := p.live.get(k); v != nil {
			changed = append(changed, v)
		}
	}
	l.describe(p, changed)
	for k, old := range p.dirty {
		now := p.live.get(k)
		if old != nil {
			p.live.count--
			p.live.bytes -= int64(old.Len())
		}
		if now != nil {
			p.live.count++
			p.live.bytes += int64(now.Len())
		}
		p.index(k, old, now)
	}
	clear(p.dirty)
}

// describe computes the sidecars of versions, in parallel if there are many.
func (l *loader) describe(p *loading, versions []*Version) {
	const few = 64
	workers := min(runtime.GOMAXPROCS(0), len(versions)/few+1)
	if workers == 1 {
		l.describePart(p, versions)
		clear(p.expires)
		return
	}
	var wait sync.WaitGroup
	// Each worker has a separate part, so no lock is needed.
	for w := range workers {
		part := versions[len(versions)*w/workers : len(versions)*(w+1)/workers]
		wait.Go(func() { l.describePart(p, part) })
	}
	wait.Wait()
	clear(p.expires)
}

func (l *loader) describePart(p *loading, versions []*Version) {
	var buffer []byte
	for _, v := range versions {
		current := *v.Sidecar
		current.Expire = p.expires[v.Key]
		data := v.DataIn(buffer[:0])
		v.Sidecar = l.config.describeStored(v.Key, data, &current)
		if v.base != nil {
			buffer = data
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
	planes   []string
	ends     []int
}

// add reads lent, which the caller may reuse when it returns, and later gives v a copy of it.
func (c *copier) add(plane string, v *Version, lent []byte) {
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
	b.planes = append(b.planes, plane)
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
		packer.set(b.planes[i], v, b.bytes[begin:b.ends[i]], true)
		begin = b.ends[i]
	}
	clear(b.versions)
	b.bytes, b.versions, b.planes, b.ends = b.bytes[:0], b.versions[:0], b.planes[:0], b.ends[:0]
}

// finish returns when all versions have their bytes. It is called also after an error, or the workers would
// wait for ever. It may be used again afterwards.
func (c *copier) finish() {
	if c.filling != nil {
		c.filling.copy(c.packer)
		c.filling = nil
	}
	if c.full != nil {
		close(c.full)
		c.work.Wait()
		c.full, c.free = nil, nil
	}
}
