package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Across is what all planes of a log but the first one have of one resource, as a store of its own that nobody writes
// to: it is read and watched like any other.
//
// The problem: a controller for ten thousand planes is to have one watch and not ten thousand. Each plane has a history
// of its own, and planes begin and end meanwhile, so a cursor over all of them would have to merge what changes under
// its hands. But all planes have one sequencer, and what it publishes is in order already. So an Across is a state to
// which the changes of all planes are applied:
//
//	live at revision R = { (name, plane) → what the plane's Presenter at R shows of its version at R }
//
// It begins with what the planes have at one moment: while seq is held, nothing is published. From then on the
// sequencer puts what it publishes into a queue, which costs it an entry and no more, and a goroutine applies that. A
// plane that begins adds all that it begins with, and one that ends removes all that it has, each with the revision of
// the commit with which it begins or ends:
//
//	follows(log) = queue + state:  every commit of the log after the first moment is in exactly one of the two
//	revision of the state < revisions in the queue, ascending
//
// What was before the first moment, and what memory does not hold any more, is read from the log (acrossLog).
//
// A key is that of the plane with the plane's name behind it, after a byte that no name has. So keys are ordered by
// namespace, name and plane, and a prefix selects what it selects in one plane. The version has the revision that it
// has in its plane, as a client that writes to the plane needs that one. It may be older than the record by which it is
// added, and is what the client resumes from after it. So that this loses nothing:
//
//	records of one revision are in the order of the revisions of their versions, deletions first;
//	all but the last of them are Unfinished   ⇒   what a record shows is less than its revision, unless it is the last
//
// A client that is cut off within them gets some of them again. Behind them there is a bookmark (engine.Watch).
//
// How a plane shows its versions is its Presenter. If an object of the plane decides about that (Definition), its
// changes are followed: what was shown otherwise is changed, with the revision of that change.
//
// The queue is bounded. If the goroutine cannot keep up, or there is a failure, the state ends for its readers with
// ErrCompacted, as they would miss changes, and they begin again with another Across. Without an Across the sequencer
// does nothing for it.
type Across struct {
	*Store
	config  AcrossConfig
	seq     *sequencer
	names   map[string]string // of the planes, by their IDs; seq guards it
	queue   []acrossEntry     // seq guards it
	queued  int               // the weight of queue
	arrived chan struct{}     // of capacity 1; receives when queue has entries
	quit    chan struct{}     // closed by Close
	done    chan struct{}     // closed when nothing is applied any more
	ending  error             // why nothing more is applied; nil: it is. seq guards it
	broken  atomic.Bool       // see Broken

	mu         sync.Mutex // guards the following, and what acrossPlane says
	planes     map[string]*acrossPlane
	ended      []*acrossPlane    // since the horizon, oldest first
	presenters map[Presenter]int // how many planes have which

	scanning sync.Mutex // held by scan, and guards scanned
	scanned  int64      // the changes of definitions after it are known
}

// AcrossConfig says what an Across has.
type AcrossConfig struct {
	Resource string
	// Planes is the resource of the first plane whose objects name the planes: those that belong to others are left out.
	Planes string
	// Definition is the key of the object in each plane that decides how its versions are shown; the zero Key: none does.
	Definition Key
	// Presenter returns how the versions of a plane are shown that has this definition, nil: it has none. A nil Presenter
	// shows none. Presenters that are equal show the same.
	Presenter func(definition *Version) Presenter
	// Describe is Config.Describe for what is shown; nil: that of the log.
	Describe func(Key, []byte) *Sidecar
}

// Presenter shows the versions of a plane to readers of all planes. It is comparable.
type Presenter interface {
	// Present returns a version as that of the plane with this name, under a key of all planes. Nil data: it is not shown.
	Present(k Key, v *Version, plane string) (data []byte, sidecar *Sidecar, err error)
}

// maxAcross bounds the records, and the planes that begin or end, in the queue of an Across.
const maxAcross = 1 << 16

// acrossSeparator is between the name of an object and that of its plane in the keys of an Across.
const acrossSeparator = "\x00"

// acrossEntry is what happens in one plane with a commit. It is empty if that is about other resources.
type acrossEntry struct {
	revision, time int64
	plane, name    string         // its ID and its name
	records        []*Record      // of the resource, and of the definition
	begins         *acrossContent // what the plane begins with; nil: it does not
	ends           bool
}

// acrossContent is what a plane has at one moment.
type acrossContent struct {
	versions   *names // nobody else changes them
	definition *Version
}

// acrossPlane is a plane as of what was applied.
type acrossPlane struct {
	id, name  string
	versions  *names    // only run reads and changes them
	presenter Presenter // mu guards it and the following
	changes   []presenterChange
	ended     int64 // the revision with which it has ended; 0: it has not
	last      int   // how many objects were shown at the end
}

// presenterChange is a change of the presenter of a plane.
type presenterChange struct {
	revision int64
	before   Presenter
}

// presenterAt is the presenter as of a revision that is not before the first one in changes. The caller holds mu.
func (p *acrossPlane) presenterAt(revision int64) Presenter {
	for _, c := range p.changes {
		if revision < c.revision {
			return c.before
		}
	}
	return p.presenter
}

// Across makes the Across of a resource. The caller closes it.
func (s *Store) Across(c AcrossConfig) (*Across, error) {
	w, err := s.writerOf()
	if err != nil {
		return nil, err
	}
	a := &Across{config: c, seq: w.sequencer, names: map[string]string{}, planes: map[string]*acrossPlane{},
		presenters: map[Presenter]int{}, arrived: make(chan struct{}, 1), quit: make(chan struct{}),
		done: make(chan struct{})}
	revision, extent, begin := a.join()
	config := *w.config
	config.Log, config.Sealing, config.Charge, config.Rules, config.across = nil, nil, nil, "", true
	if c.Describe != nil {
		config.Describe = c.Describe
	}
	a.scanned = revision
	state, err := a.newState(&config, revision, extent, begin)
	if err != nil {
		a.leave()
		return nil, err
	}
	a.Store = &Store{State: state, Writer: acrossWriter{a}, Others: acrossOthers{a}}
	go a.run()
	return a, nil
}

// join begins to follow the planes, and returns what they have at that moment, and how far history reaches back.
func (a *Across) join() (revision int64, extent Window, all []acrossEntry) {
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
			all = append(all, acrossEntry{plane: plane, name: name, begins: a.content(of.state)})
		}
	}
	if w.across == nil {
		w.across = map[*Across]struct{}{}
	}
	w.across[a] = struct{}{}
	return w.synced, w.window.extent(), all
}

func (a *Across) leave() {
	a.seq.seq.Lock()
	defer a.seq.seq.Unlock()
	delete(a.seq.across, a)
}

// content is what a plane has now. The caller holds seq.
func (a *Across) content(s *State) *acrossContent {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &acrossContent{versions: newNames()}
	all := s.live.freeze()
	if t, ok := all.Get(a.config.Resource); ok {
		c.versions = t.names.Copy()
	}
	if t, ok := all.Get(a.config.Definition.Resource); ok {
		c.definition, _ = t.names.Get(a.config.Definition.Name)
	}
	return c
}

// newState makes the state as of its first revision.
func (a *Across) newState(c *Config, revision int64, extent Window, planes []acrossEntry) (*State, error) {
	w := newWindow(c)
	w.resume(extent)
	w.newest = revision
	s := newState(c, w, newPacker(), acrossLog{a}, "", newContent(), revision)
	a.Store = &Store{State: s}
	for _, e := range planes {
		p := a.enter(&e)
		var failed error
		p.versions.Scan(func(_ string, of *Version) bool {
			var v *Version
			if v, failed = a.show(p.presenter, of, p.name); failed == nil && v != nil {
				s.set(v.Key, nil, v, revision)
			}
			return failed == nil
		})
		if failed != nil {
			return nil, failed
		}
	}
	s.live.since, s.endsWindow = revision, true
	if s.history.horizon = min(extent.Horizon, revision); s.history.horizon < revision {
		w.join(s)
	}
	w.start(c)
	return s, nil
}

// enter makes the plane of an entry with which it begins.
func (a *Across) enter(e *acrossEntry) *acrossPlane {
	p := &acrossPlane{id: e.plane, name: e.name, versions: e.begins.versions,
		presenter: a.config.Presenter(e.begins.definition)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planes[e.plane] = p
	a.count(p.presenter, 1)
	return p
}

// count counts the planes that have a presenter. The caller holds mu.
func (a *Across) count(v Presenter, n int) {
	if v == nil {
		return
	}
	if a.presenters[v] += n; a.presenters[v] == 0 {
		delete(a.presenters, v)
	}
}

// Presenters are the presenters that planes have, and how many have each, as of what was applied.
func (a *Across) Presenters() map[Presenter]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.presenters)
}

// key is the key of an object of a plane.
func (a *Across) key(name, plane string) Key {
	return Key{Resource: a.config.Resource, Name: name + acrossSeparator + plane}
}

// show is a version as a presenter shows it; nil: it does not, or there is none.
func (a *Across) show(presenter Presenter, of *Version, plane string) (*Version, error) {
	if presenter == nil || of == nil {
		return nil, nil
	}
	k := a.key(of.Key.Name, plane)
	data, sidecar, err := presenter.Present(k, of, plane)
	if err != nil {
		return nil, fmt.Errorf("%s of the plane %s: %w", of.Key, plane, err)
	}
	if data == nil {
		return nil, nil
	}
	return a.NewVersion(k, of.Revision, data, sidecar), nil
}

// commits adds commits of one plane to the queue. The caller of it and of the next two holds seq.
func (a *Across) commits(all []*Commit) {
	for _, c := range all {
		e := acrossEntry{revision: c.Revision, time: c.Time, plane: c.Plane, name: a.names[c.Plane]}
		for _, r := range c.Records {
			if e.name != "" && !r.empty() && (r.Key.Resource == a.config.Resource || r.Key == a.config.Definition) {
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
			a.push(acrossEntry{revision: c.Revision, time: c.Time, plane: c.Begins.Plane, name: r.Key.Name,
				begins: a.content(a.seq.writers[c.Begins.Plane].state)})
		}
	}
}

// ends adds a plane that ends with a commit.
func (a *Across) ends(c *Commit) {
	if name, ok := a.names[c.Ends]; ok {
		delete(a.names, c.Ends)
		a.push(acrossEntry{revision: c.Revision, time: c.Time, plane: c.Ends, name: name, ends: true})
	}
}

// push adds an entry to the queue. Entries without changes that follow one another become one.
func (a *Across) push(e acrossEntry) {
	if a.ending != nil {
		return
	}
	defer notify(a.arrived)
	if n := len(a.queue); n > 0 && a.queue[n-1].empty() && e.empty() {
		a.queue[n-1] = e
		return
	}
	if a.queued += max(1, len(e.records)); a.queued > maxAcross {
		a.ending, a.queue = errors.New("it was too slow for the changes"), nil
		return
	}
	a.queue = append(a.queue, e)
}

// order is that of entries of one revision.
func (e *acrossEntry) order() int {
	if e.ends {
		return 0
	}
	return 1
}

func (e *acrossEntry) empty() bool { return len(e.records) == 0 && e.begins == nil && !e.ends }

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
		queue, err := a.queue, a.ending
		a.queue, a.queued = nil, 0
		a.seq.seq.Unlock()
		if err == nil {
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
		s := acrossStep{across: a, time: queue[0].time, now: map[Key]*Version{}}
		// One commit may end a plane and begin another one: deletions are first.
		slices.SortStableFunc(queue[:n], func(x, y acrossEntry) int { return cmp.Compare(x.order(), y.order()) })
		for i := range queue[:n] {
			if err := s.add(&queue[i]); err != nil {
				return err
			}
		}
		a.State.Apply(upTo(s.commits, s.time, queue[0].revision)...)
		queue = queue[n:]
	}
	return nil
}

// acrossStep collects what one commit of the log changes: a commit for each revision.
type acrossStep struct {
	across  *Across
	time    int64
	commits []*Commit
	now     map[Key]*Version // what it has changed so far
}

// put changes what is shown of one key, whose version is of and is shown as now; nil: it is not.
func (s *acrossStep) put(k Key, revision int64, now *Version) {
	old := s.latest(k)
	r := &Record{Key: k, Revision: revision, Old: old, New: now}
	if r.empty() {
		return
	}
	if old != nil {
		r.Key = old.Key
	}
	if now != nil {
		now.Key = r.Key
	}
	s.now[r.Key] = now
	s.commits = appendRecord(s.commits, s.time, r)
}

// appendRecord adds a record to the commit of its revision, which is the last one or the next.
func appendRecord(commits []*Commit, time int64, r *Record) []*Commit {
	if n := len(commits); n > 0 && commits[n-1].Revision == r.Revision {
		last := commits[n-1]
		last.Records[len(last.Records)-1].Unfinished = true
		last.Records = append(last.Records, r)
		return commits
	}
	return append(commits, &Commit{Revision: r.Revision, Time: time, Records: []*Record{r}})
}

// upTo is the commits with a last one of this revision.
func upTo(commits []*Commit, time, revision int64) []*Commit {
	if n := len(commits); n == 0 || commits[n-1].Revision < revision {
		commits = append(commits, &Commit{Revision: revision, Time: time})
	}
	return commits
}

// latest is what is shown of a key as of the last change.
func (s *acrossStep) latest(k Key) *Version {
	v, changed := s.now[k]
	if !changed {
		v, _ = s.across.Get(k)
	}
	return v
}

// add adds an entry.
func (s *acrossStep) add(e *acrossEntry) error {
	a := s.across
	switch {
	case e.begins != nil:
		p := a.enter(e)
		return s.turn(p, e.revision, nil, p.presenter)
	case e.ends:
		return s.end(e)
	case len(e.records) == 0:
		return nil
	}
	p := a.planes[e.plane]
	for _, r := range e.records {
		if r.Key == a.config.Definition {
			if err := s.define(p, r); err != nil {
				return err
			}
			continue
		}
		if r.New != nil {
			p.versions.Set(r.New.Key.Name, r.New)
		} else {
			p.versions.Delete(r.Key.Name)
		}
		v, err := a.show(p.presenter, r.New, p.name)
		if err != nil {
			return err
		}
		s.put(a.key(r.Key.Name, p.name), r.Revision, v)
	}
	return nil
}

// end removes what a plane has that ends.
func (s *acrossStep) end(e *acrossEntry) error {
	a := s.across
	p, horizon, before := a.planes[e.plane], a.horizon(), len(s.now)
	if err := s.turn(p, e.revision, p.presenter, nil); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count(p.presenter, -1)
	delete(a.planes, e.plane)
	p.versions, p.ended, p.last = nil, e.revision, len(s.now)-before
	a.ended = slices.DeleteFunc(a.ended, func(p *acrossPlane) bool { return p.ended <= horizon })
	a.ended = append(a.ended, p)
	return nil
}

// define changes how a plane is shown, because its definition has changed.
func (s *acrossStep) define(p *acrossPlane, r *Record) error {
	a := s.across
	before, horizon := p.presenter, a.horizon()
	now := a.config.Presenter(r.New)
	if now == before {
		return nil
	}
	a.mu.Lock()
	a.count(before, -1)
	a.count(now, 1)
	p.changes = slices.DeleteFunc(p.changes, func(c presenterChange) bool { return c.revision <= horizon })
	p.changes = append(p.changes, presenterChange{r.Revision, before})
	p.presenter = now
	a.mu.Unlock()
	return s.turn(p, r.Revision, before, now)
}

// horizon is that of the history.
func (a *Across) horizon() int64 {
	s := a.State
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.history.horizon
}

// turn shows by another presenter everything that a plane has; nil: it is not shown.
func (s *acrossStep) turn(p *acrossPlane, revision int64, before, now Presenter) error {
	a := s.across
	var gone []Key
	var all []*Version
	var err error
	p.versions.Scan(func(_ string, of *Version) bool {
		var old, v *Version
		k := a.key(of.Key.Name, p.name)
		if before != nil {
			old = s.latest(k)
		}
		if v, err = a.show(now, of, p.name); err != nil {
			return false
		}
		switch {
		case v != nil && (old == nil || !v.Equal(old)):
			all = append(all, v)
		case v == nil && old != nil:
			gone = append(gone, k)
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, k := range gone {
		s.put(k, revision, nil)
	}
	inOrder(all)
	for _, v := range all {
		s.put(v.Key, revision, v)
	}
	return nil
}

// inOrder sorts versions with which a plane begins, or is shown in another form: by their revisions, so that only the
// last one can show that of the commit.
func inOrder(all []*Version) {
	slices.SortFunc(all, func(a, b *Version) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Key.Name, b.Key.Name))
	})
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
