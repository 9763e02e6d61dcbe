package validation

import (
	"net/netip"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/object"
)

// legacyIP checks an address in a member that is older than the strict rules; kept lists those that the old object has.
func (f *errorList) legacyIP(p *fielderrors.Location, s string, kept object.Value) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" && !addr.Is4In6() || contains(kept, s) {
		return
	}
	strict := f.on(features.StrictIPCIDRValidation)
	f.List = append(f.List, utilvalidation.IsValidIPForLegacyField(f.Path(p), s, strict, nil)...)
}

// legacyCIDR is legacyIP for ranges of addresses.
func (f *errorList) legacyCIDR(p *fielderrors.Location, s string, kept object.Value) {
	if !contains(kept, s) {
		strict := f.on(features.StrictIPCIDRValidation)
		f.List = append(f.List, utilvalidation.IsValidCIDRForLegacyField(f.Path(p), s, strict, nil)...)
	}
}

// endpointIP refuses addresses whose meaning depends on the host.
func (f *errorList) endpointIP(p *fielderrors.Location, s string) {
	ip := netutils.ParseIPSloppy(s)
	if ip == nil {
		f.Invalid(p, s, "must be a valid IP address")
		return
	}
	if ip.IsUnspecified() {
		f.Invalid(p, s, "may not be unspecified ("+s+")")
	}
	if ip.IsLoopback() {
		f.Invalid(p, s, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	}
	if ip.IsLinkLocalUnicast() {
		f.Invalid(p, s, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	}
	if ip.IsLinkLocalMulticast() {
		f.Invalid(p, s, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}
