package validation

import (
	"fmt"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// This file has the rules of internal.apiserver.k8s.io.

// qualifiedCreate is for kinds of which nothing but the finalizers is checked.
func qualifiedCreate(f *errorList, obj object.Value) { f.qualifiedFinalizers(obj) }

func storageVersionStatus(f *errorList, obj, _ object.Value) {
	p := (*fielderrors.Location)(nil).To("status")
	status := obj.At("status")
	servers := status.At("storageVersions")
	var names nameSet
	for i, server := range servers.Items() {
		p := p.To("storageVersions").Item(i)
		if name := text(server, "apiServerID"); names.add(name) {
			f.Duplicate(p.To("apiServerID"), name)
		}
		f.serverStorageVersion(server, p)
	}
	f.commonVersion(status.At("commonEncodingVersion"), servers.Items(), p.To("commonEncodingVersion"))
	f.storageConditions(status.At("conditions"), p)
}

// serverStorageVersion checks the versions that one server can encode, decode and serve.
func (f *errorList) serverStorageVersion(server object.Value, p *fielderrors.Location) {
	f.subdomain(p.To("apiServerID"), text(server, "apiServerID"))
	encoding, decodable := text(server, "encodingVersion"), server.At("decodableVersions")
	f.apiVersion(p.To("encodingVersion"), encoding)
	for i, v := range decodable.Items() {
		f.apiVersion(p.To("decodableVersions").Item(i), v.Str())
	}
	if !contains(decodable, encoding) {
		f.Invalid(p.To("decodableVersions"), fielderrors.Show(decodable),
			"decodableVersions must include encodingVersion "+encoding)
	}
	for i, v := range server.At("servedVersions").Items() {
		p := p.To("servedVersions").Item(i)
		f.apiVersion(p, v.Str())
		if !contains(decodable, v.Str()) {
			f.Invalid(p, v.Str(), fmt.Sprintf("individual served version : %s must be included in decodableVersions : %s",
				v.Str(), list(decodable)))
		}
	}
}

func (f *errorList) apiVersion(p *fielderrors.Location, s string) {
	if wrong := apiVersionErrors(s); len(wrong) > 0 {
		f.Invalid(p, s, strings.Join(wrong, ","))
	}
}

// commonVersion demands that the common version is set exactly if all servers encode in it.
func (f *errorList) commonVersion(common object.Value, servers []object.Value, p *fielderrors.Location) {
	agreed := len(servers) > 0
	var have string
	for i, server := range servers {
		encoding := text(server, "encodingVersion")
		if i == 0 {
			have = encoding
		}
		agreed = agreed && encoding == have
	}
	switch {
	case !agreed && !common.IsNull():
		f.Invalid(p, common.Str(), "should be nil if servers do not agree on the same encoding version, or if there is "+
			"no server reporting the supported versions yet")
	case agreed && common.IsNull():
		f.Invalid(p, fielderrors.Show(common), "the common encoding version is "+have)
	case agreed && common.Str() != have:
		f.Invalid(p, common.Str(), "the actual common encoding version is "+have)
	}
}

// storageConditions checks the conditions; the place of the errors lacks their name, as in the reference.
func (f *errorList) storageConditions(conditions object.Value, p *fielderrors.Location) {
	last := map[string]int{}
	for i, c := range conditions.Items() {
		p, kind := p.Item(i), text(c, "type")
		if at, repeated := last[kind]; repeated {
			f.Invalid(p.To("type"), kind,
				fmt.Sprintf("the type of the condition is not unique, it also appears in conditions[%d]", at))
		}
		last[kind] = i
		f.Each(p.To("type"), kind, objectmeta.LabelKeyErrors(kind))
		f.Each(p.To("status"), text(c, "status"), objectmeta.LabelKeyErrors(text(c, "status")))
		f.requiredText(p.To("reason"), text(c, "reason"))
		f.requiredText(p.To("message"), text(c, "message"))
	}
}
