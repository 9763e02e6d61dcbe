package validation

import (
	"plinth/object"
)

func endpointsCreate(f *faults, obj object.Value) { f.endpoints(obj, object.Nil) }

func endpointsUpdate(f *faults, obj, old object.Value) { f.endpoints(obj, old) }

func (f *faults) endpoints(obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	before := len(f.list)
	subsets := obj.At("subsets")
	for i, subset := range subsets.Items() {
		f.endpointSubset(subset, (*place)(nil).to("subsets").item(i))
	}
	if len(f.list) > before && !old.IsNull() && same(subsets, old.At("subsets")) {
		f.list = f.list[:before]
	}
}

func (f *faults) endpointSubset(subset object.Value, p *place) {
	if length(subset, "addresses")+length(subset, "notReadyAddresses") == 0 {
		f.required(p, "must specify `addresses` or `notReadyAddresses`")
	}
	for _, key := range [...]string{"addresses", "notReadyAddresses"} {
		for i, address := range subset.At(key).Items() {
			p := p.to(key).item(i)
			f.legacyIP(p.to("ip"), text(address, "ip"), object.Nil)
			if hostname := text(address, "hostname"); hostname != "" {
				f.label(p.to("hostname"), hostname)
			}
			if node := address.At("nodeName"); !node.IsNull() {
				f.subdomain(p.to("nodeName"), node.Str())
			}
			f.endpointIP(p.to("ip"), text(address, "ip"))
		}
	}
	ports := subset.At("ports")
	for i, port := range ports.Items() {
		p := p.to("ports").item(i)
		if name := text(port, "name"); name != "" {
			f.label(p.to("name"), name)
		} else if ports.Len() > 1 {
			f.required(p.to("name"), "")
		}
		f.port(p.to("port"), number(port, "port"))
		f.oneOf(p.to("protocol"), text(port, "protocol"), protocols)
		if app := port.At("appProtocol"); !app.IsNull() {
			f.qualified(p.to("appProtocol"), app.Str())
		}
	}
}
