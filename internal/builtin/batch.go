package builtin

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
	"plinth/object"
)

func batch() group {
	return group{"batch", []kind{
		{
			name: "cronjobs", kind: "CronJob", short: "cj", categories: []string{"all"},
			defaults: defaults.CronJob, rules: validation.CronJob, warnings: warnings.CronJob,
			untouched: statusApart,
			versions:  []version{of[batchv1.CronJob, batchv1.CronJobList]()},
			status:    statusAndMeta, generation: spec,
			gated: append(podGates("spec.jobTemplate.spec.template.spec"),
				below("spec.jobTemplate.spec", behind(features.WorkloadWithJob, "scheduling"))),
			table: columns.CronJobs,
		},
		{
			name: "jobs", kind: "Job", categories: []string{"all"},
			versions: []version{of[batchv1.Job, batchv1.JobList]()},
			defaults: defaults.Job, rules: validation.Job, warnings: warnings.Job,
			untouched: statusApart,
			status:    statusAndMeta, onCreate: newJob, generation: spec,
			gated: append(podGates("spec.template.spec"),
				below("spec", behind(features.WorkloadWithJob, "scheduling"), behind(features.JobManagedBy, "managedBy"))),
			fields:       []selectable{number("status.successful", "status", "succeeded")},
			unknownField: func(name string) string { return fmt.Sprintf("field label %q not supported for Job", name) },
			table:        columns.Jobs, propagation: orphans,
		},
	}}
}

// newJob sets the selector of a Job, and its labels to those of its Pods if it has none.
func newJob(obj object.Value) object.Value {
	obj = selectOwnPods(obj)
	if labels := obj.At("spec", "template", "metadata", "labels"); labels.Len() > 0 &&
		obj.At("metadata", "labels").Len() == 0 {
		obj = obj.WithAt(labels, "metadata", "labels")
	}
	return obj
}

// selectOwnPods sets a selector that is unique to the Job, by its UID, and adds the labels for it to its Pods, unless
// the Job has a manual selector. Each label is added under its name with a domain and under its older name without one.
func selectOwnPods(obj object.Value) object.Value {
	if obj.At("spec", "manualSelector").Bool() {
		return obj
	}
	name, uid := obj.At("metadata", "name"), obj.At("metadata", "uid")
	labels := obj.At("spec", "template", "metadata", "labels")
	for _, l := range []object.Member{
		{Key: "job-name", Value: name}, {Key: batchv1.JobNameLabel, Value: name},
		{Key: "controller-uid", Value: uid}, {Key: batchv1.ControllerUidLabel, Value: uid},
	} {
		if _, has := labels.Get(l.Key); !has {
			labels = labels.With(l.Key, l.Value)
		}
	}
	obj = obj.WithAt(labels, "spec", "template", "metadata", "labels")
	if _, has := obj.At("spec", "selector", "matchLabels").Get(batchv1.ControllerUidLabel); !has {
		obj = obj.WithAt(uid, "spec", "selector", "matchLabels", batchv1.ControllerUidLabel)
	}
	return obj
}
