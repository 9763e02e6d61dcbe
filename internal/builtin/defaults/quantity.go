package defaults

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

// resourceList rounds the amounts of a resource list up to thousandths.
func resourceList(list object.Value) object.Value {
	w := over(list)
	for _, m := range list.Members() {
		if !finerThanMilli(m.Value.Str()) {
			continue
		}
		if rounded := roundedUp(m.Value); rounded.Str() != m.Value.Str() {
			w.get(m.Key)
			w.set(m.Key, rounded)
		}
	}
	return w.done()
}

// finerThanMilli says whether a quantity in canonical form may have digits below the thousandths: only such a quantity
// has the suffix n or u, or a negative exponent.
func finerThanMilli(quantity string) bool {
	if quantity == "" {
		return false
	}
	switch quantity[len(quantity)-1] {
	case 'n', 'u':
		return true
	}
	return strings.Contains(quantity, "e-") || strings.Contains(quantity, "E-")
}

func roundedUp(quantity object.Value) object.Value {
	q, err := resource.ParseQuantity(quantity.Str())
	if err != nil { // decoding refuses invalid ones
		return quantity
	}
	q.RoundUp(resource.Milli)
	return object.StringOf(q.String())
}

// resourceRequirements defaults anything with limits and requests.
func resourceRequirements(r object.Value) object.Value {
	w := over(r)
	w.part("limits", resourceList)
	w.part("requests", resourceList)
	return w.done()
}

// filledFrom returns a resource list with the missing resources added from another one.
func filledFrom(list, other object.Value) object.Value {
	w := over(list)
	for _, m := range other.Members() {
		w.pointer(m.Key, m.Value)
	}
	return w.done()
}
