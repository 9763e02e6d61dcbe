package columns

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"plinth/object"
)

// discovery.k8s.io
var (
	EndpointSlices = of(name,
		str("AddressType", doc[discoveryv1.EndpointSlice]("addressType"), text("addressType")),
		str("Ports", doc[discoveryv1.EndpointSlice]("ports"), slicePorts),
		str("Endpoints", doc[discoveryv1.EndpointSlice]("endpoints"), sliceAddresses),
		age,
	)
)

func slicePorts(obj object.Value) any {
	var first []string
	ports := obj.At("ports").Items()
	for _, p := range ports[:min(mostShown, len(ports))] {
		port, name := p.At("port"), p.At("name")
		switch {
		case !port.IsNull():
			first = append(first, itoa(port.Int()))
		case !name.IsNull():
			first = append(first, name.Str())
		default:
			first = append(first, "*")
		}
	}
	return or(more(first, mostShown, len(ports)), unset)
}

func sliceAddresses(obj object.Value) any {
	var first []string
	all := 0
	for _, e := range obj.At("endpoints").Items() {
		for _, a := range e.At("addresses").Items() {
			if all++; len(first) < mostShown {
				first = append(first, a.Str())
			}
		}
	}
	return or(more(first, mostShown, all), unset)
}
