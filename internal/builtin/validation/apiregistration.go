package validation

import (
	"fmt"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var availabilities = []string{"True", "False", "Unknown"}

// The limits of the priorities of an APIService.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

func apiServiceCreate(f *errorList, obj object.Value) {
	spec := obj.At("spec")
	group, version := text(spec, "group"), text(spec, "version")
	f.apiServiceName(obj.At("metadata"), version+"."+group)
	p := (*fielderrors.Location)(nil).To("spec")
	if group == "" && version != "v1" {
		f.Required(p.To("group"), "only v1 may have an empty group and it better be legacy kube")
	}
	if group != "" {
		f.subdomain(p.To("group"), group)
	}
	f.Each(p.To("version"), version, utilvalidation.IsDNS1035Label(version))
	if n := spec.At("groupPriorityMinimum").Int(); n <= 0 || n > maxGroupPriority {
		f.Invalid(p.To("groupPriorityMinimum"), n, "must be positive and less than 20000")
	}
	if n := spec.At("versionPriority").Int(); n <= 0 || n > maxVersionPriority {
		f.Invalid(p.To("versionPriority"), n, "must be positive and less than 1000")
	}
	f.apiServiceServer(spec, p)
}

// apiServiceName demands that the name of an APIService is that of its group version.
func (f *errorList) apiServiceName(metadata object.Value, required string) {
	for _, member := range []string{"generateName", "name"} {
		name := text(metadata, member)
		if name != "" && name != required && len(objectmeta.PathSegmentErrors(name, false)) == 0 {
			f.Invalid((*fielderrors.Location)(nil).To("metadata").To(member), name,
				fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", required))
		}
	}
}

// apiServiceServer checks where the server of an APIService is, and how it is verified.
func (f *errorList) apiServiceServer(spec object.Value, p *fielderrors.Location) {
	service, insecure := spec.At("service"), spec.At("insecureSkipTLSVerify").Bool()
	bundle := decodedLength(text(spec, "caBundle"))
	if service.IsNull() {
		if bundle > 0 {
			f.Invalid(p.To("caBundle"), fmt.Sprintf("%d bytes", bundle), "local APIServices may not have a caBundle")
		}
		if insecure {
			f.Invalid(p.To("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify")
		}
		return
	}
	f.requiredText(p.To("service").To("namespace"), text(service, "namespace"))
	f.requiredText(p.To("service").To("name"), text(service, "name"))
	if port := service.At("port").Int(); port < 1 || port > maxPort {
		f.Invalid(p.To("service").To("port"), port, "port is not valid: "+utilvalidation.InclusiveRangeError(1, maxPort))
	}
	if insecure && bundle > 0 {
		f.Invalid(p.To("insecureSkipTLSVerify"), true, "may not be true if caBundle is present")
	}
}

func apiServiceUpdate(f *errorList, obj, _ object.Value) { apiServiceCreate(f, obj) }

func apiServiceStatus(f *errorList, obj, _ object.Value) {
	p := (*fielderrors.Location)(nil).To("status").To("conditions")
	for i, condition := range obj.At("status", "conditions").Items() {
		f.only(p.Item(i).To("status"), text(condition, "status"), availabilities)
	}
}
