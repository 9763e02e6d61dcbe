package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"plinth/object"
)

// What other processes that share the store leave behind, and what to do about it. Nothing here does I/O: controllers
// do (internal/controller, ServicePorts and ServiceAddresses). Decisions and texts are those of the repair controllers
// in kube-apiserver.

// Finding is something wrong with a Service or an IPAddress: what an Event about it says.
type Finding struct {
	Object             object.Value // the Service or the IPAddress
	Reason, Action     string
	Note               string
	Kind, GroupVersion string // of the object
}

func aboutService(service object.Value, reason, action, note string, args ...any) Finding {
	return Finding{Object: service, Kind: "Service", GroupVersion: "v1", Reason: reason, Action: action,
		Note: fmt.Sprintf(note, args...)}
}

func aboutAddress(ip object.Value, reason, note string, args ...any) Finding {
	return Finding{Object: ip, Kind: "IPAddress", GroupVersion: "networking.k8s.io/v1", Reason: reason,
		Action: "IPAddressAllocation", Note: fmt.Sprintf(note, args...)}
}

// leakRounds is in how many rounds a port without a Service has to be found before it is released: it may have been
// reserved for a Service that is about to be written.
const leakRounds = 3

// Leaks are the ports that no Service had in the last rounds, and how many more rounds they are kept.
type Leaks map[int64]int

// PortRound is the result of comparing the ports that are reserved with those that Services have.
type PortRound struct {
	Reserved []int64 // those that are to be reserved from now on, in order
	Leaks    Leaks   // for the next round
	Findings []Finding
	Flagged  []int64 // found without a Service for the first time
	Released []int64 // found without one often enough
}

// RepairPorts compares the ports that are reserved with those that Services have. reserved was read before services:
// then a port that was reserved and released in between is in neither, and one that was reserved in between is not
// known here, so that the caller may write the result only if what is reserved has not changed. Reserved remain
//
//	the ports that Services have, and those without a Service for leakRounds rounds
//
// complete says that services are all that there are; otherwise no port is released.
func (a *Allocator) RepairPorts(reserved []int64, services []object.Value, leaks Leaks, complete bool) *PortRound {
	r := &PortRound{Leaks: Leaks{}}
	had, unused, rebuilt := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	for _, port := range reserved {
		had[port], unused[port] = true, true
	}
	for _, service := range services {
		for _, port := range portsOf(service) {
			switch {
			case port < a.first || port > a.last:
				r.Findings = append(r.Findings, aboutService(service, "PortOutOfRange", "PortAllocation",
					"Port %d is not within the port range %d-%d; please recreate service", port, a.first, a.last))
			case rebuilt[port]:
				r.Findings = append(r.Findings, aboutService(service, "PortAlreadyAllocated", "PortAllocation",
					"Port %d was assigned to multiple services; please recreate service", port))
			default:
				if rebuilt[port] = true; !had[port] {
					r.Findings = append(r.Findings, aboutService(service, "PortNotAllocated", "PortAllocation",
						"Port %d is not allocated; repairing", port))
				}
			}
			delete(unused, port)
		}
	}
	for port := range unused {
		left, known := leaks[port]
		switch {
		case port < a.first || port > a.last:
			continue // the range has changed
		case !complete:
			if known { // this round does not count
				r.Leaks[port] = left
			}
		case !known:
			r.Flagged = append(r.Flagged, port)
			r.Leaks[port] = leakRounds - 2
		case left > 0:
			r.Leaks[port] = left - 1
		default:
			r.Released = append(r.Released, port)
			continue
		}
		rebuilt[port] = true
	}
	for port := range rebuilt {
		r.Reserved = append(r.Reserved, port)
	}
	for _, list := range [][]int64{r.Reserved, r.Flagged, r.Released} {
		slices.Sort(list)
	}
	return r
}

// portsOf are the node ports in a Service, of whatever type it is. A port that it has several times for one protocol is
// there as often.
func portsOf(obj object.Value) (ports []int64) {
	type place struct {
		port     int64
		protocol string
	}
	seen, known := map[place]bool{}, map[int64]bool{}
	add := func(port int64, protocol string) {
		if port == 0 {
			return
		}
		if at := (place{port, protocol}); !known[port] || seen[at] {
			ports = append(ports, port)
		}
		known[port], seen[place{port, protocol}] = true, true
	}
	for _, p := range obj.At("spec", "ports").Items() {
		add(nodePort(p), p.At("protocol").Str())
	}
	add(obj.At("spec", "healthCheckNodePort").Int(), "TCP")
	return ports
}

// Remedy is what to do about an address.
type Remedy uint8

// The remedies.
const (
	Nothing  Remedy = iota
	Create          // there is no IPAddress
	Recreate        // it is not what it should be
	Remove          // it should not be there
)

// ClusterIPs are the addresses of a Service, as their texts are. ok is false for one that is no address.
func ClusterIPs(service object.Value) (ips []netip.Addr, ok []bool) {
	switch service.At("spec", "clusterIP").Str() {
	case "", none:
		return nil, nil
	}
	for _, text := range texts(service.At("spec", "clusterIPs")) {
		ip, valid := parseIP(text)
		ips, ok = append(ips, ip), append(ok, valid)
	}
	return ips, ok
}

// Within says whether an address is within a ServiceCIDR, ready or not.
func (a *Allocator) Within(ip netip.Addr) bool {
	var known cidrs
	if a.cidrs != nil {
		known, _ = a.cidrs.Now()
	}
	if known[Default] == nil && slices.ContainsFunc(a.ranges, func(r netip.Prefix) bool { return Contains(r, ip) }) {
		return true
	}
	for _, c := range known {
		if slices.ContainsFunc(c.prefixes, func(r netip.Prefix) bool { return Contains(r, ip) }) {
			return true
		}
	}
	return false
}

// RepairAddress compares an address of a Service with its IPAddress, which is null if there is none. holder is the
// Service that the IPAddress refers to; null if there is none.
func (a *Allocator) RepairAddress(service object.Value, ip netip.Addr, has, holder object.Value) (Remedy, []Finding) {
	const action = "ClusterIPAllocation"
	family, meta := familyOf(ip), service.At("metadata")
	if !a.Within(ip) {
		return Nothing, []Finding{aboutService(service, "ClusterIPOutOfRange", action,
			"Cluster IP [%s]: %s is not within any configured Service CIDR; please recreate service", family, ip)}
	}
	if has.IsNull() {
		return Create, []Finding{aboutService(service, "ClusterIPNotAllocated", action,
			"Cluster IP [%s]: %s is not allocated; repairing", family, ip)}
	}
	ref := has.At("spec", "parentRef")
	wrong := ref.At("group").Str() != "" || ref.At("resource").Str() != "services"
	other := ref.At("namespace").Str() != meta.At("namespace").Str() || ref.At("name").Str() != meta.At("name").Str()
	if wrong || other && holder.IsNull() {
		return Recreate, []Finding{aboutService(service, "ClusterIPNotAllocated", action,
			"the ClusterIP [%s]: %s for Service %s/%s has a wrong reference; repairing", family, ip,
			meta.At("namespace").Str(), meta.At("name").Str())}
	}
	var found []Finding
	if other && slices.Contains(texts(holder.At("spec", "clusterIPs")), has.At("metadata", "name").Str()) {
		found = []Finding{aboutService(service, "ClusterIPAlreadyAllocated", action,
			"Cluster IP [%s]:%s was assigned to multiple services; please recreate service", family, ip)}
	}
	labels := has.At("metadata", "labels")
	if labels.At(familyLabel).Str() != family || labels.At(managedBy).Str() != manager {
		return Recreate, found
	}
	return Nothing, found
}

// The times for which an IPAddress may exist without its Service: one that is being written, or has been written and is
// being changed.
const (
	unwritten = time.Minute
	unchanged = 5 * time.Second
)

// RepairOrphan says whether an IPAddress has to be removed. service is the Service that it refers to; null if there is
// none. again is when to look again, if that may change with time; 0: with the objects only.
func RepairOrphan(ip, service object.Value, now time.Time) (_ Remedy, again time.Duration, found []Finding) {
	meta, ref := ip.At("metadata"), ip.At("spec", "parentRef")
	name := meta.At("name").Str()
	if meta.At("labels", managedBy).Str() != manager {
		return Nothing, 0, nil
	}
	if ref.At("group").Str() != "" || ref.At("resource").Str() != "services" {
		return Remove, 0, []Finding{aboutAddress(ip, "IPAddressNotAllocated",
			"IPAddress %s appears to have been modified, not referencing a Service %s: cleaning up", name,
			object.AppendJSON(nil, ref))}
	}
	created, age := time.Time{}, unwritten+1
	if at, err := time.Parse(time.RFC3339, meta.At("creationTimestamp").Str()); err == nil {
		created, age = at, now.Sub(at)
	}
	of := ref.At("namespace").Str() + "/" + ref.At("name").Str()
	switch {
	case service.IsNull() && age <= unwritten:
		return Nothing, max(time.Second, unwritten-age), nil
	case service.IsNull():
		return Remove, 0, []Finding{aboutAddress(ip, "IPAddressNotAllocated",
			"IPAddress: %s for Service %s appears to have leaked: cleaning up", name, of)}
	case slices.Contains(texts(service.At("spec", "clusterIPs")), name):
		return Nothing, 0, nil
	// An ExternalName gets addresses when it becomes another type: they are created first.
	case service.At("spec", "type").Str() == externalName && age < unwritten:
		return Nothing, max(time.Second, unwritten-age), nil
	}
	// Times are in seconds. The reference takes equal ones for an IPAddress that is older than its Service, and may remove
	// one that a Service is getting.
	at, err := time.Parse(time.RFC3339, service.At("metadata", "creationTimestamp").Str())
	if err == nil && !created.Before(at) && age < unchanged {
		return Nothing, unchanged, nil
	}
	return Remove, 0, []Finding{aboutAddress(ip, "IPAddressWrongReference",
		"IPAddress: %s for Service %s has a wrong reference; cleaning up", name, of)}
}

// IPAddress is the IPAddress of an address of a Service.
func (a *Allocator) IPAddress(ip netip.Addr, service object.Value) object.Value {
	return a.address(ip, service).Object
}
