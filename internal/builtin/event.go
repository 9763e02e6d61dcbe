package builtin

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/validation"
	"plinth/object"
)

// coreEvents is the version in which Events are stored.
func coreEvents(c Config) kind {
	return kind{
		name: "events", kind: "Event", short: "ev", versions: []version{of[corev1.Event, corev1.EventList]()},
		rules:      validation.CoreEvent,
		putCreates: true, naming: segment, propagation: collects,
		fields: []selectable{
			text("involvedObject.apiVersion"),
			text("involvedObject.fieldPath"),
			text("involvedObject.kind"),
			text("involvedObject.name"),
			text("involvedObject.namespace"),
			text("involvedObject.resourceVersion"),
			text("involvedObject.uid"),
			text("reason"),
			text("reportingComponent"),
			{name: "source", value: eventSource, paths: [][]string{{"source", "component"}, {"reportingComponent"}}},
			text("type"),
		},
		table: columns.CoreEvents,
		ttl:   c.EventTTL,
	}
}

// eventSource is the component that reports an Event: source.component, or reportingComponent in the newer form.
func eventSource(obj object.Value) string {
	if component := obj.At("source", "component").Str(); component != "" {
		return component
	}
	return obj.At("reportingComponent").Str()
}

func events(c Config) group {
	return group{"events.k8s.io", []kind{{
		name: "events", kind: "Event", short: "ev",
		versions: []version{
			of[eventsv1.Event, eventsv1.EventList]().by(convert.EventEventsToCore, convert.EventCoreToEvents),
		},
		rules:      validation.EventsEvent,
		putCreates: true, propagation: collects,
		fields: []selectable{
			text("reason"),
			text("regarding.apiVersion"),
			text("regarding.fieldPath"),
			text("regarding.kind"),
			text("regarding.name"),
			text("regarding.namespace"),
			text("regarding.resourceVersion"),
			text("regarding.uid"),
			text("reportingController"),
			text("type"),
		},
		table: columns.Events,
		path:  "/events",
	}}}
}
