package store

import (
	"context"
	"slices"
)

// acrossLog is the log as an Across has it: the changes of one resource in all planes. It serves watches and lists of
// revisions that memory does not hold any more, or from before the Across was made: by a client that was there before
// the server was started again, for example.
//
// The problem: the log has what was written, and an Across has more than that. What a plane began with is not in the
// commit that begins it, and what it had at its end is nowhere. And how a version was shown depends on the definition
// that its plane had then. So it translates as far as that is known:
//
//	a write                        by the Presenter of the time: as of now, less the changes of the definition since
//	the beginning of a plane       what the plane had at that revision, as its own history says
//	the end of a plane             ErrCompacted, unless it is known that nothing was shown of it
//	another Presenter              ErrCompacted, unless the plane had no objects
//
// ErrCompacted tells a client to list again. For it is exact, a commit is only translated if it is to be read from the
// log: of those that memory holds, only the revision is needed, which ends the reading.
//
//	a translated commit = the records that memory has or had of it, in the same order
type acrossLog struct{ across *Across }

// Replay implements Replayer. It lends nothing: what it yields is made for the call.
func (l acrossLog) Replay(ctx context.Context, after int64, _ []string, yield func(*Commit) error) error {
	a := l.across
	if err := a.scan(ctx, after); err != nil {
		return err
	}
	a.State.mu.RLock()
	floor := a.history.all.floor // memory has what is after it
	a.State.mu.RUnlock()
	return a.seq.log.Replay(ctx, after, nil, func(c *Commit) error {
		var commits []*Commit
		if c.First() <= floor {
			var err error
			if commits, err = l.translate(ctx, c, floor); err != nil {
				return err
			}
		}
		for _, t := range upTo(commits, c.Time, c.Revision) {
			if t.Revision <= after {
				continue // of a commit that is only in part after it
			}
			if err := yield(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// translate returns what a commit of the log is for all planes: a commit for each revision that changes something.
func (l acrossLog) translate(ctx context.Context, c *Commit, floor int64) (commits []*Commit, err error) {
	a := l.across
	if c.Plane == "" {
		if c.Revision > floor {
			return nil, nil
		}
		if c.Ends != "" && a.lost(c) {
			return nil, ErrCompacted
		}
		if c.Begins != nil {
			return l.begins(ctx, c)
		}
		return nil, nil
	}
	p := a.plane(c.Plane)
	if p == nil {
		return nil, nil // it is none of those that objects name, or it has ended, which follows
	}
	for _, r := range c.Records {
		switch {
		case r.empty():
		case r.Key == a.config.Definition:
			if err := l.defines(ctx, p, r); err != nil {
				return nil, err
			}
		case r.Key.Resource == a.config.Resource:
			a.mu.Lock()
			presenter := p.presenterAt(r.Revision)
			a.mu.Unlock()
			k := r.Key.clone()
			t := &Record{Key: a.key(k.Name, p.name), Revision: r.Revision}
			if t.Old, err = l.show(presenter, k, r.Old, p.name); err != nil {
				return nil, err
			}
			if t.New, err = l.show(presenter, k, r.New, p.name); err != nil {
				return nil, err
			}
			if !t.empty() {
				commits = appendRecord(commits, c.Time, t)
			}
		}
	}
	return commits, nil
}

// show is Across.show for a version that is lent.
func (l acrossLog) show(presenter Presenter, k Key, lent *Version, plane string) (*Version, error) {
	return l.across.show(presenter, l.across.copyVersion(k, lent), plane)
}

// plane returns a plane that is there, or has ended since the horizon; nil: neither.
func (a *Across) plane(id string) *acrossPlane {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.planes[id]; p != nil {
		return p
	}
	if i := slices.IndexFunc(a.ended, func(p *acrossPlane) bool { return p.id == id }); i >= 0 {
		return a.ended[i]
	}
	return nil
}

// lost says whether the commit ends a plane of which something may have been shown.
func (a *Across) lost(c *Commit) bool {
	if p := a.plane(c.Ends); p != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		return p.last > 0
	}
	return slices.ContainsFunc(c.Records, func(r *Record) bool {
		return r.New == nil && r.Key.Resource == a.config.Planes
	})
}

// contentOf is what a plane had as of a revision.
func (l acrossLog) contentOf(ctx context.Context, plane string, revision int64) (*Snapshot, error) {
	a := l.across
	a.seq.seq.Lock()
	of := a.seq.writers[plane]
	a.seq.seq.Unlock()
	if of == nil {
		return nil, ErrCompacted
	}
	return of.state.SnapshotContext(ctx, revision, a.config.Resource)
}

// begins is what a plane begins with.
func (l acrossLog) begins(ctx context.Context, c *Commit) (commits []*Commit, err error) {
	a := l.across
	p := a.plane(c.Begins.Plane)
	if p == nil {
		return nil, nil
	}
	sn, err := l.contentOf(ctx, c.Begins.Plane, c.Revision)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	presenter := p.presenterAt(c.Revision)
	a.mu.Unlock()
	var all []*Version
	sn.Ascend(a.config.Resource, "", "", func(of *Version) bool {
		var v *Version
		if v, err = a.show(presenter, of, p.name); v != nil {
			all = append(all, v)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	inOrder(all)
	for _, v := range all {
		commits = appendRecord(commits, c.Time, &Record{Key: v.Key, Revision: c.Revision, New: v})
	}
	return commits, nil
}

// defines looks at a change of the definition of a plane.
func (l acrossLog) defines(ctx context.Context, p *acrossPlane, r *Record) error {
	a := l.across
	a.mu.Lock()
	same := p.presenterAt(r.Revision-1) == p.presenterAt(r.Revision)
	a.mu.Unlock()
	if same {
		return nil
	}
	sn, err := l.contentOf(ctx, p.id, r.Revision)
	if err == nil && sn.Count(a.config.Resource, "") > 0 {
		err = ErrCompacted
	}
	return err
}

// scan finds the changes of definitions after a revision that were before the Across was made. It reads the log, once
// for each revision.
func (a *Across) scan(ctx context.Context, after int64) error {
	if a.config.Definition == (Key{}) {
		return nil
	}
	a.scanning.Lock()
	defer a.scanning.Unlock()
	if after >= a.scanned {
		return nil
	}
	found := map[*acrossPlane][]presenterChange{}
	err := a.seq.log.Replay(ctx, after, nil, func(c *Commit) error {
		if c.First() > a.scanned {
			return errStop
		}
		p := a.plane(c.Plane)
		for _, r := range c.Records {
			if p == nil || r.Key != a.config.Definition || r.empty() || r.Revision <= after || r.Revision > a.scanned {
				continue
			}
			k := r.Key.clone()
			before, now := a.config.Presenter(a.copyVersion(k, r.Old)), a.config.Presenter(a.copyVersion(k, r.New))
			if before != now {
				found[p] = append(found[p], presenterChange{r.Revision, before})
			}
		}
		return nil
	})
	if err != nil && err != errStop {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, changes := range found {
		p.changes = append(changes, p.changes...)
	}
	a.scanned = after
	return nil
}
