package defaults

import "plinth/object"

var quarter = object.StringOf("25%")

// Deployment defaults a Deployment.
func Deployment(obj object.Value) object.Value { return partOf(obj, "spec", deploymentSpec) }

func deploymentSpec(spec object.Value) object.Value {
	w := over(spec)
	w.pointer("progressDeadlineSeconds", object.IntOf(600))
	w.pointer("replicas", one)
	w.pointer("revisionHistoryLimit", object.IntOf(10))
	w.part("strategy", deploymentStrategy)
	w.part("template", podTemplateSpec)
	return w.done()
}

func deploymentStrategy(strategy object.Value) object.Value {
	return rollingByDefault(strategy, deploymentRollingUpdate)
}

func deploymentRollingUpdate(update object.Value) object.Value {
	w := over(update)
	w.pointer("maxSurge", quarter)
	w.pointer("maxUnavailable", quarter)
	return w.done()
}

// rollingByDefault sets the type of a strategy to RollingUpdate, and the parameters of a rolling update.
func rollingByDefault(strategy object.Value, rollingUpdate func(object.Value) object.Value) object.Value {
	kind := strategy.At("type").Str()
	w := over(strategy)
	if kind == "" || kind == "RollingUpdate" {
		w.part("rollingUpdate", rollingUpdate)
	}
	w.text("type", "RollingUpdate")
	return w.done()
}

// DaemonSet defaults a DaemonSet.
func DaemonSet(obj object.Value) object.Value { return partOf(obj, "spec", daemonSetSpec) }

func daemonSetSpec(spec object.Value) object.Value {
	w := over(spec)
	w.pointer("revisionHistoryLimit", object.IntOf(10))
	w.part("template", podTemplateSpec)
	w.part("updateStrategy", daemonSetUpdateStrategy)
	return w.done()
}

func daemonSetUpdateStrategy(strategy object.Value) object.Value {
	return rollingByDefault(strategy, daemonSetRollingUpdate)
}

func daemonSetRollingUpdate(update object.Value) object.Value {
	w := over(update)
	w.pointer("maxSurge", zero)
	w.pointer("maxUnavailable", one)
	return w.done()
}

// ReplicaSet defaults a ReplicaSet.
func ReplicaSet(obj object.Value) object.Value { return partOf(obj, "spec", replicaSetSpec) }

func replicaSetSpec(spec object.Value) object.Value {
	w := over(spec)
	w.pointer("replicas", one)
	w.part("template", podTemplateSpec)
	return w.done()
}

// StatefulSet defaults a StatefulSet.
func StatefulSet(obj object.Value) object.Value { return partOf(obj, "spec", statefulSetSpec) }

func statefulSetSpec(spec object.Value) object.Value {
	w := over(spec)
	w.part("persistentVolumeClaimRetentionPolicy", retentionPolicy)
	w.text("podManagementPolicy", "OrderedReady")
	w.pointer("replicas", one)
	w.pointer("revisionHistoryLimit", object.IntOf(10))
	w.part("template", podTemplateSpec)
	w.part("updateStrategy", statefulSetUpdateStrategy)
	w.list("volumeClaimTemplates", PersistentVolumeClaim)
	return w.done()
}

func retentionPolicy(policy object.Value) object.Value {
	w := over(policy)
	w.text("whenDeleted", "Retain")
	w.text("whenScaled", "Retain")
	return w.done()
}

// statefulSetUpdateStrategy sets a rolling update. Unlike for a Deployment, rollingUpdate is added only if no type is
// given.
func statefulSetUpdateStrategy(strategy object.Value) object.Value {
	kind := strategy.At("type").Str()
	w := over(strategy)
	switch kind {
	case "":
		w.part("rollingUpdate", statefulSetRollingUpdate)
	case "RollingUpdate":
		w.optional("rollingUpdate", statefulSetRollingUpdate)
	}
	w.text("type", "RollingUpdate")
	return w.done()
}

func statefulSetRollingUpdate(update object.Value) object.Value {
	w := over(update)
	w.pointer("maxUnavailable", one)
	w.pointer("partition", zero)
	return w.done()
}
