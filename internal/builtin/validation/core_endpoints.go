package validation

import (
	"plinth/internal/fielderrors"
	"plinth/object"
)

func endpointsCreate(f *errorList, obj object.Value) { f.endpoints(obj, object.Nil) }

func endpointsUpdate(f *errorList, obj, old object.Value) { f.endpoints(obj, old) }

func (f *errorList) endpoints(obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	subsets := obj.At("subsets")
	if same(subsets, old.At("subsets")) {
		return // unchanged ones may be invalid
	}
	for i, subset := range subsets.Items() {
		f.endpointSubset(subset, (*fielderrors.Location)(nil).To("subsets").Item(i))
	}
}

func (f *errorList) endpointSubset(subset object.Value, p *fielderrors.Location) {
	if length(subset, "addresses")+length(subset, "notReadyAddresses") == 0 {
		f.Required(p, "must specify `addresses` or `notReadyAddresses`")
	}
	for _, key := range [...]string{"addresses", "notReadyAddresses"} {
		for i, address := range subset.At(key).Items() {
			p := p.To(key).Item(i)
			f.legacyIP(p.To("ip"), text(address, "ip"), object.Nil)
			if hostname := text(address, "hostname"); hostname != "" {
				f.label(p.To("hostname"), hostname)
			}
			if node := address.At("nodeName"); !node.IsNull() {
				f.subdomain(p.To("nodeName"), node.Str())
			}
			f.endpointIP(p.To("ip"), text(address, "ip"))
		}
	}
	ports := subset.At("ports")
	for i, port := range ports.Items() {
		p := p.To("ports").Item(i)
		if name := text(port, "name"); name != "" {
			f.label(p.To("name"), name)
		} else if ports.Len() > 1 {
			f.Required(p.To("name"), "")
		}
		f.port(p.To("port"), number(port, "port"))
		f.oneOf(p.To("protocol"), text(port, "protocol"), protocols)
		if app := port.At("appProtocol"); !app.IsNull() {
			f.qualified(p.To("appProtocol"), app.Str())
		}
	}
}
