package validation

import (
	"fmt"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has the rules of Events, which two groups serve in two forms.

// eventTextLimits are the maximum lengths of the texts of an Event.
var eventTextLimits = []struct {
	key   string
	limit int
}{{"reportingInstance", 128}, {"action", 128}, {"reason", 128}}

const maxNote = 1024

// eventNames are the names of the members of an Event in a version.
type eventNames struct{ object, controller, note string }

var (
	coreEvent   = eventNames{"involvedObject", "reportingComponent", "message"}
	eventsEvent = eventNames{"regarding", "reportingController", "note"}
)

// event checks the fields that Events of both groups have.
func (f *errorList) event(obj object.Value, names eventNames) {
	var root *fielderrors.Location
	namespace, involved := text(obj.At("metadata"), "namespace"), text(obj.At(names.object), "namespace")
	timed := has(obj, "eventTime")
	elsewhere := namespace != involved
	if involved == "" {
		elsewhere = namespace != "" && namespace != "default" && (!timed || namespace != "kube-system")
	} else if timed {
		elsewhere = false
	}
	if elsewhere {
		f.Invalid(root.To("involvedObject").To("namespace"), involved, "does not match event.namespace")
	}
	if !timed {
		return
	}
	controller := text(obj, names.controller)
	f.requiredText(root.To(names.controller), controller)
	f.qualified(root.To(names.controller), controller)
	for _, limited := range eventTextLimits {
		value := text(obj, limited.key)
		f.requiredText(root.To(limited.key), value)
		if len(value) > limited.limit {
			f.Invalid(root.To(limited.key), "", fmt.Sprintf("can have at most %v characters", limited.limit))
		}
	}
	if length(obj, names.note) > maxNote {
		f.Invalid(root.To("message"), "", fmt.Sprintf("can have at most %v characters", maxNote))
	}
}

var coreEventKind = Kind{
	create: func(f *errorList, obj object.Value) { f.event(obj, coreEvent) },
	update: func(f *errorList, obj, _ object.Value) { f.event(obj, coreEvent) },
}

var eventsEventKind = Kind{create: eventCreate, update: eventUpdate}

func eventCreate(f *errorList, obj object.Value) {
	var root *fielderrors.Location
	f.qualifiedFinalizers(obj)
	f.event(obj, eventsEvent)
	f.eventSeries(obj)
	if !has(obj, "eventTime") {
		f.Required(root.To("eventTime"), "")
	}
	if kind := text(obj, "type"); kind != "Normal" && kind != "Warning" {
		f.Invalid(root.To("type"), "", "has invalid value: "+kind)
	}
	unset := func(key string, set bool) {
		if set {
			f.Invalid(root.To(key), "", "needs to be unset")
		}
	}
	unset("firstTimestamp", has(obj, "deprecatedFirstTimestamp"))
	unset("lastTimestamp", has(obj, "deprecatedLastTimestamp"))
	unset("count", number(obj, "deprecatedCount") != 0)
	source := obj.At("deprecatedSource")
	unset("source", text(source, "component") != "" || text(source, "host") != "")
}

func (f *errorList) eventSeries(obj object.Value) {
	series := obj.At("series")
	if series.IsNull() {
		return
	}
	var root *fielderrors.Location
	if number(series, "count") < 2 {
		f.Invalid(root.To("series.count"), "", "should be at least 2")
	}
	if !has(series, "lastObservedTime") {
		f.Required(root.To("series.lastObservedTime"), "")
	}
}

// eventConstant is an immutable member of an Event of events.k8s.io: its name, its name in the reference's errors, and
// the value that these print.
type eventConstant struct {
	member, name string
	form         func(now object.Value) any
}

var (
	objectRefFields = []goField{{name: "Kind", member: "kind", zero: `""`}, {name: "Namespace", member: "namespace",
		zero: `""`},
		{name: "Name", member: "name", zero: `""`}, {name: "UID", member: "uid", zero: `""`},
		{name: "APIVersion", member: "apiVersion", zero: `""`},
		{name: "ResourceVersion", member: "resourceVersion", zero: `""`}, {name: "FieldPath", member: "fieldPath",
			zero: `""`}}
	eventSourceFields = []goField{{name: "Component", member: "component", zero: `""`},
		{name: "Host", member: "host", zero: `""`}}
)

func eventConstants() []eventConstant {
	words := func(now object.Value) any { return now.Str() }
	count := func(now object.Value) any { return now.Int() }
	as := func(fields []goField) func(object.Value) any {
		return func(now object.Value) any { return goForm{now, fields} }
	}
	shown := func(now object.Value) any { return fielderrors.Show(now) }
	return []eventConstant{
		{"regarding", "involvedObject", as(objectRefFields)},
		{"reason", "reason", words},
		{"note", "message", words},
		{"deprecatedSource", "source", as(eventSourceFields)},
		{"deprecatedFirstTimestamp", "firstTimestamp", shown},
		{"deprecatedLastTimestamp", "lastTimestamp", shown},
		{"deprecatedCount", "count", count},
		{"type", "type", words},
		{"eventTime", "eventTime", shown},
		{"action", "action", words},
		{"related", "related", as(objectRefFields)},
		{"reportingController", "reportingController", words},
		{"reportingInstance", "reportingInstance", words},
	}
}

func eventUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.event(obj, eventsEvent)
	if !object.Equal(obj.At("series"), old.At("series")) {
		f.eventSeries(obj)
	}
	for _, constant := range eventConstants() {
		now, before := obj.At(constant.member), old.At(constant.member)
		if !object.Equal(now, before) {
			f.Invalid((*fielderrors.Location)(nil).To(constant.name), constant.form(now), fielderrors.Immutable)
		}
	}
}
