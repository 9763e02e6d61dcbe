package addresses

import (
	"encoding/binary"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// Default is the name of the ServiceCIDR that holds the ranges of --service-cluster-ip-range.
const Default = "kubernetes"

// serviceCIDR is the ranges of one ServiceCIDR.
type serviceCIDR struct {
	version  *store.Version // nil: the configured ranges, without an object
	prefixes []netip.Prefix
	ready    bool
}

// cidrs is all ServiceCIDRs by name. It is the value of a view.
type cidrs map[string]*serviceCIDR

// compile is the view.Compile of the ServiceCIDRs.
func compile(before cidrs, changes iter.Seq[view.Change]) cidrs {
	after := cidrs{}
	maps.Copy(after, before)
	for change := range changes {
		if delete(after, change.Name); change.Version != nil {
			after[change.Name] = read(change.Version)
		}
	}
	return after
}

// read returns the ranges of an object; none of an unreadable one.
func read(v *store.Version) *serviceCIDR {
	c := &serviceCIDR{version: v}
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return c
	}
	for _, text := range obj.At("spec", "cidrs").Items() {
		if prefix, err := netip.ParsePrefix(text.Str()); err == nil {
			c.prefixes = append(c.prefixes, prefix)
		}
	}
	c.ready = !v.Sidecar.Deleting && ready(obj)
	return c
}

// ready returns the condition Ready; a ServiceCIDR without one is ready.
func ready(obj object.Value) bool {
	for _, c := range obj.At("status", "conditions").Items() {
		if c.At("type").Str() == "Ready" {
			return c.At("status").Str() == "True"
		}
	}
	return true
}

// in returns the ready ranges of a family: those of the ServiceCIDR kubernetes first, then by name.
func (a *Allocator) in(family string) []source {
	var known cidrs
	if a.cidrs != nil {
		known, _ = a.cidrs.Now() // no addresses are given from the ranges of one that cannot be read
	}
	byName := slices.SortedFunc(maps.Keys(known), func(x, y string) int {
		switch Default {
		case x:
			return -1
		case y:
			return 1
		}
		return strings.Compare(x, y)
	})
	var all []source
	if known[Default] == nil {
		all = (&serviceCIDR{prefixes: a.ranges, ready: true}).of(family, all)
	}
	for _, name := range byName {
		all = known[name].of(family, all)
	}
	return all
}

// source is a range with the object that has it.
type source struct {
	netip.Prefix
	from *store.Version
}

func (c *serviceCIDR) of(family string, all []source) []source {
	for _, prefix := range c.prefixes {
		// As in the reference, IPv6 ranges larger than /64 are not used.
		if c.ready && familyOf(prefix.Addr()) == family && (prefix.Addr().Is4() || prefix.Bits() >= maxHostBits) {
			all = append(all, source{prefix.Masked(), c.version})
		}
	}
	return all
}

// maxHostBits is the greatest number of bits of an address within its range.
const maxHostBits = 64

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// hosts returns the number of addresses in a range.
func (s source) hosts() uint64 {
	if bits := s.Addr().BitLen() - s.Bits(); bits < maxHostBits {
		return 1 << bits
	}
	return 1<<64 - 1
}

// size returns how many addresses can be allocated: all except the network address, and the broadcast address of
// IPv4.
func (s source) size() uint64 {
	reserved := uint64(1)
	if s.Addr().Is4() {
		reserved = 2
	}
	return s.hosts() - min(reserved, s.hosts())
}

// has says whether an address can be allocated from the range.
func (s source) has(a netip.Addr) bool { return Contains(s.Prefix, a) }

// Contains says whether Services can have an address of a range: not the network address, and not the IPv4 broadcast
// address.
func Contains(prefix netip.Prefix, a netip.Addr) bool {
	first := prefix.Masked().Addr()
	return prefix.Contains(a) && a != first && !(a.Is4() && a == at(first, 1<<(32-prefix.Bits())-1))
}

// at returns the address at an offset from another one.
func at(a netip.Addr, offset uint64) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+offset)
	return netip.AddrFrom16(b)
}

// band has the parameters of the lower band: 1/share of the range, but at least min and at most max.
type band struct{ min, max, share uint64 }

var (
	addressBand = band{16, 256, 16}
	portBand    = band{16, 128, 32}
)

// lower returns the size of the lower band of a range with so many places; 0 if the range is not larger than min.
func (b band) lower(places uint64) uint64 {
	if places <= b.min {
		return 0
	}
	return min(max(places/b.share, b.min), b.max)
}

// offsets yields the offsets 0 to size-1 of a range, each once: those of the upper band from a random one on, wrapping
// around, and then those of the lower band in the same way. The random start keeps concurrent requests from competing
// for the same free place, and an address from being reused at once.
func offsets(size, lower uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, part := range [][2]uint64{{lower, size}, {0, lower}} {
			first, end := part[0], part[1]
			if first >= end {
				continue
			}
			start := first + rand.Uint64N(end-first)
			for i := start; i < end; i++ {
				if !yield(i) {
					return
				}
			}
			for i := first; i < start; i++ {
				if !yield(i) {
					return
				}
			}
		}
	}
}
