package server

import (
	"net"
	"net/netip"
	"strconv"
)

// reachable is the address at which other machines reach the server; invalid if it listens at none.
func (s *Server) reachable() netip.Addr {
	if _, ok := s.address(); !ok {
		return netip.Addr{}
	}
	return s.config.reachable()
}

// peerAddress is the address at which other servers reach this one; "" if there is none.
func (s *Server) peerAddress() (host string, port int64) {
	if ip, text := s.config.PeerAdvertiseIP, s.config.PeerAdvertisePort; ip != "" && text != "" {
		port, err := strconv.ParseInt(text, 10, 32)
		if err == nil {
			return ip, port
		}
	}
	if address := s.reachable(); address.IsValid() {
		return address.String(), int64(s.port())
	}
	return "", 0
}

// reachable is the address at which other machines reach the server; invalid if it has none but a loopback address.
func (c *Config) reachable() netip.Addr {
	for _, text := range []string{c.AdvertiseAddress, c.BindAddress} {
		if address, err := netip.ParseAddr(text); err == nil && !address.IsUnspecified() && !address.IsLoopback() {
			return address
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}
	}
	var found netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		address := prefix.Addr()
		better := !found.IsValid() || !found.Is4() && address.Is4()
		if err == nil && address.IsGlobalUnicast() && better {
			found = address
		}
	}
	return found
}
