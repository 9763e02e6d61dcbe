package kind

import (
	"slices"
	"strconv"
	"time"

	"plinth/object"
)

// Spec is the spec of a plane.
type Spec struct {
	From     From // the zero From: it begins with the objects of a new server
	ReadOnly bool
	Weight   int32
	Limits   Limits
}

// From names the plane with which another one begins. ResourceVersion is "" if that is as it was at the create.
type From struct{ Name, ResourceVersion string }

// Unlimited is a limit that is not set.
const Unlimited = -1

// Limits are those of a plane; Unlimited: there is none.
type Limits struct {
	Objects, Bytes int64
	Requests       int32
}

// SpecOf reads the spec of a stored plane.
func SpecOf(obj object.Value) Spec {
	spec := obj.At("spec")
	from, limits := spec.At("from"), spec.At("limits")
	s := Spec{
		From:     From{from.At("name").Str(), from.At("resourceVersion").Str()},
		ReadOnly: spec.At("readOnly").Bool(), Weight: int32(max(spec.At("weight").Int(), 1)),
		Limits: Limits{Objects: Unlimited, Bytes: Unlimited, Requests: Unlimited},
	}
	if v := limits.At("objects"); !v.IsNull() {
		s.Limits.Objects = v.Int()
	}
	if v := limits.At("requests"); !v.IsNull() {
		s.Limits.Requests = int32(v.Int())
	}
	if v := limits.At("bytes"); !v.IsNull() {
		q, _ := quantityOf(v) // it was validated
		s.Limits.Bytes = q.Value()
	}
	return s
}

// OriginOf reads from the status of a stored plane what it has begun with.
func OriginOf(obj object.Value) (o Origin, err error) {
	from := obj.At("status", "origin")
	o.UID = from.At("uid").Str()
	o.Revision, err = strconv.ParseInt(from.At("resourceVersion").Str(), 10, 64)
	return o, err
}

// Usage is what a plane has and costs, for its status.
type Usage struct {
	Objects, Bytes int64
	Requests       int64 // since the server started
	Memory         int64 // that belongs to it alone
}

// WithUsage is a status with what a plane has and costs.
func WithUsage(status object.Value, u Usage) object.Value {
	return status.With("objects", object.IntOf(u.Objects)).With("bytes", object.IntOf(u.Bytes)).
		With("requests", object.IntOf(u.Requests)).With("memoryBytes", object.IntOf(u.Memory))
}

// UsageOf is what WithUsage has set in a status.
func UsageOf(status object.Value) Usage {
	return Usage{Objects: status.At("objects").Int(), Bytes: status.At("bytes").Int(),
		Requests: status.At("requests").Int(), Memory: status.At("memoryBytes").Int()}
}

// Condition is a condition of a plane, without the time of its last transition.
type Condition struct {
	Type, Status, Reason, Message string
	Generation                    int64 // of the plane that it was judged by; 0: of any
}

// WithCondition is a status with a condition, in the place of the one of its type. The time of the last transition is
// now if the condition is new or has another status.
func WithCondition(status object.Value, c Condition, now time.Time) object.Value {
	all := status.At("conditions").Items()
	at, since := len(all), timeOf(now)
	for i, other := range all {
		if other.At("type").Str() != c.Type {
			continue
		}
		if at = i; other.At("status").Str() == c.Status {
			since = other.At("lastTransitionTime")
		}
	}
	v := object.Fields("type", object.StringOf(c.Type), "status", object.StringOf(c.Status), "reason",
		object.StringOf(c.Reason), "message", object.StringOf(c.Message), "lastTransitionTime", since)
	if c.Generation != 0 {
		v = v.With("observedGeneration", object.IntOf(c.Generation))
	}
	changed := slices.Clone(all)
	if at == len(all) {
		changed = append(changed, v)
	} else {
		changed[at] = v
	}
	return status.With("conditions", object.ListOf(changed...))
}
