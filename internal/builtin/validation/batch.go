package validation

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	completionsSoftLimit = 100_000
	parallelismAbove     = 10_000 // if completions exceeds the soft limit
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

// jobSpec checks a Job's spec, also in a CronJob; was is the old spec, null in a new object.
func (f *errorList) jobSpec(spec, before object.Value, p *fielderrors.Location) {
	f.nonNegativeMembers(spec, p, "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
		"ttlSecondsAfterFinished",
		"backoffLimitPerIndex", "maxFailedIndexes")
	if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
		f.Required(p.To("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	}
	if by := spec.At("managedBy"); !by.IsNull() {
		f.List = append(f.List, utilvalidation.IsDomainPrefixedPath(f.Path(p.To("managedBy")), by.Str())...)
		if by.Len() > maxManagedBy {
			f.TooLong(p.To("managedBy"), maxManagedBy)
		}
	}
	f.onlyIfSet(p.To("completionMode"), spec.At("completionMode"), completionModes)
	switch mode := spec.At("completionMode"); {
	case mode.Str() == "Indexed":
		f.indexed(spec, p)
	case mode.IsNull() || mode.Str() == "NonIndexed":
		for _, key := range [...]string{"backoffLimitPerIndex", "maxFailedIndexes"} {
			if v := spec.At(key); !v.IsNull() {
				f.Invalid(p.To(key), v.Int(), needsIndexes)
			}
		}
	}
	failure := spec.At("podFailurePolicy")
	f.failurePolicy(spec, failure, p.To("podFailurePolicy").To("rules"))
	if success := spec.At("successPolicy"); !success.IsNull() {
		if text(spec, "completionMode") != "Indexed" {
			f.Invalid(p.To("successPolicy"), goForm{success, successPolicyFields}, needsIndexes)
		} else {
			f.successPolicy(spec, success, p.To("successPolicy").To("rules"))
		}
	}
	if policy := spec.At("podReplacementPolicy"); !policy.IsNull() {
		supported := replacements
		if !failure.IsNull() {
			supported = onlyFailed
		}
		f.only(p.To("podReplacementPolicy"), policy.Str(), supported)
	}
	f.podTemplate(spec.At("template"), before.At("template"), p.To("template"))
	f.ends(spec, p.To("template").To("spec").To("restartPolicy"))
}

// ends demands pods that can complete.
func (f *errorList) ends(spec object.Value, p *fielderrors.Location) {
	switch policy := text(spec.At("template", "spec"), "restartPolicy"); policy {
	case "Always":
		f.Required(p, `valid values: "OnFailure", "Never"`)
	case "Never":
	case "OnFailure":
		if has(spec, "podFailurePolicy") {
			f.Invalid(p, fielderrors.Word(policy), `only "Never" is supported when podFailurePolicy is specified`)
		}
	default:
		f.Unsupported(p, policy, endingPolicies)
	}
}

func (f *errorList) indexed(spec object.Value, p *fielderrors.Location) {
	completions, parallelism, failed := spec.At("completions"), spec.At("parallelism"), spec.At("maxFailedIndexes")
	if completions.IsNull() {
		f.Required(p.To("completions"), "when completion mode is Indexed")
	}
	atMost := func(p *fielderrors.Location, v object.Value, most int64, when string) {
		if v.Int() > most {
			f.Invalid(p, v.Int(), fmt.Sprintf("must be less than or equal to %d%s", most, when))
		}
	}
	atMost(p.To("parallelism"), parallelism, maxIndexed, " when completion mode is Indexed")
	if !completions.IsNull() && !failed.IsNull() && failed.Int() > completions.Int() {
		f.Invalid(p.To("maxFailedIndexes"), failed.Int(), "must be less than or equal to completions")
	}
	atMost(p.To("maxFailedIndexes"), failed, maxIndexed, "")
	if completions.Int() <= completionsSoftLimit || !has(spec, "backoffLimitPerIndex") {
		return
	}
	if failed.IsNull() {
		f.Required(p.To("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d",
			completionsSoftLimit))
	}
	when := fmt.Sprintf(" when completions are above %d and used with backoff limit per index", completionsSoftLimit)
	atMost(p.To("parallelism"), parallelism, parallelismAbove, when)
	atMost(p.To("maxFailedIndexes"), failed, maxFailedAbove, when)
}

func (f *errorList) failurePolicy(spec, policy object.Value, p *fielderrors.Location) {
	rules := policy.At("rules")
	if rules.Len() > maxPolicyRules {
		f.TooMany(p, rules.Len(), maxPolicyRules)
	}
	for i, rule := range rules.Items() {
		p := p.Item(i)
		switch action := text(rule, "action"); {
		case action == "":
			f.Required(p.To("action"), validOnes(failureActions))
		case action == "FailIndex" && !has(spec, "backoffLimitPerIndex"):
			f.Invalid(p.To("action"), fielderrors.Word(action), "requires the backoffLimitPerIndex to be set")
		default:
			f.only(p.To("action"), action, failureActions)
		}
		codes, conditions := rule.At("onExitCodes"), rule.At("onPodConditions")
		if !codes.IsNull() {
			f.onExitCodes(spec, codes, p.To("onExitCodes"))
		}
		f.onPodConditions(conditions, p.To("onPodConditions"))
		if !codes.IsNull() && conditions.Len() > 0 {
			f.InvalidAsSuch(p, "specifying both OnExitCodes and OnPodConditions is not supported")
		}
		if codes.IsNull() && conditions.Len() == 0 {
			f.InvalidAsSuch(p, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func (f *errorList) onPodConditions(conditions object.Value, p *fielderrors.Location) {
	if conditions.Len() > maxPolicyConditions {
		f.TooMany(p, conditions.Len(), maxPolicyConditions)
	}
	for i, pattern := range conditions.Items() {
		f.qualified(p.Item(i).To("type"), text(pattern, "type"))
		f.only(p.Item(i).To("status"), text(pattern, "status"), conditionStatuses)
	}
}

func (f *errorList) onExitCodes(spec, codes object.Value, p *fielderrors.Location) {
	operator, values := text(codes, "operator"), codes.At("values")
	if operator == "" {
		f.Required(p.To("operator"), validOnes(exitCodeOperators))
	} else {
		f.only(p.To("operator"), operator, exitCodeOperators)
	}
	if name := codes.At("containerName"); !name.IsNull() && !hasContainer(spec.At("template", "spec"), name.Str()) {
		f.Invalid(p.To("containerName"), name.Str(),
			"must be one of the container or initContainer names in the pod template")
	}
	at := p.To("values")
	if values.Len() == 0 {
		f.Invalid(at, fielderrors.Show(values), "at least one value is required")
	} else if values.Len() > maxExitCodes {
		f.TooMany(at, values.Len(), maxExitCodes)
	}
	ordered, met := true, make(map[int64]bool, values.Len())
	for i, item := range values.Items() {
		code := item.Int()
		if operator == "In" && code == 0 {
			f.Invalid(at.Item(i), code, "must not be 0 for the In operator")
		}
		if met[code] {
			f.Duplicate(at.Item(i), code)
		}
		met[code] = true
		ordered = ordered && (i == 0 || values.Items()[i-1].Int() <= code)
	}
	if !ordered {
		f.Invalid(at, fielderrors.Show(values), "must be ordered")
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

func (f *errorList) successPolicy(spec, policy object.Value, p *fielderrors.Location) {
	rules := policy.At("rules")
	if rules.Len() == 0 {
		f.Required(p, "at least one rules must be specified when the successPolicy is specified")
	}
	if rules.Len() > maxPolicyRules {
		f.TooMany(p, rules.Len(), maxPolicyRules)
	}
	completions := number(spec, "completions")
	for i, rule := range rules.Items() {
		p := p.Item(i)
		indexes, count := rule.At("succeededIndexes"), rule.At("succeededCount")
		if indexes.IsNull() && count.IsNull() {
			f.Required(p, "at least one of succeededCount or succeededIndexes must be specified")
		}
		if indexes.Len() > maxIndexesText {
			f.TooLong(p.To("succeededIndexes"), maxIndexesText)
		}
		total, err := countIndexes(indexes.Str(), completions)
		if err != nil {
			f.Invalid(p.To("succeededIndexes"), indexes.Str(), "error parsing succeededIndexes: "+err.Error())
		}
		if count.IsNull() {
			continue
		}
		f.nonNegative(p.To("succeededCount"), count.Int())
		if count.Int() > completions {
			f.Invalid(p.To("succeededCount"), count.Int(),
				fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
		}
		if !indexes.IsNull() && count.Int() > total {
			f.Invalid(p.To("succeededCount"), count.Int(),
				fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)",
					total))
		}
	}
}

var (
	successPolicyFields = []goField{{name: "Rules", member: "rules",
		inner: []goField{{name: "SucceededIndexes", member: "succeededIndexes"},
			{name: "SucceededCount", member: "succeededCount"}}}}
	failurePolicyFields = []goField{{name: "Rules", member: "rules",
		inner: []goField{{name: "Action", member: "action"},
			{name: "OnExitCodes", member: "onExitCodes", inner: []goField{{name: "ContainerName", member: "containerName"},
				{name: "Operator", member: "operator"}, {name: "Values", member: "values"}}},
			{name: "OnPodConditions", member: "onPodConditions",
				inner: []goField{{name: "Type", member: "type"}, {name: "Status", member: "status"}}}}}}
)

// job checks a Job but for its metadata.
func (f *errorList) job(job, old object.Value) {
	spec := job.At("spec")
	p := (*fielderrors.Location)(nil).To("spec")
	f.jobSpec(spec, old.At("spec"), p)
	selector, labels := spec.At("selector"), spec.At("template", "metadata", "labels")
	if selector.IsNull() {
		f.Required(p.To("selector"), "")
	}
	f.labelSelector(selector, p.To("selector"), hadBadLabelValue(old.At("spec")))
	if match, valid := matches(selector, labels); valid && !match {
		f.Invalid(p.To("template").To("metadata").To("labels"), fielderrors.Show(labels), doesNotMatch)
	}
}

// nameAllowsCompletions demands a name that is short enough to append the index in the host names of the pods.
func (f *errorList) nameAllowsCompletions(job object.Value) {
	spec, name := job.At("spec"), text(job.At("metadata"), "name")
	n := number(spec, "completions")
	if text(spec, "completionMode") != "Indexed" || n <= 0 {
		return
	}
	if host := fmt.Sprintf("%s-%d", name, n-1); !objectmeta.IsLabel(host) {
		f.Invalid((*fielderrors.Location)(nil).To("metadata").To("name"), name,
			"will not able to create pod with invalid DNS label: "+host)
	}
}

// generatedSelector demands the labels and the selector that the server gives to a Job.
func (f *errorList) generatedSelector(job object.Value) {
	spec, meta := job.At("spec"), job.At("metadata")
	selector := spec.At("selector")
	if truth(spec, "manualSelector") {
		return
	}
	uid, name := text(meta, "uid"), text(meta, "name")
	labels := spec.At("template", "metadata", "labels")
	expected := []object.Member{{Key: controllerUIDLabel, Value: object.StringOf(uid)},
		{Key: jobNameLabel, Value: object.StringOf(name)},
		{Key: oldControllerUID, Value: object.StringOf(uid)}, {Key: oldJobNameLabel, Value: object.StringOf(name)}}
	p := (*fielderrors.Location)(nil).To("spec").To("template").To("metadata").To("labels")
	for _, m := range expected {
		why := "must be '" + m.Value.Str() + "'"
		if text(labels, m.Key) != m.Value.Str() {
			f.Invalid(p.Key(m.Key), fielderrors.Show(labels), why)
		}
	}
	if match, valid := matches(selector, object.MapOf(expected...)); valid && !match {
		f.Invalid((*fielderrors.Location)(nil).To("spec").To("selector"), fielderrors.Show(selector, selectorOrder...),
			"`selector` not auto-generated")
	}
}

func jobCreate(f *errorList, job object.Value) {
	f.qualifiedFinalizers(job)
	f.generatedSelector(job)
	f.job(job, object.Nil)
	f.nameAllowsCompletions(job)
}

func jobUpdate(f *errorList, job, old object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	f.qualifiedFinalizers(job)
	spec, before := job.At("spec"), old.At("spec")
	f.job(job, old)
	f.completionsChange(spec, before, p.To("completions"))
	f.selectorImmutable(spec, before, p.To("selector"))
	f.jobTemplateChange(job, old, p)
	for _, key := range [...]string{"completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy",
		"successPolicy"} {
		now := spec.At(key)
		if same(now, before.At(key)) {
			continue
		}
		switch key {
		case "podFailurePolicy":
			f.Invalid(p.To(key), goForm{now, failurePolicyFields}, fielderrors.Immutable)
		case "successPolicy":
			f.Invalid(p.To(key), goForm{now, successPolicyFields}, fielderrors.Immutable)
		default:
			f.Invalid(p.To(key), fielderrors.Show(now), fielderrors.Immutable)
		}
	}
	f.nameAllowsCompletions(job)
}

func (f *errorList) completionsChange(spec, before object.Value, p *fielderrors.Location) {
	now := spec.At("completions")
	switch {
	case object.Equal(now, before.At("completions")):
	case text(spec, "completionMode") != "Indexed":
		f.Invalid(p, fielderrors.Show(now), fielderrors.Immutable)
	case !now.IsNull() && now.Int() != number(spec, "parallelism"):
		f.Invalid(p, now.Int(), "can only be modified in tandem with spec.parallelism")
	}
}

// jobTemplateChange allows changes of the template only while the Job is suspended: of the fields for scheduling and of
// the resources of its pods, if it has no pods and has not started or is known to be suspended. With resources, only
// the spec of the pods is compared, as in the reference.
func (f *errorList) jobTemplateChange(job, old object.Value, p *fielderrors.Location) {
	now, previous := job.At("spec", "template"), old.At("spec", "template")
	status := old.At("status")
	suspended := truth(old.At("spec"), "suspend")
	fresh := suspended && !has(status, "startTime")
	idle := suspended && number(status, "active") == 0 &&
		(fresh || isCondition(status.At("conditions"), "Suspended", "True"))
	next, before := now, previous
	if mutable := f.on(features.MutableSchedulingDirectivesForSuspendedJobs); fresh && !mutable || idle && mutable {
		next, before = withoutScheduling(next), withoutScheduling(before)
	}
	if !idle || !f.on(features.MutablePodResourcesForSuspendedJobs) {
		if !same(next, before) {
			f.Invalid(p.To("template"), fielderrors.Show(now), fielderrors.Immutable)
		}
		return
	}
	if !same(withoutResources(next.At("spec")), withoutResources(before.At("spec"))) {
		f.Invalid(p.To("template.spec"), fielderrors.Show(now.At("spec")), fielderrors.Immutable)
	}
}

// withoutScheduling is a template without the fields that concern scheduling. An affinity that is empty without the
// node affinity equals an absent one.
func withoutScheduling(template object.Value) object.Value {
	for _, path := range [...][]string{
		{"metadata", "labels"}, {"metadata", "annotations"},
		{"spec", "nodeSelector"}, {"spec", "tolerations"}, {"spec", "schedulingGates"}, {"spec", "affinity", "nodeAffinity"},
	} {
		template = template.WithoutAt(path...)
	}
	if length(template.At("spec"), "affinity") == 0 {
		template = template.WithoutAt("spec", "affinity")
	}
	return template
}

// withoutResources is a pod's spec without the resources of its containers.
func withoutResources(pod object.Value) object.Value {
	for _, kind := range containerLists[:2] {
		var containers []object.Value
		for _, container := range pod.At(kind).Items() {
			containers = append(containers, container.Without("resources"))
		}
		pod = pod.With(kind, object.ListOf(containers...))
	}
	return pod
}

// isCondition says whether one of the conditions has this type and status.
func isCondition(conditions object.Value, kind, status string) bool {
	for _, condition := range conditions.Items() {
		if text(condition, "type") == kind && text(condition, "status") == status {
			return true
		}
	}
	return false
}

func cronJobCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.cronJob(obj.At("spec"), object.Nil)
	if name := text(obj.At("metadata"), "name"); len(name) > utilvalidation.DNS1035LabelMaxLength-11 {
		f.Invalid((*fielderrors.Location)(nil).To("metadata").To("name"), name, "must be no more than 52 characters")
	}
}

func cronJobUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.cronJob(obj.At("spec"), old.At("spec"))
}

func (f *errorList) cronJob(spec, before object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	if schedule := text(spec, "schedule"); schedule == "" {
		f.Required(p.To("schedule"), "")
	} else {
		f.schedule(schedule, strings.Contains(text(before, "schedule"), "TZ"), has(spec, "timeZone"), p.To("schedule"))
	}
	f.nonNegativeMembers(spec, p, "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
	if zone := spec.At("timeZone"); !zone.IsNull() && !object.Equal(zone, before.At("timeZone")) {
		f.timeZone(zone.Str(), p.To("timeZone"))
	}
	f.oneOf(p.To("concurrencyPolicy"), text(spec, "concurrencyPolicy"), concurrency)
	job := spec.At("jobTemplate", "spec")
	at := p.To("jobTemplate").To("spec")
	f.jobSpec(job, before.At("jobTemplate", "spec"), at)
	if selector := job.At("selector"); !selector.IsNull() {
		f.Invalid(at.To("selector"), fielderrors.Show(selector, selectorOrder...), "`selector` will be auto-generated")
	}
	if truth(job, "manualSelector") {
		f.InvalidEnum(at.To("manualSelector"), true, []string{"nil", "false"})
	}
}
