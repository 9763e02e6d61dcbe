package initial

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/controller"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/store"
)

// MaintainDangling begins to keep the condition Dangling of the FlowSchemas up to date.
func (o *Objects) MaintainDangling(g *steps.Group) {
	pace := &writePace{}
	update := g.Loop(func(ctx context.Context, _ *steps.Loop) (again time.Time) {
		deferred, err := o.updateDangling(ctx, pace)
		if err != nil && ctx.Err() == nil {
			o.Logger.Warn("objects of priority and fairness are not up to date", "error", err)
		}
		if deferred || err != nil {
			again = time.Now().Add(writeRest + rand.N(writeSpread))
		}
		return again
	}, nil)
	for _, resource := range flowControlResources {
		if of := o.Registry.Builtin().Find(flowControlGroup, "v1", resource); of != nil {
			controller.Follow(g, o.Engine, o.Logger, of, update.Wake)
		}
	}
}

// writePace limits how often the same objects are written. Servers that disagree about a status, as those of two
// releases may, would else write it as fast as they can. As in the reference, a server writes one at most mostWrites
// times within writePeriod, and then looks at it again at a random time between writeRest and writeRest + writeSpread,
// so that one of them is the last for a while.
type writePace struct{ written map[string][]time.Time }

const (
	mostWrites  = 6
	writePeriod = time.Minute
	writeRest   = 30 * time.Second
	writeSpread = 45 * time.Second
)

// may says whether an object may be written now, and counts it as written.
func (p *writePace) may(name string, now time.Time) bool {
	for name, times := range p.written {
		if times = slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) > writePeriod }); len(times) == 0 {
			delete(p.written, name)
		} else {
			p.written[name] = times
		}
	}
	if len(p.written[name]) >= mostWrites {
		return false
	}
	if p.written == nil {
		p.written = map[string][]time.Time{}
	}
	p.written[name] = append(p.written[name], now)
	return true
}

// updateDangling writes the condition Dangling of every FlowSchema in which it is wrong. It says whether it has put off
// some of them, which were written too often.
func (o *Objects) updateDangling(ctx context.Context, pace *writePace) (deferred bool, err error) {
	types := o.Registry.Builtin()
	schemas, levels := types.Find(flowControlGroup, "v1", "flowschemas"),
		types.Find(flowControlGroup, "v1", "prioritylevelconfigurations")
	if schemas == nil || levels == nil {
		return false, nil
	}
	list, err := o.Engine.List(ctx, &engine.Request{Resource: schemas}, engine.ListOptions{})
	if apierr.Is(err, apierr.StoreReadError) { // one of them is unreadable
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var errs []error
	for item := range list.Items {
		live, err := engine.ObjectOf(item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		level := live.At("spec", "priorityLevelConfiguration", "name").Str()
		_, exists := o.Store.Get(store.Key{Resource: levels.Stored.Path, Name: level})
		status := dangling(live, level, exists, o.now)
		if status.IsNull() {
			continue
		}
		if !pace.may(item.Key.Name, time.Now()) {
			deferred = true
			continue
		}
		rq := &engine.Request{Resource: schemas, Name: item.Key.Name, OwnStart: true}
		if err := o.applyStatus(ctx, rq, flowControlConsumer, status); err != nil && !apierr.Is(err, apierr.NotFound) {
			errs = append(errs, err)
		}
	}
	return deferred, errors.Join(errs...)
}
