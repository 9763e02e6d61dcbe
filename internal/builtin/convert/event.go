package convert

import "plinth/object"

// coreEventNames maps the members of a core/v1 Event to the names of the same members in an events.k8s.io/v1 Event.
var coreEventNames = []rename{
	{"action", "action"},
	{"count", "deprecatedCount"},
	{"eventTime", "eventTime"},
	{"firstTimestamp", "deprecatedFirstTimestamp"},
	{"involvedObject", "regarding"},
	{"kind", "kind"},
	{"lastTimestamp", "deprecatedLastTimestamp"},
	{"message", "note"},
	{"metadata", "metadata"},
	{"reason", "reason"},
	{"related", "related"},
	{"source", "deprecatedSource"},
	{"type", "type"},
}

// eventsEventNames is the inverse of coreEventNames.
var eventsEventNames = func() []rename {
	back := make([]rename, 0, len(coreEventNames))
	for _, r := range coreEventNames {
		back = append(back, rename{from: r.to, to: r.from})
	}
	return back
}()

// EventCoreToEvents converts a core/v1 Event to events.k8s.io/v1. It never fails.
func EventCoreToEvents(obj object.Value) (object.Value, error) {
	members := append(renamed(obj, coreEventNames),
		object.Member{Key: "apiVersion", Value: object.StringOf("events.k8s.io/v1")})
	// core/v1 writes the names of the reporter even when they are empty, events.k8s.io/v1 leaves them out then.
	members = appendNonEmpty(members, "reportingController", obj.At("reportingComponent"))
	members = appendNonEmpty(members, "reportingInstance", obj.At("reportingInstance"))
	// core/v1 omits an empty count of a series, events.k8s.io/v1 writes it.
	if series, ok := obj.Get("series"); ok {
		if _, counted := series.Get("count"); !counted {
			series = series.With("count", object.IntOf(0))
		}
		members = append(members, object.Member{Key: "series", Value: series})
	}
	return object.MapOf(members...), nil
}

// EventEventsToCore converts an events.k8s.io/v1 Event to core/v1. It never fails.
func EventEventsToCore(obj object.Value) (object.Value, error) {
	members := append(renamed(obj, eventsEventNames),
		object.Member{Key: "apiVersion", Value: object.StringOf("v1")},
		object.Member{Key: "reportingComponent", Value: object.StringOf(obj.At("reportingController").Str())},
		object.Member{Key: "reportingInstance", Value: object.StringOf(obj.At("reportingInstance").Str())})
	if series, ok := obj.Get("series"); ok {
		if series.At("count").Int() == 0 {
			series = series.Without("count")
		}
		members = append(members, object.Member{Key: "series", Value: series})
	}
	return object.MapOf(members...), nil
}

func appendNonEmpty(members []object.Member, key string, text object.Value) []object.Member {
	if text.Len() == 0 {
		return members
	}
	return append(members, object.Member{Key: key, Value: text})
}
