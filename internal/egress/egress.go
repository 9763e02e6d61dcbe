// Package egress decides to which addresses a plane may open connections: to webhooks, aggregated API servers,
// kubelets, Pods and Services, whose addresses are in objects that the users of the plane write.
//
// On its own machine a server could do for a user what the user cannot do: call what listens at loopback or link-local
// addresses only (other programs, the metadata of a cloud), or call the server itself from within. On a lone server
// whoever may write such objects is an administrator, and the reference does not restrict them. The administrator of a
// plane is nobody on the machine.
//
// A [Policy] is asked when a connection is opened, with the address to which it is opened
// (net.Dialer.ControlContext). An earlier decision, by the host of a URL or by an address that was looked up for the
// decision, would not hold: a name can have another address a moment later, a Service of type ExternalName is a name,
// and a redirect is another host. All of these are dialed, so all are judged in one place.
//
// What it does not see: a connection that another machine passes on, such as a load balancer in front of this server,
// or an HTTP proxy. The proxies of the environment (HTTP_PROXY) are therefore not used under a policy that restricts:
// they look the name up themselves, and often listen at a loopback address.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// ErrRefused is in the chain of the error of a connection that a policy refuses.
var ErrRefused = errors.New("the server does not open this connection")

// Dial opens connections, as net.Dialer.DialContext.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Policy says which connections may be opened. The zero value allows all: it is that of a lone server, and of the first
// plane.
type Policy struct {
	restricted bool
	own        []netip.AddrPort
	allowed    []netip.Prefix
	interfaces func() ([]net.Addr, error) // of this machine
}

// Restrict returns the policy that allows connections by TCP to addresses of other machines. own are the addresses at
// which this process listens; an unspecified one (0.0.0.0, ::) stands for all addresses of the machine, with its port.
// allowed are addresses that would be refused otherwise; it does not allow own ones.
func Restrict(own []netip.AddrPort, allowed ...netip.Prefix) Policy {
	return Policy{restricted: true, own: own, allowed: allowed, interfaces: net.InterfaceAddrs}
}

// Dialer returns a dialer with the settings of d that obeys the policy. d has no Control functions.
func (p Policy) Dialer(d net.Dialer) *net.Dialer {
	if p.restricted {
		d.ControlContext = func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return p.judge(network, address)
		}
	}
	return &d
}

// Dial returns a function that opens connections with the settings of d, and obeys the policy. A policy that restricts
// does not use given; otherwise it is the result, unless it is nil.
func (p Policy) Dial(given Dial, d net.Dialer) Dial {
	if given != nil && !p.restricted {
		return given
	}
	return p.Dialer(d).DialContext
}

// Proxy is the function by which an http.Transport finds the proxy for a request; nil: there is none.
func (p Policy) Proxy() func(*http.Request) (*url.URL, error) {
	if p.restricted {
		return nil
	}
	return http.ProxyFromEnvironment
}

// judge returns why a connection to an address is refused, which has been looked up. The texts tell nothing of what
// else is in the process.
func (p Policy) judge(network, address string) error {
	if !strings.HasPrefix(network, "tcp") {
		return fmt.Errorf("%w: it is not one of TCP", ErrRefused)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: its address is none of IP", ErrRefused)
	}
	plain := to.Addr().WithZone("").Unmap()
	for _, a := range append(embedded(plain), plain) {
		if p.isOwn(netip.AddrPortFrom(a, to.Port())) {
			return fmt.Errorf("%w: it listens at %s itself", ErrRefused, to)
		}
		if why := kindOf(a); why != "" && !p.allows(a) {
			return fmt.Errorf("%w: %s is %s", ErrRefused, to.Addr(), why)
		}
	}
	return nil
}

func (p Policy) allows(a netip.Addr) bool {
	return slices.ContainsFunc(p.allowed, func(prefix netip.Prefix) bool { return prefix.Contains(a) })
}

// isOwn says whether this process listens at an address. What cannot be found out counts as if it did.
func (p Policy) isOwn(a netip.AddrPort) bool {
	for _, own := range p.own {
		at := own.Addr().WithZone("").Unmap()
		if own.Port() != a.Port() || !at.IsUnspecified() && at != a.Addr() {
			continue
		}
		if !at.IsUnspecified() || a.Addr().IsLoopback() || a.Addr().IsUnspecified() {
			return true
		}
		all, err := p.interfaces()
		if err != nil || slices.ContainsFunc(all, func(i net.Addr) bool {
			prefix, err := netip.ParsePrefix(i.String())
			return err == nil && prefix.Addr().WithZone("").Unmap() == a.Addr()
		}) {
			return true
		}
	}
	return false
}

// metadata are the addresses of well-known services of clouds that give the machine its credentials, and that are not
// link-local: Amazon's over IPv6, Alibaba's, Oracle's, Azure's.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("192.0.0.192"), netip.MustParseAddr("168.63.129.16")}

// thisNetwork has, besides 0.0.0.0, addresses that no other machine has (RFC 1122, 3.2.1.3).
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// kindOf says what an address is that belongs to one machine or to its link; "": it belongs to another machine.
func kindOf(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return "an unspecified address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast():
		return "a multicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	case slices.Contains(metadata, a):
		return "the address of a cloud's metadata"
	}
	return ""
}

// within are the prefixes of IPv6 addresses that contain an address of IPv4, and at which byte it begins. A gateway, or
// the system itself, may connect to that one (IPv4-mapped addresses are unmapped before).
var within = []struct {
	netip.Prefix
	at int
}{
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 within a network, RFC 8215
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4, RFC 3056
}

// embedded returns the address of IPv4 within one of IPv6.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() || a == netip.IPv6Unspecified() || a == netip.IPv6Loopback() {
		return nil
	}
	for _, w := range within {
		if w.Contains(a) {
			b := a.As16()
			return []netip.Addr{netip.AddrFrom4([4]byte(b[w.at : w.at+4]))}
		}
	}
	return nil
}
