package plinthtest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/object"
)

// Ref names an object.
type Ref struct {
	// Group is "apps", and Resource "deployments"; the core group is "". Version may be "", as all versions are of the
	// same objects.
	Group     string `json:"group"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "apps/deployments default/web".
func (o Ref) String() string {
	resource, name := o.Resource, o.Name
	if o.Group != "" {
		resource = o.Group + "/" + resource
	}
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return resource + " " + name
}

// Revision is an object after one of its changes.
type Revision struct {
	ResourceVersion int64 `json:"resourceVersion"`
	Deleted         bool  `json:"deleted"`
	// Object is the object as it is stored, as JSON; if it was deleted, as it was before.
	Object json.RawMessage `json:"object"`
}

// historyLimit is how many changes the history of a plane has at most. Older ones are forgotten.
const historyLimit = 200_000

// history has the changes of all objects since a plane began.
//
// The history of the store itself reaches back five minutes, which are over in a moment if time is virtual. So a
// goroutine follows it. It may be behind, so a reader waits until it has reached the revision of the store.
type history struct {
	store *store.Store
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	grown   sync.Cond
	records []*store.Record
	reached int64
	ended   bool
}

// follow starts to follow the changes of a store.
func follow(s *store.Store) *history {
	ctx, stop := context.WithCancel(context.Background())
	h := &history{store: s, stop: stop, done: make(chan struct{}), reached: s.Revision()}
	h.grown.L = &h.mu
	cursor, err := s.WatchAll(context.Background(), h.reached)
	go func() {
		defer close(h.done)
		for err == nil {
			var records []*store.Record
			if records, err = cursor.Next(ctx); err != nil {
				break
			}
			h.append(records, cursor.Revision())
		}
		h.mu.Lock()
		h.ended = true
		h.mu.Unlock()
		h.grown.Broadcast()
	}()
	return h
}

func (h *history) append(records []*store.Record, reached int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, records...)
	if over := len(h.records) - historyLimit; over > 0 {
		h.records = append(h.records[:0:0], h.records[over+historyLimit/10:]...)
	}
	h.reached = reached
	h.grown.Broadcast()
}

// all returns the records up to the revision that the store has now.
func (h *history) all() []*store.Record {
	until := h.store.Revision()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.reached < until && !h.ended {
		h.grown.Wait()
	}
	return h.records[:len(h.records):len(h.records)]
}

// since returns the records since the last one that holds, and that one; none if there is none.
func (h *history) since(holds func(*store.Record) bool) []*store.Record {
	all := h.all()
	for i := len(all) - 1; i >= 0; i-- {
		if holds(all[i]) {
			return all[i:]
		}
	}
	return nil
}

// close stops following.
func (h *history) close() {
	h.stop()
	<-h.done
}

// History returns the changes of an object since the plane began, oldest first. An object that it began with has its
// first state as the first revision.
func (p *Plane) History(o Ref) []Revision {
	var all []Revision
	for _, r := range p.records(o) {
		if len(all) == 0 && r.Old != nil {
			all = append(all, revisionOf(r.Old, r.Old.Revision, false))
		}
		if r.New == nil {
			all = append(all, revisionOf(r.Old, r.Revision, true))
		} else {
			all = append(all, revisionOf(r.New, r.Revision, false))
		}
	}
	if len(all) == 0 {
		if v := p.live(o); v != nil {
			all = append(all, revisionOf(v, v.Revision, false))
		}
	}
	return all
}

func revisionOf(v *store.Version, revision int64, deleted bool) Revision {
	return Revision{ResourceVersion: revision, Deleted: deleted, Object: v.Data()}
}

// key is the key of an object in the store.
func (p *Plane) key(o Ref) (store.Key, bool) {
	t, ok := p.current().OfResource(o.Group, o.Version, o.Resource)
	name := o.Name
	if t.Namespaced {
		name = o.Namespace + "/" + o.Name
	}
	return store.Key{Resource: t.Key, Name: name}, ok && t.Key != ""
}

// records are the changes of an object.
func (p *Plane) records(o Ref) (some []*store.Record) {
	k, ok := p.key(o)
	for _, r := range p.past().all() {
		if ok && r.Key == k && (r.Old != nil || r.New != nil) {
			some = append(some, r)
		}
	}
	return some
}

// live is an object as it is now; nil if there is none.
func (p *Plane) live(o Ref) *store.Version {
	k, ok := p.key(o)
	if !ok {
		return nil
	}
	v, _ := p.current().Store.Get(k)
	return v
}

// Wait waits until the object is as holds says, which is called for its state now and after each change, with its
// JSON; nil: there is no object. It fails the test after a minute, by the clock of the plane, with what the object
// was last.
func (p *Plane) Wait(t testing.TB, o Ref, holds func(object []byte) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k, ok := p.key(o)
	if !ok {
		t.Fatalf("plinthtest: there is no type %s of %s/%s", o.Resource, o.Group, o.Version)
	}
	s := p.current().Store
	for {
		revision := s.Revision()
		var text []byte
		if v, ok := s.Get(k); ok {
			text = v.Data()
		}
		if holds(text) {
			return
		}
		if err := s.WaitFor(ctx, revision+1); err != nil {
			t.Fatalf("plinthtest: %s is still %s", o, text)
		}
	}
}

// parse parses the bytes of a version.
func parse(v *store.Version) object.Value {
	if v == nil {
		return object.Nil
	}
	parsed, err := object.ParseJSON(v.Data())
	if err != nil {
		panic(fmt.Sprintf("plinthtest: %s is no JSON: %v", v.Key, err)) // the store has nothing else
	}
	return parsed.Value
}
