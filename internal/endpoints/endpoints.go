// Package endpoints decides what the Endpoints and the EndpointSlice of the Service kubernetes have to be, and the
// values of the keys in etcd by which servers know of each other. It follows the rules of the reference, so that
// servers of both kinds do not undo each other's work.
//
// All functions return a changed copy of the live object, null if there is none, so that what others have added is
// kept.
package endpoints

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"plinth/object"
)

// Ports are the ports of the endpoints of a server that listens at this port.
func Ports(port int64) object.Value {
	text := object.StringOf
	return object.ListOf(object.Fields("name", text("https"), "port", object.IntOf(port), "protocol", text("TCP")))
}

// Serving returns the Endpoints with the addresses of all servers. A subset is kept if it is the only one. Its ports
// are replaced only if fixPorts is set: servers with different ports would replace them in turn.
func Serving(live object.Value, addresses []string, ports object.Value, fixPorts bool) object.Value {
	live = Unmirrored(live)
	subset, proper := object.MapOf().With("ports", ports), false
	if subsets := live.At("subsets").Items(); len(subsets) == 1 {
		subset, proper = subsets[0], true
	}
	if !proper || !sameAddresses(subset.At("addresses"), addresses) {
		subset = repacked(subset, plain(addresses))
	}
	if fixPorts {
		subset = subset.With("ports", ports)
	}
	return withSubset(live, subset)
}

// Counted returns the Endpoints with the address of this server among those of a number of servers
// (--endpoint-reconciler-type=master-count). Nobody says which servers run. So each adds its own address, and if there
// are too many then, removes those that follow its own.
func Counted(live object.Value, address string, count int, ports object.Value) object.Value {
	live = Unmirrored(live)
	subsets := live.At("subsets").Items()
	if len(subsets) != 1 {
		return withSubset(live, repacked(object.Fields("ports", ports), plain([]string{address})))
	}
	has := func(a object.Value) bool { return a.At("ip").Str() == address }
	all := subsets[0].At("addresses").Items()
	if slices.ContainsFunc(all, has) && len(all) <= count {
		return live
	}
	subset := repacked(subsets[0], append(slices.Clone(all), plain([]string{address})...))
	all = slices.Clone(subset.At("addresses").Items())
	for own := slices.IndexFunc(all, has); own >= 0 && len(all) > count; own = slices.IndexFunc(all, has) {
		after := (own + 1) % len(all)
		all = slices.Delete(all, after, after+1)
	}
	return withSubset(live, repacked(subset, all))
}

// Without returns the Endpoints without an address.
func Without(live object.Value, address string) object.Value {
	subsets := live.At("subsets").Items()
	if len(subsets) == 0 {
		return live
	}
	left := slices.DeleteFunc(slices.Clone(subsets[0].At("addresses").Items()),
		func(a object.Value) bool { return a.At("ip").Str() == address })
	first := repacked(subsets[0], left)
	if len(subsets) == 1 {
		return withSubset(live, first)
	}
	return live.With("subsets", object.ListOf(append([]object.Value{first}, subsets[1:]...)...))
}

// Slice returns the EndpointSlice for these Endpoints.
func Slice(live, endpoints object.Value) object.Value {
	text := object.StringOf
	subset := object.Nil
	if subsets := endpoints.At("subsets").Items(); len(subsets) > 0 {
		subset = subsets[0]
	}
	family := Family(endpoints)
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
	if live.IsNull() {
		live = object.MapOf()
	}
	next := live.With("addressType", text(family)).With("endpoints", object.ListOf(ends...)).
		WithAt(text("kubernetes"), "metadata", "labels", "kubernetes.io/service-name")
	if ports := subset.At("ports"); ports.Len() > 0 {
		return next.With("ports", ports)
	}
	return next.Without("ports")
}

// Family is the addressType of the EndpointSlice for Endpoints. It is immutable, so a slice of the other family has to
// be deleted and created again.
func Family(endpoints object.Value) string {
	subsets := endpoints.At("subsets").Items()
	if len(subsets) == 0 {
		return "IPv4"
	}
	all := append(addressesOf(subsets[0].At("addresses")), addressesOf(subsets[0].At("notReadyAddresses"))...)
	if len(all) == 0 || slices.ContainsFunc(all, func(a string) bool { return !isIPv6(a) }) {
		return "IPv4"
	}
	return "IPv6"
}

// Unmirrored adds the label that says that no controller makes the EndpointSlice as a copy.
func Unmirrored(live object.Value) object.Value {
	if live.IsNull() {
		live = object.MapOf()
	}
	return live.WithAt(object.StringOf("true"), "metadata", "labels", "endpointslice.kubernetes.io/skip-mirror")
}

// sameAddresses says whether the addresses of a subset are these, in any order, each once.
func sameAddresses(has object.Value, want []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(addressesOf(has))), slices.Sorted(slices.Values(want)))
}

// addressesOf are the addresses of a list of a subset.
func addressesOf(list object.Value) (all []string) {
	for _, a := range list.Items() {
		all = append(all, a.At("ip").Str())
	}
	return all
}

// plain are addresses as a subset has them.
func plain(addresses []string) (list []object.Value) {
	for _, address := range addresses {
		list = append(list, object.Fields("ip", object.StringOf(address)))
	}
	return list
}

// repacked is a subset with other addresses, in the reference's order, each once, and only those that it does not also
// have as not ready. An address is another one if it is that of another object.
func repacked(subset object.Value, addresses []object.Value) object.Value {
	compare := func(a, b object.Value) int {
		return cmp.Or(strings.Compare(a.At("ip").Str(), b.At("ip").Str()),
			strings.Compare(a.At("targetRef", "uid").Str(), b.At("targetRef", "uid").Str()))
	}
	unique := func(list []object.Value) []object.Value {
		return slices.CompactFunc(slices.SortedStableFunc(slices.Values(list), compare),
			func(a, b object.Value) bool { return compare(a, b) == 0 })
	}
	waiting := unique(subset.At("notReadyAddresses").Items())
	ready := slices.DeleteFunc(unique(addresses), func(a object.Value) bool {
		return slices.ContainsFunc(waiting, func(w object.Value) bool { return compare(a, w) == 0 })
	})
	for name, list := range map[string][]object.Value{"addresses": ready, "notReadyAddresses": waiting} {
		if len(list) == 0 {
			subset = subset.Without(name)
		} else {
			subset = subset.With(name, object.ListOf(list...))
		}
	}
	return subset
}

// withSubset makes a subset the only one; one without addresses is none.
func withSubset(endpoints, subset object.Value) object.Value {
	if subset.At("addresses").Len()+subset.At("notReadyAddresses").Len() == 0 {
		return endpoints.Without("subsets")
	}
	return endpoints.With("subsets", object.ListOf(subset))
}

// isIPv6 says whether an address is one of IPv6.
func isIPv6(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Unmap().Is6()
}

// Server returns the Endpoints in the key by which a server is found by its address. Each renewal has one generation
// more, since the reference writes only values that have changed.
func Server(live object.Value, address string) object.Value {
	return renewed(live).With("subsets", object.ListOf(repacked(object.MapOf(), plain([]string{address}))))
}

// Peer returns the Endpoints in the key by which a server is found by its identity.
func Peer(live object.Value, identity, address string, ports object.Value) object.Value {
	subset := repacked(object.MapOf(), plain([]string{address})).With("ports", ports)
	return renewed(live).With("subsets", object.ListOf(subset)).
		WithAt(object.StringOf(identity), "metadata", "labels", "apiserverIdentity")
}

// renewed has the next generation.
func renewed(live object.Value) object.Value {
	if live.IsNull() {
		live = object.Fields("apiVersion", object.StringOf("v1"), "kind", object.StringOf("Endpoints"))
	}
	return live.WithAt(object.IntOf(live.At("metadata", "generation").Int()+1), "metadata", "generation")
}

// PeerAddress is HOST:PORT in the key of a peer; "" if there is none.
func PeerAddress(key object.Value) string {
	address := Address(key)
	if address == "" {
		return ""
	}
	for _, port := range key.At("subsets").Items()[0].At("ports").Items() {
		return net.JoinHostPort(address, strconv.FormatInt(port.At("port").Int(), 10))
	}
	return ""
}

// Address is the address in the key of a server; "" if there is none.
func Address(key object.Value) string {
	if subsets := key.At("subsets").Items(); len(subsets) > 0 {
		if all := addressesOf(subsets[0].At("addresses")); len(all) > 0 {
			return all[0]
		}
	}
	return ""
}
