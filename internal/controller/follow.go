package controller

import (
	"context"
	"log/slog"
	"time"

	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
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

// start begins to follow the types that are served. What it begins ends with the group, or with its loops.
func (f *follower) start(g *steps.Group) (loops []*steps.Loop) {
	for _, of := range f.types {
		t := &followedType{follower: f, of: of}
		l := (&watcher{engine: f.engine, of: of, user: serverItself, begin: t.begin, handle: t.handle,
			failed: t.failed}).start(g)
		if l != nil {
			loops = append(loops, l)
		}
	}
	return loops
}

// followedType follows the objects of one type.
type followedType struct {
	*follower
	of    *engine.Resource
	later map[string]*dueSync // by the names of keys
}

// dueSync is when sync is called again for an object.
type dueSync struct {
	o      *engine.Object
	gone   bool
	at     time.Time
	failed int // times in a row
}

func (t *followedType) begin(ctx context.Context) {
	t.later = map[string]*dueSync{}
	if t.wanted != nil {
		t.look(ctx, &dueSync{o: t.wanted, gone: true})
	}
}

func (t *followedType) failed(err error) {
	t.logger.Warn("a watch has failed, trying again", "controller", t.name, "type", t.of.Name, "error", err)
}

// handle calls sync for the objects of events, and for those that are due. It returns when the next one is.
func (t *followedType) handle(ctx context.Context, _ *steps.Loop, events []engine.Event) (next time.Time, err error) {
	for _, event := range events {
		delete(t.later, event.Object.Key.Name)
		t.look(ctx, &dueSync{o: event.Object, gone: event.Type == engine.Deleted})
	}
	now := time.Now()
	for name, a := range t.later {
		if !a.at.After(now) {
			delete(t.later, name)
			t.look(ctx, a)
		}
	}
	for _, a := range t.later {
		if next.IsZero() || a.at.Before(next) {
			next = a.at
		}
	}
	return next, nil
}

// look calls sync for an object, and records when to call it again.
func (t *followedType) look(ctx context.Context, a *dueSync) {
	again, err := t.sync(ctx, t.of, a.o, a.gone)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		if a.failed++; a.failed == 1 {
			t.logger.Warn("a controller could not do its work, trying again",
				"controller", t.name, "object", a.o.Key.String(), "error", err)
		}
		again = pace.Retry(a.failed)
	case again <= 0:
		return
	default:
		a.failed = 0
	}
	a.at = time.Now().Add(again)
	t.later[a.o.Key.Name] = a
}
