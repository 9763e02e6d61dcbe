package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Across is what all planes of a log but the first one have of one resource, as a store of its own that nobody writes
// to: it is read and watched like any other.
//
// The problem: a controller for ten thousand planes is to have one watch and not ten thousand. Each plane has a history
// of its own, and planes begin and end meanwhile, so a cursor over all of them would have to merge what changes under
// its hands. But all planes have one sequencer, and what it publishes is in order already. So an Across is a state to
// which the changes of all planes are applied:
//
//	live at revision R = { (name, plane) → version: plane existed at R and had the version then }
//
// It begins with what the planes have at one moment: while seq is held, nothing is published. From then on the
// sequencer puts what it publishes into a queue, which costs it an entry and no more, and a goroutine applies that. A
// plane that begins adds all that it begins with, and one that ends removes all that it has, each with the revision of
// the commit with which it begins or ends:
//
//	follows(log) = queue + state:  every commit of the log after the first moment is in exactly one of the two
//	revision of the state < revisions in the queue, ascending
//
// A key is that of the plane with the plane's name behind it, after a byte that no name has. So keys are ordered by
// namespace, name and plane, and a prefix selects what it selects in one plane. The version has the revision that it
// has in its plane, as a client that writes to the plane needs that one; what a plane begins with may be older than the
// record by which it is added.
//
// The queue is bounded. If the goroutine cannot keep up, or there is a failure, the state ends for its readers with
// ErrCompacted, as they would miss changes, and they begin again with another Across. Without an Across the sequencer
// does nothing for it.
type Across struct {
	*Store
	config   AcrossConfig
	seq      *sequencer
	names    map[string]string // of the planes, by their IDs; seq guards it
	queue    []acrossEntry     // seq guards it
	queued   int               // the weight of queue
	arrived  chan struct{}     // of capacity 1; receives when queue has entries
	quit     chan struct{}     // closed by Close
	done     chan struct{}     // closed when nothing is applied any more
	overflow bool              // the queue was full; seq guards it
	broken   atomic.Bool       // see Broken
}

// AcrossConfig says what an Across has.
type AcrossConfig struct {
	Resource string
	// Planes is the resource of the first plane whose objects name the planes: those that belong to others are left out.
	Planes string
	// Named returns the bytes of a version as those of a plane with this name. The version can be read.
	Named func(v *Version, plane string) ([]byte, error)
}

// maxAcross bounds the records, and the planes that begin or end, in the queue of an Across.
const maxAcross = 1 << 16

// acrossSeparator is between the name of an object and that of its plane in the keys of an Across.
const acrossSeparator = "\x00"

// acrossEntry is what happens in one plane with a commit. It is empty if that is about other resources.
type acrossEntry struct {
	revision, time int64
	plane          string    // its name
	records        []*Record // of the resource
	begins, ends   *names    // what the plane begins with, or has at its end; nil: it does not
}

// Across makes the Across of a resource. The caller closes it.
func (s *Store) Across(c AcrossConfig) (*Across, error) {
	w, err := s.writerOf()
	if err != nil {
		return nil, err
	}
	a := &Across{config: c, seq: w.sequencer, names: map[string]string{}, arrived: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{})}
	revision, begin := a.join()
	config := *w.config
	config.Log, config.Sealing, config.Charge, config.Rules, config.across = nil, nil, nil, "", true
	state, err := a.newState(&config, revision, begin)
	if err != nil {
		a.leave()
		return nil, err
	}
	a.Store = &Store{State: state, Writer: acrossWriter{a}, Others: acrossOthers{a}}
	go a.run()
	return a, nil
}

// join begins to follow the planes, and returns what they have at that moment.
func (a *Across) join() (revision int64, all []acrossEntry) {
	w := a.seq
	w.seq.Lock()
	defer w.seq.Unlock()
	if t, ok := w.writers[""].state.live.collections.Get(a.config.Planes); ok {
		t.names.Scan(func(name string, v *Version) bool {
			a.names[v.Sidecar.UID] = name
			return true
		})
	}
	for plane, name := range a.names {
		if of := w.writers[plane]; of != nil {
			all = append(all, acrossEntry{plane: name, begins: a.frozen(of.state)})
		}
	}
	if w.across == nil {
		w.across = map[*Across]struct{}{}
	}
	w.across[a] = struct{}{}
	return w.synced, all
}

func (a *Across) leave() {
	a.seq.seq.Lock()
	defer a.seq.seq.Unlock()
	delete(a.seq.across, a)
}

// frozen is what a plane has of the resource now. The caller holds seq.
func (a *Across) frozen(s *State) *names {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.live.freeze().Get(a.config.Resource); ok {
		return t.names
	}
	return newNames()
}

// newState makes the state as of its first revision.
func (a *Across) newState(c *Config, revision int64, planes []acrossEntry) (*State, error) {
	w := newWindow(c)
	w.restart(revision)
	s := newState(c, w, newPacker(), nil, "", newContent(), revision)
	for _, e := range planes {
		var failed error
		e.begins.Scan(func(_ string, of *Version) bool {
			var v *Version
			if v, failed = a.version(s, of, e.plane); failed == nil {
				s.set(v.Key, nil, v, revision)
			}
			return failed == nil
		})
		if failed != nil {
			return nil, failed
		}
	}
	s.live.since, s.history.horizon, s.endsWindow = revision, revision, true
	w.start(c)
	return s, nil
}

// key is the key of an object of a plane.
func (a *Across) key(name, plane string) Key {
	return Key{Resource: a.config.Resource, Name: name + acrossSeparator + plane}
}

// version is a version as that of a plane.
func (a *Across) version(s *State, of *Version, plane string) (*Version, error) {
	k := a.key(of.Key.Name, plane)
	if of.Sidecar.Unreadable != nil {
		return NewVersion(k, of.Revision, of.Data(), of.Sidecar), nil
	}
	data, err := a.config.Named(of, plane)
	if err != nil {
		return nil, fmt.Errorf("%s of the plane %s: %w", of.Key, plane, err)
	}
	sidecar := *of.Sidecar // what it says of the object is true of this one, too, but Extra is about the bytes
	described := s.config.Describe(k, data)
	if described.Unreadable != nil {
		return nil, described.Unreadable
	}
	sidecar.Extra, sidecar.Expire = described.Extra, time.Time{}
	return s.NewVersion(k, of.Revision, data, &sidecar), nil
}

// commits adds commits of one plane to the queue. The caller of it and of the next two holds seq.
func (a *Across) commits(all []*Commit) {
	for _, c := range all {
		e := acrossEntry{revision: c.Revision, time: c.Time, plane: a.names[c.Plane]}
		for _, r := range c.Records {
			if e.plane != "" && r.Key.Resource == a.config.Resource && !r.empty() {
				e.records = append(e.records, r)
			}
		}
		a.push(e)
	}
}

// begins adds a plane that has begun with a commit.
func (a *Across) begins(c *Commit) {
	for _, r := range c.Records {
		if r.New != nil && r.Key.Resource == a.config.Planes && r.New.Sidecar.UID == c.Begins.Plane {
			a.names[c.Begins.Plane] = r.Key.Name
			a.push(acrossEntry{revision: c.Revision, time: c.Time, plane: r.Key.Name,
				begins: a.frozen(a.seq.writers[c.Begins.Plane].state)})
		}
	}
}

// ends adds a plane that ends with a commit.
func (a *Across) ends(c *Commit) {
	if name, ok := a.names[c.Ends]; ok {
		delete(a.names, c.Ends)
		a.push(acrossEntry{revision: c.Revision, time: c.Time, plane: name, ends: a.frozen(a.seq.writers[c.Ends].state)})
	}
}

// push adds an entry to the queue. Entries without changes that follow one another become one.
func (a *Across) push(e acrossEntry) {
	if a.overflow {
		return
	}
	defer notify(a.arrived)
	if n := len(a.queue); n > 0 && a.queue[n-1].empty() && e.empty() {
		a.queue[n-1] = e
		return
	}
	if a.queued += max(1, len(e.records)); a.queued > maxAcross {
		a.overflow, a.queue = true, nil
		return
	}
	a.queue = append(a.queue, e)
}

func (e *acrossEntry) empty() bool { return len(e.records) == 0 && e.begins == nil && e.ends == nil }

// run applies what is in the queue, until Close or a failure.
func (a *Across) run() {
	defer close(a.done)
	defer a.leave()
	for {
		select {
		case <-a.arrived:
		case <-a.quit:
			return
		}
		a.seq.seq.Lock()
		queue, overflow := a.queue, a.overflow
		a.queue, a.queued = nil, 0
		a.seq.seq.Unlock()
		err := error(nil)
		if overflow {
			err = errors.New("it was too slow for the changes")
		} else {
			err = a.apply(queue)
		}
		if err != nil {
			a.seq.config.Logger.Error("a list of all planes begins again", "resource", a.config.Resource, "error", err)
			a.broken.Store(true)
			a.Restart(&Commit{Revision: a.Revision() + 1, Time: a.seq.config.Now().UnixNano()})
			return
		}
	}
}

// apply applies entries, those of one revision together: a reader sees a commit of the log as a whole.
func (a *Across) apply(queue []acrossEntry) error {
	for len(queue) > 0 {
		n := 1
		for n < len(queue) && queue[n].revision == queue[0].revision {
			n++
		}
		c := &Commit{Revision: queue[0].revision, Time: queue[0].time}
		for _, e := range queue[:n] {
			if err := a.add(c, e); err != nil {
				return err
			}
		}
		a.State.Apply(c)
		queue = queue[n:]
	}
	return nil
}

// add adds an entry to a commit.
func (a *Across) add(c *Commit, e acrossEntry) (err error) {
	change := func(name string, revision int64, of *Version) bool {
		k := a.key(name, e.plane)
		old, _ := a.Get(k)
		r := &Record{Key: k, Revision: revision, Old: old}
		if old != nil {
			r.Key = old.Key
		}
		if of != nil {
			if r.New, err = a.version(a.State, of, e.plane); err != nil {
				return false
			}
			r.New.Key = r.Key
		}
		if !r.empty() {
			c.Records = append(c.Records, r)
		}
		return true
	}
	for _, r := range e.records {
		if !change(r.Key.Name, r.Revision, r.New) {
			return err
		}
	}
	if e.ends != nil {
		e.ends.Scan(func(name string, _ *Version) bool { return change(name, e.revision, nil) })
	}
	if e.begins != nil {
		e.begins.Scan(func(name string, v *Version) bool { return change(name, e.revision, v) })
	}
	return err
}

// Broken says that it does not follow the planes any more: its readers have to begin again with another one.
func (a *Across) Broken() bool { return a.broken.Load() }

// Close ends it, and with it all who read it.
func (a *Across) Close() error {
	a.leave()
	close(a.quit)
	<-a.done
	a.End()
	return nil
}

// acrossWriter refuses writes: they are those of a plane.
type acrossWriter struct{ across *Across }

func (acrossWriter) Commit(context.Context, []Precondition, []Change) (Revisions, error) {
	return Revisions{}, ErrReadOnly
}
func (w acrossWriter) Healthy() error { return w.across.seq.Healthy() }
func (w acrossWriter) Close() error   { return w.across.Close() }

// acrossOthers are the writers of the planes.
type acrossOthers struct{ across *Across }

// Fresh implements Others: a reader that asks for the newest state waits until all that is durable now was applied.
func (o acrossOthers) Fresh(ctx context.Context, _ Key, sure bool) (current bool, err error) {
	a := o.across
	a.seq.seq.Lock()
	synced := a.seq.synced
	a.seq.seq.Unlock()
	if a.Broken() {
		return false, ErrCompacted
	}
	if a.Revision() >= synced {
		return true, nil
	}
	if !sure {
		return false, nil
	}
	return true, a.WaitFor(ctx, synced)
}

// Atomic implements Others.
func (o acrossOthers) Atomic(Key, Key) bool { return false }
