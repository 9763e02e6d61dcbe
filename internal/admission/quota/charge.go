// Package quota says what objects use and what ResourceQuotas limit (AUTH-5). It is functions over objects; the sums of
// what all objects of a namespace use are kept by the store (store.Charge), and requests are judged by the admission
// plugin ResourceQuota.
package quota

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/object"
)

// The store resources whose objects use more than their number.
const (
	pods   = "/pods"
	claims = "/persistentvolumeclaims"
	// Quotas is the resource of the rules of a namespace.
	Quotas = "/resourcequotas"

	services       = "/services"
	resourceClaims = "resource.k8s.io/resourceclaims"
)

// aliases are the names of counts before there was "count/".
var aliases = map[string]string{
	"/configmaps": "configmaps", "/replicationcontrollers": "replicationcontrollers", "/secrets": "secrets",
	Quotas: "resourcequotas",
}

// internal is the prefix of the store resources that are no objects.
const internal = "plinth/"

// Counted says whether the objects of a store resource are counted. Events never were.
func Counted(path string) bool {
	return path != "/events" && path != "events.k8s.io/events" && !strings.HasPrefix(path, internal)
}

// CountName is the name under which the objects of a store resource are counted: "count/deployments.apps".
func CountName(path string) string {
	group, name, _ := strings.Cut(path, "/")
	if group == "" {
		return "count/" + name
	}
	return "count/" + name + "." + group
}

// Charges computes charges. It may be used concurrently.
type Charges struct {
	counts recent.Cache[string, *store.Charge] // by store resource
	shared recent.Cache[string, *store.Charge] // by the text of the charge: most Pods of a namespace are alike
}

// Of is store.Config.Charge. An object that cannot be read counts as one. All versions in which one is stored have the
// members that Use reads.
func (c *Charges) Of(v *store.Version) *store.Charge {
	path := v.Key.Resource
	switch path {
	case pods, claims, services, resourceClaims, Quotas:
		obj, err := engine.ObjectOf(v)
		if err != nil {
			break
		}
		u := Use(path, obj)
		if path == Quotas {
			u.Rule = ruleText(v.Key.Name, obj.At("spec"))
		}
		return c.share(u)
	}
	if !Counted(path) {
		return nil
	}
	if known, ok := c.counts.Get(path); ok {
		return known
	}
	count := &store.Charge{Amounts: counts(path)}
	c.counts.Set(path, count, 1)
	return count
}

// share returns an equal charge that is known already, or this one.
func (c *Charges) share(u *store.Charge) *store.Charge {
	var key strings.Builder
	key.WriteString(u.Class)
	list := func(amounts []store.Amount) {
		for i := range amounts {
			key.WriteString("\x00" + amounts[i].Name + "=" + amounts[i].Value.String())
		}
	}
	list(u.Amounts)
	if !u.Until.IsZero() || u.Rule != "" || u.Note != nil {
		return u // of one object alone
	}
	text := key.String()
	if known, ok := c.shared.Get(text); ok {
		return known
	}
	c.shared.Set(text, u, 1)
	return u
}

// Use is what an object of a store resource uses. The charge of a rule lacks its text.
func Use(path string, obj object.Value) *store.Charge {
	switch path {
	case pods:
		return usePod(obj)
	case claims:
		return useClaim(obj)
	case services:
		return &store.Charge{Amounts: sorted(useService(obj))}
	case resourceClaims:
		return &store.Charge{Amounts: sorted(useResourceClaim(obj)), Note: ownerOf(obj)}
	}
	return &store.Charge{Amounts: counts(path)}
}

// counts is what one object of a type counts if only its number counts.
func counts(path string) []store.Amount {
	all := amounts{CountName(path): one}
	if alias := aliases[path]; alias != "" {
		all[alias] = one
	}
	return sorted(all)
}

// amounts are quantities by their names.
type amounts map[string]resource.Quantity

var one = *resource.NewQuantity(1, resource.DecimalSI)

// sorted lists amounts in the order of their names, without those that are zero.
func sorted(all amounts) []store.Amount {
	list := make([]store.Amount, 0, len(all))
	for name, value := range all {
		if !value.IsZero() {
			list = append(list, store.Amount{Name: name, Value: value})
		}
	}
	slices.SortFunc(list, func(a, b store.Amount) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// AmountsAt is what a charge counts at a time.
func AmountsAt(c *store.Charge, now time.Time) []store.Amount {
	if !c.Until.IsZero() && now.After(c.Until) {
		return c.After
	}
	return c.Amounts
}
