package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/admission/quota"
	"plinth/internal/engine"
	"plinth/object"
)

// limitRanger is the plugin LimitRanger: the LimitRanges of a namespace give the containers of its Pods default
// requests and limits, and bound them, those of whole Pods, and the sizes of claims.
//
// As in Kubernetes 1.38 quantities are compared exactly (1.37 rounds them up to a thousandth), and an update is not
// refused for a value that it does not change.
type limitRanger struct{ objects *objects }

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

func newLimitRanger(c *Config) (steps, error) {
	p := &limitRanger{c.objects}
	return steps{admit: p.admit, validate: p.validate}, nil
}

// limits returns the items of the LimitRanges that a request has to keep to, in the order of their names.
func (p *limitRanger) limits(ctx context.Context, a *engine.Attributes) ([]object.Value, error) {
	switch {
	case a.Operation == engine.OperationCreate && about(a, "", "pods", ""),
		a.Operation == engine.OperationUpdate && about(a, "", "pods", "resize"),
		writes(a) && about(a, "", "persistentvolumeclaims", ""):
	default:
		return nil, nil
	}
	if !a.Old.At("metadata", "deletionTimestamp").IsNull() {
		return nil, nil // it has to be possible to remove its finalizers
	}
	return p.objects.list(ctx, kindOf{"", "v1", "limitranges"}, a.Request.Namespace)
}

// limitsOf are the items of a LimitRange of this type.
func limitsOf(limitRange object.Value, kind corev1.LimitType) (all []object.Value) {
	for _, l := range limitRange.At("spec", "limits").Items() {
		if l.At("type").Str() == string(kind) {
			all = append(all, l)
		}
	}
	return all
}

func (p *limitRanger) admit(ctx context.Context, a *engine.Attributes) error {
	if !about(a, "", "pods", "") && !about(a, "", "pods", "resize") {
		return nil
	}
	ranges, err := p.limits(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		a.Object = withDefaultResources(a.Object, limitsOf(r, corev1.LimitTypeContainer))
	}
	return nil
}

// withDefaultResources gives the containers of a Pod the requests and limits that they leave out, and says so in an
// annotation. Of two items with the same resource the last one counts.
func withDefaultResources(pod object.Value, limits []object.Value) object.Value {
	requests, maximums := map[string]object.Value{}, map[string]object.Value{}
	for _, l := range limits {
		for _, m := range l.At("defaultRequest").Members() {
			requests[m.Key] = m.Value
		}
		for _, m := range l.At("default").Members() {
			maximums[m.Key] = m.Value
		}
	}
	var said []string
	for _, list := range []struct{ name, what string }{{"containers", "container"}, {"initContainers", "init container"}} {
		pod = editItems(pod, func(c object.Value) object.Value {
			name := c.At("name").Str()
			for _, add := range []struct {
				key, what string
				values    map[string]object.Value
			}{{"requests", "request", requests}, {"limits", "limit", maximums}} {
				var added []string
				for _, key := range slices.Sorted(maps.Keys(add.values)) {
					if _, has := c.At("resources", add.key).Get(key); !has {
						c = c.WithAt(add.values[key], "resources", add.key, key)
						added = append(added, key)
					}
				}
				if len(added) > 0 {
					said = append(said, fmt.Sprintf("%s %s for %s %s", strings.Join(added, ", "), add.what, list.what, name))
				}
			}
			return c
		}, "spec", list.name)
	}
	if len(said) == 0 {
		return pod
	}
	return pod.WithAt(object.StringOf("LimitRanger plugin set: "+strings.Join(said, "; ")),
		"metadata", "annotations", limitRangerAnnotation)
}

func (p *limitRanger) validate(ctx context.Context, a *engine.Attributes) error {
	ranges, err := p.limits(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		var wrong []string
		if a.Request.Resource.Name == "pods" {
			wrong = podExceeds(r, a.Object, a.Old)
		} else {
			wrong = claimExceeds(r, a.Object, a.Old)
		}
		if len(wrong) > 0 {
			return forbidden(a, together(wrong))
		}
	}
	return nil
}

// resourceList are quantities by the names of resources.
type resourceList map[string]resource.Quantity

func readResources(v object.Value) resourceList {
	list := resourceList{}
	for _, m := range v.Members() {
		list[m.Key] = quota.Quantity(m.Value)
	}
	return list
}

// usage are the requests and limits of a container, a Pod or a claim; old those that it had, if it is updated.
type usage struct{ requests, limits, oldRequests, oldLimits resourceList }

func usageOf(v, old object.Value) usage {
	return usage{readResources(v.At("requests")), readResources(v.At("limits")),
		readResources(old.At("requests")), readResources(old.At("limits"))}
}

// same says whether an update leaves a resource as it was.
func (u *usage) same(name string) bool {
	return sameEntry(u.requests, u.oldRequests, name) && sameEntry(u.limits, u.oldLimits, name)
}

func sameEntry(a, b resourceList, name string) bool {
	x, has := a[name]
	y, had := b[name]
	return has == had && x.Cmp(y) == 0
}

// podExceeds says what of a Pod is beyond a LimitRange. old is null for a new one.
func podExceeds(limitRange, pod, old object.Value) (wrong []string) {
	for _, l := range limitRange.At("spec", "limits").Items() {
		switch corev1.LimitType(l.At("type").Str()) {
		case corev1.LimitTypeContainer:
			for _, list := range []string{"containers", "initContainers"} {
				for _, c := range pod.At("spec", list).Items() {
					u := usageOf(c.At("resources"), named(old.At("spec", list), c.At("name").Str()).At("resources"))
					wrong = u.exceeds(wrong, l, "Container", !old.IsNull())
				}
			}
		case corev1.LimitTypePod:
			u := usage{podResources(pod, "requests"), podResources(pod, "limits"),
				podResources(old, "requests"), podResources(old, "limits")}
			wrong = u.exceeds(wrong, l, "Pod", !old.IsNull())
		}
	}
	return wrong
}

// named is the item of a list with this name; null: there is none.
func named(list object.Value, name string) object.Value {
	for _, item := range list.Items() {
		if item.At("name").Str() == name {
			return item
		}
	}
	return object.Nil
}

// claimExceeds says what of a PersistentVolumeClaim is beyond a LimitRange.
func claimExceeds(limitRange, claim, old object.Value) (wrong []string) {
	u := usage{requests: readResources(claim.At("spec", "resources", "requests")),
		oldRequests: readResources(old.At("spec", "resources", "requests"))}
	for _, l := range limitsOf(limitRange, corev1.LimitTypePersistentVolumeClaim) {
		eachLimit(l, "min", func(name string, q resource.Quantity) {
			if old.IsNull() || !u.same(name) {
				wrong = appendText(wrong, u.below(string(corev1.LimitTypePersistentVolumeClaim), name, q))
			}
		})
		eachLimit(l, "max", func(name string, q resource.Quantity) {
			if old.IsNull() || !u.same(name) {
				wrong = appendText(wrong, u.requestAbove(string(corev1.LimitTypePersistentVolumeClaim), name, q))
			}
		})
	}
	return wrong
}

func appendText(list []string, text string) []string {
	if text == "" {
		return list
	}
	return append(list, text)
}

// eachLimit calls f with each resource of a part of a limit.
func eachLimit(limit object.Value, part string, f func(name string, q resource.Quantity)) {
	for _, m := range limit.At(part).Members() {
		f(m.Key, quota.Quantity(m.Value))
	}
}

// exceeds adds what is beyond the item of a LimitRange. In an update, what it leaves as it was is not looked at.
func (u *usage) exceeds(wrong []string, limit object.Value, kind string, update bool) []string {
	for _, part := range []struct {
		key   string
		check func(kind, name string, q resource.Quantity) string
	}{{"min", u.below}, {"max", u.above}, {"maxLimitRequestRatio", u.apart}} {
		eachLimit(limit, part.key, func(name string, q resource.Quantity) {
			if !update || !u.same(name) {
				wrong = appendText(wrong, part.check(kind, name, q))
			}
		})
	}
	return wrong
}

// below says that a request or limit is less than a minimum; "": none is.
func (u *usage) below(kind, name string, q resource.Quantity) string {
	lead := fmt.Sprintf("minimum %s usage per %s is %s", name, kind, q.String())
	request, requested := u.requests[name]
	limit, limited := u.limits[name]
	switch {
	case !requested:
		return lead + ".  No request is specified"
	case request.Cmp(q) < 0:
		return lead + ", but request is " + request.String()
	case limited && limit.Cmp(q) < 0:
		return lead + ", but limit is " + limit.String()
	}
	return ""
}

// above says that a request or limit is more than a maximum.
func (u *usage) above(kind, name string, q resource.Quantity) string {
	lead := fmt.Sprintf("maximum %s usage per %s is %s", name, kind, q.String())
	request, requested := u.requests[name]
	limit, limited := u.limits[name]
	switch {
	case !limited:
		return lead + ".  No limit is specified"
	case limit.Cmp(q) > 0:
		return lead + ", but limit is " + limit.String()
	case requested && request.Cmp(q) > 0:
		return lead + ", but request is " + request.String()
	}
	return ""
}

// requestAbove is above for what has requests only.
func (u *usage) requestAbove(kind, name string, q resource.Quantity) string {
	lead := fmt.Sprintf("maximum %s usage per %s is %s", name, kind, q.String())
	request, requested := u.requests[name]
	switch {
	case !requested:
		return lead + ".  No request is specified"
	case request.Cmp(q) > 0:
		return lead + ", but request is " + request.String()
	}
	return ""
}

// apart says that a limit is more than so many times the request.
func (u *usage) apart(kind, name string, q resource.Quantity) string {
	lead := fmt.Sprintf("%s max limit to request ratio per %s is %s, but ", name, kind, q.String())
	request, limit := u.requests[name], u.limits[name]
	switch {
	case request.IsZero():
		return lead + "no request is specified or request is 0"
	case limit.IsZero():
		return lead + "no limit is specified or limit is 0"
	}
	most := request.DeepCopy()
	product := most.AsDec()
	product.Mul(product, q.AsDec())
	if limit.AsDec().Cmp(product) <= 0 {
		return ""
	}
	return fmt.Sprintf("%sprovided ratio is %f", lead, limit.AsApproximateFloat64()/request.AsApproximateFloat64())
}

// podResources are the requests or limits of a Pod: the sum of its containers, or what its init containers need one
// after the other if that is more. Init containers that go on running count as containers, and beside those that come
// after them. What the Pod says of itself replaces the sum.
func podResources(pod object.Value, part string) resourceList {
	sum := resourceList{}
	for _, c := range pod.At("spec", "containers").Items() {
		sum.add(readResources(c.At("resources", part)))
	}
	running, first := resourceList{}, resourceList{}
	for _, c := range pod.At("spec", "initContainers").Items() {
		need := readResources(c.At("resources", part))
		if c.At("restartPolicy").Str() == string(corev1.ContainerRestartPolicyAlways) {
			sum.add(need)
			running.add(need)
			need = running
		} else {
			need.add(running)
		}
		first.raise(need)
	}
	sum.raise(first)
	for _, m := range pod.At("spec", "resources", part).Members() {
		if m.Key == string(corev1.ResourceCPU) || m.Key == string(corev1.ResourceMemory) {
			sum[m.Key] = quota.Quantity(m.Value)
		}
	}
	return sum
}

func (l resourceList) add(other resourceList) {
	for name, q := range other {
		sum := l[name].DeepCopy()
		sum.Add(q)
		l[name] = sum
	}
}

// raise sets each quantity to the greater one of the two lists.
func (l resourceList) raise(other resourceList) {
	for name, q := range other {
		if have, ok := l[name]; !ok || have.Cmp(q) < 0 {
			l[name] = q
		}
	}
}
