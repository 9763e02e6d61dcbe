package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has the rules of ResourcePoolStatusRequests. Nearly all of them are generated in the reference.

// The limits of a request and of its answer.
const (
	maxPoolLimit       = 1000
	maxAnsweredPools   = 1000
	maxPoolError       = 256
	maxPoolConditions  = 10
	maxPoolPartitions  = 32
	maxPoolCapacities  = 32
	poolsBeyondMaximum = "must be less than or equal to 1000"
)

func poolRequestCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	spec, p := obj.At("spec"), (*fielderrors.Location)(nil).To("spec")
	f.caselessName(text(spec, "driver"), p.To("driver"))
	if has(spec, "poolName") {
		f.declaredPoolSegments(p.To("poolName"), text(spec, "poolName"))
	}
	f.poolLimit(spec.At("limit"), p.To("limit"))
	if attribute := spec.At("defaultPartitionTypeAttribute"); !attribute.IsNull() {
		f.declaredAttributeName(attribute.Str(), p.To("defaultPartitionTypeAttribute"))
	}
}

func poolRequestUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.fixed(obj, old, "spec")
}

// poolRequestStatus checks an answer. There is one only: the status cannot change once it is there.
func poolRequestStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	status, before, p := obj.At("status"), old.At("status"), (*fielderrors.Location)(nil).To("status")
	answered := !before.IsNull()
	if same(status, before) {
		return
	}
	if answered {
		f.Invalid(p, goForm{status, poolAnswerFields}, fielderrors.Immutable)
	}
	if status.IsNull() {
		return
	}
	if !answered {
		f.conditions(status.At("conditions"), p.To("conditions"))
	}
	changed := func(key string) bool { return !answered || !same(status.At(key), before.At(key)) }
	if changed("poolCount") {
		f.requiredCount(status, "poolCount", p)
	}
	if pools, at := status.At("pools"), p.To("pools"); changed("pools") && !f.tooMany(pools, maxAnsweredPools, at) {
		for i, pool := range pools.Items() {
			f.poolStatus(pool, at.Item(i))
		}
	}
	if changed("conditions") {
		f.tooMany(status.At("conditions"), maxPoolConditions, p.To("conditions"))
	}
}

// caselessName demands a DNS subdomain that may have capital letters.
func (f *errorList) caselessName(name string, p *fielderrors.Location) {
	if name == "" {
		f.Required(p, "")
		return
	}
	f.Each(p, name, content.IsDNS1123SubdomainCaseless(name))
}

// poolLimit demands a number of pools. It has a default.
func (f *errorList) poolLimit(limit object.Value, p *fielderrors.Location) {
	if n := limit.Int(); n > maxPoolLimit {
		f.Invalid(p, n, poolsBeyondMaximum)
	} else {
		f.atLeast(limit, 1, p)
	}
}

// atLeast demands a minimum of a number, if there is one.
func (f *errorList) atLeast(v object.Value, low int64, p *fielderrors.Location) {
	if n := v.Int(); !v.IsNull() && n < low {
		f.Invalid(p, n, fmt.Sprintf("must be greater than or equal to %d", low))
	}
}

// requiredCount demands a member that counts something.
func (f *errorList) requiredCount(of object.Value, key string, p *fielderrors.Location) {
	if count := of.At(key); count.IsNull() {
		f.Required(p.To(key), "")
	} else {
		f.atLeast(count, 0, p.To(key))
	}
}

// poolStatus checks what is said of one pool.
func (f *errorList) poolStatus(pool object.Value, p *fielderrors.Location) {
	f.caselessName(text(pool, "driver"), p.To("driver"))
	f.declaredPoolName(p.To("poolName"), text(pool, "poolName"))
	if generation := pool.At("generation"); generation.Int() == 0 {
		f.Required(p.To("generation"), "")
	} else {
		f.atLeast(generation, 0, p.To("generation"))
	}
	f.atLeast(pool.At("resourceSliceCount"), 1, p.To("resourceSliceCount"))
	for _, key := range [...]string{"totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"} {
		f.atLeast(pool.At(key), 0, p.To(key))
	}
	if has(pool, "nodeName") {
		f.subdomain(p.To("nodeName"), text(pool, "nodeName"))
	}
	if length(pool, "validationError") > maxPoolError {
		f.TooLong(p.To("validationError"), maxPoolError)
	}
	f.poolPartitions(pool.At("partitionSummary"), p.To("partitionSummary"))
	if summary, p := pool.At("shareableSummary"), p.To("shareableSummary"); !summary.IsNull() {
		f.requiredCount(summary, "fullyAvailableDevices", p)
		f.requiredCount(summary, "partiallyAvailableDevices", p)
		f.poolCapacities(summary.At("capacity"), p.To("capacity"))
	}
}

// poolPartitions checks how many partitions of each type there are.
func (f *errorList) poolPartitions(partitions object.Value, p *fielderrors.Location) {
	if f.tooMany(partitions, maxPoolPartitions, p) {
		return
	}
	known := map[[2]string]bool{}
	for i, partition := range partitions.Items() {
		key := [2]string{text(partition, "attribute"), text(partition, "type")}
		if known[key] {
			f.Duplicate(p.Item(i), jsonForm{partition, members("attribute", "type", "total", "allocatable")})
		}
		known[key] = true
	}
	for i, partition := range partitions.Items() {
		p := p.Item(i)
		f.requiredText(p.To("attribute"), text(partition, "attribute"))
		f.requiredText(p.To("type"), text(partition, "type"))
		f.requiredCount(partition, "total", p)
		f.requiredCount(partition, "allocatable", p)
	}
}

// poolCapacities checks how much devices with several users have left.
func (f *errorList) poolCapacities(capacities object.Value, p *fielderrors.Location) {
	if f.tooMany(capacities, maxPoolCapacities, p) {
		return
	}
	for i, capacity := range capacities.Items() {
		p := p.Item(i)
		f.requiredText(p.To("name"), text(capacity, "name"))
		for _, key := range [...]string{"total", "consumed", "available"} {
			if !has(capacity, key) {
				f.Required(p.To(key), "")
			}
		}
	}
}

// The fields of an answer.
var (
	poolCapacityFields = []goField{{name: "Name", member: "name", zero: `""`}, {name: "Total", member: "total"},
		{name: "Consumed", member: "consumed"}, {name: "Available", member: "available"}}
	poolPartitionFields = []goField{{name: "Attribute", member: "attribute", zero: `""`},
		{name: "Type", member: "type", zero: `""`}, {name: "Total", member: "total"},
		{name: "Allocatable", member: "allocatable"}}
	poolFields = []goField{{name: "Driver", member: "driver", zero: `""`},
		{name: "PoolName", member: "poolName", zero: `""`}, {name: "Generation", member: "generation"},
		{name: "ResourceSliceCount", member: "resourceSliceCount"}, {name: "TotalDevices", member: "totalDevices"},
		{name: "AllocatedDevices", member: "allocatedDevices"},
		{name: "AvailableDevices", member: "availableDevices"},
		{name: "UnavailableDevices", member: "unavailableDevices"}, {name: "NodeName", member: "nodeName"},
		{name: "ValidationError", member: "validationError"},
		{name: "PartitionSummary", member: "partitionSummary", inner: poolPartitionFields},
		{name: "ShareableSummary", member: "shareableSummary", inner: []goField{
			{name: "FullyAvailableDevices", member: "fullyAvailableDevices"},
			{name: "PartiallyAvailableDevices", member: "partiallyAvailableDevices"},
			{name: "Capacity", member: "capacity", inner: poolCapacityFields}}}}
	poolAnswerFields = []goField{{name: "PoolCount", member: "poolCount"},
		{name: "Pools", member: "pools", inner: poolFields},
		{name: "Conditions", member: "conditions", order: []string{"type", "status", "observedGeneration",
			"lastTransitionTime", "reason", "message"}}}
)
