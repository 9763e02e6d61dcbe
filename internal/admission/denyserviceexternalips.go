package admission

import (
	"context"
	"slices"

	"plinth/internal/engine"
	"plinth/object"
)

// denyServiceExternalIPs is the plugin DenyServiceExternalIPs: nobody adds an address to spec.externalIPs of a Service,
// which would draw the traffic for it.
func denyServiceExternalIPs(_ context.Context, a *engine.Attributes) error {
	if !writes(a) || !about(a, "", "services", "") {
		return nil
	}
	old := a.Old.At("spec", "externalIPs").Items()
	for _, ip := range a.Object.At("spec", "externalIPs").Items() {
		if !slices.ContainsFunc(old, func(o object.Value) bool { return o.Str() == ip.Str() }) {
			return forbidden(a, "Use of external IPs is denied by admission control")
		}
	}
	return nil
}
