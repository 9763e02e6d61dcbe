package planes

import (
	"context"
	"errors"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/planes/kind"
	"plinth/internal/store"
)

// follow keeps up with the objects of planes: it limits planes whose objects say so, closes those that have ended, and
// deletes those whose time is over.
func (p *Planes) follow() {
	for p.closing.Err() == nil {
		err := p.followOnce()
		if p.closing.Err() != nil || errors.Is(err, store.ErrClosed) {
			return
		}
		// It missed changes: everything is looked at again.
		p.config.Logger.Warn("the objects of planes are looked at again", "error", err)
		select {
		case <-p.closing.Done():
		case <-time.After(time.Second):
		}
	}
}

// ending is when the time of a plane is over. Another plane of the same name may be there by then.
type ending struct {
	uid string
	at  time.Time
}

func (p *Planes) followOnce() error {
	s := p.config.First.Store
	sn, err := s.Snapshot(0)
	if err != nil {
		return err
	}
	ends := map[string]ending{} // by name, of planes with a time to live
	sn.Ascend(kind.Path, "", "", func(v *store.Version) bool {
		p.changed(v, ends)
		return true
	})
	c, err := s.Watch(p.closing, kind.Path, "", sn.Revision())
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		next := p.expire(ends)
		ctx, cancel := p.closing, context.CancelFunc(func() {})
		if !next.IsZero() {
			ctx, cancel = context.WithTimeout(p.closing, next.Sub(p.config.Now()))
		}
		records, err := c.Next(ctx)
		cancel()
		if err != nil && (p.closing.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		for _, r := range records {
			if r.New == nil {
				delete(ends, r.Key.Name)
				p.end(r.Old.Sidecar.UID)
				continue
			}
			p.changed(r.New, ends)
		}
	}
}

// changed takes note of what an object says of its plane.
func (p *Planes) changed(v *store.Version, ends map[string]ending) {
	p.mu.Lock()
	_, open := p.open[v.Sidecar.UID]
	p.mu.Unlock()
	of, err := describe(v)
	switch {
	case err != nil:
	case open:
		_, err = p.known(v)
	default:
		err = p.limit(of)
	}
	if err != nil && !apierr.Is(err, apierr.NotFound) { // it has ended meanwhile
		p.config.Logger.Error("a plane is not limited", "plane", v.Key.Name, "error", err)
	}
	delete(ends, v.Key.Name)
	if obj, err := engine.ObjectOf(v); err == nil {
		if at, ok := kind.Expires(obj); ok && !v.Sidecar.Deleting {
			ends[v.Key.Name] = ending{v.Sidecar.UID, at}
		}
	}
}

// end closes a plane that has ended. Its users are told so, and it is not waited for them here.
func (p *Planes) end(uid string) {
	p.mu.Lock()
	delete(p.begun, uid)
	delete(p.records, uid)
	delete(p.alarms, uid)
	o := p.open[uid]
	p.mu.Unlock()
	if o != nil {
		p.work.Go(func() { p.close(o, true) })
	}
}

// expire deletes the planes whose time is over, as a client would: with finalizers they stay until these are gone. It
// returns when the next one is due, or when to try again.
func (p *Planes) expire(ends map[string]ending) (next time.Time) {
	now := p.config.Now()
	first := p.config.First
	for name, end := range ends {
		if end.at.After(now) {
			if next.IsZero() || end.at.Before(next) {
				next = end.at
			}
			continue
		}
		rq := &engine.Request{Resource: first.Registry.Builtin().Find(kind.Group, kind.Version, kind.Plural), Name: name}
		_, err := first.Engine.Delete(p.closing, rq, engine.DeleteOptions{PreconditionUID: end.uid})
		if err == nil || apierr.Is(err, apierr.NotFound) || apierr.Is(err, apierr.Conflict) { // it is gone, or another one
			delete(ends, name)
			continue
		}
		p.config.Logger.Warn("a plane whose time is over was not deleted", "plane", name, "error", err)
		next = now.Add(time.Second)
	}
	return next
}
