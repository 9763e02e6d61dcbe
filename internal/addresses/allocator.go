package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// The resources of ServiceCIDRs, IPAddresses and Services in the store.
const (
	CIDRs       = "networking.k8s.io/servicecidrs"
	IPAddresses = "networking.k8s.io/ipaddresses"
	Services    = "/services"
)

// Config has the ranges of addresses and ports.
type Config struct {
	// Ranges are those of --service-cluster-ip-range: one, or two of different families, of which the first is the
	// default for Services that do not request a family; empty: 10.0.0.0/24.
	Ranges []netip.Prefix
	// FirstPort and LastPort are those of --service-node-port-range; 0, 0: 30000-32767.
	FirstPort, LastPort int64
}

// The labels of IPAddresses that belong to the address of a Service.
const (
	familyLabel = "ipaddress.kubernetes.io/ip-family"
	managedBy   = "ipaddress.kubernetes.io/managed-by"
	manager     = "ipallocator.k8s.io"
)

// Managed says whether an IPAddress belongs to the address of a Service.
func Managed(o *engine.Object) bool {
	return slices.Contains(o.Sidecar.Labels, store.Pair{Name: managedBy, Value: manager})
}

// Allocator gives Services their addresses and ports. Its methods may be called concurrently.
//
// The problem: no two Services may have one address or port, while many are created at the same time, on several
// replicas. A bitmap of the allocated ones (as in the reference until 1.33) duplicates what the Services record, and a
// crash between the two writes leaves them inconsistent, so that a repair loop has to compare them. Here each address
// or port is a key of the store, and the commit that writes the Service also creates the key, on the precondition that
// it does not exist:
//
//	S has address or port a  ⇔  the claim of a exists, and names S
type Allocator struct {
	ranges      []netip.Prefix
	families    []string          // of the ranges
	first, last int64             // of the ports on nodes
	cidrs       *view.View[cidrs] // nil: only the ranges are used

	services, addresses *engine.Resource
	check               func(service, old object.Value) field.ErrorList

	// PortsReady returns why no port can be given at this time, an error of the store that has them; nil: they always
	// can. It is set before the allocator is used.
	PortsReady func() error
}

// New makes an allocator.
func New(c Config) *Allocator {
	a := &Allocator{ranges: c.Ranges, first: c.FirstPort, last: c.LastPort}
	if len(a.ranges) == 0 {
		a.ranges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	}
	if a.last == 0 {
		a.first, a.last = 30000, 32767
	}
	for _, prefix := range a.ranges {
		a.families = append(a.families, familyOf(prefix.Addr()))
	}
	return a
}

// Open makes the allocator use ServiceCIDRs; without it only the configured ranges are used.
func (a *Allocator) Open(collection *store.Collection) { a.cidrs = view.New(collection, compile) }

// Complete sets the functions Allocate and Claims of the type of Services, and Holder of the type of IPAddresses. check
// validates cluster IPs and families of a Service on their own.
func (a *Allocator) Complete(services, ips *engine.Resource, check func(service, old object.Value) field.ErrorList) {
	a.services, a.addresses, a.check = services, ips, check
	services.Allocate, services.Claims = a.allocate, a.claims
	ips.Holder = a.holder
}

// claims returns the claims of a Service: one for each address and port.
func (a *Allocator) claims(obj object.Value) []engine.Claim {
	ips, ports := parse(obj).held()
	all := make([]engine.Claim, 0, len(ips)+len(ports))
	for _, ip := range ips {
		all = append(all, a.address(ip, obj))
	}
	for _, port := range ports {
		all = append(all, portClaim(port))
	}
	return all
}

// address returns the claim of an address by a Service. The Service may be null for a check whether the address is
// taken.
func (a *Allocator) address(ip netip.Addr, service object.Value) engine.Claim {
	text := object.StringOf
	meta := service.At("metadata")
	return engine.CompanionClaim(a.addresses, object.Fields(
		"apiVersion", text("networking.k8s.io/v1"), "kind", text("IPAddress"),
		"metadata", object.Fields("name", text(ip.String()), "labels", object.Fields(
			familyLabel, text(familyOf(ip)), managedBy, text(manager))),
		"spec", object.Fields("parentRef", object.Fields(
			"name", meta.At("name"), "namespace", meta.At("namespace"), "resource", text("services")))))
}

// portClaims is the sort of value of claims of node ports.
const portClaims = "nodeports/"

// portClaim returns the claim of a node port. The protocol does not matter.
func portClaim(port int64) engine.Claim { return engine.ClaimOf(PortName(port)) }

// PortName is the name of the claim of a node port, and PortOf its port.
func PortName(port int64) string { return portClaims + strconv.FormatInt(port, 10) }

// PortNames are the names of the claims of the node ports that a Service has.
func PortNames(service object.Value) (names []string) {
	_, ports := parse(service).held()
	for _, port := range ports {
		names = append(names, PortName(port))
	}
	return names
}

// PortOf is the port of a name that PortName has made.
func PortOf(name string) (port int64, err error) {
	text, ok := strings.CutPrefix(name, portClaims)
	if !ok {
		return 0, fmt.Errorf("%s is no node port", name)
	}
	return strconv.ParseInt(text, 10, 32)
}

// Ports are the first and the last port of the range.
func (a *Allocator) Ports() (first, last int64) { return a.first, a.last }

// holder returns the Service that an IPAddress refers to.
func (a *Allocator) holder(obj object.Value) (*engine.Resource, store.Key) {
	ref := obj.At("spec", "parentRef")
	if ref.At("resource").Str() != "services" || ref.At("group").Str() != "" {
		return nil, store.Key{}
	}
	return a.services, a.services.Key(ref.At("namespace").Str(), ref.At("name").Str())
}

// allocate gives a Service the addresses and ports that it requests or that its type needs, or returns an error. Errors
// are returned in the order of the reference.
func (a *Allocator) allocate(request *engine.Allocation) (object.Value, error) {
	g := &grant{Allocator: a, Allocation: request, service: parse(request.Object), old: parse(request.Old),
		given: map[int64]bool{}}
	if g.old != nil {
		g.keep(g.old)
	}
	g.pair(g.old)
	for _, step := range []func() error{g.completeFamilies, g.giveAddresses, g.givePorts, g.giveHealthPort} {
		if err := step(); err != nil {
			return object.Nil, err
		}
	}
	return g.value(), nil
}

// grant is the allocation of one Service.
type grant struct {
	*Allocator
	*engine.Allocation
	*service
	old   *service
	given map[int64]bool // the ports allocated so far

	greatest int64 // of given
}

// invalid returns the error for invalid fields of the Service.
func (g *grant) invalid(errs ...*field.Error) error {
	return apierr.NewInvalid(g.services.KindType(), g.name, errs)
}
