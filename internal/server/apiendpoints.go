package server

import (
	"slices"

	"plinth/object"
)

// The Endpoints and the EndpointSlice default/kubernetes have the addresses of all servers. On etcd each server makes
// them equal to the list of servers that it reads there, by the rules of the reference, so that servers of both kinds
// do not undo each other's work. The functions of this file decide what they have to be.

// endpointPorts are the ports of the endpoints of a server at this port.
func endpointPorts(port int64) object.Value {
	text := object.StringOf
	return object.ListOf(object.Fields("name", text("https"), "port", object.IntOf(port), "protocol", text("TCP")))
}

// servingEndpoints are the Endpoints of live (null: there are none) with the addresses of all servers. Other content is
// kept if it has the one subset that it should have. Its ports are replaced only if fixPorts is set: servers with
// different ports would replace them in turn.
func servingEndpoints(live object.Value, addresses []string, ports object.Value, fixPorts bool) object.Value {
	live = unmirrored(live)
	subset, proper := object.MapOf().With("ports", ports), false
	if subsets := live.At("subsets").Items(); len(subsets) == 1 {
		subset, proper = subsets[0], true
	}
	if !proper || !sameAddresses(subset.At("addresses"), addresses) {
		subset = withAddresses(subset, addresses)
	}
	if fixPorts {
		subset = subset.With("ports", ports)
	}
	return withSubset(live, subset)
}

// countedEndpoints are the Endpoints of live with the address of this server among those of a number of servers
// (--endpoint-reconciler-type=master-count). Nobody says which servers run. So each adds its own address, and if there
// are too many then, removes those that follow its own.
func countedEndpoints(live object.Value, address string, count int, ports object.Value) object.Value {
	live = unmirrored(live)
	subsets := live.At("subsets").Items()
	if len(subsets) != 1 {
		return withSubset(live, withAddresses(object.Fields("ports", ports), []string{address}))
	}
	all := addressesOf(subsets[0].At("addresses"))
	if slices.Contains(all, address) && len(all) <= count {
		return live
	}
	all = sorted(append(all, address))
	own := slices.Index(all, address)
	for len(all) > count {
		after := (own + 1) % len(all)
		all = slices.Delete(all, after, after+1)
		own = slices.Index(all, address)
	}
	return withSubset(live, withAddresses(subsets[0], all))
}

// endpointsWithout are the Endpoints of live without an address.
func endpointsWithout(live object.Value, address string) object.Value {
	subsets := live.At("subsets").Items()
	if len(subsets) == 0 {
		return live
	}
	left := slices.DeleteFunc(addressesOf(subsets[0].At("addresses")), func(a string) bool { return a == address })
	if len(subsets) == 1 {
		return withSubset(live, withAddresses(subsets[0], left))
	}
	return live.With("subsets", object.ListOf(append([]object.Value{withAddresses(subsets[0], left)}, subsets[1:]...)...))
}

// endpointSlice is the EndpointSlice of live (null: there is none) for these Endpoints.
func endpointSlice(live, endpoints object.Value) object.Value {
	text := object.StringOf
	subset := object.Nil
	if subsets := endpoints.At("subsets").Items(); len(subsets) > 0 {
		subset = subsets[0]
	}
	family := sliceFamily(endpoints)
	var ends []object.Value
	for _, part := range []struct {
		addresses object.Value
		ready     bool
	}{{subset.At("addresses"), true}, {subset.At("notReadyAddresses"), false}} {
		for _, a := range part.addresses.Items() {
			if isIPv6(a.At("ip").Str()) != (family == "IPv6") {
				continue
			}
			end := object.Fields("addresses", object.ListOf(a.At("ip")),
				"conditions", object.Fields("ready", object.BoolOf(part.ready)))
			for _, name := range []string{"targetRef", "nodeName"} {
				if v := a.At(name); !v.IsNull() {
					end = end.With(name, v)
				}
			}
			ends = append(ends, end)
		}
	}
	next := live.With("addressType", text(family)).With("endpoints", object.ListOf(ends...)).
		WithAt(text("kubernetes"), "metadata", "labels", "kubernetes.io/service-name")
	if ports := subset.At("ports"); ports.Len() > 0 {
		return next.With("ports", ports)
	}
	return next.Without("ports")
}

// sliceFamily is the addressType of the EndpointSlice for Endpoints. It is immutable, so a slice of the other family is
// deleted and created again.
func sliceFamily(endpoints object.Value) string {
	all := 0
	for _, subset := range endpoints.At("subsets").Items() {
		for _, list := range []string{"addresses", "notReadyAddresses"} {
			for _, a := range subset.At(list).Items() {
				if all++; !isIPv6(a.At("ip").Str()) {
					return "IPv4"
				}
			}
		}
		break
	}
	if all == 0 {
		return "IPv4"
	}
	return "IPv6"
}

// unmirrored adds the label that says that the EndpointSlice is not a copy that a controller makes.
func unmirrored(v object.Value) object.Value {
	if v.IsNull() {
		v = object.MapOf()
	}
	return v.WithAt(object.StringOf("true"), "metadata", "labels", "endpointslice.kubernetes.io/skip-mirror")
}

// sameAddresses says whether the addresses of a subset are these, in any order, each once.
func sameAddresses(has object.Value, want []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(addressesOf(has))), sorted(want))
}

// addressesOf are the addresses of a list of a subset.
func addressesOf(list object.Value) (all []string) {
	for _, a := range list.Items() {
		all = append(all, a.At("ip").Str())
	}
	return all
}

// sorted returns the addresses as the reference orders them, each once.
func sorted(addresses []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(addresses)))
}

// withAddresses replaces the addresses of a subset that are ready.
func withAddresses(subset object.Value, addresses []string) object.Value {
	waiting := addressesOf(subset.At("notReadyAddresses"))
	var list []object.Value
	for _, address := range sorted(addresses) {
		if !slices.Contains(waiting, address) {
			list = append(list, object.Fields("ip", object.StringOf(address)))
		}
	}
	if len(list) == 0 {
		return subset.Without("addresses")
	}
	return subset.With("addresses", object.ListOf(list...))
}

// withSubset makes a subset the only one; one without addresses is none.
func withSubset(endpoints, subset object.Value) object.Value {
	if subset.At("addresses").Len()+subset.At("notReadyAddresses").Len() == 0 {
		return endpoints.Without("subsets")
	}
	return endpoints.With("subsets", object.ListOf(subset))
}
