package validation

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/object"
)

const (
	completionsSoftLimit = 100_000
	parallelismAbove     = 10_000 // when there are more completions than that
	maxIndexed           = 100_000
	maxFailedAbove       = 10_000
	maxPolicyRules       = 20
	maxPolicyConditions  = 20
	maxManagedBy         = 63
	maxIndexesText       = 64 << 10
	jobNameLabel         = "batch.kubernetes.io/job-name"
	controllerUIDLabel   = "batch.kubernetes.io/controller-uid"
	oldJobNameLabel      = "job-name"
	oldControllerUID     = "controller-uid"
	needsIndexes         = "requires indexed completion mode"
)

var (
	completionModes   = []string{"NonIndexed", "Indexed"}
	failureActions    = []string{"Count", "FailIndex", "FailJob", "Ignore"}
	conditionStatuses = []string{"False", "True", "Unknown"}
	replacements      = []string{"Failed", "TerminatingOrFailed"}
	onlyFailed        = []string{"Failed"}
	endingPolicies    = []string{"OnFailure", "Never"}
	concurrency       = []string{"Allow", "Forbid", "Replace"}
)

// jobSpec checks a Job's spec, also in a CronJob; was is the one before, null in a new object.
func (f *faults) jobSpec(spec, was object.Value, p *place) {
	f.nonNegativeMembers(spec, p, "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
		"backoffLimitPerIndex", "maxFailedIndexes")
	if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
		f.required(p.to("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	}
	if by := spec.At("managedBy"); !by.IsNull() {
		f.list = append(f.list, utilvalidation.IsDomainPrefixedPath(f.path(p.to("managedBy")), by.Str())...)
		if by.Len() > maxManagedBy {
			f.tooLong(p.to("managedBy"), maxManagedBy)
		}
	}
	f.onlyIfSet(p.to("completionMode"), spec.At("completionMode"), completionModes)
	switch mode := spec.At("completionMode"); {
	case mode.Str() == "Indexed":
		f.indexed(spec, p)
	case mode.IsNull() || mode.Str() == "NonIndexed":
		for _, key := range [...]string{"backoffLimitPerIndex", "maxFailedIndexes"} {
			if v := spec.At(key); !v.IsNull() {
				f.invalid(p.to(key), v.Int(), needsIndexes)
			}
		}
	}
	failure := spec.At("podFailurePolicy")
	if !failure.IsNull() {
		f.failurePolicy(spec, failure, p.to("podFailurePolicy").to("rules"))
	}
	if success := spec.At("successPolicy"); !success.IsNull() {
		if text(spec, "completionMode") != "Indexed" {
			f.invalid(p.to("successPolicy"), goForm{success, successPolicyFields}, needsIndexes)
		} else {
			f.successPolicy(spec, success, p.to("successPolicy").to("rules"))
		}
	}
	if policy := spec.At("podReplacementPolicy"); !policy.IsNull() {
		supported := replacements
		if !failure.IsNull() {
			supported = onlyFailed
		}
		f.only(p.to("podReplacementPolicy"), policy.Str(), supported)
	}
	f.podTemplate(spec.At("template"), was.At("template"), p.to("template"))
	f.ends(spec, p.to("template").to("spec").to("restartPolicy"))
}

// ends demands pods that come to an end.
func (f *faults) ends(spec object.Value, p *place) {
	switch policy := text(spec.At("template", "spec"), "restartPolicy"); policy {
	case "", "Always":
		f.required(p, `valid values: "OnFailure", "Never"`)
	case "Never":
	case "OnFailure":
		if has(spec, "podFailurePolicy") {
			f.invalid(p, word(policy), `only "Never" is supported when podFailurePolicy is specified`)
		}
	default:
		f.unsupported(p, policy, endingPolicies)
	}
}

func (f *faults) indexed(spec object.Value, p *place) {
	completions, parallelism, failed := spec.At("completions"), spec.At("parallelism"), spec.At("maxFailedIndexes")
	if completions.IsNull() {
		f.required(p.to("completions"), "when completion mode is Indexed")
	}
	atMost := func(p *place, v object.Value, most int64, when string) {
		if v.Int() > most {
			f.invalid(p, v.Int(), fmt.Sprintf("must be less than or equal to %d%s", most, when))
		}
	}
	atMost(p.to("parallelism"), parallelism, maxIndexed, " when completion mode is Indexed")
	if !completions.IsNull() && failed.Int() > completions.Int() {
		f.invalid(p.to("maxFailedIndexes"), failed.Int(), "must be less than or equal to completions")
	}
	atMost(p.to("maxFailedIndexes"), failed, maxIndexed, "")
	if completions.Int() <= completionsSoftLimit || !has(spec, "backoffLimitPerIndex") {
		return
	}
	if failed.IsNull() {
		f.required(p.to("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", completionsSoftLimit))
	}
	when := fmt.Sprintf(" when completions are above %d and used with backoff limit per index", completionsSoftLimit)
	atMost(p.to("parallelism"), parallelism, parallelismAbove, when)
	atMost(p.to("maxFailedIndexes"), failed, maxFailedAbove, when)
}

func (f *faults) failurePolicy(spec, policy object.Value, p *place) {
	rules := policy.At("rules")
	if rules.Len() > maxPolicyRules {
		f.tooMany(p, rules.Len(), maxPolicyRules)
	}
	for i, rule := range rules.Items() {
		p := p.item(i)
		switch action := text(rule, "action"); {
		case action == "":
			f.required(p.to("action"), validOnes(failureActions))
		case action == "FailIndex" && !has(spec, "backoffLimitPerIndex"):
			f.invalid(p.to("action"), word(action), "requires the backoffLimitPerIndex to be set")
		default:
			f.only(p.to("action"), action, failureActions)
		}
		codes, conditions := rule.At("onExitCodes"), rule.At("onPodConditions")
		if !codes.IsNull() {
			f.onExitCodes(spec, codes, p.to("onExitCodes"))
		}
		f.onPodConditions(conditions, p.to("onPodConditions"))
		if !codes.IsNull() && conditions.Len() > 0 {
			f.invalidAsSuch(p, "specifying both OnExitCodes and OnPodConditions is not supported")
		}
		if codes.IsNull() && conditions.Len() == 0 {
			f.invalidAsSuch(p, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func (f *faults) onPodConditions(conditions object.Value, p *place) {
	if conditions.Len() > maxPolicyConditions {
		f.tooMany(p, conditions.Len(), maxPolicyConditions)
	}
	for i, pattern := range conditions.Items() {
		f.qualified(p.item(i).to("type"), text(pattern, "type"))
		if status := text(pattern, "status"); status == "" {
			f.required(p.item(i).to("status"), validOnes(conditionStatuses))
		} else {
			f.only(p.item(i).to("status"), status, conditionStatuses)
		}
	}
}

func (f *faults) onExitCodes(spec, codes object.Value, p *place) {
	operator, values := text(codes, "operator"), codes.At("values")
	if operator == "" {
		f.required(p.to("operator"), validOnes(exitCodeOperators))
	} else {
		f.only(p.to("operator"), operator, exitCodeOperators)
	}
	if name := codes.At("containerName"); !name.IsNull() && !hasContainer(spec.At("template", "spec"), name.Str()) {
		f.invalid(p.to("containerName"), name.Str(), "must be one of the container or initContainer names in the pod template")
	}
	at := p.to("values")
	if values.Len() == 0 {
		f.invalid(at, show(values), "at least one value is required")
	} else if values.Len() > maxExitCodes {
		f.tooMany(at, values.Len(), maxExitCodes)
	}
	ordered, met := true, make(map[int64]bool, values.Len())
	for i, item := range values.Items() {
		code := item.Int()
		if operator == "In" && code == 0 {
			f.invalid(at.item(i), code, "must not be 0 for the In operator")
		}
		if met[code] {
			f.duplicate(at.item(i), code)
		}
		met[code] = true
		ordered = ordered && (i == 0 || values.Items()[i-1].Int() <= code)
	}
	if !ordered {
		f.invalid(at, show(values), "must be ordered")
	}
}

func hasContainer(pod object.Value, name string) bool {
	for _, kind := range containerLists[:2] {
		for _, container := range pod.At(kind).Items() {
			if text(container, "name") == name {
				return true
			}
		}
	}
	return false
}

func (f *faults) successPolicy(spec, policy object.Value, p *place) {
	rules := policy.At("rules")
	if rules.Len() == 0 {
		f.required(p, "at least one rules must be specified when the successPolicy is specified")
	}
	if rules.Len() > maxPolicyRules {
		f.tooMany(p, rules.Len(), maxPolicyRules)
	}
	completions := number(spec, "completions")
	for i, rule := range rules.Items() {
		p := p.item(i)
		indexes, count := rule.At("succeededIndexes"), rule.At("succeededCount")
		if indexes.IsNull() && count.IsNull() {
			f.required(p, "at least one of succeededCount or succeededIndexes must be specified")
		}
		total := int64(0)
		if !indexes.IsNull() {
			if indexes.Len() > maxIndexesText {
				f.tooLong(p.to("succeededIndexes"), maxIndexesText)
			}
			var err error
			if total, err = countIndexes(indexes.Str(), completions); err != nil {
				f.invalid(p.to("succeededIndexes"), indexes.Str(), "error parsing succeededIndexes: "+err.Error())
			}
		}
		if count.IsNull() {
			continue
		}
		f.nonNegative(p.to("succeededCount"), count.Int())
		if count.Int() > completions {
			f.invalid(p.to("succeededCount"), count.Int(), fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
		}
		if !indexes.IsNull() && count.Int() > total {
			f.invalid(p.to("succeededCount"), count.Int(),
				fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total))
		}
	}
}

var (
	successPolicyFields = []goField{{name: "Rules", member: "rules", inner: []goField{{name: "SucceededIndexes", member: "succeededIndexes"},
		{name: "SucceededCount", member: "succeededCount"}}}}
	failurePolicyFields = []goField{{name: "Rules", member: "rules", inner: []goField{{name: "Action", member: "action", zero: `""`},
		{name: "OnExitCodes", member: "onExitCodes", inner: []goField{{name: "ContainerName", member: "containerName"},
			{name: "Operator", member: "operator", zero: `""`}, {name: "Values", member: "values"}}},
		{name: "OnPodConditions", member: "onPodConditions", inner: []goField{{name: "Type", member: "type", zero: `""`}, {name: "Status", member: "status", zero: `""`}}}}}}
)

// job checks a Job but for its metadata.
func (f *faults) job(job, old object.Value) {
	spec := job.At("spec")
	p := (*place)(nil).to("spec")
	f.jobSpec(spec, old.At("spec"), p)
	selector, labels := spec.At("selector"), spec.At("template", "metadata", "labels")
	if selector.IsNull() {
		f.required(p.to("selector"), "")
	}
	keep := badLabelValue(old.At("spec", "selector", "matchExpressions"))
	f.labelSelector(selector, p.to("selector"), keep)
	if match, valid := matches(selector, labels); valid && !match {
		f.invalid(p.to("template").to("metadata").to("labels"), show(labels), doesNotMatch)
	}
}

// nameAllowsCompletions demands a name that leaves room for the index in the host names of the pods.
func (f *faults) nameAllowsCompletions(job object.Value) {
	spec, name := job.At("spec"), text(job.At("metadata"), "name")
	n := number(spec, "completions")
	if text(spec, "completionMode") != "Indexed" || n <= 0 {
		return
	}
	if host := fmt.Sprintf("%s-%d", name, n-1); !isLabel(host) {
		f.invalid((*place)(nil).to("metadata").to("name"), name, "will not able to create pod with invalid DNS label: "+host)
	}
}

// generatedSelector demands the labels and the selector that the server gives to a Job.
func (f *faults) generatedSelector(job object.Value) {
	spec, meta := job.At("spec"), job.At("metadata")
	selector := spec.At("selector")
	if truth(spec, "manualSelector") || selector.IsNull() {
		return
	}
	uid, name := text(meta, "uid"), text(meta, "name")
	labels := spec.At("template", "metadata", "labels")
	expected := []object.Member{{Key: controllerUIDLabel, Value: object.StringOf(uid)}, {Key: jobNameLabel, Value: object.StringOf(name)},
		{Key: oldControllerUID, Value: object.StringOf(uid)}, {Key: oldJobNameLabel, Value: object.StringOf(name)}}
	p := (*place)(nil).to("spec").to("template").to("metadata").to("labels")
	for _, m := range expected {
		why := "must be '" + m.Value.Str() + "'"
		if have, ok := labels.Get(m.Key); !ok {
			f.required(p.key(m.Key), why)
		} else if have.Str() != m.Value.Str() {
			f.invalid(p.key(m.Key), show(labels), why)
		}
	}
	if match, valid := matches(selector, object.MapOf(expected...)); valid && !match {
		f.invalid((*place)(nil).to("spec").to("selector"), show(selector, selectorOrder...), "`selector` not auto-generated")
	}
}

func jobCreate(f *faults, job object.Value) {
	f.qualifiedFinalizers(job)
	f.generatedSelector(job)
	f.job(job, object.Nil)
	f.nameAllowsCompletions(job)
}

func jobUpdate(f *faults, job, old object.Value) {
	p := (*place)(nil).to("spec")
	f.qualifiedFinalizers(job)
	spec, was := job.At("spec"), old.At("spec")
	f.job(job, old)
	f.completionsChange(spec, was, p.to("completions"))
	f.selectorImmutable(spec, was, p.to("selector"))
	f.jobTemplateChange(job, old, p)
	for _, key := range [...]string{"completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"} {
		now := spec.At(key)
		if same(now, was.At(key)) {
			continue
		}
		switch key {
		case "podFailurePolicy":
			f.invalid(p.to(key), goForm{now, failurePolicyFields}, immutable)
		case "successPolicy":
			f.invalid(p.to(key), goForm{now, successPolicyFields}, immutable)
		default:
			f.invalid(p.to(key), show(now), immutable)
		}
	}
	f.nameAllowsCompletions(job)
}

func (f *faults) completionsChange(spec, was object.Value, p *place) {
	now := spec.At("completions")
	switch {
	case object.Equal(now, was.At("completions")):
	case text(spec, "completionMode") != "Indexed":
		f.invalid(p, show(now), immutable)
	case !now.IsNull() && now.Int() != number(spec, "parallelism"):
		f.invalid(p, now.Int(), "can only be modified in tandem with spec.parallelism")
	}
}

// jobTemplateChange lets the template change only where pods are put, and how large they are, and only while the Job is
// suspended and has no pods.
func (f *faults) jobTemplateChange(job, old object.Value, p *place) {
	now, was := job.At("spec", "template"), old.At("spec", "template")
	suspended := truth(old.At("spec"), "suspend")
	idle := number(old.At("status"), "active") == 0 &&
		(!has(old.At("status"), "startTime") || isCondition(old.At("status", "conditions"), "Suspended", "True"))
	if !suspended || !idle {
		if !same(now, was) {
			f.invalid(p.to("template"), show(now), immutable)
		}
		return
	}
	pod, before := now.At("spec"), was.At("spec")
	for _, key := range [...]string{"nodeSelector", "tolerations", "schedulingGates"} {
		before = sameMember(before, pod, key)
	}
	before = withNodeAffinity(before, pod)
	for _, kind := range containerLists[:2] {
		before = withResources(before, pod, kind)
	}
	if !same(pod, before) {
		f.invalid(p.to("template.spec"), show(pod), immutable)
	}
}

// withNodeAffinity is a pod's spec with the node affinity of another.
func withNodeAffinity(pod, other object.Value) object.Value {
	mine, others := pod.At("affinity"), other.At("affinity")
	switch {
	case mine.IsNull() && others.IsNull():
		return pod
	case others.IsNull():
		if mine = mine.Without("nodeAffinity"); mine.Len() == 0 {
			return pod.Without("affinity")
		}
		return pod.With("affinity", mine)
	}
	return pod.With("affinity", sameMember(mine, others, "nodeAffinity"))
}

// withResources is a pod's spec whose containers ask for what those of another do.
func withResources(pod, other object.Value, kind string) object.Value {
	mine, others := pod.At(kind).Items(), other.At(kind).Items()
	if len(mine) != len(others) || len(mine) == 0 {
		return pod
	}
	containers := make([]object.Value, len(mine))
	for i, container := range mine {
		containers[i] = container
		if text(container, "name") == text(others[i], "name") {
			containers[i] = sameMember(container, others[i], "resources")
		}
	}
	return pod.With(kind, object.ListOf(containers...))
}

// isCondition says whether one of some conditions has a type and a status.
func isCondition(conditions object.Value, kind, status string) bool {
	for _, condition := range conditions.Items() {
		if text(condition, "type") == kind && text(condition, "status") == status {
			return true
		}
	}
	return false
}

func cronJobCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.cronJob(obj.At("spec"), object.Nil)
	if name := text(obj.At("metadata"), "name"); len(name) > utilvalidation.DNS1035LabelMaxLength-11 {
		f.invalid((*place)(nil).to("metadata").to("name"), name, "must be no more than 52 characters")
	}
}

func cronJobUpdate(f *faults, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.cronJob(obj.At("spec"), old.At("spec"))
}

func (f *faults) cronJob(spec, was object.Value) {
	p := (*place)(nil).to("spec")
	if schedule := text(spec, "schedule"); schedule == "" {
		f.required(p.to("schedule"), "")
	} else {
		f.schedule(schedule, strings.Contains(text(was, "schedule"), "TZ"), has(spec, "timeZone"), p.to("schedule"))
	}
	f.nonNegativeMembers(spec, p, "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
	if zone := spec.At("timeZone"); !zone.IsNull() && (was.IsNull() || !object.Equal(zone, was.At("timeZone"))) {
		f.timeZone(zone.Str(), p.to("timeZone"))
	}
	f.oneOf(p.to("concurrencyPolicy"), text(spec, "concurrencyPolicy"), concurrency)
	job := spec.At("jobTemplate", "spec")
	at := p.to("jobTemplate").to("spec")
	f.jobSpec(job, was.At("jobTemplate", "spec"), at)
	if selector := job.At("selector"); !selector.IsNull() {
		f.invalid(at.to("selector"), show(selector, selectorOrder...), "`selector` will be auto-generated")
	}
	if truth(job, "manualSelector") {
		f.invalidEnum(at.to("manualSelector"), true, []string{"nil", "false"})
	}
}
