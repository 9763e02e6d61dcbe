package authz

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// PermitClaimStatus is the engine.Subresource.Permit of the status of ResourceClaims (KEP-4817). Whoever may write the
// status needs further rights, on resources that do not exist, for its parts:
//
//	allocation, reservedFor   the verb of the request on resourceclaims/binding
//	devices of a driver       arbitrary-node:VERB on resourceclaims/driver with the driver's name; for a ServiceAccount
//	                          on the node of the allocation, associated-node:VERB is enough
func PermitClaimStatus(ctx context.Context, rq *engine.Request, obj, old object.Value) field.ErrorList {
	var errs field.ErrorList
	status, before := obj.At("status"), old.At("status")
	allocation := status.At("allocation")
	if !object.Equal(allocation, before.At("allocation")) ||
		!object.Equal(status.At("reservedFor"), before.At("reservedFor")) {
		if why := refusal(ctx, rq, access.Attributes{Verb: rq.Verb, Subresource: "binding"}); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("status", "allocation"), fmt.Sprintf(
				"changing status.allocation or status.reservedFor requires resource=%q, verb=%q permission: %s",
				"resourceclaims/binding", rq.Verb, why)))
		}
	}
	if allocation.IsNull() { // then the devices are dropped
		return errs
	}
	verbs := []string{"arbitrary-node:" + rq.Verb}
	if onNode(&rq.User, allocation) {
		verbs = []string{"associated-node:" + rq.Verb, verbs[0]}
	}
	for _, driver := range changedDrivers(status.At("devices"), before.At("devices")) {
		first := "" // the refusal of the first verb
		for i, verb := range verbs {
			why := refusal(ctx, rq, access.Attributes{
				Verb: verb, Subresource: "driver", Namespace: rq.Namespace, Name: driver,
			})
			if why == "" {
				first = ""
				break
			}
			if i == 0 {
				first = why
			}
		}
		if first != "" {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"), fmt.Sprintf(
				"changing status.devices requires resource=%q, verb=\"%s\" permission: %s",
				"resourceclaims/driver", verbs, first)))
		}
	}
	return errs
}

// refusal asks whether the user may do something to a subresource of the request's resource. It returns the message
// with which that would be refused; "" if the user may.
func refusal(ctx context.Context, rq *engine.Request, a access.Attributes) string {
	r := rq.Resource
	a.User, a.IsResource, a.Group, a.Version, a.Resource = rq.User, true, r.Group, r.Version, r.Name
	ok, reason, err := rq.Allowed(ctx, a)
	switch {
	case ok:
		return ""
	case err != nil && reason != "":
		reason = err.Error() + ": " + reason
	case err != nil:
		reason = err.Error()
	}
	return apierr.NewForbidden(r.Type(), a.Name, a.Refusal(reason)).Error()
}

// onNode says whether the user is a ServiceAccount whose token is bound to the one node that an allocation names.
func onNode(u *access.User, allocation object.Value) bool {
	nodes := u.Extra[access.NodeName]
	if _, _, ok := access.SplitServiceAccount(u.Name); !ok || len(nodes) != 1 ||
		len(content.IsDNS1123Subdomain(nodes[0])) > 0 {
		return false
	}
	terms := allocation.At("nodeSelector", "nodeSelectorTerms").Items()
	if len(terms) != 1 || terms[0].At("matchExpressions").Len() > 0 || terms[0].At("matchFields").Len() != 1 {
		return false
	}
	f := terms[0].At("matchFields").Items()[0]
	values := f.At("values").Items()
	return f.At("key").Str() == "metadata.name" && f.At("operator").Str() == "In" && len(values) == 1 &&
		values[0].Str() == nodes[0]
}

// changedDrivers returns the drivers of the devices whose status was added, removed or changed, in order.
func changedDrivers(devices, old object.Value) []string {
	type device struct{ driver, pool, name, share string }
	of := func(v object.Value) device {
		return device{v.At("driver").Str(), v.At("pool").Str(), v.At("device").Str(), v.At("shareID").Str()}
	}
	before := map[device]object.Value{}
	for _, v := range old.Items() {
		before[of(v)] = v
	}
	changed := map[string]bool{}
	for _, v := range devices.Items() {
		if d := of(v); !object.Equal(before[d], v) {
			changed[d.driver] = true
		}
		delete(before, of(v))
	}
	for d := range before {
		changed[d.driver] = true
	}
	return slices.Sorted(maps.Keys(changed))
}
