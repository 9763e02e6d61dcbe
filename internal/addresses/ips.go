package addresses

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/fielderrors"
	"plinth/object"
)

var spec = field.NewPath("spec")

// completeFamilies fills in the address families of a Service, given the ipFamilyPolicy, ipFamilies and clusterIPs that
// the client set, and refuses families that the cluster does not have.
func (g *grant) completeFamilies() error {
	if !g.hasAddress() || g.staysAsItPrefers() {
		return nil
	}
	if g.policy.IsNull() {
		g.policy = g.defaultPolicy()
	}
	if errs := g.check(g.value(), g.Old); len(errs) > 0 {
		return g.invalid(errs...)
	}
	if errs := append(g.applyPolicy(), g.inferFamilies()...); len(errs) > 0 {
		return g.invalid(errs...)
	}
	// The endpoints of a headless Service without a selector are unknown, so it may have families that the cluster does
	// not have.
	if g.clusterIP == none && !g.selects {
		g.addFamily(true)
		return nil
	}
	var errs field.ErrorList
	if g.policy.Str() == requireDual && len(g.Allocator.families) < 2 {
		errs = append(errs, g.wrongPolicy("this cluster is not configured for dual-stack services"))
	}
	for i, family := range g.service.families {
		if !g.configured(family) {
			errs = append(errs, field.Invalid(spec.Child("ipFamilies").Index(i), fielderrors.Word(family),
				"not configured on this cluster"))
		}
	}
	if len(errs) > 0 {
		return g.invalid(errs...)
	}
	g.addFamily(len(g.Allocator.families) == 2)
	return nil
}

// staysAsItPrefers says whether an update leaves a Service with PreferDualStack the families that it has: they do not
// change when the cluster gets or loses a family.
func (g *grant) staysAsItPrefers() bool {
	return g.old != nil && g.kind == g.old.kind && g.policy.Str() == preferDual &&
		(g.old.policy.IsNull() || g.old.policy.Str() == preferDual) && len(g.old.clusterIPs) > 0 &&
		slices.Equal(g.old.clusterIPs, g.service.clusterIPs) && slices.Equal(g.old.families, g.service.families)
}

// defaultPolicy returns the ipFamilyPolicy of a Service that does not set it.
func (g *grant) defaultPolicy() object.Value {
	switch {
	case g.old != nil && !g.old.policy.IsNull():
		return g.old.policy
	case g.clusterIP == none && !g.selects:
		return object.StringOf(requireDual)
	}
	return object.StringOf(single)
}

// applyPolicy removes the second address and family when an update changes the policy to SingleStack. Otherwise it
// returns errors if addresses or families contradict the policy.
func (g *grant) applyPolicy() (errs field.ErrorList) {
	s := g.service
	alone := g.policy.Str() == single
	switch {
	case g.old == nil:
	case alone:
		if slices.Equal(g.old.clusterIPs, s.clusterIPs) && len(s.clusterIPs) > 1 {
			s.clusterIPs = s.clusterIPs[:1]
		}
		if slices.Equal(g.old.families, s.families) && len(s.families) > 1 {
			s.families = s.families[:1]
		}
	default:
		if n := len(s.clusterIPs); n > 0 && n < len(g.old.clusterIPs) {
			errs = append(errs, g.wrongPolicy("must be 'SingleStack' to release the secondary cluster IP"))
		}
		if n := len(s.families); n > 0 && n < len(g.old.families) {
			errs = append(errs, g.wrongPolicy("must be 'SingleStack' to release the secondary IP family"))
		}
	}
	if alone && len(s.clusterIPs) == 2 {
		errs = append(errs,
			g.wrongPolicy("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if alone && len(s.families) == 2 {
		errs = append(errs,
			g.wrongPolicy("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	return errs
}

func (g *grant) wrongPolicy(detail string) *field.Error {
	return field.Invalid(spec.Child("ipFamilyPolicy"), fielderrors.Show(g.policy), detail)
}

// inferFamilies adds to ipFamilies the families of addresses that have no entry there.
func (g *grant) inferFamilies() (errs field.ErrorList) {
	s := g.service
	for i, text := range s.clusterIPs {
		if text == none {
			break
		}
		ip, ok := parseIP(text)
		if !ok || i < len(s.families) {
			continue
		}
		if family := familyOf(ip); g.configured(family) {
			s.families = append(slices.Clip(s.families), family)
		} else {
			errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(i),
				fielderrors.Show(object.Strings(s.clusterIPs...)),
				family+" is not configured on this cluster"))
		}
	}
	return errs
}

// configured says whether the cluster has a family.
func (g *grant) configured(family string) bool { return slices.Contains(g.Allocator.families, family) }

// addFamily gives a Service the default family if it has none, and the other one, too, if two is set and the policy is
// not SingleStack.
func (g *grant) addFamily(two bool) {
	s := g.service
	if len(s.families) == 0 {
		s.families = g.Allocator.families[:1:1]
	}
	if two && len(s.families) == 1 && g.policy.Str() != single {
		other := ipv6
		if s.families[0] == ipv6 {
			other = ipv4
		}
		s.families = []string{s.families[0], other}
	}
}

// giveAddresses allocates the cluster IPs that a Service lacks.
func (g *grant) giveAddresses() error {
	s := g.service
	if !g.hasAddress() || g.headless() {
		return nil
	}
	first := 0
	switch {
	// The last condition is for Services that were stored before addresses were allocated.
	case g.old == nil || !g.old.hasAddress() || len(g.old.clusterIPs) == 0:
	case g.old.headless() || g.staysAsItPrefers():
		return nil
	case len(g.old.families) == 1 && len(s.families) == 2:
		first = 1
	default:
		return nil
	}
	for len(s.clusterIPs) < len(s.families) {
		s.clusterIPs = append(slices.Clip(s.clusterIPs), "")
	}
	given := slices.Clone(s.clusterIPs)
	for i := first; i < len(s.families); i++ {
		var err error
		if given[i] == "" {
			given[i], err = g.anyAddress(s.families[i])
		} else {
			err = g.thisAddress(s.families[i], given[i])
		}
		if err != nil {
			return err
		}
	}
	s.clusterIP, s.clusterIPs = given[0], given
	return nil
}

// thisAddress allocates a requested address.
func (g *grant) thisAddress(family, asked string) error {
	ip, ok := parseIP(asked)
	if !ok {
		return apierr.NewInternal(fmt.Errorf("failed to parse service IP %q", asked))
	}
	sources := g.in(family)
	if g.Dry { // not checked for being free, as in the reference
		switch {
		case len(sources) == 0:
			return g.refused(" "+asked, "allocator not ready")
		case !sources[0].has(ip):
			return g.refused(" "+asked,
				fmt.Sprintf("the provided IP (%v) is not in the valid range. The range of valid IPs is %v",
					ip, sources[0].Prefix))
		}
		return nil
	}
	for _, source := range sources {
		if !source.has(ip) {
			continue
		}
		if claim := g.address(ip, object.Nil); g.Taken(&claim) {
			return g.refused(" "+asked, "provided IP is already allocated")
		}
		g.dependOn(source)
		return nil
	}
	return g.refused(" "+asked, "the provided network does not match the current range")
}

// anyAddress allocates any free address. A dry run returns the address of the network, as in the reference.
func (g *grant) anyAddress(family string) (string, error) {
	sources := g.in(family)
	if g.Dry {
		if len(sources) == 0 {
			return "", g.refused("", "allocator not ready")
		}
		return sources[0].Addr().String(), nil
	}
	for _, source := range sources {
		for i := range offsets(source.size(), addressBand.lower(source.hosts())) {
			ip := at(source.Addr(), i+1)
			if claim := g.address(ip, object.Nil); !g.Taken(&claim) {
				g.dependOn(source)
				return ip.String(), nil
			}
		}
	}
	return "", apierr.NewInternal(fmt.Errorf("failed to allocate a serviceIP for Service %q: range is full", g.name))
}

// refused returns the error for an address that cannot be allocated.
func (g *grant) refused(asked, why string) error {
	return g.invalid(field.Invalid(spec.Child("clusterIPs"), fielderrors.Show(object.Strings(g.service.clusterIPs...)),
		"failed to allocate IP"+asked+": "+why))
}

// dependOn adds the precondition that the ServiceCIDR of an address is not being deleted.
func (g *grant) dependOn(s source) {
	if s.from != nil {
		g.Require(s.from)
	}
}
