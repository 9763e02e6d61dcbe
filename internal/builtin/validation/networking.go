package validation

import (
	"net"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	pathTypes         = []string{"Exact", "ImplementationSpecific", "Prefix"}
	policyTypes       = []string{"Ingress", "Egress"}
	policyProtocols   = []string{"TCP", "UDP", "SCTP"}
	parameterScopes   = []string{"Cluster", "Namespace"}
	badPathSequences  = []string{"//", "/./", "/../", "%2f", "%2F"}
	badPathEnds       = []string{"/..", "/."}
	ingressAnnotation = "kubernetes.io/ingress.class"
)

const (
	maxController = 250
	notAnAddress  = "must be a DNS name, not an IP address"
)

// serviceName demands the name of a Service.
func (f *errorList) serviceName(name string, p *fielderrors.Location) {
	if !f.on(features.RelaxedServiceNameValidation) && name != "" {
		f.Each(p, name, utilvalidation.IsDNS1035Label(name))
		return
	}
	f.requiredLabel(p, name)
}

// hasRelaxedName says whether the name of a Service is one that older releases refuse.
func hasRelaxedName(backend object.Value) bool {
	name := text(backend.At("service"), "name")
	return len(objectmeta.LabelErrors(name)) == 0 && len(utilvalidation.IsDNS1035Label(name)) > 0
}

// requiredSegment demands a name that can be a segment of a URL.
func (f *errorList) requiredSegment(p *fielderrors.Location, s string) {
	if s == "" {
		f.Required(p, "")
		return
	}
	f.Each(p, s, objectmeta.PathSegmentErrors(s, false))
}

// ingressLeniency has the errors that an update of an Ingress may keep.
type ingressLeniency struct{ secrets, wildcards bool }

func (f *errorList) ingress(spec object.Value, old ingressLeniency) {
	p := (*fielderrors.Location)(nil).To("spec")
	rules, backend := spec.At("rules"), spec.At("defaultBackend")
	if rules.Len() == 0 && backend.IsNull() {
		f.Invalid(p, fielderrors.Show(rules), "either `defaultBackend` or `rules` must be specified")
	}
	if !backend.IsNull() {
		f.ingressBackend(backend, p.To("defaultBackend"))
	}
	for i, rule := range rules.Items() {
		p := p.To("rules").Item(i)
		host := text(rule, "host")
		if host != "" {
			if netutils.ParseIPSloppy(host) != nil {
				f.Invalid(p.To("host"), host, notAnAddress)
			}
			f.ingressHost(p.To("host"), host)
		}
		if http := rule.At("http"); !http.IsNull() && !(old.wildcards && strings.Contains(host, "*")) {
			f.ingressPaths(http, p.To("http"))
		}
	}
	for i, tls := range spec.At("tls").Items() {
		for j, host := range tls.At("hosts").Items() {
			f.ingressHost(p.To("tls").Item(i).To("hosts").Item(j), host.Str())
		}
		if secret := text(tls, "secretName"); secret != "" && !old.secrets {
			f.subdomain(p.To("tls").Item(i).To("secretName"), secret)
		}
	}
	if class := spec.At("ingressClassName"); !class.IsNull() {
		f.subdomain(p.To("ingressClassName"), class.Str())
	}
}

// ingressHost demands a name, whose first label may be a star.
func (f *errorList) ingressHost(p *fielderrors.Location, host string) {
	if strings.Contains(host, "*") {
		f.Each(p, host, utilvalidation.IsWildcardDNS1123Subdomain(host))
		return
	}
	f.subdomain(p, host)
}

func (f *errorList) ingressPaths(http object.Value, p *fielderrors.Location) {
	f.requiredList(p.To("paths"), http.At("paths"))
	for i, path := range http.At("paths").Items() {
		p := p.To("paths").Item(i)
		kind := path.At("pathType")
		if kind.IsNull() {
			f.Required(p.To("pathType"), "pathType must be specified")
			continue
		}
		f.only(p.To("pathType"), kind.Str(), pathTypes)
		f.ingressPath(p.To("path"), text(path, "path"), kind.Str())
		f.ingressBackend(path.At("backend"), p.To("backend"))
	}
}

func (f *errorList) ingressPath(p *fielderrors.Location, path, kind string) {
	absolute := strings.HasPrefix(path, "/")
	if kind == "ImplementationSpecific" {
		if path != "" && !absolute {
			f.Invalid(p, path, "must be an absolute path")
		}
		return
	}
	if kind != "Exact" && kind != "Prefix" {
		return
	}
	if !absolute {
		f.Invalid(p, path, "must be an absolute path")
	}
	for _, sequence := range badPathSequences {
		if strings.Contains(path, sequence) {
			f.Invalid(p, path, "must not contain '"+sequence+"'")
		}
	}
	for _, end := range badPathEnds {
		if strings.HasSuffix(path, end) {
			f.Invalid(p, path, "cannot end with '"+end+"'")
		}
	}
}

func (f *errorList) ingressBackend(backend object.Value, p *fielderrors.Location) {
	resource, service := backend.At("resource"), backend.At("service")
	switch {
	case !resource.IsNull() && !service.IsNull():
		f.Invalid(p, "", "cannot set both resource and service backends")
	case !resource.IsNull():
		f.typedReference(resource, p.To("resource"))
	case !service.IsNull():
		f.serviceName(text(service, "name"), p.To("service").To("name"))
		port := service.At("port")
		name, n := text(port, "name"), number(port, "number")
		switch {
		case name != "" && n != 0:
			f.Invalid(p, "", "cannot set both port name & port number")
		case name != "":
			f.Each(p.To("service").To("port").To("name"), name, portNameErrors(name))
		case n != 0:
			f.port(p.To("service").To("port").To("number"), n)
		default:
			f.Required(p, "port name or number is required")
		}
	default:
		f.Invalid(p, "", "resource or service backend is required")
	}
}

// typedReference checks a reference to an object of some kind.
func (f *errorList) typedReference(ref object.Value, p *fielderrors.Location) {
	if group := ref.At("apiGroup"); !group.IsNull() {
		f.subdomain(p.To("apiGroup"), group.Str())
	}
	f.requiredSegment(p.To("kind"), text(ref, "kind"))
	f.requiredSegment(p.To("name"), text(ref, "name"))
}

func ingressCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	spec := obj.At("spec")
	f.ingress(spec, ingressLeniency{})
	annotation, ok := obj.At("metadata", "annotations").Get(ingressAnnotation)
	if class := spec.At("ingressClassName"); ok && !class.IsNull() && annotation.Str() != class.Str() {
		f.Invalid((*fielderrors.Location)(nil).To("annotations").To(ingressAnnotation), annotation.Str(),
			"must match `ingressClassName` when both are specified")
	}
}

func ingressUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	var excuse ingressLeniency
	for _, tls := range old.At("spec", "tls").Items() {
		secret := text(tls, "secretName")
		excuse.secrets = excuse.secrets || secret != "" && !objectmeta.IsSubdomain(secret)
	}
	for _, rule := range old.At("spec", "rules").Items() {
		if http := rule.At("http"); !http.IsNull() && strings.Contains(text(rule, "host"), "*") {
			var broken errorList
			broken.ingressPaths(http, nil)
			excuse.wildcards = excuse.wildcards || len(broken.List) > 0
		}
	}
	if hasRelaxedNames(old.At("spec")) {
		f.Features = f.Features.With(features.RelaxedServiceNameValidation, true)
	}
	f.ingress(obj.At("spec"), excuse)
}

// hasRelaxedNames says whether an Ingress names a Service with a name that older releases refuse.
func hasRelaxedNames(spec object.Value) bool {
	if hasRelaxedName(spec.At("defaultBackend")) {
		return true
	}
	for _, rule := range spec.At("rules").Items() {
		for _, path := range rule.At("http", "paths").Items() {
			if hasRelaxedName(path.At("backend")) {
				return true
			}
		}
	}
	return false
}

func ingressStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	before := old.At("status", "loadBalancer", "ingress").Items()
	for i, point := range obj.At("status", "loadBalancer", "ingress").Items() {
		p := (*fielderrors.Location)(nil).To("status").To("loadBalancer").To("ingress").Item(i)
		ip := text(point, "ip")
		if ip != "" && !slices.ContainsFunc(before, func(previous object.Value) bool { return text(previous, "ip") == ip }) {
			f.legacyIP(p.To("ip"), ip, object.Nil)
		}
		if host := text(point, "hostname"); host != "" {
			f.hostname(p.To("hostname"), host)
		}
	}
}

func ingressClassCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	controller := text(spec, "controller")
	if len(controller) > maxController {
		f.TooLong(p.To("controller"), maxController)
	}
	f.List = append(f.List, utilvalidation.IsDomainPrefixedPath(f.Path(p.To("controller")), controller)...)
	parameters := spec.At("parameters")
	if parameters.IsNull() {
		return
	}
	p = p.To("parameters")
	f.typedReference(parameters, p)
	scope, namespace := text(parameters, "scope"), parameters.At("namespace")
	switch {
	case scope == "Namespace" && namespace.IsNull():
		f.Required(p.To("namespace"), "`parameters.scope` is set to 'Namespace'")
	case scope == "Namespace":
		f.label(p.To("namespace"), namespace.Str())
	case scope == "Cluster":
		if !namespace.IsNull() {
			f.Forbidden(p.To("namespace"), "`parameters.scope` is set to 'Cluster'")
		}
	default:
		f.UnsupportedText(p.To("scope"), scope, parameterScopes)
	}
}

func ingressClassUpdate(f *errorList, obj, old object.Value) {
	if now := text(obj.At("spec"), "controller"); now != text(old.At("spec"), "controller") {
		f.Invalid((*fielderrors.Location)(nil).To("spec").To("controller"), now, fielderrors.Immutable)
	}
	ingressClassCreate(f, obj)
}

// policyLeniency has the errors that an update of a NetworkPolicy may keep.
type policyLeniency struct {
	labelValues bool
	cidrs       object.Value
}

func (f *errorList) networkPolicy(spec object.Value, old policyLeniency) {
	p := (*fielderrors.Location)(nil).To("spec")
	f.labelSelector(spec.At("podSelector"), p.To("podSelector"), old.labelValues)
	for _, way := range [...][2]string{{"ingress", "from"}, {"egress", "to"}} {
		for i, rule := range spec.At(way[0]).Items() {
			p := p.To(way[0]).Item(i)
			for j, port := range rule.At("ports").Items() {
				f.policyPort(port, p.To("ports").Item(j))
			}
			for j, peer := range rule.At(way[1]).Items() {
				f.policyPeer(peer, old, p.To(way[1]).Item(j))
			}
		}
	}
	types := spec.At("policyTypes")
	if types.Len() > len(policyTypes) {
		f.Invalid(p.To("policyTypes"), fielderrors.Show(types), "may not specify more than two policyTypes")
		return
	}
	for i, kind := range types.Items() {
		f.only(p.To("policyTypes").Item(i), kind.Str(), policyTypes)
	}
}

func (f *errorList) policyPort(port object.Value, p *fielderrors.Location) {
	f.onlyIfSet(p.To("protocol"), port.At("protocol"), policyProtocols)
	first, last := port.At("port"), port.At("endPort")
	switch first.Kind() {
	case object.Int:
		f.port(p.To("port"), first.Int())
		if !last.IsNull() {
			if last.Int() < first.Int() {
				f.Invalid(p.To("endPort"), last.Int(), "must be greater than or equal to `port`")
			}
			f.port(p.To("endPort"), last.Int())
		}
	case object.String:
		if !last.IsNull() {
			f.Invalid(p.To("endPort"), last.Int(), "may not be specified when `port` is non-numeric")
		}
		f.Each(p.To("port"), first.Str(), portNameErrors(first.Str()))
	default:
		if !last.IsNull() {
			f.Invalid(p.To("endPort"), last.Int(), "may not be specified when `port` is not specified")
		}
	}
}

func (f *errorList) policyPeer(peer object.Value, old policyLeniency, p *fielderrors.Location) {
	n := 0
	for _, key := range [...]string{"podSelector", "namespaceSelector"} {
		if selector := peer.At(key); !selector.IsNull() {
			n++
			f.labelSelector(selector, p.To(key), old.labelValues)
		}
	}
	block := peer.At("ipBlock")
	if !block.IsNull() {
		f.ipBlock(block, old.cidrs, p.To("ipBlock"))
	}
	switch {
	case n == 0 && block.IsNull():
		f.Required(p, "must specify a peer")
	case n > 0 && !block.IsNull():
		f.Forbidden(p, "may not specify both ipBlock and another peer")
	}
}

func (f *errorList) ipBlock(block, kept object.Value, p *fielderrors.Location) {
	cidr := text(block, "cidr")
	if cidr == "" {
		f.Required(p.To("cidr"), "")
		return
	}
	f.legacyCIDR(p.To("cidr"), cidr, kept)
	_, all, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return
	}
	for i, item := range block.At("except").Items() {
		p := p.To("except").Item(i)
		f.legacyCIDR(p, item.Str(), kept)
		if _, part, err := netutils.ParseCIDRSloppy(item.Str()); err == nil && !strictlyWithin(part, all) {
			f.Invalid(p, item.Str(), "must be a strict subset of `cidr`")
		}
	}
}

func strictlyWithin(part, all *net.IPNet) bool {
	inner, _ := part.Mask.Size()
	outer, _ := all.Mask.Size()
	return all.Contains(part.IP) && outer < inner
}

func networkPolicyCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.networkPolicy(obj.At("spec"), policyLeniency{})
}

func networkPolicyUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	before := old.At("spec")
	var cidrs []object.Value
	for _, way := range [...][2]string{{"ingress", "from"}, {"egress", "to"}} {
		for _, rule := range before.At(way[0]).Items() {
			for _, peer := range rule.At(way[1]).Items() {
				block := peer.At("ipBlock")
				cidrs = append(append(cidrs, block.At("cidr")), block.At("except").Items()...)
			}
		}
	}
	f.networkPolicy(obj.At("spec"), policyLeniency{invalidSelector(before.At("podSelector")), object.ListOf(cidrs...)})
}

func ipAddressCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec").To("parentRef")
	ref := obj.At("spec", "parentRef")
	if ref.IsNull() {
		f.Required(p, "")
		return
	}
	if group := text(ref, "group"); group != "" {
		f.subdomain(p.To("group"), group)
	}
	f.requiredSegment(p.To("resource"), text(ref, "resource"))
	f.requiredSegment(p.To("name"), text(ref, "name"))
	namespace := text(ref, "namespace")
	f.Each(p.To("namespace"), namespace, objectmeta.PathSegmentErrors(namespace, false))
}

func ipAddressUpdate(f *errorList, obj, old object.Value) {
	ipAddressCreate(f, obj)
	if !object.Equal(obj.At("spec", "parentRef"), old.At("spec", "parentRef")) {
		f.changed((*fielderrors.Location)(nil).To("spec").To("parentRef"))
	}
}

func serviceCIDRCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.serviceCIDRs(obj.At("spec", "cidrs"))
}

func (f *errorList) serviceCIDRs(cidrs object.Value) {
	p := (*fielderrors.Location)(nil).To("spec").To("cidrs")
	items := cidrs.Items()
	switch {
	case len(items) == 0:
		f.Required(p, "at least one CIDR required")
		return
	case len(items) > 2:
		f.Invalid(p, goForm{object.Fields("cidrs", cidrs), []goField{{name: "CIDRs", member: "cidrs"}}},
			"may only hold up to 2 values")
		return
	}
	for i, item := range items {
		f.List = append(f.List, utilvalidation.IsValidCIDR(f.Path(p.Item(i)), item.Str())...)
	}
	if len(items) == 2 {
		if family := netutils.IPFamilyOfCIDRString(items[0].Str()); family != netutils.IPFamilyUnknown &&
			family == netutils.IPFamilyOfCIDRString(items[1].Str()) {
			f.Invalid(p, fielderrors.Show(cidrs),
				"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
		}
	}
}

func serviceCIDRUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec").To("cidrs")
	cidrs := obj.At("spec", "cidrs")
	now, before := cidrs.Items(), old.At("spec", "cidrs").Items()
	if len(now) != len(before) && (len(before) != 1 || len(now) != 2) {
		f.Invalid(p, fielderrors.Show(cidrs), fielderrors.Immutable)
		return
	}
	for i := range before {
		if now[i].Str() != before[i].Str() {
			f.Invalid(p.Item(i), now[i].Str(), fielderrors.Immutable)
		}
	}
	if len(now) != len(before) {
		f.serviceCIDRs(cidrs)
	}
}
