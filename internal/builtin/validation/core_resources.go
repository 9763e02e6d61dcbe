package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const hugePages = "hugepages-"

// naming says which names a list of resources may use.
type naming int

const (
	anyResource       naming = iota // standard, or with a domain
	containerResource               // resources of a container
	podResource                     // resources of a whole pod
	quotaResource                   // resources that can be limited in a namespace
)

// The names without a domain, sorted; names of huge pages are allowed in addition.
var (
	standardResources = []string{"configmaps", "cpu", "ephemeral-storage", "limits.cpu", "limits.ephemeral-storage",
		"limits.memory",
		"memory", "persistentvolumeclaims", "pods", "replicationcontrollers", "requests.cpu",
		"requests.ephemeral-storage",
		"requests.memory", "requests.storage", "resourcequotas", "secrets", "services", "services.loadbalancers",
		"services.nodeports", "storage"}
	countedResources = []string{"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers",
		"resourcequotas",
		"secrets", "services", "services.loadbalancers", "services.nodeports"}
	podLevelResources = []string{"cpu", hugePages, "memory"}
)

func isStandardContainerResource(name string) bool {
	return name == "cpu" || name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, hugePages)
}

func isIntegerResource(name string) bool {
	_, counted := slices.BinarySearch(countedResources, name)
	return counted || objectmeta.IsExtendedResource(name)
}

// mayOvercommit says whether a resource can be overcommitted: a request may be below its limit.
func mayOvercommit(name string) bool {
	return objectmeta.IsNativeResource(name) && !strings.HasPrefix(name, hugePages)
}

func isHugeQuota(name string) bool {
	return strings.HasPrefix(name, hugePages) || strings.HasPrefix(name, "requests."+hugePages)
}

func (f *errorList) resourceName(name string, as naming, p *fielderrors.Location) {
	domain := strings.Contains(name, "/")
	before := len(f.List)
	if !objectmeta.IsLabelKey(name) {
		for _, wrong := range objectmeta.LabelKeyErrors(name) {
			f.Invalid(p, fielderrors.Word(name), wrong)
		}
	} else if _, standard := slices.BinarySearch(standardResources, name); !domain && !standard && !isHugeQuota(name) {
		f.Invalid(p, fielderrors.Word(name), "must be a standard resource type or fully qualified")
	}
	plain := strings.Count(name, "/") == 0
	switch as {
	case containerResource:
		if plain && !isStandardContainerResource(name) {
			f.Invalid(p, fielderrors.Word(name), "must be a standard resource for containers")
		} else if !objectmeta.IsNativeResource(name) && !objectmeta.IsExtendedResource(name) {
			f.Invalid(p, fielderrors.Word(name), "doesn't follow extended resource name standard")
		}
	case podResource:
		if len(f.List) == before && name != "cpu" && name != "memory" && !strings.HasPrefix(name, hugePages) {
			f.Unsupported(p, name, podLevelResources)
		}
	case quotaResource:
		if _, standard := slices.BinarySearch(standardResources, name); plain && (!standard || name == "storage") &&
			!isHugeQuota(name) {
			f.Invalid(p, fielderrors.Word(name), "must be a standard resource for quota")
		}
	}
}

// resourceAmount demands an amount that is not negative, and a whole number for an indivisible resource.
func (f *errorList) resourceAmount(name string, amount resource.Quantity, p *fielderrors.Location) {
	if amount.Sign() < 0 {
		f.Invalid(p, amount.String(), fielderrors.NotNegative)
	}
	if isIntegerResource(name) && amount.MilliValue()%1000 != 0 {
		f.Invalid(p, amount, notInteger)
	}
}

// resourceList checks names and amounts.
func (f *errorList) resourceList(resources object.Value, p *fielderrors.Location, as naming, old leniency) {
	for _, m := range resources.Members() {
		p := p.Key(m.Key)
		amount := quantity(m.Value)
		f.resourceName(m.Key, as, p)
		f.resourceAmount(m.Key, amount, p)
		f.wholePages(m.Key, amount, p, old)
	}
}

// wholePages demands a whole number of huge pages.
func (f *errorList) wholePages(name string, amount resource.Quantity, p *fielderrors.Location, old leniency) {
	if strings.HasPrefix(name, hugePages) && !old.hugePages && !isWholePages(name, amount) {
		f.Invalid(p, amount.String(), fmt.Sprintf("%s is not positive integer multiple of %s", amount.String(), name))
	}
}

func isWholePages(name string, amount resource.Quantity) bool {
	size, _ := resource.ParseQuantity(strings.TrimPrefix(name, hugePages)) // zero if the name has no valid size
	if size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return amount.Value()%size.Value() == 0
}

// resources checks the requests and limits of a container or a pod.
func (f *errorList) resources(resources object.Value, r *podRules, p *fielderrors.Location, as naming) {
	limits, requests := resources.At("limits"), resources.At("requests")
	f.resourceList(limits, p.To("limits"), as, r.old)
	for _, m := range requests.Members() {
		amount := quantity(m.Value)
		f.resourceName(m.Key, as, p.To("requests").Key(m.Key))
		f.resourceAmount(m.Key, amount, p.To("requests").Key(m.Key))
		if limit, ok := limits.Get(m.Key); ok {
			f.requestAndLimit(m.Key, amount, quantity(limit), p.To("requests"))
		} else if !mayOvercommit(m.Key) {
			f.Required(p.To("limits"), "Limit must be set for non overcommitable resources")
		}
		f.wholePages(m.Key, amount, p.To("requests").Key(m.Key), r.old)
	}
	f.hugePagesNeedMore(limits, requests, p)
	f.claimNames(resources.At("claims"), r, p.To("claims"))
}

func (f *errorList) requestAndLimit(name string, request, limit resource.Quantity, p *fielderrors.Location) {
	switch order := request.Cmp(limit); {
	case order != 0 && !mayOvercommit(name):
		f.Invalid(p, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
	case order > 0:
		f.Invalid(p, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name,
			limit.String()))
	}
}

// hugePagesNeedMore demands cpu or memory beside huge pages.
func (f *errorList) hugePagesNeedMore(limits, requests object.Value, p *fielderrors.Location) {
	huge, compute := false, false
	for _, resources := range [...]object.Value{limits, requests} {
		for _, m := range resources.Members() {
			huge = huge || strings.HasPrefix(m.Key, hugePages)
			compute = compute || m.Key == "cpu" || m.Key == "memory"
		}
	}
	if huge && !compute {
		f.Forbidden(p, "HugePages require cpu or memory")
	}
}

// claimNames checks the references of a container to the pod's resource claims, or to requests of these.
func (f *errorList) claimNames(claims object.Value, r *podRules, p *fielderrors.Location) {
	if claims.Len() == 0 {
		return
	}
	whole, used := map[string]bool{}, map[string]bool{} // names; names and "name/request"
	parts := map[string]int{}
	for i, claim := range claims.Items() {
		p := p.Item(i)
		name, request := text(claim, "name"), text(claim, "request")
		if name == "" {
			f.Required(p, "")
			continue
		}
		if whole[name] {
			f.Duplicate(p, name)
		} else {
			key := name
			if request != "" {
				f.label(p.To("request"), request)
				key += "/" + request
			}
			if used[key] {
				f.Duplicate(p, key)
			} else if request == "" {
				for range parts[name] {
					f.Duplicate(p, name)
				}
			}
			if request == "" {
				whole[name] = true
			} else if !used[key] {
				parts[name]++
			}
			used[key] = true
		}
		if _, ok := r.claims.find(name); !ok {
			f.unknownClaim(name, r, p)
		}
	}
}

func (f *errorList) unknownClaim(name string, r *podRules, p *fielderrors.Location) {
	names := make([]string, 0, len(r.claims.items))
	for _, claim := range r.claims.items {
		if known := text(claim, "name"); known != "" {
			names = append(names, known)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	f.NotFound(p, name)
	fault := f.List[len(f.List)-1]
	fault.Detail = "must be one of the names in pod.spec.resourceClaims"
	if len(names) == 0 {
		fault.Detail += " which is empty"
	} else {
		fault.Detail += ": " + strings.Join(names, ", ")
	}
}

// podResources checks the resources of a pod as a whole, and that its containers do not exceed them.
func (f *errorList) podResources(r *podRules, p *fielderrors.Location) {
	resources := r.spec.At("resources")
	if resources.IsNull() {
		return
	}
	if r.os == "windows" {
		f.Forbidden(p.To("resources"), "may not be set for a windows pod")
		return
	}
	if has(resources, "claims") {
		f.Forbidden(p.To("resources").To("claims"), "claims may not be set for Resources at pod-level")
	}
	f.resources(resources, r, p.To("resources"), podResource)
	for _, m := range resources.At("requests").Members() {
		total, used := aggregate(r.spec, "requests", m.Key)
		if wanted := quantity(m.Value); used && total.Cmp(wanted) > 0 {
			f.Invalid(p.To("resources").To("requests").Key(m.Key), wanted.String(),
				"must be greater than or equal to aggregate container requests of "+total.String())
		}
	}
	for _, m := range resources.At("limits").Members() {
		f.podLimit(r.spec, m.Key, quantity(m.Value), p.To("resources"))
	}
}

func (f *errorList) podLimit(spec object.Value, name string, limit resource.Quantity, p *fielderrors.Location) {
	if strings.HasPrefix(name, hugePages) {
		if total, used := aggregate(spec, "limits", name); used && total.Cmp(limit) > 0 {
			f.Invalid(p.To("limits").Key(name), limit.String(),
				"must be greater than or equal to aggregate container limits of "+total.String())
		}
	}
	for i, container := range spec.At("containers").Items() {
		if v, ok := container.At("resources", "limits").Get(name); ok {
			if own := quantity(v); own.Cmp(limit) > 0 {
				f.Invalid(p.To("containers").Item(i).Key(name).To("limits"), own.String(),
					"must be less than or equal to pod limits of "+limit.String())
			}
		}
	}
}

// aggregate is the maximum of a resource that the containers of a pod have at the same time: all of its containers and
// sidecars, or an init container with the sidecars before it.
func aggregate(spec object.Value, kind, name string) (total resource.Quantity, used bool) {
	var sidecars, most resource.Quantity
	for _, container := range spec.At("containers").Items() {
		if v, ok := container.At("resources", kind).Get(name); ok {
			total.Add(quantity(v))
			used = true
		}
	}
	for _, container := range spec.At("initContainers").Items() {
		v, ok := container.At("resources", kind).Get(name)
		used = used || ok
		during := quantity(v)
		during.Add(sidecars)
		if text(container, "restartPolicy") == "Always" {
			total.Add(quantity(v))
			sidecars = during
		}
		if during.Cmp(most) > 0 {
			most = during
		}
	}
	if most.Cmp(total) > 0 {
		total = most
	}
	return total, used
}
