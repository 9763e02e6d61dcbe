package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	affinityTypes           = []string{"ClientIP", "None"}
	serviceTypes            = []string{"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"}
	trafficPolicies         = []string{"Cluster", "Local"}
	ipFamilies              = []string{"IPv4", "IPv6"}
	ipFamilyPolicies        = []string{"PreferDualStack", "RequireDualStack", "SingleStack"}
	trafficDistributions    = []string{"PreferClose", "PreferSameZone", "PreferSameNode"}
	ipModes                 = []string{"Proxy", "VIP"}
	sourceRanges            = "service.beta.kubernetes.io/load-balancer-source-ranges"
	topologyHints           = "service.kubernetes.io/topology-aware-hints"
	topologyMode            = "service.kubernetes.io/topology-mode"
	maxAffinitySeconds      = int64(86400)
	onlyWhenLoadBalancer    = "may only be used when `type` is 'LoadBalancer'"
	mayNotChange            = "may not change once set"
	onePerFamily            = "may specify no more than one IP for each IP family"
	notOnExternalName       = "may not be set for ExternalName services"
	releasedSecondary       = "must be set to 'SingleStack' when releasing the secondary "
	healthCheckNeedsLocally = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
)

// service checks a Service; old is null for a new one.
func (f *errorList) service(service, old object.Value) {
	at := (*fielderrors.Location)(nil).To("spec")
	spec := service.At("spec")
	kind := text(spec, "type")
	f.topologyAnnotations(service.At("metadata", "annotations"))
	headless := isHeadless(spec)
	if length(spec, "ports") == 0 && !headless && kind != "ExternalName" {
		f.Required(at.To("ports"), "")
	}
	switch kind {
	case "LoadBalancer", "NodePort":
		if headless {
			f.Invalid(at.To("clusterIPs").Item(0), "None", "may not be set to 'None' for "+kind+" services")
		}
	case "ExternalName":
		f.externalName(spec, at)
	}
	f.servicePorts(spec.At("ports"), at.To("ports"))
	objectmeta.Labels(&f.Errors, spec.At("selector"), at.To("selector"))
	f.sessionAffinity(spec, at)
	if kind != "ExternalName" {
		f.clusterIPs(spec, old.At("spec"), at)
	}
	for i, item := range spec.At("externalIPs").Items() {
		before := len(f.List)
		if f.legacyIP(at.To("externalIPs").Item(i), item.Str(), old.At("spec", "externalIPs")); len(f.List) == before {
			f.endpointIP(at.To("externalIPs").Item(i), item.Str())
		}
	}
	f.oneOf(at.To("type"), kind, serviceTypes)
	f.uniqueServicePorts(spec.At("ports"), kind, at.To("ports"))
	f.sourceRanges(service, old)
	if has(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
		f.Forbidden(at.To("allocateLoadBalancerNodePorts"), onlyWhenLoadBalancer)
	}
	f.loadBalancerClass(spec, object.Nil)
	f.externalTraffic(spec, at)
	f.onlyIfSet(at.To("internalTrafficPolicy"), spec.At("internalTrafficPolicy"), trafficPolicies)
	if distribution := spec.At("trafficDistribution"); !distribution.IsNull() && !holds(trafficDistributions,
		distribution.Str()) {
		f.UnsupportedText(at.To("trafficDistribution"), distribution.Str(), trafficDistributions)
	}
}

func isHeadless(spec object.Value) bool {
	ips := spec.At("clusterIPs").Items()
	return len(ips) == 1 && ips[0].Str() == "None"
}

func (f *errorList) topologyAnnotations(annotations object.Value) {
	hints, hinted := annotations.Get(topologyHints)
	mode, ok := annotations.Get(topologyMode)
	if ok && hinted && mode.Str() != hints.Str() {
		f.Invalid((*fielderrors.Location)(nil).To("metadata").To("annotations").Key(topologyMode), mode.Str(),
			fmt.Sprintf("must match annotations[%s] when both are specified", topologyHints))
	}
}

func (f *errorList) externalName(spec object.Value, p *fielderrors.Location) {
	for _, key := range [...]string{"clusterIPs", "ipFamilies"} {
		if length(spec, key) > 0 {
			f.Forbidden(p.To(key), notOnExternalName)
		}
	}
	if has(spec, "ipFamilyPolicy") {
		f.Forbidden(p.To("ipFamilyPolicy"), notOnExternalName)
	}
	if name := strings.TrimSuffix(text(spec, "externalName"), "."); name == "" {
		f.Required(p.To("externalName"), "")
	} else {
		f.subdomain(p.To("externalName"), name)
	}
}

func (f *errorList) servicePorts(ports object.Value, p *fielderrors.Location) {
	var names nameSet
	for i, port := range ports.Items() {
		p := p.Item(i)
		if name := text(port, "name"); name != "" {
			f.label(p.To("name"), name)
			if names.add(name) {
				f.Duplicate(p.To("name"), name)
			}
		} else if ports.Len() > 1 {
			f.Required(p.To("name"), "")
		}
		f.port(p.To("port"), number(port, "port"))
		f.oneOf(p.To("protocol"), text(port, "protocol"), protocols)
		f.portOrName(p.To("targetPort"), port.At("targetPort"))
		if app := port.At("appProtocol"); !app.IsNull() {
			f.qualified(p.To("appProtocol"), app.Str())
		}
	}
}

// uniqueServicePorts demands that no two ports are the same on the service, or on the nodes.
func (f *errorList) uniqueServicePorts(ports object.Value, kind string, p *fielderrors.Location) {
	type key struct {
		protocol string
		port     int64
	}
	items := ports.Items()
	if kind == "ClusterIP" {
		for i, port := range items {
			if number(port, "nodePort") != 0 {
				f.Forbidden(p.Item(i).To("nodePort"), "may not be used when `type` is 'ClusterIP'")
			}
		}
	}
	onNodes, own := map[key]bool{}, map[key]bool{}
	for i, port := range items {
		k := key{text(port, "protocol"), number(port, "nodePort")}
		if k.port != 0 && onNodes[k] {
			f.Duplicate(p.Item(i).To("nodePort"), k.port)
		}
		onNodes[k] = true
	}
	for i, port := range items {
		k := key{text(port, "protocol"), number(port, "port")}
		if own[k] {
			f.Duplicate(p.Item(i),
				goForm{object.Fields("protocol", object.StringOf(k.protocol), "port", object.IntOf(k.port)),
					servicePortFields})
		}
		own[k] = true
	}
}

var servicePortFields = []goField{{name: "Name", zero: `""`}, {name: "Protocol", member: "protocol"},
	{name: "AppProtocol"},
	{name: "Port", member: "port"}, {name: "TargetPort", zero: "0"}, {name: "NodePort", zero: "0"}}

func (f *errorList) sessionAffinity(spec object.Value, p *fielderrors.Location) {
	affinity := text(spec, "sessionAffinity")
	f.oneOf(p.To("sessionAffinity"), affinity, affinityTypes)
	if affinity != "ClientIP" {
		return
	}
	seconds := number(spec.At("sessionAffinityConfig", "clientIP"), "timeoutSeconds")
	if seconds <= 0 || seconds > maxAffinitySeconds {
		f.Invalid(p.To("sessionAffinityConfig").To("clientIP").To("timeoutSeconds"), seconds,
			fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds))
	}
}

// ClusterIPs returns the errors in the addresses of a service and their families, before addresses are allocated; old
// is null for a new service.
func (o Options) ClusterIPs(service, old object.Value) field.ErrorList {
	f := errorList{Options: o}
	f.clusterIPs(service.At("spec"), old.At("spec"), (*fielderrors.Location)(nil).To("spec"))
	return f.List
}

// clusterIPs checks the addresses of a service and their families.
func (f *errorList) clusterIPs(spec, old object.Value, p *fielderrors.Location) {
	ips := spec.At("clusterIPs")
	all := ips.Items()
	at := p.To("clusterIPs")
	switch first := text(spec, "clusterIP"); {
	case first != "" && len(all) == 0:
		f.Required(at, "")
	case first != "" && all[0].Str() != first:
		f.Invalid(at, fielderrors.Show(ips), "first value must match `clusterIP`")
	case first == "" && len(all) != 0:
		f.Invalid(at, fielderrors.Show(ips), "must be empty when `clusterIP` is not specified")
	}
	var families nameSet
	for i, item := range spec.At("ipFamilies").Items() {
		family := item.Str()
		f.only(p.To("ipFamilies").Item(i), family, ipFamilies)
		if families.add(family) {
			f.Duplicate(p.To("ipFamilies").Item(i), fielderrors.Word(family))
		}
	}
	f.onlyIfSet(p.To("ipFamilyPolicy"), spec.At("ipFamilyPolicy"), ipFamilyPolicies)
	valid := true
	for i, item := range all {
		if i == 0 && item.Str() == "None" {
			if len(all) > 1 {
				valid = false
				f.Invalid(at, fielderrors.Show(ips), "'None' must be the first and only value")
			}
			continue
		}
		before := len(f.List)
		f.legacyIP(at.Item(i), item.Str(), old.At("clusterIPs"))
		valid = valid && len(f.List) == before
	}
	if len(all) > 2 {
		f.Invalid(at, fielderrors.Show(ips), "may only hold up to 2 values")
	}
	if !valid {
		return
	}
	if len(all) > 1 {
		f.dualStack(ips, at)
	}
	if !isHeadless(spec) {
		f.familiesOfIPs(all, spec.At("ipFamilies").Items(), at)
	}
}

// dualStack demands addresses of both families.
func (f *errorList) dualStack(ips object.Value, p *fielderrors.Location) {
	both, err := netutils.IsDualStackIPStrings(list(ips))
	if err != nil {
		f.List = append(f.List, internalError(f.Path(p), fmt.Errorf("failed to check for dual stack with error:%v", err)))
	}
	if !both {
		f.Invalid(p, fielderrors.Show(ips), onePerFamily)
	}
}

func (f *errorList) familiesOfIPs(ips, families []object.Value, p *fielderrors.Location) {
	for i, item := range ips {
		if i >= len(families) {
			return
		}
		ip, six := item.Str(), netutils.IsIPv6String(item.Str())
		if families[i].Str() == "IPv4" && six {
			f.Invalid(p.Item(i), ip, fmt.Sprintf("expected an IPv4 value as indicated by `ipFamilies[%v]`", i))
		}
		if families[i].Str() == "IPv6" && !six {
			f.Invalid(p.Item(i), ip, fmt.Sprintf("expected an IPv6 value as indicated by `ipFamilies[%v]`", i))
		}
	}
}

// sourceRanges checks the ranges from which a load balancer accepts traffic, in the spec or else in an annotation.
func (f *errorList) sourceRanges(service, old object.Value) {
	balances := text(service.At("spec"), "type") == "LoadBalancer"
	if ranges := service.At("spec", "loadBalancerSourceRanges").Items(); len(ranges) > 0 {
		at := (*fielderrors.Location)(nil).To("spec").To("LoadBalancerSourceRanges")
		if !balances {
			f.Forbidden(at, onlyWhenLoadBalancer)
		}
		kept := object.Strings(trimmed(list(old.At("spec", "loadBalancerSourceRanges")))...)
		for i, item := range ranges {
			f.legacyCIDR(at.Item(i), strings.TrimSpace(item.Str()), kept)
		}
		return
	}
	annotation, ok := service.At("metadata", "annotations").Get(sourceRanges)
	if !ok {
		return
	}
	at := (*fielderrors.Location)(nil).To("metadata").To("annotations").Key(sourceRanges)
	if !balances {
		f.Forbidden(at, onlyWhenLoadBalancer)
	}
	value := strings.TrimSpace(annotation.Str())
	if value == "" || text(old.At("metadata", "annotations"), sourceRanges) == annotation.Str() {
		return
	}
	for _, cidr := range trimmed(strings.Split(value, ",")) {
		f.legacyCIDR(at, cidr, object.Nil)
	}
}

func trimmed(texts []string) []string {
	for i, s := range texts {
		texts[i] = strings.TrimSpace(s)
	}
	return texts
}

// loadBalancerClass checks the class of the load balancer; was is the old spec.
func (f *errorList) loadBalancerClass(spec, before object.Value) {
	at := (*fielderrors.Location)(nil).To("spec").To("loadBalancerClass")
	class := spec.At("loadBalancerClass")
	balances := text(spec, "type") == "LoadBalancer"
	if balances && text(before, "type") == "LoadBalancer" && !object.Equal(class, before.At("loadBalancerClass")) {
		f.Invalid(at, fielderrors.Show(class), mayNotChange)
	}
	if class.IsNull() {
		return
	}
	if balances {
		f.qualified(at, class.Str())
	} else {
		f.Forbidden(at, onlyWhenLoadBalancer)
	}
}

// needsHealthCheck says whether a load balancer checks which nodes have an endpoint.
func needsHealthCheck(spec object.Value) bool {
	return text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

func (f *errorList) externalTraffic(spec object.Value, p *fielderrors.Location) {
	kind, policy := text(spec, "type"), text(spec, "externalTrafficPolicy")
	external := kind == "LoadBalancer" || kind == "NodePort" || kind == "ClusterIP" && length(spec, "externalIPs") > 0
	if external {
		f.oneOf(p.To("externalTrafficPolicy"), policy, trafficPolicies)
	} else if policy != "" {
		f.Invalid(p.To("externalTrafficPolicy"), fielderrors.Word(policy),
			"may only be set for externally-accessible services")
	}
	port := number(spec, "healthCheckNodePort")
	switch needed := needsHealthCheck(spec); {
	case needed && port == 0:
		f.Required(p.To("healthCheckNodePort"), "")
	case needed:
		f.port(p.To("healthCheckNodePort"), port)
	case port != 0:
		f.Invalid(p.To("healthCheckNodePort"), port, healthCheckNeedsLocally)
	}
}

func serviceCreate(f *errorList, service object.Value) {
	f.qualifiedFinalizers(service)
	f.service(service, object.Nil)
}

func serviceUpdate(f *errorList, service, old object.Value) {
	f.qualifiedFinalizers(service)
	spec, before := service.At("spec"), old.At("spec")
	if text(spec, "type") != "ExternalName" && text(before, "type") != "ExternalName" {
		f.clusterIPChanges(spec, before)
		f.ipFamilyChanges(spec, before)
	}
	f.loadBalancerClass(spec, before)
	if needsHealthCheck(spec) && needsHealthCheck(before) && number(spec, "healthCheckNodePort") != number(before,
		"healthCheckNodePort") {
		f.Forbidden((*fielderrors.Location)(nil).To("spec").To("healthCheckNodePort"), fielderrors.Immutable)
	}
	f.service(service, old)
}

// clusterIPChanges allows addresses to be set if there are none, and a second one to be added or removed, and no other
// change.
func (f *errorList) clusterIPChanges(spec, before object.Value) {
	at := (*fielderrors.Location)(nil).To("spec").To("clusterIPs")
	ips := spec.At("clusterIPs")
	now, old := ips.Items(), before.At("clusterIPs").Items()
	if len(now) == len(old) {
		for i := range now {
			if now[i].Str() != old[i].Str() {
				f.Invalid(at.Item(i), fielderrors.Show(ips), mayNotChange)
			}
		}
		return
	}
	if len(now) == 0 {
		f.Invalid(at.Item(0), fielderrors.Show(ips), "primary clusterIP can not be unset")
	}
	if len(now) == 0 || len(old) == 0 {
		return
	}
	if now[0].Str() != old[0].Str() {
		f.Invalid(at.Item(0), fielderrors.Show(ips), mayNotChange)
	}
	if len(now) == 1 && text(spec, "ipFamilyPolicy") != "SingleStack" {
		f.Invalid(at.Up.To("ipFamilyPolicy"), fielderrors.Show(spec.At("ipFamilyPolicy")),
			releasedSecondary+"clusterIP")
	}
}

// ipFamilyChanges allows a second family to be added or removed.
func (f *errorList) ipFamilyChanges(spec, before object.Value) {
	if isHeadless(spec) || isHeadless(before) {
		return
	}
	at := (*fielderrors.Location)(nil).To("spec").To("ipFamilies").Item(0)
	families := spec.At("ipFamilies")
	now, old := families.Items(), before.At("ipFamilies").Items()
	if len(now) < len(old) && length(spec, "clusterIPs") == 0 {
		f.Invalid(at, fielderrors.Show(families), "primary ipFamily can not be unset")
	}
	if len(now) == len(old) {
		for i := range now {
			if now[i].Str() != old[i].Str() {
				f.Invalid(at, fielderrors.Show(families), mayNotChange)
			}
		}
		return
	}
	if len(now) == 0 || len(old) == 0 {
		return
	}
	if now[0].Str() != old[0].Str() {
		f.Invalid(at, fielderrors.Show(spec.At("clusterIPs")), mayNotChange)
	}
	if len(now) == 1 && text(spec, "ipFamilyPolicy") != "SingleStack" {
		f.Invalid(at.Up.Up.To("ipFamilyPolicy"), fielderrors.Show(spec.At("ipFamilyPolicy")),
			releasedSecondary+"ipFamily")
	}
}

func serviceStatus(f *errorList, service, old object.Value) {
	f.qualifiedFinalizers(service)
	f.loadBalancer(service, old)
}

// loadBalancer checks the addresses at which a service is reached from outside.
func (f *errorList) loadBalancer(service, old object.Value) {
	at := (*fielderrors.Location)(nil).To("status").To("loadBalancer").To("ingress")
	ingress := service.At("status", "loadBalancer", "ingress").Items()
	if len(ingress) > 0 && text(service.At("spec"), "type") != "LoadBalancer" {
		f.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")
		return
	}
	for i, point := range ingress {
		p := at.Item(i)
		ip := text(point, "ip")
		kept := slices.ContainsFunc(old.At("status", "loadBalancer", "ingress").Items(),
			func(before object.Value) bool { return text(before, "ip") == ip })
		if ip != "" && !kept {
			f.legacyIP(p.To("ip"), ip, object.Nil)
		}
		switch mode := point.At("ipMode"); {
		case mode.IsNull() && ip != "":
			f.Required(p.To("ipMode"), "must be specified when `ip` is set")
		case mode.IsNull():
		case ip == "":
			f.Forbidden(p.To("ipMode"), "may not be specified when `ip` is not set")
		default:
			f.only(p.To("ipMode"), mode.Str(), ipModes)
		}
		if hostname := text(point, "hostname"); hostname != "" {
			f.hostname(p.To("hostname"), hostname)
		}
	}
}

// hostname demands a name, not an address.
func (f *errorList) hostname(p *fielderrors.Location, s string) {
	f.subdomain(p, s)
	if netutils.ParseIPSloppy(s) != nil {
		f.Invalid(p, s, "must be a DNS name, not an IP address")
	}
}
