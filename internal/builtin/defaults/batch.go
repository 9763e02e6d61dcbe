package defaults

import (
	"math"

	"plinth/object"
)

// Job defaults a Job.
func Job(obj object.Value) object.Value {
	labels := obj.At("spec", "template", "metadata", "labels")
	w := over(obj)
	w.part("metadata", func(metadata object.Value) object.Value { return labelsFrom(metadata, "labels", labels) })
	w.part("spec", jobSpec)
	return w.done()
}

func jobSpec(spec object.Value) object.Value {
	_, parallel := spec.Get("parallelism")
	_, failsByPolicy := spec.Get("podFailurePolicy")
	w := over(spec)
	backoffLimit(&w, spec)
	w.pointer("completionMode", object.StringOf("NonIndexed"))
	if !parallel { // with parallelism alone, a job is done when one of its Pods has succeeded
		w.pointer("completions", one)
	}
	w.pointer("manualSelector", no)
	w.pointer("parallelism", one)
	w.optional("podFailurePolicy", podFailurePolicy)
	if failsByPolicy {
		w.pointer("podReplacementPolicy", object.StringOf("Failed"))
	} else {
		w.pointer("podReplacementPolicy", object.StringOf("TerminatingOrFailed"))
	}
	w.pointer("suspend", no)
	w.part("template", podTemplateSpec)
	return w.done()
}

// backoffLimit sets the limit of retries; if there is a limit per index, to the greatest number.
func backoffLimit(w *walk, spec object.Value) {
	if _, perIndex := spec.Get("backoffLimitPerIndex"); perIndex {
		w.pointer("backoffLimit", object.IntOf(math.MaxInt32))
	} else {
		w.pointer("backoffLimit", object.IntOf(6))
	}
}

func podFailurePolicy(policy object.Value) object.Value {
	return listOf(policy, "rules", podFailurePolicyRule)
}

func podFailurePolicyRule(rule object.Value) object.Value {
	return listOf(rule, "onPodConditions", onPodCondition)
}

func onPodCondition(pattern object.Value) object.Value { return textOf(pattern, "status", "True") }

// CronJob defaults a CronJob. Of its Job template only the Pod template and podFailurePolicy are defaulted; the other
// defaults are set when a Job is created from it.
func CronJob(obj object.Value) object.Value { return partOf(obj, "spec", cronJobSpec) }

func cronJobSpec(spec object.Value) object.Value {
	w := over(spec)
	w.text("concurrencyPolicy", "Allow")
	w.pointer("failedJobsHistoryLimit", one)
	w.part("jobTemplate", jobTemplate)
	w.pointer("successfulJobsHistoryLimit", object.IntOf(3))
	w.pointer("suspend", no)
	return w.done()
}

func jobTemplate(template object.Value) object.Value {
	return partOf(template, "spec", jobTemplateSpec)
}

func jobTemplateSpec(spec object.Value) object.Value {
	w := over(spec)
	w.optional("podFailurePolicy", podFailurePolicy)
	w.part("template", podTemplateSpec)
	return w.done()
}
