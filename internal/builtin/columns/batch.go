package columns

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"plinth/internal/engine"
	"plinth/object"
)

// batch
var (
	CronJobs = of(name,
		str("Schedule", doc[batchv1.CronJobSpec]("schedule"), text("spec", "schedule")),
		str("Timezone", doc[batchv1.CronJobSpec]("timeZone"), presentOr(none, "spec", "timeZone")),
		boolean("Suspend", doc[batchv1.CronJobSpec]("suspend"), suspended),
		integer("Active", doc[batchv1.CronJobStatus]("active"), size("status", "active")),
		str("Last Schedule", doc[batchv1.CronJobStatus]("lastScheduleTime"), func(obj object.Value) any {
			if v := obj.At("status", "lastScheduleTime"); !v.IsNull() {
				return ago(v)
			}
			return none
		}),
		age, containers("spec", "jobTemplate", "spec", "template", "spec")[0], containers("spec", "jobTemplate", "spec",
			"template", "spec")[1],
		wide(str("Selector", doc[batchv1.JobSpec]("selector"), selector("spec", "jobTemplate", "spec", "selector"))),
	)

	Jobs = of(name,
		str("Status", "Status of the job.", jobStatus),
		str("Completions", doc[batchv1.JobStatus]("succeeded"), completions),
		str("Duration", "Time required to complete the job.", jobDuration),
		age, template[0], template[1],
		wide(str("Selector", doc[batchv1.JobSpec]("selector"), selector("spec", "selector"))),
	)
)

func suspended(obj object.Value) any {
	switch v := obj.At("spec", "suspend"); {
	case v.IsNull():
		return unset
	case v.Bool():
		return "True"
	}
	return "False"
}

func jobStatus(obj object.Value) any {
	conditions := obj.At("status", "conditions")
	has := func(typ string) bool {
		c, has := condition(conditions, typ)
		return has && isTrue(c)
	}
	switch {
	case has("Complete"):
		return "Complete"
	case has("Failed"):
		return "Failed"
	case deleted(obj):
		return "Terminating"
	case has("Suspended"):
		return "Suspended"
	case has("FailureTarget"):
		return "FailureTarget"
	case has("SuccessCriteriaMet"):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(obj object.Value) any {
	done := obj.At("status", "succeeded").Int()
	if want := obj.At("spec", "completions"); !want.IsNull() {
		return fraction(done, want.Int())
	}
	if parallel := obj.At("spec", "parallelism").Int(); parallel > 1 {
		return fraction(done, 1) + " of " + itoa(parallel)
	}
	return fraction(done, 1)
}

func jobDuration(obj object.Value) any {
	start, end := obj.At("status", "startTime"), obj.At("status", "completionTime")
	switch {
	case start.IsNull():
		return ""
	case end.IsNull():
		return engine.Age{Since: at(start)}
	}
	return duration.HumanDuration(at(end).Sub(at(start)))
}
