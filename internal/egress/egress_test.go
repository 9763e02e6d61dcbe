package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

// Which addresses are refused under a policy that restricts; under the zero policy none is.
//
// SPEC: BEY-9
func TestAddresses(t *testing.T) {
	p := Restrict([]netip.AddrPort{netip.MustParseAddrPort("10.1.2.3:6443"), netip.MustParseAddrPort("[::]:7443")},
		netip.MustParsePrefix("169.254.20.0/24"), netip.MustParsePrefix("127.9.0.0/16"))
	p.interfaces = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("10.9.9.9"), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.ParseIP("2001:db8::9"), Mask: net.CIDRMask(64, 128)}}, nil
	}
	for address, want := range map[string]string{
		"93.184.216.34:443": "", "10.0.0.1:443": "", "192.168.1.1:10250": "", "172.16.0.1:1": "", "100.64.0.1:443": "",
		"[2001:db8::1]:443": "", "[fd00::1]:443": "", "[64:ff9b::5db8:d822]:443": "", "[2002:5db8:d822::1]:443": "",

		"127.0.0.1:443": "loopback", "127.255.255.254:443": "loopback", "[::1]:443": "loopback",
		"[::ffff:127.0.0.1]:443": "loopback", "[::127.0.0.1]:443": "loopback", "[64:ff9b::7f00:1]:443": "loopback",
		"[64:ff9b:1::127.0.0.1]:443": "loopback", "[2002:7f00:1::]:443": "loopback",
		"[::ffff:0:127.0.0.1]:443": "loopback",
		"169.254.169.254:80":       "link-local", "[fe80::1]:443": "link-local", "[fe80::1%eth0]:443": "link-local",
		"[febf::1]:443": "link-local", "[::ffff:169.254.169.254]:80": "link-local", "[fe80::5efe:10.0.0.1]:1": "link-local",
		"[64:ff9b::a9fe:a9fe]:80": "link-local",
		"0.0.0.0:443":             "unspecified", "[::]:443": "unspecified", "[::ffff:0.0.0.0]:443": "unspecified",
		"0.1.2.3:443": "unspecified",
		"224.0.0.1:1": "multicast", "[ff02::1]:1": "multicast", "[ff01::1]:1": "multicast", "255.255.255.255:1": "broadcast",
		"[fd00:ec2::254]:80": "metadata", "100.100.100.200:80": "metadata",

		// Where the process listens.
		"10.1.2.3:6443": "listens", "[::ffff:10.1.2.3]:6443": "listens", "[64:ff9b::10.1.2.3]:6443": "listens",
		"10.1.2.3:443": "", "10.9.9.9:7443": "listens", "[2001:db8::9]:7443": "listens", "10.9.9.9:443": "",
		"10.9.9.8:7443": "", "127.0.0.1:7443": "listens",

		// What is allowed, the process itself excepted.
		"169.254.20.10:53": "", "127.9.0.1:443": "", "127.9.0.1:7443": "listens", "169.254.21.1:53": "link-local",

		"localhost:443": "none of IP", "": "none of IP", "127.0.0.1": "none of IP",
	} {
		err := p.judge("tcp4", address)
		if want == "" && err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	for _, network := range []string{"unix", "unixgram", "udp", "udp4", "ip4:icmp", ""} {
		if err := p.judge(network, "10.0.0.1:443"); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", network, err)
		}
	}
	p.interfaces = func() ([]net.Addr, error) { return nil, errors.New("not now") }
	if err := p.judge("tcp", "10.9.9.8:7443"); !errors.Is(err, ErrRefused) {
		t.Errorf("without knowing the addresses of the machine: %v", err)
	}
}

// The policy is asked about the address that is connected to, whatever the name is, and nothing arrives there.
//
// SPEC: BEY-9
func TestConnections(t *testing.T) {
	ctx := t.Context()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	_, port, err := net.SplitHostPort(tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	given := 0
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		given++
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	for _, at := range []struct{ network, address string }{
		{"tcp", tcp.Addr().String()}, {"tcp", "localhost:" + port}, {"tcp4", "[::ffff:127.0.0.1]:" + port},
		{"unix", unix.Addr().String()},
	} {
		for _, given := range []Dial{nil, dial} {
			c, err := Policy{}.Dial(given, net.Dialer{})(ctx, at.network, at.address)
			if err != nil {
				t.Errorf("%v without a restriction: %v", at, err)
			} else {
				c.Close()
			}
			if c, err := Restrict(nil).Dial(given, net.Dialer{})(ctx, at.network, at.address); !errors.Is(err, ErrRefused) {
				t.Errorf("%v: %v %v", at, c, err)
			}
		}
	}
	if given != 4 {
		t.Errorf("the given function has dialed %d times, want 4", given)
	}
	allowed := Restrict(nil, netip.MustParsePrefix("127.0.0.0/8")).Dial(nil, net.Dialer{})
	if c, err := allowed(ctx, "tcp", tcp.Addr().String()); err != nil {
		t.Errorf("an address that is allowed: %v", err)
	} else {
		c.Close()
	}
}

// A proxy would connect to what the policy refuses.
//
// SPEC: BEY-9
func TestProxies(t *testing.T) {
	if Restrict(nil).Proxy() != nil {
		t.Error("a policy that restricts uses a proxy")
	}
	if (Policy{}).Proxy() == nil {
		t.Error("without a restriction no proxy is used")
	}
	_ = http.Transport{Proxy: Policy{}.Proxy()}
}
