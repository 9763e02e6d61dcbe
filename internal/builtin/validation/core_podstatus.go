package validation

import (
	"fmt"
	"math"
	"slices"
	"strings"

	netutils "k8s.io/utils/net"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has the rules of a Pod's status.

const (
	maxHealthMessage = 1024
	fromClaim        = "claim:" // the prefix of a resource that was allocated by a claim
	notNegativeAtAll = "must be a non-negative integer"
)

var (
	healths        = []string{"Healthy", "Unhealthy", "Unknown"}
	ipFields       = []goField{{name: "IP", member: "ip"}}
	statusesOfPods = [...]struct{ statuses, containers string }{
		{"containerStatuses", "containers"}, {"initContainerStatuses", "initContainers"},
		{"ephemeralContainerStatuses", "ephemeralContainers"},
	}
)

func podStatus(f *errorList, pod, before object.Value) {
	f.qualifiedFinalizers(pod)
	f.podAnnotationChanges(pod, before)
	p := (*fielderrors.Location)(nil).To("status")
	spec, status, old := pod.At("spec"), pod.At("status"), before.At("status")
	f.podConditions(status.At("conditions"), p.To("conditions"))
	if node := text(status, "nominatedNodeName"); node != "" && node != text(old, "nominatedNodeName") {
		f.subdomain(p.To("nominatedNodeName"), node)
		if text(before.At("spec"), "nodeName") != "" && f.on(features.ClearingNominatedNodeNameAfterBinding) {
			f.Forbidden(p.To("nominatedNodeName"), "may not be set on pods that are already bound to a node")
		}
	}
	if n := number(status, "observedGeneration"); n < 0 {
		f.Invalid(p.To("observedGeneration"), n, notNegativeAtAll)
	}
	if class := text(status, "qosClass"); class != text(old, "qosClass") {
		f.Invalid(p.To("qosClass"), fielderrors.Word(class), fielderrors.Immutable)
	}
	anyRestart := restartsAll(before.At("spec"))
	for _, of := range statusesOfPods {
		if of.containers == "ephemeralContainers" || !anyRestart {
			f.noRevival(status.At(of.statuses), old.At(of.statuses), before.At("spec"), of.containers, p.To(of.statuses))
		}
	}
	f.claimStatuses(status.At("resourceClaimStatuses"), spec.At("resourceClaims"), p.To("resourceClaimStatuses"))
	if extended := status.At("extendedResourceClaimStatus"); !extended.IsNull() {
		f.extendedClaim(extended, spec, p.To("extendedResourceClaimStatus"))
	}
	f.podIPs(status, old, p.To("podIPs"))
	f.hostIPs(status, old, p.To("hostIPs"))
	for _, of := range statusesOfPods {
		f.statusUsers(status.At(of.statuses), spec, p.To(of.statuses))
	}
	for _, of := range statusesOfPods {
		f.allocatedStatuses(status, of.statuses, spec.At(of.containers), p.To(of.statuses))
	}
}

func (f *errorList) podConditions(conditions object.Value, p *fielderrors.Location) {
	for i, condition := range conditions.Items() {
		if n := number(condition, "observedGeneration"); n < 0 {
			f.Invalid(p.Item(i).To("observedGeneration"), n, notNegativeAtAll)
		}
		f.qualified(p.Item(i).To("Type"), text(condition, "type"))
	}
}

// restartsAll says whether the exit of one container can restart all of them.
func restartsAll(spec object.Value) bool {
	for _, list := range [...]string{"initContainers", "containers"} {
		for _, container := range spec.At(list).Items() {
			for _, rule := range container.At("restartPolicyRules").Items() {
				if text(rule, "action") == "RestartAllContainers" {
					return true
				}
			}
		}
	}
	return false
}

// noRevival refuses to restart ended containers that must not be restarted.
func (f *errorList) noRevival(now, before, spec object.Value, containers string, p *fielderrors.Location) {
	for i, old := range before.Items() {
		ended := old.At("state", "terminated")
		if ended.IsNull() {
			continue
		}
		name := text(old, "name")
		for _, status := range now.Items() {
			if text(status, "name") != name || has(status.At("state"), "terminated") {
				continue
			}
			if containers == "ephemeralContainers" || !restarts(name, spec, containers, number(ended, "exitCode")) {
				f.Forbidden(p.Item(i).To("state"), "may not be transitioned to non-terminated state")
			}
			if containers != "ephemeralContainers" {
				break
			}
		}
	}
}

// restarts says whether a container is restarted when it has exited with a code.
func restarts(name string, spec object.Value, containers string, code int64) bool {
	for _, container := range spec.At(containers).Items() {
		if text(container, "name") != name {
			continue
		}
		if has(container, "restartPolicy") && text(ruleFor(container, code), "action") == "Restart" {
			return true
		}
		for _, policy := range [...]string{text(container, "restartPolicy"), text(spec, "restartPolicy")} {
			switch policy {
			case "Always":
				return true
			case "OnFailure":
				return code != 0
			case "Never":
				return false
			}
		}
		return true
	}
	return false
}

// ruleFor is the first of a container's restart rules that matches an exit code.
func ruleFor(container object.Value, code int64) object.Value {
	for _, rule := range container.At("restartPolicyRules").Items() {
		codes := rule.At("exitCodes")
		listed := slices.ContainsFunc(codes.At("values").Items(), func(v object.Value) bool { return v.Int() == code })
		if operator := text(codes, "operator"); operator == "In" && listed || operator == "NotIn" && !listed {
			return rule
		}
	}
	return object.Nil
}

func (f *errorList) claimStatuses(statuses, claims object.Value, p *fielderrors.Location) {
	known := newByName(claims.Items())
	var names nameSet
	for i, status := range statuses.Items() {
		p := p.Item(i)
		name := text(status, "name")
		if _, ok := known.find(name); !ok {
			f.Invalid(p.To("name"), name, "must match the name of an entry in `spec.resourceClaims`")
		}
		if names.add(name) {
			f.Duplicate(p.To("name"), name)
		}
		if claim := status.At("resourceClaimName"); !claim.IsNull() {
			f.subdomain(p.To("resourceClaimName"), claim.Str())
		}
	}
}

func (f *errorList) extendedClaim(status, spec object.Value, p *fielderrors.Location) {
	mappings := status.At("requestMappings")
	if mappings.Len() == 0 {
		f.Required(p.To("requestMappings"), "at least one request mapping is required")
	}
	met := map[[3]string]bool{}
	for i, mapping := range mappings.Items() {
		at := p.To("requestMappings").Item(i)
		key := [3]string{text(mapping, "containerName"), text(mapping, "resourceName"), text(mapping, "requestName")}
		if container, ok := runContainer(spec, key[0]); !ok {
			f.Invalid(at.To("containerName"), key[0],
				"must match the name of an entry in spec.initContainers.name or spec.containers.name")
		} else if !has(container.At("resources", "requests"), key[1]) {
			f.Invalid(at.To("resourceName"), key[1],
				"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		f.label(p.To("requestName"), key[2])
		if met[key] {
			f.Duplicate(at.To("containerName"), key[0])
			f.Duplicate(at.To("resourceName"), key[1])
			f.Duplicate(at.To("requestName"), key[2])
		}
		met[key] = true
	}
	if claim := text(status, "resourceClaimName"); claim == "" {
		f.Required(p.To("resourceClaimName"), "")
	} else {
		f.subdomain(p.To("resourceClaimName"), claim)
	}
}

func runContainer(spec object.Value, name string) (object.Value, bool) {
	for _, list := range [...]string{"containers", "initContainers"} {
		containers := newByName(spec.At(list).Items())
		if container, ok := containers.find(name); ok {
			return container, true
		}
	}
	return object.Nil, false
}

// addresses are the texts of a list of addresses.
func addresses(list object.Value) []string {
	texts := make([]string, list.Len())
	for i, item := range list.Items() {
		texts[i] = text(item, "ip")
	}
	return texts
}

func (f *errorList) podIPs(status, old object.Value, p *fielderrors.Location) {
	ips := status.At("podIPs")
	f.newIPs(ips, old.At("podIPs"), p)
	f.onePerFamily(ips, p)
	if (text(status, "podIP") == "") != (ips.Len() == 0) { // defaults make them equal
		f.Invalid(p, goForm{ips, ipFields}, "podIP and podIPs must either both be set or both be unset")
	}
}

func (f *errorList) hostIPs(status, old object.Value, p *fielderrors.Location) {
	ips := status.At("hostIPs")
	if ips.Len() == 0 {
		return
	}
	if first := text(ips.Items()[0], "ip"); first != text(status, "hostIP") {
		f.Invalid(p.Item(0).To("ip"), first, "must be equal to `hostIP`")
	}
	f.newIPs(ips, old.At("hostIPs"), p)
	f.onePerFamily(ips, p)
}

// newIPs checks the addresses that the old object does not have.
func (f *errorList) newIPs(ips, old object.Value, p *fielderrors.Location) {
	kept := addresses(old)
	for i, item := range ips.Items() {
		if ip := text(item, "ip"); !slices.Contains(kept, ip) {
			f.legacyIP(p.Item(i), ip, object.Nil)
		}
	}
}

func (f *errorList) onePerFamily(ips object.Value, p *fielderrors.Location) {
	if ips.Len() < 2 {
		return
	}
	both, err := netutils.IsDualStackIPStrings(addresses(ips))
	if err != nil {
		f.List = append(f.List, internalError(f.Path(p), fmt.Errorf("failed to check for dual stack with error:%w",
			err)))
	}
	if !both || ips.Len() > 2 {
		f.Invalid(p, goForm{ips, ipFields}, "may specify no more than one IP for each IP family")
	}
}

func (f *errorList) statusUsers(statuses, spec object.Value, p *fielderrors.Location) {
	os := text(spec.At("os"), "name")
	for i, status := range statuses.Items() {
		user := status.At("user", "linux")
		if user.IsNull() {
			continue
		}
		p := p.Item(i).To("user").To("linux")
		switch {
		case os == "windows":
			f.Forbidden(p, "cannot be set for a windows pod")
		case os == "linux" || !has(spec, "os"):
			if uid := number(user, "uid"); uid < 0 || uid > math.MaxUint32 {
				f.Invalid(p.To("uid"), uid, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32)))
			}
			f.within(p.To("gid"), number(user, "gid"), 0, maxID)
			for j, group := range user.At("supplementalGroups").Items() {
				f.within(p.To("supplementalGroups").Item(j), group.Int(), 0, maxID)
			}
		}
	}
}

// allocatedStatuses checks the health of resources in the status of containers.
func (f *errorList) allocatedStatuses(status object.Value, list string, containers object.Value,
	p *fielderrors.Location) {
	known := newByName(containers.Items())
	for i, container := range status.At(list).Items() {
		allocated := container.At("allocatedResourcesStatus")
		p := p.Item(i).To("allocatedResourcesStatus")
		if list == "ephemeralContainerStatuses" {
			if allocated.Len() > 0 {
				f.Forbidden(p, "must not be specified in container status")
			}
			continue
		}
		for j, resource := range allocated.Items() {
			p := p.Item(j)
			if spec, ok := firstNamed(known.items, text(container, "name")); ok {
				f.allocatedName(text(resource, "name"), spec, status.At("extendedResourceClaimStatus"), p.To("name"))
			}
			f.resourceHealths(resource.At("resources"), p.To("resources"))
		}
	}
}

func firstNamed(items []object.Value, name string) (object.Value, bool) {
	i := slices.IndexFunc(items, func(v object.Value) bool { return text(v, "name") == name })
	if i < 0 {
		return object.Nil, false
	}
	return items[i], true
}

// allocatedName demands a resource that a container requests.
func (f *errorList) allocatedName(name string, container, extended object.Value, p *fielderrors.Location) {
	reference, isClaim := strings.CutPrefix(name, fromClaim)
	if !isClaim {
		if !has(container.At("resources", "requests"), name) {
			f.Invalid(p, fielderrors.Word(name), "must match one of the container's resource requests")
		}
		return
	}
	asked := slices.ContainsFunc(container.At("resources", "claims").Items(), func(v object.Value) bool {
		if request := text(v, "request"); request != "" {
			return reference == text(v, "name")+"/"+request
		}
		return reference == text(v, "name")
	})
	claim, request, _ := strings.Cut(reference, "/")
	if request != "" && claim == text(extended, "resourceClaimName") {
		asked = asked || slices.ContainsFunc(extended.At("requestMappings").Items(), func(v object.Value) bool {
			amount := quantity(container.At("resources", "requests").At(text(v, "resourceName")))
			return text(v, "containerName") == text(container, "name") && text(v, "requestName") == request &&
				!amount.IsZero()
		})
	}
	if !asked {
		f.Invalid(p, fielderrors.Word(name),
			"must match one of the container's resource claims as 'claim:<claimName>/<requestName>' "+
				"when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
	}
}

func (f *errorList) resourceHealths(resources object.Value, p *fielderrors.Location) {
	var ids nameSet
	for i, resource := range resources.Items() {
		p := p.Item(i)
		f.only(p.To("health"), text(resource, "health"), healths)
		if message := resource.At("message"); !message.IsNull() {
			if message.Len() == 0 {
				f.Required(p.To("message"), "must be non-empty if specified")
			} else if message.Len() > maxHealthMessage {
				f.TooLong(p.To("message"), maxHealthMessage)
			}
		}
		if id := text(resource, "resourceID"); ids.add(id) {
			f.Duplicate(p.To("resourceID"), fielderrors.Word(id))
		}
	}
}
