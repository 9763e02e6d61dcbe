package validation

import (
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"plinth/object"
)

var addressTypes = []string{"FQDN", "IPv4", "IPv6"}

const (
	maxTopologyLabels = 16
	maxAddresses      = 100
	maxSlicePorts     = 20000
	maxEndpoints      = 1000
	maxHints          = 8
	zoneLabel         = "topology.kubernetes.io/zone"
)

func endpointSliceCreate(f *faults, obj object.Value) { f.endpointSlice(obj, object.Nil) }

func endpointSliceUpdate(f *faults, obj, old object.Value) {
	f.endpointSlice(obj, old)
	if text(obj, "addressType") != text(old, "addressType") {
		f.changed((*place)(nil).to("addressType"))
	}
}

func (f *faults) endpointSlice(obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	var root *place
	kind := text(obj, "addressType")
	f.oneOf(root.to("addressType"), kind, addressTypes)
	f.slicePorts(obj.At("ports"), root.to("ports"))
	endpoints := obj.At("endpoints")
	before := len(f.list)
	if endpoints.Len() > maxEndpoints {
		f.tooMany(root.to("endpoints"), endpoints.Len(), maxEndpoints)
	} else {
		for i, endpoint := range endpoints.Items() {
			f.endpoint(endpoint, kind, root.to("endpoints").item(i))
		}
	}
	if len(f.list) > before && !old.IsNull() && same(endpoints, old.At("endpoints")) {
		f.list = f.list[:before]
	}
}

func (f *faults) slicePorts(ports object.Value, p *place) {
	if ports.Len() > maxSlicePorts {
		f.tooMany(p, ports.Len(), maxSlicePorts)
		return
	}
	var names seen
	for i, port := range ports.Items() {
		p := p.item(i)
		name := text(port, "name")
		if name != "" {
			f.label(p.to("name"), name)
		}
		if names.add(name) {
			f.duplicate(p.to("name"), word(name))
		}
		if protocol := port.At("protocol"); protocol.IsNull() {
			f.required(p.to("protocol"), "")
		} else {
			f.only(p.to("protocol"), protocol.Str(), protocols)
		}
		if app := port.At("appProtocol"); !app.IsNull() {
			f.qualified(p.to("appProtocol"), app.Str())
		}
	}
}

func (f *faults) endpoint(endpoint object.Value, kind string, p *place) {
	addresses := endpoint.At("addresses")
	if addresses.Len() == 0 {
		f.required(p.to("addresses"), "")
	} else if addresses.Len() > maxAddresses {
		f.tooMany(p.to("addresses"), addresses.Len(), maxAddresses)
	}
	for i, item := range addresses.Items() {
		f.sliceAddress(item.Str(), kind, p.to("addresses"), p.to("addresses").item(i))
	}
	if node := endpoint.At("nodeName"); !node.IsNull() {
		f.subdomain(p.to("nodeName"), node.Str())
	}
	topology := endpoint.At("deprecatedTopology")
	if topology.Len() > maxTopologyLabels {
		f.tooMany(p.to("deprecatedTopology"), topology.Len(), maxTopologyLabels)
	}
	f.labels(topology, p.to("deprecatedTopology"))
	if hostname := endpoint.At("hostname"); !hostname.IsNull() {
		f.label(p.to("hostname"), hostname.Str())
	}
	if hints := endpoint.At("hints"); !hints.IsNull() {
		f.hints(hints, p.to("hints"))
	}
}

func (f *faults) sliceAddress(address, kind string, all, p *place) {
	before := len(f.list)
	switch kind {
	case "IPv4":
		if f.legacyIP(p, address, object.Nil); len(f.list) == before {
			if !netutils.IsIPv4String(address) {
				f.invalid(all, address, "must be an IPv4 address")
			}
			f.endpointIP(p, address)
		}
	case "IPv6":
		f.list = append(f.list, utilvalidation.IsValidIP(f.path(p), address)...)
		if len(f.list) == before {
			if !netutils.IsIPv6String(address) {
				f.invalid(all, address, "must be an IPv6 address")
			}
			f.endpointIP(p, address)
		}
	case "FQDN":
		f.list = append(f.list, utilvalidation.IsFullyQualifiedDomainName(f.path(p), address)...)
	}
}

func (f *faults) hints(hints object.Value, p *place) {
	for _, key := range [...]string{"forZones", "forNodes"} {
		list := hints.At(key)
		if list.Len() > maxHints {
			f.tooMany(p.to(key), list.Len(), maxHints)
			return
		}
		var names seen
		for i, hint := range list.Items() {
			p := p.to(key).item(i).to("name")
			name := text(hint, "name")
			if names.add(name) {
				f.duplicate(p, name)
			}
			if key == "forZones" {
				f.each(p, name, labelValueFaults(name))
			} else {
				f.subdomain(p, name)
			}
		}
	}
}
