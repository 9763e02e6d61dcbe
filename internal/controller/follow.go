package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"plinth/internal/controller/pace"
	"plinth/internal/engine"
)

// follower calls sync for the objects of some types: first for all of them, then for each that is changed or deleted.
// It is for controllers that look at one object at a time, in any order.
type follower struct {
	engine *engine.Engine
	logger *slog.Logger
	name   string // of the controller
	types  []*engine.Resource
	// wanted has the key of an object that sync makes if it does not exist. sync is called for it, as deleted, when a
	// watch begins: of what was never there, a watch tells nothing. Nil: there is none.
	wanted *engine.Object
	// sync handles one object; gone means that it was deleted. It is called again after the time that it returns,
	// if again > 0, and after an error. It is called for one object of a type at a time.
	sync func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (again time.Duration, err error)
}

// run works until ctx ends.
func (f *follower) run(ctx context.Context) {
	var work sync.WaitGroup
	for _, of := range f.types {
		if of == nil {
			continue // not served
		}
		work.Go(func() {
			for ctx.Err() == nil {
				if err := f.watch(ctx, of); err != nil && ctx.Err() == nil {
					f.logger.Warn("a watch has failed, trying again",
						"controller", f.name, "type", of.Name, "error", err)
					pace.Pause(ctx, pace.MinRetry)
				}
			}
		})
	}
	work.Wait()
}

// dueSync is when sync is called again for an object.
type dueSync struct {
	o      *engine.Object
	gone   bool
	at     time.Time
	failed int // times in a row
}

// watch follows the objects of one type.
func (f *follower) watch(ctx context.Context, of *engine.Resource) error {
	watch, err := f.engine.Watch(ctx, &engine.Request{Resource: of, User: serverItself}, engine.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	later := map[string]*dueSync{}
	if f.wanted != nil {
		f.look(ctx, of, &dueSync{o: f.wanted, gone: true}, later)
	}
	for {
		events, err := nextUntil(ctx, watch, later)
		if err != nil {
			return err
		}
		for _, event := range events {
			delete(later, event.Object.Key.Name)
			f.look(ctx, of, &dueSync{o: event.Object, gone: event.Type == engine.Deleted}, later)
		}
		now := time.Now()
		for name, a := range later {
			if !a.at.After(now) {
				delete(later, name)
				f.look(ctx, of, a, later)
			}
		}
	}
}

// look calls sync for an object, and records when to call it again.
func (f *follower) look(ctx context.Context, of *engine.Resource, a *dueSync, later map[string]*dueSync) {
	again, err := f.sync(ctx, of, a.o, a.gone)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		if a.failed++; a.failed == 1 {
			f.logger.Warn("a controller could not do its work, trying again",
				"controller", f.name, "object", a.o.Key.String(), "error", err)
		}
		again = pace.Retry(a.failed)
	case again <= 0:
		return
	default:
		a.failed = 0
	}
	a.at = time.Now().Add(again)
	later[a.o.Key.Name] = a
}

// nextUntil waits for events until the next time at which sync is due.
func nextUntil(ctx context.Context, watch *engine.Watch, later map[string]*dueSync) ([]engine.Event, error) {
	if len(later) == 0 {
		return watch.Next(ctx)
	}
	var first time.Time
	for _, a := range later {
		if first.IsZero() || a.at.Before(first) {
			first = a.at
		}
	}
	short, cancel := context.WithDeadline(ctx, first)
	defer cancel()
	return watch.NextUntil(ctx, short)
}
