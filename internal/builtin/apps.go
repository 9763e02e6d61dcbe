package builtin

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
	"plinth/object"
)

func apps() group {
	return group{"apps", []kind{
		{
			name: "controllerrevisions", kind: "ControllerRevision",
			versions: []version{of[appsv1.ControllerRevision, appsv1.ControllerRevisionList]()},
			rules:    validation.ControllerRevision,
			table:    columns.ControllerRevisions,
		},
		{
			alias: daemonSetAliases,
			name:  "daemonsets", kind: "DaemonSet", short: "ds", categories: []string{"all"},
			defaults: defaults.DaemonSet, rules: validation.DaemonSet, warnings: warnings.DaemonSet,
			untouched: statusApart,
			versions:  []version{of[appsv1.DaemonSet, appsv1.DaemonSetList]()},
			status:    statusAndMeta, onCreate: newDaemonSet, onUpdate: countTemplate, onStatus: keepTemplateCount,
			gated: podGates("spec.template.spec"), generation: spec,
			table: columns.DaemonSets,
		},
		{
			name: "deployments", kind: "Deployment", short: "deploy", categories: []string{"all"},
			defaults: defaults.Deployment, rules: validation.Deployment, warnings: warnings.Deployment,
			untouched: map[string]string{"": "status", "status": "spec metadata.labels"},
			versions:  []version{of[appsv1.Deployment, appsv1.DeploymentList]()},
			alias:     deploymentAliases,
			status:    statusNotLabels, onStatus: keepRollback, gated: podGates("spec.template.spec"),
			gatedStatus: terminatingReplicas(),
			generation:  specAndAnnotations,
			table:       columns.Deployments, blank: noReplicas,
			scale: selectorOf,
		},
		{
			name: "replicasets", kind: "ReplicaSet", short: "rs", categories: []string{"all"},
			defaults: defaults.ReplicaSet, rules: validation.ReplicaSet, warnings: warnings.ReplicaSet,
			untouched: statusApart,
			versions:  []version{of[appsv1.ReplicaSet, appsv1.ReplicaSetList]()},
			status:    statusAndMeta, gated: podGates("spec.template.spec"), generation: spec,
			gatedStatus: terminatingReplicas(), table: columns.ReplicaSets, blank: noReplicas,
			scale: selectorOf,
		},
		{
			name: "statefulsets", kind: "StatefulSet", short: "sts", categories: []string{"all"},
			defaults: defaults.StatefulSet, rules: validation.StatefulSet, warnings: warnings.StatefulSet,
			untouched: statusApart,
			versions:  []version{of[appsv1.StatefulSet, appsv1.StatefulSetList]()},
			naming:    label, alias: statefulSetAliases,
			status: statusAndMeta,
			gated: append(podGates("spec.template.spec"), below("spec.updateStrategy.rollingUpdate",
				behind(features.MaxUnavailableStatefulSet, "maxUnavailable"))),
			generation: spec,
			table:      columns.StatefulSets, blank: noReplicas,
			scale: selectorOf,
		},
	}}
}

// terminatingReplicas is the field of the status of Deployments and ReplicaSets that belongs to a feature.
func terminatingReplicas() []gated {
	return []gated{below("status", behind(features.DeploymentReplicaSetTerminatingReplicas, "terminatingReplicas"))}
}

// noReplicas returns the blank object of bookmarks (engine.Resource) with the number of replicas, 0, which the
// reference always writes.
func noReplicas(zero object.Value) object.Value {
	return zero.WithAt(object.IntOf(0), "spec", "replicas")
}

// specAndAnnotations is the generation of Deployments: annotations count, as their controller copies them to
// ReplicaSets.
func specAndAnnotations(obj object.Value) object.Value {
	annotations := obj.At("metadata", "annotations")
	if annotations.Len() == 0 {
		annotations = object.Nil
	}
	return object.ListOf(obj.At("spec"), annotations)
}

// rolling sets the numbers of rollingUpdate to 0 if the update strategy is of another type, for which the reference has
// no defaults and writes zeros.
func rolling(strategy string, numbers ...string) func(obj object.Value) object.Value {
	return func(obj object.Value) object.Value {
		update := obj.At("spec", strategy, "rollingUpdate")
		if typ := obj.At("spec", strategy, "type").Str(); update.IsNull() || typ == "" || typ == "RollingUpdate" {
			return obj
		}
		for _, key := range numbers {
			if update.At(key).IsNull() {
				update = update.With(key, object.IntOf(0))
			}
		}
		return obj.WithAt(update, "spec", strategy, "rollingUpdate")
	}
}

// rollbackTo is the annotation that holds spec.rollbackTo of older API versions: the revision to roll back to.
const rollbackTo = appsv1.DeprecatedRollbackTo

var rollingDeployment = rolling("strategy", "maxSurge", "maxUnavailable")

func deploymentAliases(obj object.Value) object.Value {
	if revision, has := obj.At("metadata", "annotations").Get(rollbackTo); has && revision.Len() == 0 {
		obj = obj.WithoutAt("metadata", "annotations", rollbackTo)
	}
	return rollingDeployment(obj)
}

// keepRollback keeps that annotation in a write to the status, as it stands for a field of the spec.
func keepRollback(obj, old object.Value) object.Value {
	if revision, has := old.At("metadata", "annotations").Get(rollbackTo); has {
		return obj.WithAt(revision, "metadata", "annotations", rollbackTo)
	}
	return obj.WithoutAt("metadata", "annotations", rollbackTo)
}

// templateGeneration is the annotation that counts the changes of a DaemonSet's template; it was a field in older API
// versions.
const templateGeneration = appsv1.DeprecatedTemplateGeneration

var rollingDaemonSet = rolling("updateStrategy", "maxSurge", "maxUnavailable")

// daemonSetAliases adds the annotation to every DaemonSet, as the field was always there. So the writer owns it.
func daemonSetAliases(obj object.Value) object.Value {
	count, _ := strconv.ParseInt(obj.At("metadata", "annotations", templateGeneration).Str(), 10, 64)
	return rollingDaemonSet(withTemplateCount(obj, count))
}

// newDaemonSet sets the count of template changes to 1, unless the client sends a greater one.
func newDaemonSet(obj object.Value) object.Value {
	count, _ := strconv.ParseInt(obj.At("metadata", "annotations", templateGeneration).Str(), 10, 64)
	return withTemplateCount(obj, max(count, 1))
}

// countTemplate increments the count when an update changes the template. Clients cannot set it.
func countTemplate(obj, old object.Value) object.Value {
	count, _ := strconv.ParseInt(old.At("metadata", "annotations", templateGeneration).Str(), 10, 64)
	if !object.Equal(obj.At("spec", "template"), old.At("spec", "template")) {
		count++
	}
	return withTemplateCount(obj, count)
}

// keepTemplateCount keeps the count in a write to the status.
func keepTemplateCount(obj, old object.Value) object.Value {
	count, _ := strconv.ParseInt(old.At("metadata", "annotations", templateGeneration).Str(), 10, 64)
	return withTemplateCount(obj, count)
}

func withTemplateCount(obj object.Value, count int64) object.Value {
	return obj.WithAt(object.StringOf(strconv.FormatInt(count, 10)), "metadata", "annotations", templateGeneration)
}

var rollingStatefulSet = rolling("updateStrategy", "partition")

// statefulSetAliases adds kind and apiVersion to the claim templates before ownership is computed, so that omitting
// them is not a change.
func statefulSetAliases(obj object.Value) object.Value { return rollingStatefulSet(typeClaims(obj)) }

// typeClaims adds kind and apiVersion to the claim templates of a StatefulSet, as the reference does. Other embedded
// objects have neither.
func typeClaims(obj object.Value) object.Value {
	templates := obj.At("spec", "volumeClaimTemplates")
	if templates.Len() == 0 {
		return obj
	}
	for i, t := range templates.Items() {
		templates = templates.WithItem(i, t.Edit([]object.Member{
			{Key: "apiVersion", Value: object.StringOf("v1")},
			{Key: "kind", Value: object.StringOf("PersistentVolumeClaim")},
		}))
	}
	return obj.WithAt(templates, "spec", "volumeClaimTemplates")
}
