package validation

import (
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var addressTypes = []string{"FQDN", "IPv4", "IPv6"}

const (
	maxAddresses  = 100
	maxSlicePorts = 20000
	maxEndpoints  = 1000
	maxHints      = 8
)

func endpointSliceCreate(f *errorList, obj object.Value) { f.endpointSlice(obj, object.Nil) }

func endpointSliceUpdate(f *errorList, obj, old object.Value) {
	f.endpointSlice(obj, old)
	if text(obj, "addressType") != text(old, "addressType") {
		f.changed((*fielderrors.Location)(nil).To("addressType"))
	}
}

func (f *errorList) endpointSlice(obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	var root *fielderrors.Location
	kind := text(obj, "addressType")
	f.oneOf(root.To("addressType"), kind, addressTypes)
	f.slicePorts(obj.At("ports"), root.To("ports"))
	endpoints := obj.At("endpoints")
	if same(endpoints, old.At("endpoints")) {
		return // unchanged ones may be invalid
	}
	if endpoints.Len() > maxEndpoints {
		f.TooMany(root.To("endpoints"), endpoints.Len(), maxEndpoints)
		return
	}
	for i, endpoint := range endpoints.Items() {
		f.endpoint(endpoint, kind, root.To("endpoints").Item(i))
	}
}

func (f *errorList) slicePorts(ports object.Value, p *fielderrors.Location) {
	if ports.Len() > maxSlicePorts {
		f.TooMany(p, ports.Len(), maxSlicePorts)
		return
	}
	var names nameSet
	for i, port := range ports.Items() {
		p := p.Item(i)
		name := text(port, "name")
		if name != "" {
			f.label(p.To("name"), name)
		}
		if names.add(name) {
			f.Duplicate(p.To("name"), fielderrors.Word(name))
		}
		f.only(p.To("protocol"), text(port, "protocol"), protocols)
		if app := port.At("appProtocol"); !app.IsNull() {
			f.qualified(p.To("appProtocol"), app.Str())
		}
	}
}

func (f *errorList) endpoint(endpoint object.Value, kind string, p *fielderrors.Location) {
	addresses := endpoint.At("addresses")
	if addresses.Len() == 0 {
		f.Required(p.To("addresses"), "")
	} else if addresses.Len() > maxAddresses {
		f.TooMany(p.To("addresses"), addresses.Len(), maxAddresses)
	}
	for i, item := range addresses.Items() {
		f.sliceAddress(item.Str(), kind, p.To("addresses"), p.To("addresses").Item(i))
	}
	if node := endpoint.At("nodeName"); !node.IsNull() {
		f.subdomain(p.To("nodeName"), node.Str())
	}
	if hostname := endpoint.At("hostname"); !hostname.IsNull() {
		f.label(p.To("hostname"), hostname.Str())
	}
	f.hints(endpoint.At("hints"), p.To("hints"))
}

func (f *errorList) sliceAddress(address, kind string, all, p *fielderrors.Location) {
	before := len(f.List)
	switch kind {
	case "IPv4":
		if f.legacyIP(p, address, object.Nil); len(f.List) == before {
			if !netutils.IsIPv4String(address) {
				f.Invalid(all, address, "must be an IPv4 address")
			}
			f.endpointIP(p, address)
		}
	case "IPv6":
		f.List = append(f.List, utilvalidation.IsValidIP(f.Path(p), address)...)
		if len(f.List) == before {
			if !netutils.IsIPv6String(address) {
				f.Invalid(all, address, "must be an IPv6 address")
			}
			f.endpointIP(p, address)
		}
	case "FQDN":
		f.List = append(f.List, utilvalidation.IsFullyQualifiedDomainName(f.Path(p), address)...)
	}
}

func (f *errorList) hints(hints object.Value, p *fielderrors.Location) {
	for _, key := range [...]string{"forZones", "forNodes"} {
		list := hints.At(key)
		if list.Len() > maxHints {
			f.TooMany(p.To(key), list.Len(), maxHints)
			return
		}
		var names nameSet
		for i, hint := range list.Items() {
			p := p.To(key).Item(i).To("name")
			name := text(hint, "name")
			if names.add(name) {
				f.Duplicate(p, name)
			}
			if key == "forZones" {
				f.Each(p, name, objectmeta.LabelValueErrors(name))
			} else {
				f.subdomain(p, name)
			}
		}
	}
}
