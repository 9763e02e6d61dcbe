package columns

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/object"
)

// CoreEvents and Events are the same table over the two versions of Events.
var (
	CoreEvents = eventTable("firstTimestamp", "lastTimestamp", "count", "involvedObject", "source",
		"reportingComponent", "reportingInstance", "message")

	Events = eventTable("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "regarding",
		"deprecatedSource", "reportingController", "reportingInstance", "note")
)

func eventTable(first, last, count, about, source, controller, instance, message string) Table {
	firstSeen := func(obj object.Value) any {
		if v := obj.At(first); !v.IsNull() {
			return ago(v)
		}
		return ago(obj.At("eventTime"))
	}
	return of(
		str("Last Seen", doc[corev1.Event]("lastTimestamp"), func(obj object.Value) any {
			if series := obj.At("series"); !series.IsNull() {
				return ago(series.At("lastObservedTime"))
			}
			if v := obj.At(last); !v.IsNull() {
				return ago(v)
			}
			return firstSeen(obj)
		}),
		str("Type", doc[corev1.Event]("type"), text("type")),
		str("Reason", doc[corev1.Event]("reason"), text("reason")),
		str("Object", doc[corev1.Event]("involvedObject"), func(obj object.Value) any {
			target := strings.ToLower(obj.At(about, "kind").Str())
			if name := obj.At(about, "name").Str(); name != "" {
				target += "/" + name
			}
			return target
		}),
		wide(str("Subobject", doc[corev1.ObjectReference]("fieldPath"), text(about, "fieldPath"))),
		wide(str("Source", doc[corev1.Event]("source"), func(obj object.Value) any {
			from := or(obj.At(source, "component").Str(), obj.At(controller).Str())
			if host := or(obj.At(source, "host").Str(), obj.At(instance).Str()); host != "" {
				from += ", " + host
			}
			return from
		})),
		str("Message", doc[corev1.Event]("message"), func(obj object.Value) any {
			return strings.TrimSpace(obj.At(message).Str())
		}),
		wide(str("First Seen", doc[corev1.Event]("firstTimestamp"), firstSeen)),
		wide(str("Count", doc[corev1.Event]("count"), func(obj object.Value) any {
			if series := obj.At("series"); !series.IsNull() {
				return series.At("count").Int()
			}
			if n := obj.At(count).Int(); n != 0 {
				return n
			}
			return int64(1)
		})),
		wide(isName(str("Name", doc[metav1.ObjectMeta]("name"), text("metadata", "name")))),
	)
}
