package builtin

import (
	"time"

	"plinth/internal/features"
	"plinth/object"
)

// phase returns the initial status with this phase.
func phase(name string) func(obj, empty object.Value) object.Value {
	return func(_, empty object.Value) object.Value { return empty.With("phase", object.StringOf(name)) }
}

// volumePending is the status of a new PersistentVolume.
func volumePending(obj, empty object.Value) object.Value {
	return empty.Edit([]object.Member{
		{Key: "phase", Value: object.StringOf("Pending")},
		{Key: "lastPhaseTransitionTime", Value: obj.At("metadata", "creationTimestamp")},
	})
}

// volumePhase sets lastPhaseTransitionTime when the phase of a PersistentVolume changes, and keeps it when the writer
// leaves it out.
func volumePhase(now func() time.Time) func(obj, old object.Value) object.Value {
	const key = "lastPhaseTransitionTime"
	return func(obj, old object.Value) object.Value {
		before, current := old.At("status", key), obj.At("status", key)
		same := old.At("status", "phase").Str() == obj.At("status", "phase").Str()
		switch {
		case same && current.IsNull() && !before.IsNull():
			return obj.WithAt(before, "status", key)
		case !same && (current.IsNull() || object.Equal(current, before)):
			return obj.WithAt(object.StringOf(now().UTC().Format(time.RFC3339)), "status", key)
		}
		return obj
	}
}

// claimSource reconciles the two ways in which a PersistentVolumeClaim names its data source: dataSource, which takes
// claims and snapshots only and ignores everything else, and dataSourceRef.
func (c *Config) claimSource(obj object.Value) object.Value {
	spec := obj.At("spec")
	source, ref := spec.At("dataSource"), spec.At("dataSourceRef")
	if ref.At("namespace").Str() != "" && !c.Features.On(features.CrossNamespaceVolumeDataSource) {
		spec, ref = spec.Without("dataSourceRef"), object.Nil
	}
	if ref.IsNull() && !source.IsNull() && !claimOrSnapshot(source) {
		spec, source = spec.Without("dataSource"), object.Nil
	}
	return obj.With("spec", bothSources(spec, source, ref))
}

// claimSourceUpdate is claimSource for a claim that may have had a data source before.
func (c *Config) claimSourceUpdate(obj, old object.Value) object.Value {
	before := old.At("spec")
	if before.At("dataSource").IsNull() && before.At("dataSourceRef").IsNull() {
		return c.claimSource(obj)
	}
	spec := obj.At("spec")
	source, ref := spec.At("dataSource"), spec.At("dataSourceRef")
	if before.At("dataSourceRef").IsNull() && ref.At("namespace").Str() != "" &&
		!c.Features.On(features.CrossNamespaceVolumeDataSource) {
		spec, ref = spec.Without("dataSourceRef"), object.Nil
	}
	return obj.With("spec", bothSources(spec, source, ref))
}

func claimOrSnapshot(source object.Value) bool {
	group := source.At("apiGroup").Str()
	switch source.At("kind").Str() {
	case "PersistentVolumeClaim":
		return group == ""
	case "VolumeSnapshot":
		return group == "snapshot.storage.k8s.io"
	}
	return false
}

// bothSources sets each of the two data sources from the other if it is missing.
func bothSources(spec, source, ref object.Value) object.Value {
	switch {
	case !source.IsNull() && ref.IsNull():
		return spec.With("dataSourceRef", source)
	case source.IsNull() && !ref.IsNull() && ref.At("namespace").Len() == 0:
		return spec.With("dataSource", ref.Without("namespace"))
	}
	return spec
}
