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

// serviceCIDR is what a ServiceCIDR has to give.
type serviceCIDR struct {
	version  *store.Version // nil: the ranges of the configuration, whose object is not there
	prefixes []netip.Prefix
	ready    bool
}

// cidrs are the ServiceCIDRs by name.
type cidrs map[string]*serviceCIDR

// compile brings the ServiceCIDRs up to date.
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

// read is what an object says. One that cannot be read gives nothing.
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

// ready is what the condition says; where nobody has said anything, a ServiceCIDR is ready.
func ready(obj object.Value) bool {
	for _, c := range obj.At("status", "conditions").Items() {
		if c.At("type").Str() == "Ready" {
			return c.At("status").Str() == "True"
		}
	}
	return true
}

// in lists the ready ranges of a family: those of the ServiceCIDR kubernetes first, then by name.
func (a *Allocator) in(family string) []source {
	var known cidrs
	if a.cidrs != nil {
		known = a.cidrs.Now()
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

// source is a range and the object that it is from.
type source struct {
	netip.Prefix
	from *store.Version
}

func (c *serviceCIDR) of(family string, all []source) []source {
	for _, prefix := range c.prefixes {
		// As in the reference, larger ranges of IPv6 addresses are not used.
		if c.ready && familyOf(prefix.Addr()) == family && (prefix.Addr().Is4() || prefix.Bits() >= maxHostBits) {
			all = append(all, source{prefix.Masked(), c.version})
		}
	}
	return all
}

// maxHostBits is of how many bits an address within a range is.
const maxHostBits = 64

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// hosts is how many addresses a range has.
func (s source) hosts() uint64 {
	if bits := s.Addr().BitLen() - s.Bits(); bits < maxHostBits {
		return 1 << bits
	}
	return 1<<64 - 1
}

// size is how many of them can be given away: all but that of the network itself and an IPv4 network's broadcast
// address.
func (s source) size() uint64 {
	reserved := uint64(1)
	if s.Addr().Is4() {
		reserved = 2
	}
	return s.hosts() - min(reserved, s.hosts())
}

// has says whether an address is one that the range can give away.
func (s source) has(a netip.Addr) bool { return Contains(s.Prefix, a) }

// Contains says whether an address is one that Services can have of a range: not that of the network, nor its
// broadcast address.
func Contains(prefix netip.Prefix, a netip.Addr) bool {
	first := prefix.Masked().Addr()
	return prefix.Contains(a) && a != first && !(a.Is4() && a == at(first, 1<<(32-prefix.Bits())-1))
}

// at is the address that lies so far behind another one.
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

// The lower band has at least min places, and at most max of them; between these it is a share of the whole.
type band struct{ min, max, share uint64 }

var (
	addressBand = band{16, 256, 16}
	portBand    = band{16, 128, 32}
)

// lower is how many places of these many are in the lower band. A range that is hardly larger than the band has none.
func (b band) lower(places uint64) uint64 {
	if places <= b.min {
		return 0
	}
	return min(max(places/b.share, b.min), b.max)
}

// places goes through the places 0 to size-1 of a range, each once: from a random place of the upper band on to its
// end and around again, and then in the same way through the lower one.
func places(size, lower uint64) iter.Seq[uint64] {
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
