package validation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const doesNotMatch = "`selector` does not match template `labels`"

// matches says whether a selector selects labels, and whether the selector is valid. A null selector selects nothing,
// an empty one everything.
func matches(selector, labels object.Value) (match, valid bool) {
	if selector.IsNull() {
		return false, true
	}
	var f errorList
	if f.labelSelector(selector, nil, false); len(f.List) > 0 {
		return
	}
	for _, m := range selector.At("matchLabels").Members() {
		if value, ok := labels.Get(m.Key); !ok || value.Str() != m.Value.Str() {
			return false, true
		}
	}
	for _, requirement := range selector.At("matchExpressions").Items() {
		value, has := labels.Get(text(requirement, "key"))
		in := has && contains(requirement.At("values"), value.Str())
		var good bool
		switch text(requirement, "operator") {
		case "In":
			good = in
		case "NotIn":
			good = !in
		case "Exists":
			good = has
		case "DoesNotExist":
			good = !has
		}
		if !good {
			return false, true
		}
	}
	return true, true
}

// isEmptySelector says whether a selector is present, but selects everything.
func isEmptySelector(selector object.Value) bool {
	return !selector.IsNull() && length(selector, "matchLabels")+length(selector, "matchExpressions") == 0
}

// workloadSelector checks the selector of a controller, and says whether it can be used.
func (f *errorList) workloadSelector(selector object.Value, kind string, p *fielderrors.Location) bool {
	if selector.IsNull() {
		f.Required(p, "")
		return true
	}
	before := len(f.List)
	f.labelSelector(selector, p, false)
	valid := len(f.List) == before
	if isEmptySelector(selector) {
		f.Invalid(p, fielderrors.Show(selector, selectorOrder...), "empty selector is invalid for "+kind)
	}
	if !valid {
		f.Invalid(p, fielderrors.Show(selector, selectorOrder...), "invalid label selector")
	}
	return valid
}

// selectorImmutable refuses a change of the selector.
func (f *errorList) selectorImmutable(spec, before object.Value, p *fielderrors.Location) {
	if now := spec.At("selector"); !same(now, before.At("selector")) {
		f.Invalid(p, fielderrors.Show(now, selectorOrder...), fielderrors.Immutable)
	}
}

func (f *errorList) nonNegativeMembers(v object.Value, p *fielderrors.Location, keys ...string) {
	for _, key := range keys {
		f.nonNegative(p.To(key), number(v, key))
	}
}

// replicaTemplate checks the template in a ReplicaSet or a Deployment.
func (f *errorList) replicaTemplate(spec, before object.Value, p *fielderrors.Location) {
	template := spec.At("template")
	if match, _ := matches(spec.At("selector"), template.At("metadata", "labels")); !match {
		f.Invalid(p.To("metadata").To("labels"), fielderrors.Show(template.At("metadata", "labels")), doesNotMatch)
	}
	f.podTemplate(template, before.At("template"), p)
	f.runsForever(template, "ReplicaSet", p)
}

// onlyAlways is the restart policy of pods that a controller keeps running.
var onlyAlways = []string{"Always"}

func (f *errorList) runsForever(template object.Value, kind string, p *fielderrors.Location) {
	f.only(p.To("spec").To("restartPolicy"), text(template.At("spec"), "restartPolicy"), onlyAlways)
	if has(template.At("spec"), "activeDeadlineSeconds") {
		f.Forbidden(p.To("spec").To("activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported")
	}
}

func (f *errorList) deployment(spec, before object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	f.nonNegativeMembers(spec, p, "replicas")
	if f.workloadSelector(spec.At("selector"), "deployment", p.To("selector")) {
		f.replicaTemplate(spec, before, p.To("template"))
	}
	f.deploymentStrategy(spec.At("strategy"), p.To("strategy"))
	f.nonNegativeMembers(spec, p, "minReadySeconds", "revisionHistoryLimit")
	deadline := number(spec, "progressDeadlineSeconds")
	f.nonNegative(p.To("progressDeadlineSeconds"), deadline)
	if deadline <= number(spec, "minReadySeconds") {
		f.Invalid(p.To("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds")
	}
}

var (
	deploymentStrategies = []string{"Recreate", "RollingUpdate"}
	updateStrategies     = []string{"RollingUpdate", "OnDelete"}
	strategyFields       = []goField{{name: "Type", member: "type"},
		{name: "RollingUpdate", member: "rollingUpdate",
			inner: []goField{{name: "MaxUnavailable", member: "maxUnavailable"}, {name: "MaxSurge", member: "maxSurge"}}}}
	statefulStrategyFields = []goField{{name: "Type", member: "type"},
		{name: "RollingUpdate", member: "rollingUpdate", inner: rollingStatefulFields}}
	rollingStatefulFields = []goField{{name: "Partition", member: "partition"},
		{name: "MaxUnavailable", member: "maxUnavailable"}}
)

// The fields of a PersistentVolumeClaim.
var (
	volumeClaimFields = []goField{{member: "metadata", inline: metaOrder},
		{name: "Spec", member: "spec", inner: []goField{{name: "AccessModes", member: "accessModes"},
			{name: "Selector", member: "selector", order: selectorOrder},
			{name: "Resources", member: "resources", inner: []goField{{name: "Limits", member: "limits"},
				{name: "Requests", member: "requests"}}},
			{name: "VolumeName", member: "volumeName", zero: `""`},
			{name: "StorageClassName", member: "storageClassName"}, {name: "VolumeMode", member: "volumeMode"},
			{name: "DataSource", member: "dataSource", inner: dataSourceFields},
			{name: "DataSourceRef", member: "dataSourceRef",
				inner: slices.Concat(dataSourceFields, []goField{{name: "Namespace", member: "namespace"}})},
			{name: "VolumeAttributesClassName", member: "volumeAttributesClassName"}}},
		{name: "Status", member: "status", inner: volumeClaimStatusFields}}
	dataSourceFields = []goField{{name: "APIGroup", member: "apiGroup"}, {name: "Kind", member: "kind"},
		{name: "Name", member: "name"}}
	volumeClaimStatusFields = []goField{{name: "Phase", member: "phase"}, {name: "AccessModes", member: "accessModes"},
		{name: "Capacity", member: "capacity"},
		{name: "Conditions", member: "conditions", inner: []goField{{name: "Type", member: "type"},
			{name: "Status", member: "status"}, {name: "LastProbeTime", member: "lastProbeTime"},
			{name: "LastTransitionTime", member: "lastTransitionTime"},
			{name: "Reason", member: "reason", zero: `""`}, {name: "Message", member: "message", zero: `""`}}},
		{name: "AllocatedResources", member: "allocatedResources"},
		{name: "AllocatedResourceStatuses", member: "allocatedResourceStatuses"},
		{name: "CurrentVolumeAttributesClassName", member: "currentVolumeAttributesClassName"},
		{name: "ModifyVolumeStatus", member: "modifyVolumeStatus",
			inner: []goField{{name: "TargetVolumeAttributesClassName", member: "targetVolumeAttributesClassName",
				zero: `""`}, {name: "Status", member: "status"}}},
		{name: "HealthStatus", member: "healthStatus",
			inner: []goField{{name: "HealthConditions", member: "healthConditions",
				inner: []goField{{name: "Status", member: "status"}, {name: "Reason", member: "reason"},
					{name: "Message", member: "message", zero: `""`}}},
				{name: "LastTransitionTime", member: "lastTransitionTime"}}}}
)

func (f *errorList) deploymentStrategy(strategy object.Value, p *fielderrors.Location) {
	rolling := strategy.At("rollingUpdate")
	switch text(strategy, "type") {
	case "Recreate":
		if !rolling.IsNull() {
			f.Forbidden(p.To("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")
		}
	case "RollingUpdate":
		unavailable, surge := rolling.At("maxUnavailable"), rolling.At("maxSurge")
		p := p.To("rollingUpdate")
		f.intOrPercent(p.To("maxUnavailable"), unavailable)
		f.intOrPercent(p.To("maxSurge"), surge)
		if intOrPercentValue(unavailable) == 0 && intOrPercentValue(surge) == 0 {
			f.Invalid(p.To("maxUnavailable"), fielderrors.Show(unavailable), "may not be 0 when `maxSurge` is 0")
		}
		f.atMost100Percent(p.To("maxUnavailable"), unavailable)
	default:
		f.InvalidEnum(p, goForm{strategy, strategyFields}, deploymentStrategies)
	}
}

func isPercent(v object.Value) bool {
	return len(notPercent(v.Str())) == 0
}

// notPercent returns why a text is not a percentage. Upstream matches a regular expression, which takes longer than the
// rest of the strategy.
func notPercent(text string) []string {
	if digits, ok := strings.CutSuffix(text, "%"); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return nil
	}
	return utilvalidation.IsValidPercent(text)
}

// intOrPercent demands a number that is not negative, or a percentage.
func (f *errorList) intOrPercent(p *fielderrors.Location, v object.Value) {
	if v.Kind() == object.String {
		for _, wrong := range notPercent(v.Str()) {
			f.Invalid(p, fielderrors.Show(v), wrong)
		}
		return
	}
	f.nonNegative(p, v.Int())
}

// intOrPercentValue is the number, or the number of the percentage. As in the reference, a text that is not a
// percentage is read as a number, and as 0 if it is not one either; a number that is too large is read as the greatest.
func intOrPercentValue(v object.Value) int64 {
	if v.Kind() != object.String {
		return v.Int()
	}
	s := v.Str()
	if isPercent(v) {
		s = s[:len(s)-1]
	}
	n, _ := strconv.Atoi(s)
	return int64(n)
}

func (f *errorList) atMost100Percent(p *fielderrors.Location, v object.Value) {
	if isPercent(v) && intOrPercentValue(v) > 100 {
		f.Invalid(p, fielderrors.Show(v), "must not be greater than 100%")
	}
}

func deploymentCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.deployment(obj.At("spec"), object.Nil)
}

func deploymentUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.deployment(obj.At("spec"), old.At("spec"))
	f.selectorImmutable(obj.At("spec"), old.At("spec"), (*fielderrors.Location)(nil).To("spec").To("selector"))
}

// counts checks the numbers in a controller's status: none may be negative, and those in part may not exceed replicas.
func (f *errorList) counts(status object.Value, part ...string) {
	p := (*fielderrors.Location)(nil).To("status")
	for _, m := range status.Members() {
		f.nonNegative(p.To(m.Key), m.Value.Int())
	}
	for _, key := range part {
		if n := number(status, key); n > number(status, "replicas") {
			f.Invalid(p.To(key), n, "cannot be greater than status.replicas")
		}
	}
}

// availableAreReady refuses more available than ready ones.
func (f *errorList) availableAreReady(status object.Value, ready string) {
	if n := number(status, "availableReplicas"); n > number(status, "readyReplicas") {
		f.Invalid((*fielderrors.Location)(nil).To("status").To("availableReplicas"), n, "cannot be greater than "+ready)
	}
}

// collisionsGrow refuses a smaller collisionCount.
func (f *errorList) collisionsGrow(status, before object.Value) {
	if !has(before, "collisionCount") {
		return
	}
	if n := number(status, "collisionCount"); !has(status, "collisionCount") || n < number(before, "collisionCount") {
		f.Invalid((*fielderrors.Location)(nil).To("status").To("collisionCount"), n, "cannot be decremented")
	}
}

func deploymentStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	status := obj.At("status")
	f.counts(status, "updatedReplicas", "readyReplicas", "availableReplicas")
	f.availableAreReady(status, "readyReplicas")
	f.collisionsGrow(status, old.At("status"))
}

func (f *errorList) replicaSet(spec, before object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	f.nonNegativeMembers(spec, p, "replicas", "minReadySeconds")
	if f.workloadSelector(spec.At("selector"), "deployment", p.To("selector")) {
		f.replicaTemplate(spec, before, p.To("template"))
	}
}

func replicaSetCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.replicaSet(obj.At("spec"), object.Nil)
}

func replicaSetUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.replicaSet(obj.At("spec"), old.At("spec"))
	f.selectorImmutable(obj.At("spec"), old.At("spec"), (*fielderrors.Location)(nil).To("spec").To("selector"))
}

// replicaStatus serves ReplicationControllers, too.
func replicaStatus(f *errorList, obj, _ object.Value) {
	f.qualifiedFinalizers(obj)
	f.counts(obj.At("status"), "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
	f.availableAreReady(obj.At("status"), "readyReplicas")
}

func (f *errorList) replicationController(spec, before object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	f.nonNegativeMembers(spec, p, "minReadySeconds")
	selector := spec.At("selector")
	if selector.Len() == 0 {
		f.Required(p.To("selector"), "")
	}
	f.nonNegativeMembers(spec, p, "replicas")
	template := spec.At("template")
	if template.IsNull() {
		f.Required(p.To("template"), "")
		return
	}
	labels := template.At("metadata", "labels")
	for _, m := range selector.Members() {
		if value, ok := labels.Get(m.Key); !ok || value.Str() != m.Value.Str() {
			f.Invalid(p.To("template").To("metadata").To("labels"), fielderrors.Show(labels), doesNotMatch)
			break
		}
	}
	f.podTemplate(template, before.At("template"), p.To("template"))
	f.runsForever(template, "ReplicationController", p.To("template"))
}

func replicationControllerCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.replicationController(obj.At("spec"), object.Nil)
}

func replicationControllerUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.replicationController(obj.At("spec"), old.At("spec"))
}

func (f *errorList) daemonSet(spec, before object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	selector, template := spec.At("selector"), spec.At("template")
	f.labelSelector(selector, p.To("selector"), hadBadLabelValue(before))
	if match, valid := matches(selector, template.At("metadata", "labels")); valid && !match {
		f.Invalid(p.To("template").To("metadata").To("labels"), fielderrors.Show(template.At("metadata", "labels")),
			doesNotMatch)
	}
	if isEmptySelector(selector) {
		f.Invalid(p.To("selector"), fielderrors.Show(selector), "empty selector is invalid for daemonset")
	}
	f.podTemplate(template, before.At("template"), p.To("template"))
	f.runsForever(template, "DaemonSet", p.To("template"))
	f.nonNegativeMembers(spec, p, "minReadySeconds", "revisionHistoryLimit")
	f.daemonStrategy(spec.At("updateStrategy"), p.To("updateStrategy"))
}

// hadBadLabelValue says whether the old spec of a DaemonSet or a Job has a value that is not a label value, in its
// selector or in the affinity of its pods: an update may then have such values in the selector.
func hadBadLabelValue(before object.Value) bool {
	var old leniency
	old.lenientScheduling(before.At("template", "spec"))
	return old.labelValuesInAffinity || badLabelValue(before.At("selector", "matchExpressions"))
}

func (f *errorList) daemonStrategy(strategy object.Value, p *fielderrors.Location) {
	switch text(strategy, "type") {
	case "OnDelete":
	case "RollingUpdate":
		rolling := strategy.At("rollingUpdate")
		p := p.To("rollingUpdate")
		unavailable, surge := rolling.At("maxUnavailable"), rolling.At("maxSurge")
		f.intOrPercent(p.To("maxUnavailable"), unavailable)
		f.intOrPercent(p.To("maxSurge"), surge)
		f.atMost100Percent(p.To("maxUnavailable"), unavailable)
		f.atMost100Percent(p.To("maxSurge"), surge)
		some, more := intOrPercentValue(unavailable) != 0, intOrPercentValue(surge) != 0
		switch {
		case some && more:
			f.Invalid(p.To("maxSurge"), fielderrors.Show(surge), "may not be set when maxUnavailable is non-zero")
		case !some && !more:
			f.Required(p.To("maxUnavailable"), "cannot be 0 when maxSurge is 0")
		}
	default:
		f.InvalidEnum(p, goForm{strategy, strategyFields}, updateStrategies)
	}
}

func daemonSetCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.daemonSet(obj.At("spec"), object.Nil)
}

func daemonSetUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.selectorImmutable(obj.At("spec"), old.At("spec"), (*fielderrors.Location)(nil).To("spec").To("selector"))
	f.daemonSet(obj.At("spec"), old.At("spec"))
}

func daemonSetStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.counts(obj.At("status"))
	f.collisionsGrow(obj.At("status"), old.At("status"))
}

// statefulSet checks a StatefulSet's spec. In an update (was is not null) immutable fields are not checked again. If
// withTemplate is false, only the metadata of the pod template is checked, and its restart policy and deadline.
func (f *errorList) statefulSet(spec, before object.Value, withTemplate bool) {
	p := (*fielderrors.Location)(nil).To("spec")
	switch policy := text(spec, "podManagementPolicy"); policy {
	case "OrderedReady", "Parallel":
	default:
		f.Invalid(p.To("podManagementPolicy"), fielderrors.Word(policy), "must be 'OrderedReady' or 'Parallel'")
	}
	f.statefulStrategy(spec.At("updateStrategy"), before, p.To("updateStrategy"))
	retention := spec.At("persistentVolumeClaimRetentionPolicy")
	for _, key := range [...]string{"whenDeleted", "whenScaled"} {
		f.only(p.To("persistentVolumeClaimRetentionPolicy").To(key), text(retention, key), retentionPolicies)
	}
	if before.IsNull() {
		for i, claim := range spec.At("volumeClaimTemplates").Items() {
			f.claimSpec(claim.At("spec"), claimLeniency{}, p.To("volumeClaimTemplates").Item(i).To("spec"))
		}
		if service := text(spec, "serviceName"); service != "" {
			f.label(p.To("serviceName"), service)
		}
	}
	f.nonNegativeMembers(spec, p, "replicas", "minReadySeconds")
	f.nonNegative(p.To("ordinals.start"), number(spec.At("ordinals"), "start"))
	f.statefulTemplate(spec, before, withTemplate, p)
	f.runsForever(spec.At("template"), "StatefulSet", p.To("template"))
}

var retentionPolicies = []string{"Retain", "Delete"}

func (f *errorList) statefulStrategy(strategy, before object.Value, p *fielderrors.Location) {
	rolling := strategy.At("rollingUpdate")
	recreates := f.on(features.StatefulSetRecreateStrategy) || text(before.At("updateStrategy"), "type") == "Recreate"
	switch kind := text(strategy, "type"); {
	case kind == "OnDelete", kind == "Recreate" && recreates:
		if !rolling.IsNull() {
			f.Invalid(p.To("rollingUpdate"), goForm{rolling, rollingStatefulFields},
				"only allowed for updateStrategy 'RollingUpdate'")
		}
	case kind != "RollingUpdate":
		why := "must be 'RollingUpdate' or 'OnDelete'"
		if recreates {
			why = "must be 'RollingUpdate', 'OnDelete', or 'Recreate'"
		}
		f.Invalid(p, goForm{strategy, statefulStrategyFields}, why)
	default:
		p := p.To("rollingUpdate")
		f.nonNegativeMembers(rolling, p, "partition")
		if unavailable := rolling.At("maxUnavailable"); !unavailable.IsNull() {
			f.intOrPercent(p.To("maxUnavailable"), unavailable)
			if intOrPercentValue(unavailable) == 0 {
				f.Invalid(p.To("maxUnavailable"), fielderrors.Show(unavailable), "cannot be 0")
			}
			f.atMost100Percent(p.To("maxUnavailable"), unavailable)
		}
	}
}

// statefulTemplate checks the selector, and the template in the form of its pods: with a volume for every claim, and
// with individual host names.
func (f *errorList) statefulTemplate(spec, before object.Value, withTemplate bool, p *fielderrors.Location) {
	selector := spec.At("selector")
	if selector.IsNull() {
		f.Required(p.To("selector"), "")
	} else {
		f.labelSelector(selector, p.To("selector"), false)
		if isEmptySelector(selector) {
			f.Invalid(p.To("selector"), fielderrors.Show(selector), "empty selector is invalid for statefulset")
		}
	}
	template := spec.At("template")
	labels := template.At("metadata", "labels")
	match, valid := matches(selector, labels)
	if !valid {
		f.Invalid(p.To("selector"), fielderrors.Show(selector, selectorOrder...), "")
		return
	}
	if !match {
		f.Invalid(p.To("template").To("metadata").To("labels"), fielderrors.Show(labels), doesNotMatch)
	}
	if withTemplate {
		f.podTemplate(withClaims(template, spec.At("volumeClaimTemplates")), before.At("template"), p.To("template"))
		return
	}
	annotations := template.At("metadata", "annotations")
	objectmeta.Labels(&f.Errors, labels, p.To("template").To("labels"))
	objectmeta.Annotations(&f.Errors, annotations, p.To("template").To("annotations"))
	f.podAnnotations(annotations, template.At("spec"), p.To("template").To("annotations"),
		badDeletionCost(before.At("template", "metadata")))
}

func withClaims(template, claims object.Value) object.Value {
	pod := template.At("spec")
	var names nameSet
	var volumes []object.Value
	for _, claim := range claims.Items() {
		name := object.StringOf(text(claim.At("metadata"), "name"))
		if !names.add(name.Str()) {
			volumes = append(volumes, object.Fields("name", name, "persistentVolumeClaim",
				object.Fields("claimName", name)))
		}
	}
	for _, volume := range pod.At("volumes").Items() {
		if !names.has(text(volume, "name")) {
			volumes = append(volumes, volume)
		}
	}
	return template.With("spec", pod.With("volumes", object.ListOf(volumes...)).Without("hostname").Without("subdomain"))
}

func statefulSetCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.statefulSet(obj.At("spec"), object.Nil, true)
}

func statefulSetUpdate(f *errorList, obj, old object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	f.qualifiedFinalizers(obj)
	spec, previous := obj.At("spec"), old.At("spec")
	before := len(f.List)
	if f.statefulSet(spec, previous, true); len(f.List) > before {
		broken := errorList{Options: f.Options} // a template that was invalid before may stay so
		if broken.statefulSet(previous, previous, true); len(broken.List) > 0 {
			f.List = f.List[:before]
			f.statefulSet(spec, previous, false)
		}
	}
	f.selectorImmutable(spec, previous, p.To("selector"))
	if claims := spec.At("volumeClaimTemplates"); !same(claims, previous.At("volumeClaimTemplates")) {
		f.Invalid(p.To("volumeClaimTemplates"), goForm{claims, volumeClaimFields}, fielderrors.Immutable)
	}
	if name := text(spec, "serviceName"); name != text(previous, "serviceName") {
		f.Invalid(p.To("serviceName"), name, fielderrors.Immutable)
	}
	if policy := text(spec, "podManagementPolicy"); policy != text(previous, "podManagementPolicy") {
		f.Invalid(p.To("podManagementPolicy"), fielderrors.Word(policy), fielderrors.Immutable)
	}
}

func statefulSetStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	status := obj.At("status")
	f.counts(status, "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
	f.availableAreReady(status, "status.readyReplicas")
	f.collisionsGrow(status, old.At("status"))
}

func controllerRevisionCreate(f *errorList, obj object.Value) {
	f.controllerRevision(obj)
	p := (*fielderrors.Location)(nil).To("data")
	switch data := obj.At("data"); data.Kind() {
	case object.Map:
	case object.Null:
		f.Required(p, "data is mandatory")
	default:
		f.Required(p, "data must be a valid JSON object")
	}
}

func (f *errorList) controllerRevision(obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.nonNegative((*fielderrors.Location)(nil).To("revision"), number(obj, "revision"))
}

func controllerRevisionUpdate(f *errorList, obj, old object.Value) {
	f.controllerRevision(obj)
	if !object.Equal(obj.At("data"), old.At("data")) {
		f.Invalid((*fielderrors.Location)(nil).To("data"), fielderrors.Show(obj.At("data")), fielderrors.Immutable)
	}
}

// validOnes is a sorted list of supported values as the reference prints it with %q.
func validOnes(values []string) string { return fmt.Sprintf("valid values: %q", values) }
