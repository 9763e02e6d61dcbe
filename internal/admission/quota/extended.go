package quota

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// Devices of a class can be asked for under the name of an extended resource: that of the DeviceClass, or one that is
// made of the name of the class. Then the scheduler makes a ResourceClaim for the Pod. So a quota of "requests.NAME"
// counts claims, too:
//
//	used(NAME) = Σ requests of Pods + Σ over claims of max(0, devices of the classes of NAME − what the Pod counts)
//
// The Pod of a claim is the one that the scheduler has made it for. The annotation that says so can be set by anybody,
// so the Pod counts only for one claim: the one in its status, or as long as that names none, the oldest.
//
// The second sum depends on several objects, and on the DeviceClasses. So it is not kept in the ledgers of the store,
// but made of the charges when a limit is judged (store.Limit.More). It takes time in the number of the claims of the
// namespace, under a lock of the store, but only where a quota limits such a name.

// requestsOfClass begins the names of limits on the devices of a class that are made of the name of the class.
const requestsOfClass = corev1.DefaultResourceRequestsPrefix + deviceClassPrefix

// Classes are the DeviceClasses, with the names of the extended resources that they are; "": none. It is not changed.
// Nil: there are none.
type Classes struct{ extended map[string]string }

// ClassesPath is the store resource of the DeviceClasses.
const ClassesPath = "resource.k8s.io/deviceclasses"

// ClassesOf is the DeviceClasses of a store.
func ClassesOf(s *store.Store) *view.View[*Classes] {
	return view.New(s.Collection(ClassesPath), func(before *Classes, changes iter.Seq[view.Change]) *Classes {
		next := &Classes{map[string]string{}}
		if before != nil {
			maps.Copy(next.extended, before.extended)
		}
		for change := range changes {
			delete(next.extended, change.Name)
			if change.Version == nil {
				continue
			}
			// Nobody who limits goes on with classes of which one cannot be read; who counts leaves it out.
			if obj, err := engine.ObjectOf(change.Version); err == nil {
				next.extended[change.Name] = obj.At("spec", "extendedResourceName").Str()
			}
		}
		return next
	})
}

// of returns the classes whose devices are counted under the name of a limit. One that is in the name need not exist.
func (c *Classes) of(name string) []string {
	if class, made := strings.CutPrefix(name, requestsOfClass); made {
		return []string{class}
	}
	extended, requests := strings.CutPrefix(name, corev1.DefaultResourceRequestsPrefix)
	if !requests || extended == "" || c == nil {
		return nil
	}
	var all []string
	for class, current := range c.extended {
		if current == extended {
			all = append(all, class)
		}
	}
	return all
}

// CountsDevices says whether the objects of a store resource are claims, which count devices.
func CountsDevices(path string) bool { return path == resourceClaims }

// Concern says whether a limit of this name is one on claims, because of a class that exists.
func (c *Classes) Concern(name string) bool {
	return slices.ContainsFunc(c.of(name), func(class string) bool {
		if c == nil {
			return false
		}
		_, exists := c.extended[class]
		return exists
	})
}

// owner is the Pod that a claim says it was made for by the scheduler, and what else tells claims of a Pod apart.
type owner struct{ pod, uid, created string }

// claimOf is the claim that the status of a Pod names.
type claimOf string

// ownerOf is the owner of a claim; nil if it has none.
func ownerOf(claim object.Value) any {
	meta := claim.At("metadata")
	if meta.At("annotations").At(resourcev1.ExtendedResourceClaimAnnotation).Str() != "true" {
		return nil
	}
	for _, ref := range meta.At("ownerReferences").Items() {
		if !ref.At("controller").Bool() {
			continue
		}
		if ref.At("kind").Str() != "Pod" || ref.At("apiVersion").Str() != "v1" {
			return nil
		}
		// Times of one format are in the order of their texts.
		return owner{ref.At("name").Str(), ref.At("uid").Str(), meta.At("creationTimestamp").Str()}
	}
	return nil
}

// claim is a ResourceClaim with its charge.
type claim struct {
	name   string
	charge *store.Charge
}

// before says whether a claim is older than another one of the same Pod.
func (c *claim) before(d *claim) bool {
	mine, other := c.charge.Note.(owner), d.charge.Note.(owner)
	if mine.created != other.created {
		return mine.created < other.created
	}
	return c.name < d.name
}

// devicesOf is how many devices of some classes a claim counts.
func (c *claim) devicesOf(classes []string) (sum resource.Quantity) {
	for _, class := range classes {
		sum.Add(amountOf(c.charge.Amounts, class+corev1.ResourceClaimsPerClass))
	}
	return sum
}

func amountOf(amounts []store.Amount, name string) resource.Quantity {
	for i := range amounts {
		if amounts[i].Name == name {
			return amounts[i].Value
		}
	}
	return resource.Quantity{}
}

// more is store.Limit.More for a limit of this name; nil if no claims are counted under it.
func (c *Classes) more(name string) func(*store.Charged) resource.Quantity {
	classes := c.of(name)
	if len(classes) == 0 {
		return nil
	}
	return func(in *store.Charged) (sum resource.Quantity) {
		var all []claim
		oldest := map[string]*claim{} // by the UIDs of Pods
		in.Each(resourceClaims, func(v *store.Version, charge *store.Charge) {
			_, name, _ := strings.Cut(v.Key.Name, "/")
			one := claim{name, charge}
			if of, owned := charge.Note.(owner); owned && (oldest[of.uid] == nil || one.before(oldest[of.uid])) {
				oldest[of.uid] = &one
			}
			if n := one.devicesOf(classes); !n.IsZero() {
				all = append(all, one)
			}
		})
		for i := range all {
			sum.Add(all[i].beyondPod(name, classes, in, oldest))
		}
		return sum
	}
}

// More is store.Limit.More for a limit of the rule: claims match no scope.
func (r *Rule) More(classes *Classes, name string) func(*store.Charged) resource.Quantity {
	if len(r.Scopes) > 0 {
		return nil
	}
	return classes.more(name)
}

// beyondPod is what a claim counts under a name of some classes. oldest has the oldest claims by the UIDs of Pods.
func (c *claim) beyondPod(name string, classes []string, in *store.Charged,
	oldest map[string]*claim) resource.Quantity {
	n := c.devicesOf(classes).DeepCopy()
	if pod := c.pod(in, oldest); pod != nil {
		n.Sub(amountOf(AmountsAt(pod, in.Now), name))
	}
	if n.Sign() < 0 {
		return resource.Quantity{}
	}
	return n
}

// pod is the charge of the Pod that counts for a claim; nil: none does.
func (c *claim) pod(in *store.Charged, oldest map[string]*claim) *store.Charge {
	of, owned := c.charge.Note.(owner)
	if !owned {
		return nil
	}
	v, charge := in.Get(store.Key{Resource: pods, Name: in.Namespace + "/" + of.pod})
	if v == nil || v.Sidecar.UID != of.uid {
		return nil
	}
	if named, ok := charge.Note.(claimOf); ok {
		if string(named) != c.name {
			return nil
		}
	} else if first := oldest[of.uid]; first != nil && first.before(c) {
		return nil
	}
	return charge
}

// Extend returns the amounts of the claim of a request with those that it counts as extended resources.
func (c *Classes) Extend(name string, charge *store.Charge, in *store.Charged) []store.Amount {
	one := claim{name, charge}
	oldest := map[string]*claim{}
	if of, owned := charge.Note.(owner); owned {
		in.Each(resourceClaims, func(v *store.Version, other *store.Charge) {
			_, name, _ := strings.Cut(v.Key.Name, "/")
			two := claim{name, other}
			if its, owned := other.Note.(owner); owned && its.uid == of.uid &&
				(oldest[of.uid] == nil || two.before(oldest[of.uid])) {
				oldest[of.uid] = &two
			}
		})
	}
	names := map[string][]string{} // limits → classes
	for i := range charge.Amounts {
		class, devices := strings.CutSuffix(charge.Amounts[i].Name, corev1.ResourceClaimsPerClass)
		if !devices || class == "" {
			continue
		}
		names[requestsOfClass+class] = []string{class}
		if c != nil && c.extended[class] != "" {
			limit := corev1.DefaultResourceRequestsPrefix + c.extended[class]
			names[limit] = append(names[limit], class)
		}
	}
	all := slices.Clone(charge.Amounts)
	for limit, classes := range names {
		if n := one.beyondPod(limit, classes, in, oldest); !n.IsZero() {
			all = append(all, store.Amount{Name: limit, Value: n})
		}
	}
	slices.SortFunc(all, func(a, b store.Amount) int { return strings.Compare(a.Name, b.Name) })
	return all
}
