package validation

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	mirrorAnnotation      = "kubernetes.io/config.mirror"
	tolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerations"
	evictionResponders    = "evictionResponders"
	deletionCost          = "controller.kubernetes.io/pod-deletion-cost"
	seccompPodAnnotation  = "seccomp.security.alpha.kubernetes.io/pod"
	anyProfile            = "container." // what the next two begin with
	seccompAnnotations    = "container.seccomp.security.alpha.kubernetes.io/"
	appArmorAnnotations   = "container.apparmor.security.beta.kubernetes.io/"
)

// podRules is one validation of a pod's spec, in a Pod or in a template.
type podRules struct {
	spec object.Value
	// meta is the metadata of the Pod, null in a template: there the name is not known yet.
	meta    object.Value
	volumes byName // without those that have errors
	claims  byName
	grace   object.Value // terminationGracePeriodSeconds
	// responders are the eviction responders, with those that an update replaces.
	responders revised
	os         string
	hostUser   bool // the pod shares the user namespace of its node
	old        leniency
}

// leniency has the errors that an update may keep because the old object has them, and that a new object may not have.
// The zero value is strict.
type leniency struct {
	deletionCost, labelValuesInAffinity, labelValuesInNodeAffinity, spreadSelectors, spreadKeys bool
	hugePages, tokenPaths, sysctls, restartContainer, volumeDevices, imageReference, sysAdmin   bool
	comparisons, hostNetwork, restartAll, selinux                                               bool
}

// relaxed adds what is accepted of new objects, too, with the feature gates as they are.
func (f *errorList) relaxed(old leniency) leniency {
	old.deletionCost = old.deletionCost || !f.on(features.PodDeletionCost)
	old.comparisons = old.comparisons || f.on(features.TaintTolerationComparisonOperators)
	old.hostNetwork = old.hostNetwork || f.on(features.UserNamespacesHostNetworkSupport)
	old.restartAll = old.restartAll || f.on(features.RestartAllContainersOnContainerExits)
	old.selinux = old.selinux || f.on(features.SELinuxMount)
	return old
}

// podAndMeta checks a Pod, except for the rules of metadata in general.
func (f *errorList) podAndMeta(pod object.Value, responders revised, old leniency) {
	var root *fielderrors.Location
	spec := pod.At("spec")
	f.podAnnotations(pod.At("metadata", "annotations"), spec, root.To("metadata").To("annotations"), old.deletionCost)
	rules := podRules{spec: spec, meta: pod.At("metadata"), responders: responders, old: old}
	f.podSpec(&rules, root.To("spec"))
	if text(spec, "serviceAccountName") == "" {
		f.tokensWithoutAccount(spec, root.To("spec"))
	}
	f.trimmedImages(spec.At("containers"), root.To("spec").To("containers"))
	f.trimmedImages(spec.At("initContainers"), root.To("spec").To("initContainers"))
}

func (f *errorList) tokensWithoutAccount(spec object.Value, p *fielderrors.Location) {
	for i, volume := range spec.At("volumes").Items() {
		for j, source := range volume.At("projected", "sources").Items() {
			if has(source, "serviceAccountToken") {
				f.Forbidden(p.To("volumes").Item(i).To("projected").To("sources").Item(j).To("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
}

func (f *errorList) trimmedImages(containers object.Value, p *fielderrors.Location) {
	for i, container := range containers.Items() {
		f.trimmedImage(container, p.Item(i))
	}
}

func (f *errorList) trimmedImage(container object.Value, p *fielderrors.Location) {
	if image := text(container, "image"); len(strings.TrimSpace(image)) != len(image) {
		f.Invalid(p.To("image"), image, "must not have leading or trailing whitespace")
	}
}

// podAnnotations checks the annotations that have a meaning for pods; with anyCost, every deletion cost is valid.
func (f *errorList) podAnnotations(annotations, spec object.Value, p *fielderrors.Location, anyCost bool) {
	if value, ok := annotations.Get(mirrorAnnotation); ok && text(spec, "nodeName") == "" {
		f.Invalid(p.Key(mirrorAnnotation), value.Str(), "must set spec.nodeName if mirror pod annotation is set")
	}
	if cost, ok := annotations.Get(deletionCost); ok && !anyCost && !isDeletionCost(cost.Str()) {
		f.Invalid(p.Key(deletionCost), cost.Str(), "must be a 32bit integer")
	}
	if profile, ok := annotations.Get(seccompPodAnnotation); ok {
		f.seccompName(profile.Str(), p.To(seccompPodAnnotation))
	}
	for _, m := range annotations.Members() {
		if strings.HasPrefix(m.Key, seccompAnnotations) {
			f.seccompName(m.Value.Str(), p.To(m.Key))
		}
		if container, ok := strings.CutPrefix(m.Key, appArmorAnnotations); ok {
			f.appArmorAnnotation(container, m.Value.Str(), spec, p.Key(m.Key))
		}
	}
}

// isDeletionCost says whether a text is an integer of 32 bits in its plain form.
func isDeletionCost(s string) bool {
	if s == "" || s[0] == '+' || s[0] == '0' && s != "0" {
		return false
	}
	_, err := strconv.ParseInt(s, 10, 32)
	return err == nil
}

func (f *errorList) podSpec(r *podRules, p *fielderrors.Location) {
	spec := r.spec
	r.grace = spec.At("terminationGracePeriodSeconds") // defaults set it, in a Pod to 1 if it is negative
	r.hostUser = !has(spec, "hostUsers") || truth(spec, "hostUsers")
	r.os = text(spec.At("os"), "name")
	f.volumes(r, p.To("volumes"))
	f.podClaims(r, p.To("resourceClaims"))
	f.containers(r, p.To("containers"))
	f.initContainers(r, p.To("initContainers"))
	f.ephemeralContainers(r, p.To("ephemeralContainers"))
	f.podResources(r, p)
	f.hostPortsOnHostNetwork(spec, p.To("containers"))
	f.oneOf(p.To("restartPolicy"), text(spec, "restartPolicy"), restartPolicies)
	f.oneOf(p.To("dnsPolicy"), text(spec, "dnsPolicy"), dnsPolicies)
	objectmeta.Labels(&f.Errors, spec.At("nodeSelector"), p.To("nodeSelector"))
	f.podSecurityContext(r, p.To("securityContext"))
	if truth(spec, "shareProcessNamespace") && truth(spec, "hostPID") {
		f.Invalid(p.To("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	f.affinity(spec.At("affinity"), r.old, p.To("affinity"))
	f.dnsConfig(spec, p.To("dnsConfig"))
	for i, gate := range spec.At("readinessGates").Items() {
		f.qualified(p.To("readinessGates").Item(i).To("conditionType"), text(gate, "conditionType"))
	}
	f.schedulingGates(spec.At("schedulingGates"), p.To("schedulingGates"))
	f.topologySpread(spec.At("topologySpreadConstraints"), r.old, p.To("topologySpreadConstraints"))
	f.hostProcessPod(spec, p)
	f.userNamespace(r, p)
	f.hostnameOverride(spec, p.To("hostnameOverride"))
	f.podNames(spec, p)
	f.tolerations(spec.At("tolerations"), r.old, p.To("tolerations"))
	f.hostAliases(spec.At("hostAliases"), p.To("hostAliases"))
	f.podClasses(spec, r.old, p)
	f.operatingSystem(spec, p)
	f.schedulingGroup(spec, p.To("schedulingGroup"))
	f.fileKeys(spec, p)
	f.podResponders(r.responders, p.To(evictionResponders))
}

// schedulingGroup checks the reference to a PodGroup.
func (f *errorList) schedulingGroup(spec object.Value, p *fielderrors.Location) {
	group := spec.At("schedulingGroup")
	if group.IsNull() {
		return
	}
	if name := group.At("podGroupName"); name.IsNull() {
		f.Invalid(p.To("podGroupName"), nil, "must specify one of: `podGroupName`")
	} else {
		f.subdomain(p.To("podGroupName"), name.Str())
	}
	if length(spec, evictionResponders) > 0 {
		f.Forbidden(p, "may not be set when evictionResponders is set")
	}
}

var (
	restartPolicies    = []string{"Always", "OnFailure", "Never"}
	dnsPolicies        = []string{"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"}
	preemptionPolicies = []string{"PreemptLowerPriority", "Never"}
)

// podNames checks the names and the deadline in a pod's spec.
func (f *errorList) podNames(spec object.Value, p *fielderrors.Location) {
	account := text(spec, "serviceAccountName")
	if account != "" {
		f.subdomain(p.To("serviceAccountName"), account)
	}
	if node := text(spec, "nodeName"); node != "" {
		f.subdomain(p.To("nodeName"), node)
	}
	if deadline := spec.At("activeDeadlineSeconds"); !deadline.IsNull() {
		f.within(p.To("activeDeadlineSeconds"), deadline.Int(), 1, math.MaxInt32)
	}
	if hostname := text(spec, "hostname"); hostname != "" {
		f.label(p.To("hostname"), hostname)
	}
	if subdomain := text(spec, "subdomain"); subdomain != "" {
		f.label(p.To("subdomain"), subdomain)
	}
}

// podClasses checks the priority, the runtime class and the overhead in a pod's spec.
func (f *errorList) podClasses(spec object.Value, old leniency, p *fielderrors.Location) {
	if class := text(spec, "priorityClassName"); class != "" {
		f.subdomain(p.To("priorityClassName"), class)
	}
	if class := spec.At("runtimeClassName"); !class.IsNull() {
		f.subdomain(p.To("runtimeClassName"), class.Str())
	}
	if policy := spec.At("preemptionPolicy"); !policy.IsNull() {
		f.oneOf(p.To("preemptionPolicy"), policy.Str(), preemptionPolicies)
	}
	f.resourceList(spec.At("overhead"), p.To("overhead").To("limits"), containerResource, old)
	f.hugePagesNeedMore(spec.At("overhead"), object.Nil, p.To("overhead"))
}

func (f *errorList) podClaims(r *podRules, p *fielderrors.Location) {
	claims := r.spec.At("resourceClaims")
	r.claims = newByName(claims.Items())
	var names nameSet
	for i, claim := range claims.Items() {
		if has(r.meta.At("annotations"), mirrorAnnotation) {
			f.Forbidden((*fielderrors.Location)(nil).To(""), "static pods do not support resource claims")
			continue
		}
		p := p.Item(i)
		switch name := text(claim, "name"); {
		case name == "":
			f.Required(p.To("name"), "")
		case names.has(name):
			f.Duplicate(p.To("name"), name)
		default:
			f.label(p.To("name"), name)
			names.add(name)
		}
		claimName, template := claim.At("resourceClaimName"), claim.At("resourceClaimTemplateName")
		if !claimName.IsNull() && !template.IsNull() {
			f.Invalid(p, goForm{claim, podClaimFields},
				"at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		}
		if claimName.IsNull() && template.IsNull() {
			f.Invalid(p, goForm{claim, podClaimFields},
				"must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if !claimName.IsNull() {
			f.subdomain(p.To("resourceClaimName"), claimName.Str())
		}
		if !template.IsNull() {
			f.subdomain(p.To("resourceClaimTemplateName"), template.Str())
		}
	}
}

// hostPortsOnHostNetwork demands that hostPort equals containerPort. A template may leave hostPort out; in a Pod,
// defaults set it.
func (f *errorList) hostPortsOnHostNetwork(spec object.Value, p *fielderrors.Location) {
	if !truth(spec, "hostNetwork") {
		return
	}
	for i, container := range spec.At("containers").Items() {
		for j, port := range container.At("ports").Items() {
			if host := number(port, "hostPort"); host != 0 && host != number(port, "containerPort") {
				f.Invalid(p.Item(i).To("ports").Item(j).To("hostPort"), host,
					"must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

func (f *errorList) schedulingGates(gates object.Value, p *fielderrors.Location) {
	var names nameSet
	for i, gate := range gates.Items() {
		name := text(gate, "name")
		f.qualified(p.Item(i), name)
		if names.add(name) {
			f.Duplicate(p.Item(i), name)
		}
	}
}

const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

func (f *errorList) dnsConfig(spec object.Value, p *fielderrors.Location) {
	config := spec.At("dnsConfig")
	nameservers, searches := config.At("nameservers"), config.At("searches")
	if text(spec, "dnsPolicy") == "None" {
		if config.IsNull() {
			f.Required(p, "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if nameservers.Len() == 0 {
			f.Required(p.To("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if nameservers.Len() > maxNameservers {
		f.Invalid(p.To("nameservers"), fielderrors.Show(nameservers),
			fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, server := range nameservers.Items() {
		f.legacyIP(p.To("nameservers").Item(i), server.Str(), object.Nil)
	}
	f.dnsSearches(searches, p.To("searches"))
	for i, option := range config.At("options").Items() {
		if text(option, "name") == "" {
			f.Required(p.To("options").Item(i), "must not be empty")
		}
	}
}

func (f *errorList) dnsSearches(searches object.Value, p *fielderrors.Location) {
	if searches.Len() > maxSearches {
		f.Invalid(p, fielderrors.Show(searches), fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	total := max(searches.Len()-1, 0)
	for _, search := range searches.Items() {
		total += search.Len()
	}
	if total > maxSearchChars {
		f.Invalid(p, fielderrors.Show(searches),
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchChars))
	}
	for i, item := range searches.Items() {
		if search := item.Str(); search != "." {
			search = strings.TrimSuffix(search, ".")
			f.Each(p.Item(i), search, utilvalidation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
}

func (f *errorList) hostnameOverride(spec object.Value, p *fielderrors.Location) {
	override := spec.At("hostnameOverride")
	if override.IsNull() {
		return
	}
	if truth(spec, "setHostnameAsFQDN") {
		f.Forbidden(p, "may not be specified when setHostnameAsFQDN is true")
	}
	if truth(spec, "hostNetwork") {
		f.Forbidden(p, "may not be specified when hostNetwork is true")
	}
	if override.Len() > 64 {
		f.TooLong(p, 64)
	}
	f.subdomain(p, override.Str())
}

func (f *errorList) hostAliases(aliases object.Value, p *fielderrors.Location) {
	for i, alias := range aliases.Items() {
		f.legacyIP(p.Item(i).To("ip"), text(alias, "ip"), object.Nil)
		for j, hostname := range alias.At("hostnames").Items() {
			f.subdomain(p.Item(i).To("hostnames").Item(j), hostname.Str())
		}
	}
}

// userNamespace refuses the fields that a pod with a separate user namespace cannot have.
func (f *errorList) userNamespace(r *podRules, p *fielderrors.Location) {
	if r.hostUser {
		return
	}
	const why = "when `hostUsers` is false"
	if truth(r.spec, "hostNetwork") && !r.old.hostNetwork {
		f.Forbidden(p.To("hostNetwork"), why)
	}
	if truth(r.spec, "hostPID") {
		f.Forbidden(p.To("HostPID"), why)
	}
	if truth(r.spec, "hostIPC") {
		f.Forbidden(p.To("HostIPC"), why)
	}
	if r.old.volumeDevices {
		return
	}
	for _, kind := range containerLists {
		for i, container := range r.spec.At(kind).Items() {
			if length(container, "volumeDevices") > 0 {
				f.Forbidden(p.To(kind).Item(i).To("volumeDevices"), why)
			}
		}
	}
}

// containerLists are the members of a pod's spec that list containers.
var containerLists = [...]string{"initContainers", "containers", "ephemeralContainers"}

// fileKeys demands that variables from a file name a volume of a type that can contain the file.
func (f *errorList) fileKeys(spec object.Value, p *fielderrors.Location) {
	for _, kind := range containerLists {
		for i, container := range spec.At(kind).Items() {
			for j, env := range container.At("env").Items() {
				file := env.At("valueFrom", "fileKeyRef")
				if file.IsNull() {
					continue
				}
				name := text(file, "volumeName")
				volumes := newByName(spec.At("volumes").Items())
				p := p.To(kind).Item(i).To("env").Item(j).To("valueFrom").To("fileKeyRef").To("volumeName")
				if volume, ok := volumes.find(name); !ok {
					f.NotFound(p, name)
				} else if !has(volume, "emptyDir") {
					f.Invalid(p, name, "referenced volume must be of type emptyDir")
				}
			}
		}
	}
}

// podCreate checks all of a new Pod.
func podCreate(f *errorList, pod object.Value) {
	f.qualifiedFinalizers(pod)
	var root *fielderrors.Location
	spec := pod.At("spec")
	f.podAndMeta(pod, created(spec.At(evictionResponders)), f.relaxed(leniency{}))
	if length(spec, "ephemeralContainers") > 0 {
		f.Forbidden(root.To("spec").To("ephemeralContainers"), "cannot be set on create")
	}
	if text(spec, "nodeName") != "" && length(spec, "schedulingGates") != 0 {
		f.Forbidden(root.To("spec").To("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	f.profilesAgree(pod.At("metadata", "annotations"), spec, root.To("spec"))
}

// podTemplate checks the template of a controller's pods. was is the old template, null in a new object.
func (f *errorList) podTemplate(template, before object.Value, p *fielderrors.Location) {
	old := f.relaxed(lenient(before.At("spec"), before.At("metadata")))
	meta, spec := template.At("metadata"), template.At("spec")
	annotations := meta.At("annotations")
	objectmeta.Labels(&f.Errors, meta.At("labels"), p.To("labels"))
	objectmeta.Annotations(&f.Errors, annotations, p.To("annotations"))
	f.podAnnotations(annotations, spec, p.To("annotations"), old.deletionCost)
	responders := changedFrom(spec.At(evictionResponders), before.At("spec", evictionResponders))
	rules := podRules{spec: spec, responders: responders, old: old}
	f.podSpec(&rules, p.To("spec"))
	f.profilesAgree(annotations, spec, p.To("spec"))
	if length(spec, "ephemeralContainers") > 0 {
		f.Forbidden(p.To("spec").To("ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
}

// podTemplateKind are the rules of PodTemplate, which is only stored.
var podTemplateKind = Kind{
	create: func(f *errorList, obj object.Value) {
		f.qualifiedFinalizers(obj)
		f.podTemplate(obj.At("template"), object.Nil, (*fielderrors.Location)(nil).To("template"))
	},
	update: func(f *errorList, obj, old object.Value) {
		f.qualifiedFinalizers(obj)
		f.podTemplate(obj.At("template"), old.At("template"), (*fielderrors.Location)(nil).To("template"))
	},
}

func anyContainer(spec object.Value, matches func(container object.Value) bool) bool {
	for _, kind := range containerLists {
		if slices.ContainsFunc(spec.At(kind).Items(), matches) {
			return true
		}
	}
	return false
}
