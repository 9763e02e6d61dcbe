package validation

import (
	"fmt"
	"strconv"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// interval is a run of indexes, ends included.
type interval struct{ from, to int64 }

// parseInterval reads "3" or "3-5"; all indexes are below completions.
func parseInterval(s string, completions int64) (interval, error) {
	parts := strings.Split(s, "-")
	if len(parts) > 2 {
		return interval{},
			fmt.Errorf(
				"the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", s)
	}
	var ends [2]int64
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return interval{}, fmt.Errorf("cannot convert string to integer for index: %q", part)
		}
		if int64(n) >= completions {
			return interval{}, fmt.Errorf("too large index: %q", part)
		}
		ends[i] = int64(n)
	}
	if len(parts) == 1 {
		return interval{ends[0], ends[0]}, nil
	}
	if ends[0] >= ends[1] {
		return interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", ends[0], ends[1])
	}
	return interval{ends[0], ends[1]}, nil
}

// countIndexes returns the number of indexes in a text such as "1,3-5".
func countIndexes(s string, completions int64) (int64, error) {
	if s == "" {
		return 0, nil
	}
	var total, last int64
	for i, part := range strings.Split(s, ",") {
		run, err := parseInterval(part, completions)
		if err != nil {
			return 0, err
		}
		if i > 0 && last >= run.from {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, run.from)
		}
		total += run.to - run.from + 1
		last = run.to
	}
	return total, nil
}

// intervals are the valid intervals of a list.
func intervals(s string, completions int64) []interval {
	var runs []interval
	for part := range strings.SplitSeq(s, ",") {
		if run, err := parseInterval(part, completions); err == nil {
			runs = append(runs, run)
		}
	}
	return runs
}

// overlap finds an index that is in both lists.
func overlap(completed, failed string, completions int64) (index int64, found bool) {
	a, b := intervals(completed, completions), intervals(failed, completions)
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].to < b[0].from:
			a = a[1:]
		case b[0].to < a[0].from:
			b = b[1:]
		default:
			return max(a[0].from, b[0].from), true
		}
	}
	return
}

// jobConditions are the conditions of a Job that are true.
type jobConditions struct{ complete, failed, failureTarget, successCriteria bool }

func conditionsOf(status object.Value) jobConditions {
	all := status.At("conditions")
	return jobConditions{
		complete: isCondition(all, "Complete", "True"), failed: isCondition(all, "Failed", "True"),
		failureTarget:   isCondition(all, "FailureTarget", "True"),
		successCriteria: isCondition(all, "SuccessCriteriaMet", "True"),
	}
}

func (c jobConditions) finished() bool { return c.complete || c.failed }

// jobStatus checks the new status of a Job. Invalid values that have not changed may stay.
func jobStatus(f *errorList, job, old object.Value) {
	f.qualifiedFinalizers(job)
	p := (*fielderrors.Location)(nil).To("status")
	status, previous := job.At("status"), old.At("status")
	f.nonNegativeMembers(status, p, "active", "succeeded", "failed", "ready", "terminating")
	f.uncounted(status.At("uncountedTerminatedPods"), p.To("uncountedTerminatedPods"))
	now, before := conditionsOf(status), conditionsOf(previous)
	f.jobConditions(job, now, before, !object.Equal(status.At("failedIndexes"), previous.At("failedIndexes")),
		p.To("conditions"))
	f.jobTimes(job, old, now, before, p)
	f.jobCounts(job, old, now, before, p)
	f.jobIndexes(job, old, p)
}

// uncounted checks the pods that are not counted yet: each is named once.
func (f *errorList) uncounted(pods object.Value, p *fielderrors.Location) {
	var uids nameSet
	for _, key := range [...]string{"succeeded", "failed"} {
		for i, item := range pods.At(key).Items() {
			switch uid := item.Str(); {
			case uid == "":
				f.Invalid(p.To(key).Item(i), fielderrors.Word(uid), "must not be empty")
			case uids.add(uid):
				f.Duplicate(p.To(key).Item(i), fielderrors.Word(uid))
			}
		}
	}
}

func (f *errorList) jobConditions(job object.Value, now, before jobConditions, indexesChanged bool,
	p *fielderrors.Location) {
	completed, failed := now.complete != before.complete, now.failed != before.failed
	check := func(changed, wrong bool, why string) {
		if changed && wrong {
			f.InvalidAsSuch(p, why)
		}
	}
	check(completed || failed, now.complete && now.failed, "cannot set Complete=True and Failed=true conditions")
	check(completed || now.failureTarget != before.failureTarget, now.complete && now.failureTarget,
		"cannot set Complete=True and FailureTarget=true conditions")
	check(failed || indexesChanged, now.failed && !now.failureTarget,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	check(completed || now.successCriteria != before.successCriteria, now.complete && !now.successCriteria,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	check(true, now.successCriteria && now.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	check(true, now.successCriteria && now.failureTarget,
		"cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	check(has(job.At("spec"), "successPolicy"), !now.successCriteria && now.complete,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	check(before.failed, !now.failed, "cannot disable the terminal Failed=True condition")
	check(before.complete, !now.complete, "cannot disable the terminal Complete=True condition")
	check(before.failureTarget, !now.failureTarget, "cannot disable the terminal FailureTarget=True condition")
	check(before.successCriteria, !now.successCriteria, "cannot disable the SuccessCriteriaMet=True condition")
	check(before.complete && !before.successCriteria, now.successCriteria,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

func (f *errorList) jobTimes(job, old object.Value, now, before jobConditions, p *fielderrors.Location) {
	status, spec := job.At("status"), job.At("spec")
	start, end := status.At("startTime"), status.At("completionTime")
	oldStart, oldEnd := old.At("status", "startTime"), old.At("status", "completionTime")
	startChanged, endChanged := !object.Equal(start, oldStart), !object.Equal(end, oldEnd)
	if now.complete != before.complete || endChanged {
		if !end.IsNull() && !now.complete {
			f.Invalid(p.To("completionTime"), fielderrors.Show(end),
				"cannot set completionTime when there is no Complete=True condition")
		}
		if end.IsNull() && now.complete {
			f.Required(p.To("completionTime"), "completionTime is required for Complete jobs")
		}
	}
	if (startChanged || endChanged) && !end.IsNull() && end.Str() < start.Str() {
		f.Invalid(p.To("completionTime"), fielderrors.Show(end), "must be equal to or after `startTime`")
	}
	idle := truth(spec, "suspend") && has(spec, "completions") && number(spec, "completions") == 0
	if (now.finished() != before.finished() || startChanged) && !idle && start.IsNull() && now.finished() {
		f.Required(p.To("startTime"), "startTime is required for finished job")
	}
	if endChanged && !end.IsNull() && !oldEnd.IsNull() {
		f.Invalid(p.To("completionTime"), fielderrors.Show(end), fielderrors.Immutable)
	}
	resuming := isCondition(old.At("status", "conditions"), "Suspended", "True") && isCondition(status.At("conditions"),
		"Suspended", "False")
	if startChanged && !resuming && !oldStart.IsNull() && !truth(spec, "suspend") {
		f.Invalid(p.To("startTime"), fielderrors.Show(start), "field is immutable for unsuspended job once set")
	}
}

func (f *errorList) jobCounts(job, old object.Value, now, previous jobConditions, p *fielderrors.Location) {
	status, before := job.At("status"), old.At("status")
	changed := func(key string) bool { return !same(status.At(key), before.At(key)) }
	ended := now.finished() != previous.finished()
	if n := number(status, "active"); (ended || changed("active")) && n > 0 && now.finished() {
		f.Invalid(p.To("active"), n, "active>0 is invalid for finished job")
	}
	pods := status.At("uncountedTerminatedPods")
	if (ended || changed("uncountedTerminatedPods")) && now.finished() && length(pods, "failed")+length(pods,
		"succeeded") > 0 {
		f.Invalid(p.To("uncountedTerminatedPods"),
			goForm{pods, []goField{{name: "Succeeded", member: "succeeded"}, {name: "Failed", member: "failed"}}},
			"must be empty for finished job")
	}
	if n := number(status, "terminating"); (ended || changed("terminating")) && n > 0 && now.finished() {
		f.Invalid(p.To("terminating"), n, "terminating>0 is invalid for finished job")
	}
	if n := number(status, "ready"); (changed("ready") || changed("active")) && has(status, "ready") &&
		n > number(status, "active") {
		f.Invalid(p.To("ready"), n, "cannot set more ready pods than active")
	}
	if n := number(status, "failed"); n < number(before, "failed") {
		f.Invalid(p.To("failed"), n, "cannot decrease the failed counter")
	}
	spec := job.At("spec")
	scaled := text(spec, "completionMode") == "Indexed" && object.Equal(spec.At("completions"), spec.At("parallelism"))
	if n := number(status, "succeeded"); n < number(before, "succeeded") && !scaled {
		f.Invalid(p.To("succeeded"), n, "cannot decrease the succeeded counter")
	}
}

func (f *errorList) jobIndexes(job, old object.Value, p *fielderrors.Location) {
	spec, status, before := job.At("spec"), job.At("status"), old.At("status")
	limited, completions := has(spec, "completions"), number(spec, "completions")
	completed, failed := text(status, "completedIndexes"), status.At("failedIndexes")
	completedChanged, failedChanged := completed != text(before, "completedIndexes"),
		!object.Equal(failed, before.At("failedIndexes"))
	perIndex := has(spec, "backoffLimitPerIndex")
	if completedChanged && limited {
		if _, err := countIndexes(completed, completions); err != nil {
			f.Invalid(p.To("completedIndexes"), completed, "error parsing completedIndexes: "+err.Error())
		}
	}
	if failedChanged && limited && perIndex {
		if _, err := countIndexes(failed.Str(), completions); err != nil {
			f.Invalid(p.To("failedIndexes"), fielderrors.Word(failed.Str()),
				"error parsing failedIndexes: "+err.Error())
		}
	}
	if completedChanged && completed != "" && text(spec, "completionMode") != "Indexed" {
		f.Invalid(p.To("completedIndexes"), completed,
			"cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if failedChanged && !perIndex && !failed.IsNull() {
		f.Invalid(p.To("failedIndexes"), failed.Str(),
			"cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if failedChanged || completedChanged {
		if index, found := overlap(completed, failed.Str(), completions); found {
			f.Invalid(p.To("failedIndexes"), failed.Str(),
				fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index))
		}
	}
}
