package defaults

import "plinth/object"

// Endpoints defaults an Endpoints object.
func Endpoints(obj object.Value) object.Value { return listOf(obj, "subsets", endpointSubset) }

func endpointSubset(subset object.Value) object.Value { return listOf(subset, "ports", endpointPort) }

func endpointPort(port object.Value) object.Value { return textOf(port, "protocol", "TCP") }

// LimitRange defaults a LimitRange.
func LimitRange(obj object.Value) object.Value { return partOf(obj, "spec", limitRangeSpec) }

func limitRangeSpec(spec object.Value) object.Value { return listOf(spec, "limits", limitRangeItem) }

func limitRangeItem(item object.Value) object.Value {
	w := over(item)
	w.part("default", resourceList)
	w.part("defaultRequest", resourceList)
	w.part("max", resourceList)
	w.part("maxLimitRequestRatio", resourceList)
	w.part("min", resourceList)
	rounded := w.done()
	if rounded.At("type").Str() == "Container" {
		return limitsOfContainers(rounded)
	}
	return rounded
}

// limitsOfContainers sets, per resource, the default to the maximum, and the default request to the default or else to
// the minimum.
func limitsOfContainers(item object.Value) object.Value {
	limits := item.At("default")
	filled := filledFrom(limits, item.At("max"))
	w := over(item)
	w.get("default")
	w.replace("default", limits, filled)
	requests := w.get("defaultRequest")
	w.replace("defaultRequest", requests, filledFrom(filledFrom(requests, filled), item.At("min")))
	return w.done()
}

// Namespace defaults a Namespace.
func Namespace(obj object.Value) object.Value {
	w := over(obj)
	w.part("metadata", nameLabel)
	w.part("status", namespaceStatus)
	return w.done()
}

// nameLabel sets the label with the name, by which selectors select a namespace. A namespace whose name is yet to be
// generated gets it later.
func nameLabel(metadata object.Value) object.Value {
	name := metadata.At("name")
	if name.Len() == 0 {
		return metadata
	}
	return partOf(metadata, "labels", func(labels object.Value) object.Value {
		const key = "kubernetes.io/metadata.name"
		w := over(labels)
		if w.get(key).Str() != name.Str() {
			w.set(key, name)
		}
		return w.done()
	})
}

func namespaceStatus(status object.Value) object.Value { return textOf(status, "phase", "Active") }

// Node defaults a Node.
func Node(obj object.Value) object.Value { return partOf(obj, "status", nodeStatus) }

// nodeStatus sets allocatable to the capacity, unless it is there, if only as an empty map: the reference drops that
// when it stores the Node, and sets the default when it reads it, after it has recorded what the writer owns.
func nodeStatus(status object.Value) object.Value {
	capacity := status.At("capacity")
	rounded := resourceList(capacity)
	w := over(status)
	if allocatable := w.get("allocatable"); !allocatable.IsNull() {
		w.replace("allocatable", allocatable, resourceList(allocatable))
	} else if capacity.Len() > 0 {
		w.set("allocatable", rounded)
	}
	w.get("capacity")
	w.replace("capacity", capacity, rounded)
	return w.done()
}

// ReplicationController defaults a ReplicationController.
func ReplicationController(obj object.Value) object.Value {
	labels := obj.At("spec", "template", "metadata", "labels")
	w := over(obj)
	w.part("metadata", func(metadata object.Value) object.Value { return labelsFrom(metadata, "labels", labels) })
	w.part("spec", func(spec object.Value) object.Value { return replicationControllerSpec(spec, labels) })
	return w.done()
}

func replicationControllerSpec(spec, labels object.Value) object.Value {
	spec = labelsFrom(spec, "selector", labels)
	w := over(spec)
	w.pointer("replicas", one)
	w.optional("template", podTemplateSpec)
	return w.done()
}

// labelsFrom sets a map of labels, or a selector, to these labels if it is empty.
func labelsFrom(m object.Value, key string, labels object.Value) object.Value {
	w := over(m)
	if labels.Len() > 0 && w.get(key).Len() == 0 {
		w.set(key, labels)
	}
	return w.done()
}

// ResourceQuota defaults a ResourceQuota.
func ResourceQuota(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", hard)
	w.part("status", resourceQuotaStatus)
	return w.done()
}

func hard(spec object.Value) object.Value { return partOf(spec, "hard", resourceList) }

func resourceQuotaStatus(status object.Value) object.Value {
	w := over(status)
	w.part("hard", resourceList)
	w.part("used", resourceList)
	return w.done()
}

// Secret defaults a Secret.
func Secret(obj object.Value) object.Value { return textOf(obj, "type", "Opaque") }
