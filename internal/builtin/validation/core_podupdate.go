package validation

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// lenient returns the errors that the old spec of a pod excuses in the new one.
func lenient(spec, meta object.Value) leniency {
	old := leniency{
		deletionCost: badDeletionCost(meta),
		hostNetwork:  truth(spec, "hostNetwork") && has(spec, "hostUsers") && !truth(spec, "hostUsers"),
		restartAll:   restartsAll(spec),
		selinux:      has(spec.At("securityContext"), "seLinuxChangePolicy"),
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

func badDeletionCost(meta object.Value) bool {
	cost, ok := meta.At("annotations").Get(deletionCost)
	return ok && !isDeletionCost(cost.Str())
}

func (old *leniency) lenientVolumes(spec object.Value) {
	var paths errorList
	for _, volume := range spec.At("volumes").Items() {
		if image := volume.At("image"); !image.IsNull() && text(image, "reference") == "" {
			old.imageReference = true
		}
		for _, source := range volume.At("projected", "sources").Items() {
			paths.localPath(nil, text(source.At("serviceAccountToken"), "path"))
		}
	}
	old.tokenPaths = len(paths.List) > 0
}

func (old *leniency) lenientContainers(spec object.Value) {
	ownUsers := has(spec, "hostUsers") && !truth(spec, "hostUsers")
	old.hugePages = brokenPages(spec.At("overhead"))
	for _, kind := range containerLists {
		for _, container := range spec.At(kind).Items() {
			resources := container.At("resources")
			old.hugePages = old.hugePages || brokenPages(resources.At("limits")) || brokenPages(resources.At("requests"))
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

// brokenPages says whether one of the quantities is not a whole number of huge pages.
func brokenPages(resources object.Value) bool {
	return slices.ContainsFunc(resources.Members(), func(m object.Member) bool {
		return strings.HasPrefix(m.Key, hugePages) && !isWholePages(m.Key, quantity(m.Value))
	})
}

func (old *leniency) lenientScheduling(spec object.Value) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	for _, term := range spec.At("affinity", "nodeAffinity", required, "nodeSelectorTerms").Items() {
		old.labelValuesInNodeAffinity = old.labelValuesInNodeAffinity || badLabelValue(term.At("matchExpressions"))
	}
	var terms errorList
	for _, key := range [...]string{"podAffinity", "podAntiAffinity"} {
		for _, term := range spec.At("affinity", key, required).Items() {
			terms.termSelectors(term, nil, false)
		}
		for _, term := range spec.At("affinity", key, preferred).Items() {
			terms.termSelectors(term.At("podAffinityTerm"), nil, false)
		}
	}
	old.labelValuesInAffinity = len(terms.List) > 0
	var selectors, keys errorList
	for _, constraint := range spec.At("topologySpreadConstraints").Items() {
		selectors.labelSelector(constraint.At("labelSelector"), nil, false)
		keys.labelKeys(constraint, nil)
	}
	old.spreadSelectors, old.spreadKeys = len(selectors.List) > 0, len(keys.List) > 0
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
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// podRunning checks an updated Pod, but not whether its changes are allowed.
func podRunning(f *errorList, pod, before object.Value) {
	f.qualifiedFinalizers(pod)
	f.podAndMeta(pod, changedFrom(pod.At("spec", evictionResponders), before.At("spec", evictionResponders)),
		f.relaxed(lenient(before.At("spec"), before.At("metadata"))))
}

// podUpdate checks all of a Pod that replaces an old one.
func podUpdate(f *errorList, pod, before object.Value) {
	podRunning(f, pod, before)
	f.podAnnotationChanges(pod, before)
	var root *fielderrors.Location
	spec, old := pod.At("spec"), before.At("spec")
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
	if munged := f.withoutAllowed(spec, old); !same(munged, old) {
		f.Forbidden(root.To("spec"), updatable+"\n"+difference(old, munged))
	}
}

func (f *errorList) podAnnotationChanges(pod, before object.Value) {
	at := (*fielderrors.Location)(nil).To("metadata").To("annotations")
	now, old := pod.At("metadata", "annotations"), before.At("metadata", "annotations")
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
	f.podAnnotations(now, pod.At("spec"), at, badDeletionCost(before.At("metadata")))
}

// sameContainers demands as many containers as before, and checks their images. It says whether the number is the
// same.
func (f *errorList) sameContainers(now, old object.Value, p *fielderrors.Location) bool {
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

// deadlineChange allows the deadline to be set or shortened. It says whether the other changes are to be checked.
func (f *errorList) deadlineChange(spec, old object.Value, p *fielderrors.Location) bool {
	now, before := spec.At("activeDeadlineSeconds"), old.At("activeDeadlineSeconds")
	switch {
	case now.IsNull():
		if !before.IsNull() {
			f.Invalid(p, fielderrors.Show(object.Nil), "must not update from a positive integer to nil value")
		}
		return true
	case now.Int() < 0 || now.Int() > math.MaxInt32:
		f.Invalid(p, now.Int(), utilvalidation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case !before.IsNull() && before.Int() < now.Int():
		f.Invalid(p, now.Int(), "must be less than or equal to previous value")
		return false
	}
	return true
}

// tolerationChanges demands that every toleration is kept; only its tolerationSeconds may change.
func (f *errorList) tolerationChanges(now, old object.Value, p *fielderrors.Location) {
	for _, toleration := range old.Items() {
		bare := toleration.Without("tolerationSeconds")
		if !slices.ContainsFunc(now.Items(),
			func(v object.Value) bool { return object.Equal(v.Without("tolerationSeconds"), bare) }) {
			f.Forbidden(p, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func (f *errorList) gateChanges(now, old object.Value, p *fielderrors.Location) {
	gates := newByName(old.Items())
	for i, gate := range now.Items() {
		name := text(gate, "name")
		if _, ok := gates.find(name); !ok {
			f.Forbidden(p.Item(i).To("name"), "only deletion is allowed, but found new scheduling gate '"+name+"'")
		}
	}
}

// withoutAllowed is the new spec, which has as many containers as the old one, with every field that may change set to
// its old value. It reports the changes of a gated pod's node selection that are not allowed.
func (f *errorList) withoutAllowed(spec, old object.Value) object.Value {
	for _, kind := range [...]string{"containers", "initContainers"} {
		for i, before := range old.At(kind).Items() {
			list := spec.At(kind)
			spec = spec.With(kind, list.WithItem(i, list.Items()[i].With("image", before.At("image"))))
		}
	}
	for _, key := range [...]string{"activeDeadlineSeconds", "schedulingGates", "tolerations"} {
		spec = sameMember(spec, old, key)
	}
	if length(old, "schedulingGates") == 0 {
		return spec
	}
	f.nodeSelectorAdditions(spec.At("nodeSelector"), old.At("nodeSelector"),
		(*fielderrors.Location)(nil).To("spec").To("nodeSelector"))
	spec = sameMember(spec, old, "nodeSelector")
	now, before := spec.At("affinity", "nodeAffinity"), old.At("affinity", "nodeAffinity")
	if same(now, before) {
		return spec
	}
	f.nodeAffinityAdditions(now, before)
	switch affinity := spec.At("affinity").Without("nodeAffinity"); {
	case !before.IsNull():
		spec = spec.With("affinity", affinity.With("nodeAffinity", before))
	case affinity.Len() == 0 && !has(old, "affinity"):
		spec = spec.Without("affinity")
	default:
		spec = spec.With("affinity", affinity)
	}
	return spec
}

// nodeSelectorAdditions allows a pod with scheduling gates to restrict its possible nodes further, never to other
// nodes.
func (f *errorList) nodeSelectorAdditions(now, old object.Value, p *fielderrors.Location) {
	for _, m := range old.Members() {
		if value, ok := now.Get(m.Key); !ok || value.Str() != m.Value.Str() {
			f.Invalid(p, fielderrors.Show(now),
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			return
		}
	}
}

var (
	requirementFields = []goField{{name: "Key", member: "key"}, {name: "Operator", member: "operator"},
		{name: "Values", member: "values"}}
	nodeSelectorTermFields = []goField{{name: "MatchExpressions", member: "matchExpressions", inner: requirementFields},
		{name: "MatchFields", member: "matchFields", inner: requirementFields}}
)

func (f *errorList) nodeAffinityAdditions(now, old object.Value) {
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	at := (*fielderrors.Location)(nil).To("spec").To("affinity").To("nodeAffinity").To(required).To("nodeSelectorTerms")
	terms, were := now.At(required, "nodeSelectorTerms"), old.At(required, "nodeSelectorTerms")
	if were.Len() == 0 {
		return
	}
	if terms.Len() != were.Len() {
		f.Invalid(at, goForm{terms, nodeSelectorTermFields},
			"no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i, before := range were.Items() {
		term := terms.Items()[i]
		if !onlyAdds(term, before) {
			f.Invalid(at.Item(i), goForm{term, nodeSelectorTermFields},
				"only additions are allowed (no mutations or deletions)")
		}
	}
}

// onlyAdds says whether a term begins with the requirements of an old one. A term without requirements does not match
// any node, and must stay so.
func onlyAdds(term, before object.Value) bool {
	if length(before, "matchExpressions")+length(before, "matchFields") == 0 {
		return length(term, "matchExpressions")+length(term, "matchFields") == 0
	}
	for _, key := range [...]string{"matchExpressions", "matchFields"} {
		now, old := term.At(key).Items(), before.At(key).Items()
		if len(now) < len(old) || !slices.EqualFunc(now[:len(old)], old, same) {
			return false
		}
	}
	return true
}

// maxDiffed is the length of the two texts, in bytes, up to which their difference is shown. Finding it takes time
// quadratic in the number of lines: for a Pod of a megabyte, which the reference shows as well, more than a minute.
const maxDiffed = 1 << 16

// difference shows where two values differ.
func difference(before, now object.Value) string {
	a, b := object.AppendJSON(nil, before), object.AppendJSON(nil, now)
	if len(a)+len(b) > maxDiffed {
		return "(too long to be compared)"
	}
	return diff.Diff(json.RawMessage(a), json.RawMessage(b))
}
