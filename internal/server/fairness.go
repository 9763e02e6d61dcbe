package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/controller"
	"plinth/internal/engine"
	"plinth/internal/fairness"
	"plinth/internal/recent"
	"plinth/internal/store"
)

// openFairness makes the part that decides which requests are served, and the figures that it needs.
func (s *Server) openFairness() {
	s.stats = &typeStats{server: s}
	if c := &s.config; c.PriorityAndFairness {
		s.fairness = fairness.New(fairness.Config{
			Seats:   c.MaxRequestsInflight + c.MaxMutatingInflight,
			Places:  c.places,
			Schemas: s.store.Collection(fairness.Group + "/flowschemas"),
			Levels:  s.store.Collection(fairness.Group + "/prioritylevelconfigurations"),
		})
	}
}

// runFairness starts the division of seats and the maintenance of the status of FlowSchemas.
func (s *Server) runFairness() {
	if s.fairness == nil {
		return
	}
	s.run(func() { s.fairness.Run(s.closing) })
	if s.config.Image == nil {
		s.run(func() { s.maintainDangling(s.closing) })
	}
}

// maintainDangling keeps the condition Dangling of the FlowSchemas up to date until ctx ends.
func (s *Server) maintainDangling(ctx context.Context) {
	changed := make(chan struct{}, 1)
	for _, resource := range flowControlResources {
		if of := s.registry.Builtin().Find(flowControlGroup, "v1", resource); of != nil {
			s.run(func() {
				controller.Follow(ctx, s.engine, s.config.Logger, of, func() {
					select {
					case changed <- struct{}{}:
					default: // the loop below has not yet looked
					}
				})
			})
		}
	}
	pace := &writePace{}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
		again = nil
		deferred, err := s.updateDangling(ctx, pace)
		if err != nil && ctx.Err() == nil {
			s.config.Logger.Warn("objects of priority and fairness are not up to date", "error", err)
		}
		if deferred || err != nil {
			again = time.After(writeRest + rand.N(writeSpread))
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
func (s *Server) updateDangling(ctx context.Context, pace *writePace) (deferred bool, err error) {
	types := s.registry.Builtin()
	schemas, levels := types.Find(flowControlGroup, "v1", "flowschemas"),
		types.Find(flowControlGroup, "v1", "prioritylevelconfigurations")
	if schemas == nil || levels == nil {
		return false, nil
	}
	list, err := s.engine.List(ctx, &engine.Request{Resource: schemas}, engine.ListOptions{})
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
		_, exists := s.store.Get(store.Key{Resource: levels.Stored.Path, Name: level})
		status := dangling(live, level, exists, s.now)
		if status.IsNull() {
			continue
		}
		if !pace.may(item.Key.Name, time.Now()) {
			deferred = true
			continue
		}
		rq := &engine.Request{Resource: schemas, Name: item.Key.Name, OwnStart: true}
		if err := s.applyStatus(ctx, rq, flowControlConsumer, status); err != nil && !apierr.Is(err, apierr.NotFound) {
			errs = append(errs, err)
		}
	}
	return deferred, errors.Join(errs...)
}

// typeStats has the number and the average size of the objects of each type. They are computed anew when they are
// needed and older than statsAge.
type typeStats struct {
	server *Server
	cached recent.Cache[string, *cachedStats] // by the path of the type in the store
}

// cachedStats does not change.
type cachedStats struct {
	fairness.Stats
	at time.Time
}

const (
	statsAge    = 5 * time.Second
	statsSample = 32 // how many objects are measured for their average
)

// of returns the figures of a type; nil if it has no objects in this server.
func (t *typeStats) of(group, version, resource string) *fairness.Stats {
	r := t.server.registry.Now().Find(group, version, resource)
	if r == nil || r.Virtual() {
		return nil
	}
	path, now := r.Stored.Path, time.Now()
	if c, ok := t.cached.Get(path); ok && now.Sub(c.at) < statsAge {
		return &c.Stats
	}
	snapshot := t.server.store.Collection(path).Snapshot()
	c := &cachedStats{at: now, Stats: fairness.Stats{Objects: int64(snapshot.Count(path, ""))}}
	n, bytes := 0, 0
	snapshot.Ascend(path, "", "", func(v *store.Version) bool {
		bytes += v.Len()
		n++
		return n < statsSample
	})
	if n > 0 {
		c.Bytes = int64(bytes / n)
	}
	t.cached.Set(path, c, 1)
	return &c.Stats
}

// fairnessPages are the debugging pages of the reference.
func fairnessPages(f *fairness.Fairness) map[string]http.Handler {
	const at = "/debug/api_priority_and_fairness/"
	page := func(write func(w http.ResponseWriter, r *http.Request) error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_ = write(w, r) // the client is gone
		})
	}
	return map[string]http.Handler{
		at + "dump_priority_levels": page(func(w http.ResponseWriter, _ *http.Request) error { return f.DumpLevels(w) }),
		at + "dump_queues":          page(func(w http.ResponseWriter, _ *http.Request) error { return f.DumpQueues(w) }),
		at + "dump_requests": page(func(w http.ResponseWriter, r *http.Request) error {
			return f.DumpRequests(w, r.URL.Query().Get("includeRequestDetails") != "")
		}),
	}
}
