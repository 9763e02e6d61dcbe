package garbage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// correlator decides which Events a controller writes about objects: whether a message becomes a new Event, raises the
// count of an earlier one, or is dropped. All its Events have one type and reason. It decides as the recorder of the
// reference does, so that a client that repeats a mistake does not fill the store:
//
//	the same message again                     ⇒  the Event gets a higher count
//	maxMessages different ones in the interval ⇒  from then on they are one Event, with the last message
//	more than eventBurst Events of an object   ⇒  one in eventRefill is written
//
// It remembers maxTold objects. An Event about an object that it has forgotten, or that another process has written,
// is not found again: the next one is new.
type correlator struct {
	now func() time.Time

	mu      sync.Mutex
	objects map[string]*toldObject // by UID
}

// toldObject is what was said about an object.
type toldObject struct {
	budget   *rate.Limiter
	messages []string // different ones, of which none was followed by an interval without one
	last     time.Time
	series   map[string]told // the Events, by message; that of many messages has the key ""
}

// told is an Event as it is to be written, or was.
type told struct {
	name        string
	first, last time.Time
	count       int64
	message     string
}

const (
	maxTold       = 4096
	maxMessages   = 10
	eventInterval = 10 * time.Minute
	eventBurst    = 25
	eventRefill   = 5 * time.Minute
)

// tell returns the Event that says something about an object with this UID and name. Its count is 1 if it is new.
// If ok is not set, nothing is to be written.
func (c *correlator) tell(uid, name, message string) (e told, ok bool) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[uid]
	if o == nil {
		o = c.remember(uid)
	}
	if now.Sub(o.last) > eventInterval {
		o.messages = nil
	}
	o.last = now
	if !slices.Contains(o.messages, message) {
		o.messages = append(o.messages, message)
	}
	key := message
	if len(o.messages) >= maxMessages {
		o.messages = o.messages[1:]
		key, message = "", "(combined from similar events): "+message
	}
	e, known := o.series[key]
	if !known {
		e = told{name: objectmeta.EventName(name, now), first: now}
	}
	e.count, e.last, e.message = e.count+1, now, message
	o.series[key] = e
	return e, o.budget.AllowN(now, 1)
}

// remember returns a new entry, and forgets another one if there are too many.
func (c *correlator) remember(uid string) *toldObject {
	if c.objects == nil {
		c.objects = map[string]*toldObject{}
	}
	if len(c.objects) >= maxTold {
		for other := range c.objects {
			delete(c.objects, other)
			break
		}
	}
	o := &toldObject{budget: rate.NewLimiter(rate.Every(eventRefill), eventBurst), series: map[string]told{}}
	c.objects[uid] = o
	return o
}

const (
	// maxReported is the number of references of one object that are looked for in other namespaces.
	maxReported = 25
	// lookupsPerWrite is the number of look-ups that count as a write in the pace of the collector.
	lookupsPerWrite = 100
)

// reportNamespace writes an Event about the first reference to an owner that exists, but in another namespace; refs are
// new ones whose owner is not in the namespace of the object. The reference is silent about further ones, too.
//
// The reference finds an owner by its UID. The store has no such index, so the name is looked up in every namespace:
// references × namespaces look-ups for each object that a client creates, which may have thousands of references. So
// the references are bounded, and the look-ups are a part of the collector's pace.
func (t *taskObject) reportNamespace(ctx context.Context, refs []reference) error {
	types := t.Registry.Now()
	namespaces, events := types.Find("", "v1", "namespaces"), types.Find("", "v1", "events")
	if namespaces == nil || events == nil {
		return nil
	}
	list, err := t.Engine.List(ctx, &engine.Request{Resource: namespaces}, engine.ListOptions{})
	if err != nil {
		return nil
	}
	lookups := 0
	for _, ref := range refs[:min(len(refs), maxReported)] {
		of := t.Registry.Now().OfKind(ref.apiVersion, ref.kind)
		if of == nil || of.Stored == nil || !of.Namespaced {
			continue
		}
		for namespace := range list.Items {
			if lookups++; lookups%lookupsPerWrite == 0 {
				if err := t.pace.Wait(ctx); err != nil {
					return err
				}
			}
			o, err := t.Engine.Stored(ctx, of.Key(namespace.Key.Name, ref.name))
			if err == nil && o != nil && o.Sidecar.UID == ref.uid {
				t.tell(ctx, ref, events)
				return nil
			}
		}
	}
	return nil
}

// tell writes the Event about a reference, or counts it if there is one.
func (t *taskObject) tell(ctx context.Context, ref reference, events *engine.Resource) {
	e, ok := t.told.tell(t.uid, t.name, fmt.Sprintf(
		"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		ref.apiVersion, ref.kind, t.at.namespace, ref.name, ref.uid, t.at.namespace))
	if !ok {
		return
	}
	rq := &engine.Request{Resource: events, Namespace: t.at.namespace, Name: e.name, User: t.user,
		FieldManager: collectManager}
	if rq.Namespace == "" {
		rq.Namespace = "default"
	}
	text, stamp := object.StringOf, func(at time.Time) object.Value {
		return object.StringOf(at.UTC().Format(time.RFC3339))
	}
	written, err := e.count > 1, error(nil)
	if written {
		_, err = t.Engine.Patch(ctx, rq, engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, object.Fields(
			"count", object.IntOf(e.count), "lastTimestamp", stamp(e.last), "message", text(e.message)))})
		written = !apierr.Is(err, apierr.NotFound) // it has expired, or was refused
	}
	if !written {
		rq.Name = ""
		_, err = t.Engine.Create(ctx, rq, object.Parsed{Value: object.Fields(
			"metadata", object.Fields("name", text(e.name), "namespace", text(rq.Namespace)),
			"involvedObject", object.Fields("apiVersion", text(t.apiVersion), "kind", text(t.kind), "name", text(t.name),
				"namespace", text(t.at.namespace), "uid", text(t.uid)),
			"reason", text("OwnerRefInvalidNamespace"), "type", text("Warning"), "message", text(e.message),
			"source", object.Fields("component", text(component)), "reportingComponent", text(component),
			"reportingInstance", text(""), "firstTimestamp", stamp(e.first), "lastTimestamp", stamp(e.last),
			"count", object.IntOf(e.count))})
	}
	if err != nil {
		t.Logger.Debug("an event could not be written", "event", "OwnerRefInvalidNamespace", "object", t.name, "error", err)
	}
}
