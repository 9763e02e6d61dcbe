package warnings

import (
	"fmt"
	"strings"

	"plinth/internal/engine"
	"plinth/object"
)

const negativeHistory = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"

func statefulSet(obj object.Value) []string {
	warnings := podOrTemplate("spec.template.", obj.At("spec", "template"))
	return append(warnings, claimsAndHistory(obj, "")...)
}

// controllerUpdate checks the old template, as the reference does for ReplicationControllers by swapping the old and
// the new object.
func controllerUpdate(obj, old object.Value) []string {
	if !newGeneration(obj, old) {
		return nil
	}
	return podOrTemplate("spec.template.", old.At("spec", "template"))
}

// statefulSetUpdate uses another path for the claims than the create, as in the reference.
func statefulSetUpdate(obj, old object.Value) (warnings []string) {
	if newGeneration(obj, old) {
		warnings = podOrTemplate("spec.template.", obj.At("spec", "template"))
	}
	return append(warnings, claimsAndHistory(obj, ".Spec")...)
}

func claimsAndHistory(obj object.Value, suffix string) (warnings []string) {
	for i, c := range obj.At("spec", "volumeClaimTemplates").Items() {
		warnings = append(warnings, claimSpec(fmt.Sprintf("spec.volumeClaimTemplates[%d]%s", i, suffix),
			c.At("spec"))...)
	}
	if obj.At("spec", "revisionHistoryLimit").Int() < 0 {
		warnings = append(warnings, negativeHistory)
	}
	return warnings
}

func job(obj object.Value) []string {
	return append(name(obj, hostnames), jobSpec("spec", obj.At("spec"))...)
}

func jobUpdate(obj, old object.Value) []string {
	if !newGeneration(obj, old) {
		return nil
	}
	return jobSpec("spec", obj.At("spec"))
}

// jobDelete warns that Pods are orphaned if the delete has no propagation policy.
func jobDelete(o engine.DeleteOptions) []string {
	if o.PropagationPolicy != "" || o.OrphanDependents != nil {
		return nil
	}
	return []string{"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"}
}

func cronJob(obj object.Value) []string {
	return append(name(obj, hostnames), jobSpec("spec.jobTemplate.spec", obj.At("spec", "jobTemplate", "spec"))...)
}

func cronJobUpdate(obj, old object.Value) (warnings []string) {
	if newGeneration(obj, old) {
		warnings = jobSpec("spec.jobTemplate.spec", obj.At("spec", "jobTemplate", "spec"))
	}
	if strings.Contains(obj.At("spec", "schedule").Str(), "TZ") {
		warnings = append(warnings,
			"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return warnings
}

// Above these numbers an indexed Job may lose track of its completed indexes when many indexes fail.
const manyCompletions, manyAtOnce = 100_000, 10_000

func jobSpec(path string, spec object.Value) (warnings []string) {
	if spec.At("completionMode").Str() == "Indexed" && spec.At("completions").Int() > manyCompletions &&
		spec.At("parallelism").Int() > manyAtOnce {
		warnings = append(warnings,
			path+
				": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, podOrTemplate(path+".template.", spec.At("template"))...)
}
