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

// backoffLimit bounds the retries of the whole job, or leaves that to the bound per index.
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

// CronJob defaults a CronJob. What is left open in its template of a Job is filled in when a Job is made of it.
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
