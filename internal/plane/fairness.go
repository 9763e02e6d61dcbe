package plane

import (
	"net/http"
	"time"

	"plinth/internal/fairness"
	"plinth/internal/recent"
	"plinth/internal/store"
)

// typeStats has the number and the average size of the objects of each type. They are computed anew when they are
// needed and older than statsAge.
type typeStats struct {
	plane  *Plane
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

// of returns the figures of a type; nil if it has no objects in this plane.
func (t *typeStats) of(group, version, resource string) *fairness.Stats {
	r := t.plane.Registry.Now().Find(group, version, resource)
	if r == nil || r.Virtual() {
		return nil
	}
	path, now := r.Stored.Path, time.Now()
	if c, ok := t.cached.Get(path); ok && now.Sub(c.at) < statsAge {
		return &c.Stats
	}
	snapshot := t.plane.Store.Collection(path).Snapshot()
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
