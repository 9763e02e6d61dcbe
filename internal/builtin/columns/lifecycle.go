package columns

import (
	"fmt"
	"slices"
	"strings"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"plinth/internal/engine"
	"plinth/object"
)

// lifecycle.k8s.io
var (
	EvictionRequests = of(name,
		str("Target", doc[lifecyclev1alpha1.EvictionRequestSpec]("target"), evictionTarget),
		str("Target Type", doc[lifecyclev1alpha1.EvictionRequestSpec]("target"), evictionTargetType),
		str("Status", doc[lifecyclev1alpha1.EvictionRequestStatus]("conditions"), evictionStatus),
		str("Requester", doc[lifecyclev1alpha1.EvictionRequestSpec]("requester"), text("spec", "requester")),
		str("Intent", doc[lifecyclev1alpha1.EvictionRequestSpec]("intent"), text("spec", "intent")),
		age)

	Evictions = of(name,
		str("Target", doc[lifecyclev1alpha1.EvictionSpec]("target"), evictionTarget),
		str("Target Type", doc[lifecyclev1alpha1.EvictionSpec]("target"), evictionTargetType),
		str("Status", doc[lifecyclev1alpha1.EvictionStatus]("conditions"), evictionStatus),
		str("Active Responder", doc[lifecyclev1alpha1.TargetResponder]("state"), activeResponder),
		str("Responder Status", doc[lifecyclev1alpha1.ResponderStatus](""), responderStatus),
		str("Responder Expected Finish", doc[lifecyclev1alpha1.ResponderStatus]("expectedCompletionTime"),
			expectedFinish),
		str("Requesters", doc[lifecyclev1alpha1.EvictionStatus]("requesters"), requesters),
		age,
		wide(str("Responder Heartbeat", doc[lifecyclev1alpha1.ResponderStatus]("heartbeatTime"), heartbeat)),
		wide(str("Responder Status Message", doc[lifecyclev1alpha1.ResponderStatus]("message"), responderMessage)))
)

func evictionTarget(obj object.Value) any {
	if pod := obj.At("spec", "target", "pod"); !pod.IsNull() {
		return pod.At("name").Str()
	}
	return unset
}

func evictionTargetType(obj object.Value) any {
	if has := !obj.At("spec", "target", "pod").IsNull(); has {
		return "Pod"
	}
	return unset
}

func evictionStatus(obj object.Value) any {
	status := obj.At("status")
	for _, kind := range [...]string{"TargetEvicted", "Failed"} {
		if c, ok := condition(status.At("conditions"), kind); ok && isTrue(c) {
			return kind + " (" + c.At("reason").Str() + ")"
		}
	}
	if status.At("observedGeneration").Int() > 0 {
		return "Progressing"
	}
	return "Pending"
}

// responder is the responder of an Eviction that is shown: the last active one, or else the last that has finished;
// null if there is none. It is among count responders that are active or have finished.
func responder(obj object.Value) (responder object.Value, count int) {
	active := false
	for _, r := range obj.At("status", "targetResponders").Items() {
		switch r.At("state").Str() {
		case "Active":
			responder, active = r, true
			count++
		case "Canceled", "Interrupted", "Completed":
			if count++; !active {
				responder = r
			}
		}
	}
	return responder, count
}

func activeResponder(obj object.Value) any {
	r, count := responder(obj)
	who := unset
	if !r.IsNull() {
		who = r.At("name").Str()
	}
	return fmt.Sprintf("%s (%d/%d)", who, count, obj.At("status", "targetResponders").Len())
}

// reported is what the responder that is shown has reported, with its state; null and "" if it has reported nothing.
func reported(obj object.Value) (report object.Value, state string) {
	r, _ := responder(obj)
	if r.IsNull() {
		return object.Nil, ""
	}
	for _, status := range obj.At("status", "responders").Items() {
		if status.At("name").Str() == r.At("name").Str() {
			return status, r.At("state").Str()
		}
	}
	return object.Nil, ""
}

func responderStatus(obj object.Value) any {
	report, state := reported(obj)
	started, completed := at(report.At("startTime")), at(report.At("completionTime"))
	switch {
	case report.IsNull():
		return unset
	case state == "Active" && !report.At("startTime").IsNull():
		return engine.Age{Before: "Started (", Since: started, After: " ago)"}
	case state == "Completed" && !report.At("completionTime").IsNull():
		return engine.Age{Before: state + " (", Since: completed, After: " ago)"}
	}
	return state
}

func expectedFinish(obj object.Value) any {
	report, state := reported(obj)
	switch {
	case report.IsNull():
		return unknown
	case state != "Active":
		return "-"
	case report.At("startTime").IsNull() || report.At("expectedCompletionTime").IsNull():
		return unknown
	}
	return engine.Age{Since: at(report.At("expectedCompletionTime")), Due: true}
}

func heartbeat(obj object.Value) any {
	report, _ := reported(obj)
	if report.At("heartbeatTime").IsNull() {
		return unset
	}
	return engine.Age{Since: at(report.At("heartbeatTime")), After: " ago"}
}

func responderMessage(obj object.Value) any {
	report, _ := reported(obj)
	return or(strings.TrimSpace(report.At("message").Str()), unset)
}

// requesters is the first of those that still want the eviction, and how many more there are.
func requesters(obj object.Value) any {
	all := obj.At("status", "requesters").Items()
	var names []string
	for _, r := range all {
		if r.At("intent").Str() != "Withdrawn" {
			names = append(names, r.At("name").Str())
		}
	}
	slices.Sort(names)
	switch {
	case len(names) > 0:
		return more(names[:1], 1, len(names))
	case len(all) > 0:
		return "<withdrawn>"
	}
	return none
}
