package controller

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// reporter logs findings, and records an Event about each, as the recorder of the reference does. A finding that is
// repeated within eventSeries is not reported again.
type reporter struct {
	engine     *engine.Engine
	registry   *engine.Registry
	logger     *slog.Logger
	now        func() time.Time
	controller string

	mu   sync.Mutex
	last map[string]time.Time // when it was found
}

// eventSeries is how long the reference waits for a repetition before a series of Events ends.
const eventSeries = 6 * time.Minute

func (r *reporter) report(ctx context.Context, found ...addresses.Finding) {
	for i := range found {
		f := &found[i]
		meta := f.Object.At("metadata")
		if !r.isNew(meta.At("uid").Str() + "/" + f.Reason + "/" + f.Note) {
			continue
		}
		r.logger.Warn(f.Note, "controller", r.controller, "reason", f.Reason, "kind", f.Kind,
			"namespace", meta.At("namespace").Str(), "name", meta.At("name").Str())
		// The namespace may be gone, or being deleted; the finding is in the log.
		if err := r.record(ctx, f); err != nil {
			r.logger.Debug("no Event was recorded", "controller", r.controller, "error", err)
		}
	}
}

// isNew says whether something was not found within eventSeries, and remembers that it was found now.
func (r *reporter) isNew(what string) bool {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	before, known := r.last[what]
	if !known {
		for other, at := range r.last {
			if now.Sub(at) > eventSeries {
				delete(r.last, other)
			}
		}
	}
	r.last[what] = now
	return !known || now.Sub(before) > eventSeries
}

// record creates the Event. Those about objects without a namespace are in the namespace default.
func (r *reporter) record(ctx context.Context, f *addresses.Finding) error {
	events := r.registry.Now().Find("events.k8s.io", "v1", "events")
	if events == nil {
		return nil // not served
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	text, now, meta := object.StringOf, r.now(), f.Object.At("metadata")
	namespace := meta.At("namespace").Str()
	regarding := []object.Member{
		{Key: "apiVersion", Value: text(f.GroupVersion)}, {Key: "kind", Value: text(f.Kind)},
		{Key: "name", Value: meta.At("name")}, {Key: "uid", Value: meta.At("uid")},
	}
	if namespace == "" {
		namespace = "default"
	} else {
		regarding = append(regarding, object.Member{Key: "namespace", Value: text(namespace)})
	}
	event := object.Fields(
		"metadata", object.Fields("name", text(objectmeta.EventName(meta.At("name").Str(), now)),
			"namespace", text(namespace)),
		"eventTime", text(now.UTC().Format("2006-01-02T15:04:05.000000Z07:00")),
		"reportingController", text(r.controller), "reportingInstance", text(r.controller+"-"+host),
		"action", text(f.Action), "reason", text(f.Reason), "regarding", object.Nil.Edit(regarding),
		"note", text(f.Note), "type", text("Warning"))
	_, err = r.engine.Create(ctx, &engine.Request{Resource: events, Namespace: namespace, User: serverItself,
		FieldManager: "kube-apiserver"}, object.Parsed{Value: event})
	return err
}
