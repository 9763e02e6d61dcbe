package addresses

import (
	"net"
	"net/netip"
	"slices"

	netutils "k8s.io/utils/net"

	"plinth/object"
)

// Values of the API.
const (
	ipv4         = "IPv4"
	ipv6         = "IPv6"
	none         = "None" // the cluster IP of a headless Service
	externalName = "ExternalName"
	onNodes      = "NodePort"
	balanced     = "LoadBalancer"
	single       = "SingleStack"
	preferDual   = "PreferDualStack"
	requireDual  = "RequireDualStack"
)

// service is the spec of a Service: the fields about addresses and ports.
type service struct {
	obj                  object.Value
	name, kind           string
	clusterIP            string
	clusterIPs, families []string
	policy               object.Value // null: not set
	selects              bool
	ports                []object.Value
	healthPort           int64
}

func parse(obj object.Value) *service {
	if obj.IsNull() {
		return nil
	}
	spec := obj.At("spec")
	return &service{
		obj: obj, name: obj.At("metadata", "name").Str(), kind: spec.At("type").Str(),
		clusterIP: spec.At("clusterIP").Str(), clusterIPs: texts(spec.At("clusterIPs")),
		families: texts(spec.At("ipFamilies")),
		policy:   spec.At("ipFamilyPolicy"), selects: spec.At("selector").Len() > 0,
		ports: slices.Clone(spec.At("ports").Items()), healthPort: spec.At("healthCheckNodePort").Int(),
	}
}

func texts(list object.Value) []string {
	var all []string
	for _, item := range list.Items() {
		all = append(all, item.Str())
	}
	return all
}

// value returns the Service with the changed spec.
func (s *service) value() object.Value {
	var set []object.Member
	var drop []string
	put := func(key string, value object.Value, absent bool) {
		if absent {
			drop = append(drop, key)
		} else {
			set = append(set, object.Member{Key: key, Value: value})
		}
	}
	put("clusterIP", object.StringOf(s.clusterIP), s.clusterIP == "")
	put("clusterIPs", object.Strings(s.clusterIPs...), len(s.clusterIPs) == 0)
	put("healthCheckNodePort", object.IntOf(s.healthPort), s.healthPort == 0)
	put("ipFamilies", object.Strings(s.families...), len(s.families) == 0)
	put("ipFamilyPolicy", s.policy, s.policy.IsNull())
	if len(s.ports) > 0 {
		set = append(set, object.Member{Key: "ports", Value: object.ListOf(s.ports...)})
	}
	return s.obj.With("spec", s.obj.At("spec").Edit(set, drop...))
}

// Which fields a Service has depends on its type.

func (s *service) hasAddress() bool { return s.kind != externalName }

func (s *service) hasPorts() bool {
	return s.kind == onNodes || s.kind == balanced
}

func (s *service) hasHealthPort() bool {
	return s.kind == balanced &&
		s.obj.At("spec", "externalTrafficPolicy").Str() == "Local"
}

// wantsPorts says whether ports without a node port get one.
func (s *service) wantsPorts() bool {
	switch s.kind {
	case onNodes:
		return true
	case balanced:
		allocate, said := s.obj.At("spec").Get("allocateLoadBalancerNodePorts")
		return !said || allocate.IsNull() || allocate.Bool()
	}
	return false
}

func (s *service) headless() bool { return len(s.clusterIPs) > 0 && s.clusterIPs[0] == none }

// nodePort and setNodePort get and set the node port of a port.
func nodePort(port object.Value) int64 { return port.At("nodePort").Int() }

func (s *service) setNodePort(i int, port int64) {
	s.ports[i] = s.ports[i].With("nodePort", object.IntOf(port))
}

// held returns the addresses and node ports of a Service. Addresses are in the form of the names of IPAddresses.
func (s *service) held() (ips []netip.Addr, ports []int64) {
	if s.hasAddress() && !s.headless() {
		for _, text := range s.clusterIPs {
			if ip, ok := parseIP(text); ok {
				ips = append(ips, ip)
			}
		}
	}
	seen := map[int64]bool{0: true}
	add := func(port int64) {
		if !seen[port] {
			seen[port] = true
			ports = append(ports, port)
		}
	}
	if s.hasPorts() {
		for _, port := range s.ports {
			add(nodePort(port))
		}
	}
	if s.hasHealthPort() {
		add(s.healthPort)
	}
	return ips, ports
}

// parseIP parses an address as the reference does: 010.0.0.1 is 10.0.0.1, and an IPv4-mapped IPv6 address is IPv4.
func parseIP(text string) (netip.Addr, bool) {
	var ip net.IP = netutils.ParseIPSloppy(text)
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

// keep fills in the fields that a client omits in an update, so that sending the manifest of the Service again is not a
// change.
func (s *service) keep(old *service) {
	if old.hasAddress() && s.hasAddress() {
		if s.clusterIP == "" {
			s.clusterIP = old.clusterIP
		}
		if len(s.clusterIPs) == 0 {
			s.clusterIPs = slices.Clone(old.clusterIPs)
		}
	}
	if old.wantsPorts() && s.wantsPorts() {
		s.keepPorts(old)
	}
	if old.hasHealthPort() && s.hasHealthPort() && s.healthPort == 0 {
		s.healthPort = old.healthPort
	}
}

// keepPorts gives ports without a node port that of the old port with the same name, unless another port has it.
func (s *service) keepPorts(old *service) {
	used, byName := s.nodePorts(), map[string]int64{}
	for _, p := range old.ports {
		byName[p.At("name").Str()] = nodePort(p)
	}
	for i, p := range s.ports {
		if number := byName[p.At("name").Str()]; nodePort(p) == 0 && number != 0 && !used[number] {
			s.setNodePort(i, number)
		}
	}
}

// nodePorts returns the node ports of the ports.
func (s *service) nodePorts() map[int64]bool {
	all := make(map[int64]bool, len(s.ports))
	for _, p := range s.ports {
		if n := nodePort(p); n != 0 {
			all[n] = true
		}
	}
	return all
}

// pair keeps clusterIPs consistent with clusterIP, for clients that set only that.
func (s *service) pair(old *service) {
	if old == nil {
		if s.clusterIP != "" && len(s.clusterIPs) == 0 {
			s.clusterIPs = []string{s.clusterIP}
		}
		return
	}
	if len(old.clusterIPs) > 0 && len(s.clusterIPs) == 0 && old.clusterIP == s.clusterIP {
		s.clusterIPs = slices.Clone(old.clusterIPs)
	}
	if old.clusterIP == s.clusterIP || !slices.Equal(old.clusterIPs, s.clusterIPs) {
		return
	}
	if s.clusterIPs = nil; s.clusterIP != "" {
		s.clusterIPs = []string{s.clusterIP}
	}
}
