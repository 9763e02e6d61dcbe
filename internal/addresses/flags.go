package addresses

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// smallestRange is the least number of addresses in a range for Services, as in the reference.
const smallestRange = 8

// Flags are the values of flags about the addresses and ports of Services.
type Flags struct {
	// ClusterIPRange is the range of cluster IPs, or two of different families separated by a comma; "": 10.0.0.0/24.
	// The Service kubernetes has the first address of the first range.
	ClusterIPRange string
	NodePortRange  string // "": 30000-32767
	NodePort       int    // of the Service kubernetes; 0: none
}

// parseRanges parses --service-cluster-ip-range.
func parseRanges(text string) ([]netip.Prefix, error) {
	const flag = "--service-cluster-ip-range"
	if text == "" {
		return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, nil // as in the reference
	}
	var ranges []netip.Prefix
	for text := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch bits := prefix.Addr().BitLen() - prefix.Bits(); {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", flag, err)
		case bits < 8 && 1<<bits < smallestRange:
			return nil, fmt.Errorf("%s: %s has fewer than %d addresses", flag, prefix.Masked(), smallestRange)
		case prefix.Addr().Is6() && bits > 64:
			return nil, fmt.Errorf("%s: %s is too large: a network of IPv6 addresses has at least 64 bits", flag,
				prefix.Masked())
		}
		ranges = append(ranges, prefix.Masked())
	}
	if len(ranges) > 2 {
		return nil, fmt.Errorf("%s: %d ranges are more than two", flag, len(ranges))
	}
	if len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, fmt.Errorf("%s: %s and %s are of the same family of addresses", flag, ranges[0], ranges[1])
	}
	return ranges, nil
}

// ParsePorts parses a range of ports as the reference does: A-B, A+N, or one port; the empty text is the default
// range.
func ParsePorts(text string) (first, last int64, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 30000, 32767, nil
	}
	low, rest, more := strings.Cut(text, "-")
	plus := false
	if !more {
		if low, rest, plus = strings.Cut(text, "+"); !plus {
			rest = low
		}
	}
	if first, err = strconv.ParseInt(low, 10, 32); err == nil {
		last, err = strconv.ParseInt(rest, 10, 32)
	}
	if plus {
		last += first
	}
	if err != nil || first < 0 || last < first || last > 65535 {
		return 0, 0, fmt.Errorf("%q is no range of ports", text)
	}
	return first, last, nil
}

// Config returns the configuration of an Allocator.
func (f *Flags) Config() (c Config, err error) {
	if c.Ranges, err = parseRanges(f.ClusterIPRange); err != nil {
		return c, err
	}
	if c.FirstPort, c.LastPort, err = ParsePorts(f.NodePortRange); err != nil {
		return c, fmt.Errorf("--service-node-port-range: %w", err)
	}
	if own := int64(f.NodePort); own > 0 && (own < c.FirstPort || own > c.LastPort) {
		return c, fmt.Errorf("--kubernetes-service-node-port: %d is not in --service-node-port-range, %d-%d", own,
			c.FirstPort, c.LastPort)
	}
	return c, nil
}
