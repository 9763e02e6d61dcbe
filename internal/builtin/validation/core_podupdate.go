package validation

import (
	"math"
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// lenient returns the errors that the old spec of a pod excuses in the new one.
func lenient(spec, meta object.Value) leniency {
	old := leniency{
		hostNetwork: truth(spec, "hostNetwork") && has(spec, "hostUsers") && !truth(spec, "hostUsers"),
	}
	if cost, ok := meta.At("annotations").Get(deletionCost); ok {
		old.deletionCost = !isDeletionCost(cost.Str())
	}
	for _, toleration := range spec.At("tolerations").Items() {
		operator := text(toleration, "operator")
		old.comparisons = old.comparisons || operator == "Lt" || operator == "Gt"
	}
	for _, sysctl := range spec.At("securityContext", "sysctls").Items() {
		old.sysctls = old.sysctls || hostSysctl(text(sysctl, "name"), spec) != ""
	}
	old.lenientVolumes(spec)
	old.lenientContainers(spec)
	old.lenientScheduling(spec)
	return old
}

func (old *leniency) lenientVolumes(spec object.Value) {
	for _, volume := range spec.At("volumes").Items() {
		if image := volume.At("image"); !image.IsNull() && text(image, "reference") == "" {
			old.imageReference = true
		}
		for _, source := range volume.At("projected", "sources").Items() {
			if token := source.At("serviceAccountToken"); !token.IsNull() {
				var f errorList
				f.localPath(nil, text(token, "path"))
				old.tokenPaths = old.tokenPaths || len(f.List) > 0
			}
		}
	}
}

func (old *leniency) lenientContainers(spec object.Value) {
	ownUsers := has(spec, "hostUsers") && !truth(spec, "hostUsers")
	for _, kind := range containerLists {
		for _, container := range spec.At(kind).Items() {
			old.hugePages = old.hugePages || brokenPages(container.At("resources"))
			old.volumeDevices = old.volumeDevices || ownUsers && length(container, "volumeDevices") > 0
			context := container.At("securityContext")
			escalates := truth(context, "allowPrivilegeEscalation")
			old.sysAdmin = old.sysAdmin || !escalates && contains(context.At("capabilities", "add"), "CAP_SYS_ADMIN")
			if kind == "initContainers" && text(container, "restartPolicy") != "Always" {
				for _, policy := range container.At("resizePolicy").Items() {
					old.restartContainer = old.restartContainer || text(policy, "restartPolicy") == "RestartContainer"
				}
			}
		}
	}
}

func brokenPages(resources object.Value) bool {
	for _, key := range [...]string{"limits", "requests"} {
		for _, m := range resources.At(key).Members() {
			if strings.HasPrefix(m.Key, hugePages) && !isWholePages(m.Key, quantity(m.Value)) {
				return true
			}
		}
	}
	return false
}

func (old *leniency) lenientScheduling(spec object.Value) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	for _, term := range spec.At("affinity", "nodeAffinity", required, "nodeSelectorTerms").Items() {
		old.labelValuesInNodeAffinity = old.labelValuesInNodeAffinity || badLabelValue(term.At("matchExpressions"))
	}
	bad := func(term object.Value) bool {
		return badLabelValue(term.At("labelSelector", "matchExpressions")) ||
			badLabelValue(term.At("namespaceSelector", "matchExpressions"))
	}
	for _, key := range [...]string{"podAffinity", "podAntiAffinity"} {
		for _, term := range spec.At("affinity", key, required).Items() {
			old.labelValuesInAffinity = old.labelValuesInAffinity || bad(term)
		}
		for _, term := range spec.At("affinity", key, preferred).Items() {
			old.labelValuesInAffinity = old.labelValuesInAffinity || bad(term.At("podAffinityTerm"))
		}
	}
	for _, constraint := range spec.At("topologySpreadConstraints").Items() {
		var selector errorList
		selector.labelSelector(constraint.At("labelSelector"), nil, false)
		old.spreadSelectors = old.spreadSelectors || len(selector.List) > 0
	}
	old.spreadKeys = brokenSpreadKeys(spec)
}

// badLabelValue says whether one of the requirements has a value that is not a valid label value.
func badLabelValue(requirements object.Value) bool {
	for _, requirement := range requirements.Items() {
		for _, value := range requirement.At("values").Items() {
			if len(objectmeta.LabelValueErrors(value.Str())) > 0 {
				return true
			}
		}
	}
	return false
}

const updatable = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`," +
	"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"

// podRunning checks an updated Pod, but not whether its changes are allowed.
func podRunning(f *errorList, pod, was object.Value) { f.podExcused(pod, was) }

// podExcused is podRunning. It returns the leniency that was needed.
func (f *errorList) podExcused(pod, was object.Value) leniency {
	f.qualifiedFinalizers(pod)
	excuse := leniency{spreadKeys: brokenSpreadKeys(was.At("spec"))}
	before := len(f.List)
	if f.podAndMeta(pod, excuse); len(f.List) > before {
		if excuse = lenient(was.At("spec"), was.At("metadata")); excuse != (leniency{}) {
			f.List = f.List[:before]
			f.podAndMeta(pod, excuse)
		}
	}
	return excuse
}

// podUpdate checks all of a Pod that replaces an old one.
func podUpdate(f *errorList, pod, was object.Value) {
	excuse := f.podExcused(pod, was)
	f.podAnnotationChanges(pod, was, excuse)
	var root *fielderrors.Place
	spec, old := pod.At("spec"), was.At("spec")
	for _, kind := range [...]string{"containers", "initContainers"} {
		if !f.sameContainers(spec.At(kind), old.At(kind), root.To("spec").To(kind)) {
			return
		}
	}
	if !f.deadlineChange(spec, old, root.To("spec").To("activeDeadlineSeconds")) {
		return
	}
	f.tolerationChanges(spec.At("tolerations"), old.At("tolerations"), root.To("spec").To("tolerations"))
	f.gateChanges(spec.At("schedulingGates"), old.At("schedulingGates"), root.To("spec").To("schedulingGates"))
	if same(spec, old) {
		return
	}
	if munged := f.withoutAllowed(spec, old); !same(munged, old) {
		f.Forbidden(root.To("spec"), updatable+difference(old, munged))
	}
}

func (f *errorList) podAnnotationChanges(pod, was object.Value, excuse leniency) {
	at := (*fielderrors.Place)(nil).To("metadata").To("annotations")
	now, old := pod.At("metadata", "annotations"), was.At("metadata", "annotations")
	for _, m := range old.Members() {
		if value, ok := now.Get(m.Key); ok && value.Str() == m.Value.Str() {
			continue
		}
		if strings.HasPrefix(m.Key, appArmorAnnotations) {
			f.Forbidden(at.Key(m.Key), "may not remove or update AppArmor annotations")
		}
		if m.Key == mirrorAnnotation {
			f.Forbidden(at.Key(m.Key), "may not remove or update mirror pod annotation")
		}
	}
	for _, m := range now.Members() {
		if _, ok := old.Get(m.Key); ok {
			continue
		}
		if strings.HasPrefix(m.Key, appArmorAnnotations) {
			f.Forbidden(at.Key(m.Key), "may not add AppArmor annotations")
		}
		if m.Key == mirrorAnnotation {
			f.Forbidden(at.Key(m.Key), "may not add mirror pod annotation")
		}
	}
	f.podAnnotations(now, pod.At("spec"), at, excuse)
}

// sameContainers says whether the number of containers is the same as before.
func (f *errorList) sameContainers(now, old object.Value, p *fielderrors.Place) bool {
	if now.Len() != old.Len() {
		f.Forbidden(p, "pod updates may not add or remove containers")
		return false
	}
	for i, container := range now.Items() {
		f.requiredText(p.Item(i).To("image"), text(container, "image"))
		f.trimmedImage(container, p.Item(i))
	}
	return true
}

// deadlineChange says whether to continue.
func (f *errorList) deadlineChange(spec, old object.Value, p *fielderrors.Place) bool {
	now, was := spec.At("activeDeadlineSeconds"), old.At("activeDeadlineSeconds")
	switch {
	case now.IsNull():
		if !was.IsNull() {
			f.Invalid(p, fielderrors.Show(object.Nil), "must not update from a positive integer to nil value")
		}
		return true
	case now.Int() < 0 || now.Int() > math.MaxInt32:
		f.Invalid(p, now.Int(), utilvalidation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case !was.IsNull() && was.Int() < now.Int():
		f.Invalid(p, now.Int(), "must be less than or equal to previous value")
		return false
	}
	return true
}

// tolerationChanges demands that every toleration is kept; only its tolerationSeconds may change.
func (f *errorList) tolerationChanges(now, old object.Value, p *fielderrors.Place) {
	for _, toleration := range old.Items() {
		bare := toleration.Without("tolerationSeconds")
		if !slices.ContainsFunc(now.Items(),
			func(v object.Value) bool { return object.Equal(v.Without("tolerationSeconds"), bare) }) {
			f.Forbidden(p, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func (f *errorList) gateChanges(now, old object.Value, p *fielderrors.Place) {
	gates := newByName(old.Items())
	for i, gate := range now.Items() {
		name := text(gate, "name")
		if _, ok := gates.find(name); !ok {
			f.Forbidden(p.Item(i).To("name"), "only deletion is allowed, but found new scheduling gate '"+name+"'")
		}
	}
}

// withoutAllowed is the new spec with every field that may change set to its old value.
func (f *errorList) withoutAllowed(spec, old object.Value) object.Value {
	for _, kind := range [...]string{"containers", "initContainers"} {
		containers := slices.Clone(spec.At(kind).Items())
		for i := range containers {
			containers[i] = containers[i].With("image", old.At(kind).Items()[i].At("image"))
		}
		if len(containers) > 0 {
			spec = spec.With(kind, object.ListOf(containers...))
		}
	}
	reset := func(key string) {
		if v, ok := old.Get(key); ok {
			spec = spec.With(key, v)
		} else {
			spec = spec.Without(key)
		}
	}
	reset("activeDeadlineSeconds")
	reset("schedulingGates")
	reset("tolerations")
	if number(old, "terminationGracePeriodSeconds") < 0 && number(spec, "terminationGracePeriodSeconds") == 1 {
		reset("terminationGracePeriodSeconds")
	}
	if length(old, "schedulingGates") == 0 {
		return spec
	}
	if !same(spec.At("nodeSelector"), old.At("nodeSelector")) {
		f.nodeSelectorAdditions(spec.At("nodeSelector"), old.At("nodeSelector"),
			(*fielderrors.Place)(nil).To("spec").To("nodeSelector"))
		reset("nodeSelector")
	}
	now, was := spec.At("affinity", "nodeAffinity"), old.At("affinity", "nodeAffinity")
	if same(now, was) {
		return spec
	}
	f.nodeAffinityAdditions(now, was)
	switch affinity := spec.At("affinity").Without("nodeAffinity"); {
	case !was.IsNull():
		spec = spec.With("affinity", affinity.With("nodeAffinity", was))
	case affinity.Len() == 0 && !has(old, "affinity"):
		spec = spec.Without("affinity")
	default:
		spec = spec.With("affinity", affinity)
	}
	return spec
}

// nodeSelectorAdditions allows a pod with scheduling gates to restrict its possible nodes further, never to other
// nodes.
func (f *errorList) nodeSelectorAdditions(now, old object.Value, p *fielderrors.Place) {
	for _, m := range old.Members() {
		if value, ok := now.Get(m.Key); !ok || value.Str() != m.Value.Str() {
			f.Invalid(p, fielderrors.Show(now),
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			return
		}
	}
}

var (
	requirementFields = []goField{{name: "Key", member: "key", zero: `""`},
		{name: "Operator", member: "operator", zero: `""`}, {name: "Values", member: "values"}}
	nodeSelectorTermFields = []goField{{name: "MatchExpressions", member: "matchExpressions", inner: requirementFields},
		{name: "MatchFields", member: "matchFields", inner: requirementFields}}
)

func (f *errorList) nodeAffinityAdditions(now, old object.Value) {
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	at := (*fielderrors.Place)(nil).To("spec").To("affinity").To("nodeAffinity").To(required).To("nodeSelectorTerms")
	terms, were := now.At(required, "nodeSelectorTerms"), old.At(required, "nodeSelectorTerms")
	if were.Len() == 0 {
		return
	}
	if terms.Len() != were.Len() {
		f.Invalid(at, goForm{terms, nodeSelectorTermFields},
			"no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i, was := range were.Items() {
		term := terms.Items()[i]
		if !onlyAdds(term, was) {
			f.Invalid(at.Item(i), goForm{term, nodeSelectorTermFields},
				"only additions are allowed (no mutations or deletions)")
		}
	}
}

// onlyAdds says whether a term begins with the requirements of an old one. A term without requirements does not match
// any node, and must stay so.
func onlyAdds(term, was object.Value) bool {
	if length(was, "matchExpressions")+length(was, "matchFields") == 0 {
		return length(term, "matchExpressions")+length(term, "matchFields") == 0
	}
	for _, key := range [...]string{"matchExpressions", "matchFields"} {
		now, old := term.At(key).Items(), was.At(key).Items()
		if len(now) < len(old) || !slices.EqualFunc(now[:len(old)], old, same) {
			return false
		}
	}
	return true
}

// difference shows where two values differ: the lines of their JSON from the first to the last that differs, as one
// hunk of a unified diff.
func difference(was, now object.Value) string {
	const around = 3
	a, b := prettyLines(was), prettyLines(now)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	from, to := max(head-around, 0), min(tail, around)
	var out strings.Builder
	lines := func(prefix string, of []string) {
		for _, line := range of {
			out.WriteString(prefix + line + "\n")
		}
	}
	hunk := func(n int) string { return strconv.Itoa(from+1) + "," + strconv.Itoa(n-tail+to-from) }
	out.WriteString("@@ -" + hunk(len(a)) + " +" + hunk(len(b)) + " @@\n")
	lines(" ", a[from:head])
	lines("-", a[head:len(a)-tail])
	lines("+", b[head:len(b)-tail])
	lines(" ", a[len(a)-tail:len(a)-tail+to])
	return out.String()
}
