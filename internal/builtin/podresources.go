package builtin

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

// The QoS classes of Pods.
const (
	bestEffort = "BestEffort"
	burstable  = "Burstable"
	guaranteed = "Guaranteed"
)

// qosClass returns the QoS class of a Pod: that of its own resources if it has any, else the one that its containers
// have in common.
func qosClass(spec object.Value) string {
	if resources := spec.At("resources"); podResourcesSet(resources) {
		return classOf(resources)
	}
	class := ""
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range spec.At(list).Items() {
			this := classOf(c.At("resources"))
			if this == burstable || class != "" && class != this {
				return burstable
			}
			class = this
		}
	}
	if class == "" {
		return bestEffort
	}
	return class
}

// podResourcesSet says whether a Pod has resources of its own that are supported at the level of a Pod.
func podResourcesSet(resources object.Value) bool {
	for _, list := range []string{"requests", "limits"} {
		for _, m := range resources.At(list).Members() {
			if podResource(m.Key) {
				return true
			}
		}
	}
	return false
}

// podResource says whether a resource may be requested by a Pod as a whole.
func podResource(name string) bool { return name == "cpu" || name == "memory" || hugePages(name) }

func hugePages(name string) bool { return strings.HasPrefix(name, "hugepages-") }

// classOf returns the QoS class of one set of resources: Guaranteed if CPU and memory are requested up to their limits.
func classOf(resources object.Value) string {
	requests, limits := resources.At("requests"), resources.At("limits")
	if requests.Len() == 0 && limits.Len() == 0 {
		return bestEffort
	}
	class := ""
	for _, name := range []string{"cpu", "memory"} {
		asked, limit := requests.At(name), limits.At(name)
		this := guaranteed
		switch {
		case !sameQuantity(asked, limit):
			return burstable
		case isZero(asked):
			this = bestEffort
		}
		if class != "" && class != this {
			return burstable
		}
		class = this
	}
	return class
}

func sameQuantity(a, b object.Value) bool {
	if object.Equal(a, b) {
		return true
	}
	left, right := quantity(a), quantity(b)
	return left.Cmp(right) == 0
}

func isZero(v object.Value) bool {
	q := quantity(v)
	return q.IsZero()
}

// quantity parses a quantity in canonical form; 0 if it is absent.
func quantity(v object.Value) resource.Quantity {
	if v.Str() == "" {
		return resource.Quantity{}
	}
	q, _ := resource.ParseQuantity(v.Str()) // decoding has checked it
	return q
}

// amounts maps names of resources to quantities.
type amounts map[string]resource.Quantity

func amountsOf(list object.Value) amounts {
	a := make(amounts, list.Len())
	for _, m := range list.Members() {
		a[m.Key] = quantity(m.Value)
	}
	return a
}

func (a amounts) add(more amounts) {
	for name, q := range more {
		sum := a[name]
		sum.Add(q)
		a[name] = sum
	}
}

func (a amounts) atLeast(other amounts) {
	for name, q := range other {
		if has, ok := a[name]; !ok || q.Cmp(has) > 0 {
			a[name] = q
		}
	}
}

func (a amounts) list() object.Value {
	members := make([]object.Member, 0, len(a))
	for _, name := range slices.Sorted(maps.Keys(a)) {
		q := a[name]
		members = append(members, object.Member{Key: name, Value: object.StringOf(q.String())})
	}
	return object.MapOf(members...)
}

// together returns what the containers of a Pod request, or are limited to, at the same time (list is requests or
// limits). That is the maximum of two: all containers and sidecars; and any other init container with the sidecars that
// were started before it.
func together(spec object.Value, list string) amounts {
	sum, sidecars, before := amounts{}, amounts{}, amounts{}
	for _, c := range spec.At("containers").Items() {
		sum.add(amountsOf(c.At("resources", list)))
	}
	for _, c := range spec.At("initContainers").Items() {
		own := amountsOf(c.At("resources", list))
		if c.At("restartPolicy").Str() == "Always" {
			sum.add(own)
			sidecars.add(own)
			own = sidecars
		} else {
			own.add(sidecars)
		}
		before.atLeast(own)
	}
	sum.atLeast(before)
	return sum
}

// defaultPodResources completes the resources of a whole Pod, if it has any, by those of its containers together. The
// order matters: first the limits of huge pages, then requests, which can follow from limits, and then other limits,
// which must not be below the requests.
func defaultPodResources(spec object.Value) object.Value {
	resources := spec.At("resources")
	if resources.At("requests").Len() == 0 && resources.At("limits").Len() == 0 {
		return spec
	}
	requests, limits := amountsOf(resources.At("requests")), amountsOf(resources.At("limits"))
	allLimits := together(spec, "limits")
	for name, q := range allLimits {
		if _, asked := requests[name]; hugePages(name) && !asked {
			limits.fill(name, q)
		}
	}
	for name, q := range together(spec, "requests") {
		if podResource(name) && !hugePages(name) {
			requests.fill(name, q)
		}
	}
	for name, q := range limits {
		if podResource(name) {
			requests.fill(name, q)
		}
	}
	for name, asked := range requests {
		if _, limited := limits[name]; limited || !podResource(name) || !everyContainerLimits(spec, name) {
			continue
		}
		if q, ok := allLimits[name]; ok {
			if asked.Cmp(q) > 0 {
				q = asked
			}
			limits[name] = q
		}
	}
	for _, l := range []struct {
		key  string
		list amounts
	}{{"requests", requests}, {"limits", limits}} {
		if len(l.list) > 0 {
			resources = resources.With(l.key, l.list.list())
		}
	}
	return spec.With("resources", resources)
}

// completedBefore is what the gate PodLevelResourcesFixDefaulting replaces: while it is off, the resources of a whole
// Pod are completed with the defaults, before admission adds containers, on every read and write, and a limit never
// follows from the limits of containers, except for huge pages.
func completedBefore(pod object.Value) object.Value {
	resources := pod.At("spec", "resources")
	if resources.At("requests").Len() == 0 && resources.At("limits").Len() == 0 {
		return pod
	}
	requests, limits := amountsOf(resources.At("requests")), amountsOf(resources.At("limits"))
	for name, q := range together(pod.At("spec"), "limits") {
		if _, asked := requests[name]; hugePages(name) && !asked {
			limits.fill(name, q)
		}
	}
	if len(limits) > 0 {
		for name, q := range together(pod.At("spec"), "requests") {
			if podResource(name) && !hugePages(name) {
				requests.fill(name, q)
			}
		}
		for name, q := range limits {
			if podResource(name) {
				requests.fill(name, q)
			}
		}
	}
	for key, list := range map[string]amounts{"requests": requests, "limits": limits} {
		if len(list) > resources.At(key).Len() {
			resources = resources.With(key, list.list())
		}
	}
	if resources == pod.At("spec", "resources") {
		return pod
	}
	return pod.WithAt(resources, "spec", "resources")
}

// fill sets an amount that is not set.
func (a amounts) fill(name string, q resource.Quantity) {
	if _, has := a[name]; !has {
		a[name] = q
	}
}

func everyContainerLimits(spec object.Value, name string) bool {
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		for _, c := range spec.At(list).Items() {
			if _, limited := c.At("resources", "limits").Get(name); !limited {
				return false
			}
		}
	}
	return true
}
