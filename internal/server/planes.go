package server

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"plinth/internal/admission"
	"plinth/internal/authz"
	"plinth/internal/console"
	"plinth/internal/controller/steps"
	"plinth/internal/egress"
	"plinth/internal/fairness"
	"plinth/internal/plane"
	"plinth/internal/planes"
	"plinth/internal/planes/credentials"
	"plinth/internal/planes/kind"
	"plinth/internal/store"
)

// validatePlanes refuses settings with which there can be no planes besides the first one.
func (c *Config) validatePlanes(refuse func(format string, args ...any)) {
	switch {
	case !c.Planes && c.PlanesDomain != "":
		refuse("--planes-domain is for --planes, which is not set")
	case c.Planes && len(c.Etcd.Servers) > 0:
		refuse("--planes needs the embedded store, and --etcd-servers says that objects are in an etcd")
	}
	_, err := c.planesEgress()
	if err != nil {
		refuse("--planes-egress: %w", err)
	}
}

func (c *Config) planesEgress() (all []netip.Prefix, err error) {
	for _, text := range c.PlanesEgress {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no prefix of addresses, such as 127.0.0.1/32", text)
		}
		all = append(all, prefix)
	}
	return all, nil
}

// stepsAtOnce is how many steps of the controllers of all planes run at a time, and planeSteps how many of one plane
// besides the first one. Most steps take a millisecond; those that wait for somebody's webhook take seconds, and a few
// planes with such webhooks leave enough for the others.
const (
	stepsAtOnce = 512
	planeSteps  = 16
)

// withPlanes makes the type Plane a part of the first plane.
func (s *Server) withPlanes(p *plane.Config) {
	if !s.config.Planes {
		return
	}
	p.Planes = &kind.Config{
		URL: s.planeURL,
		Origin: func(name, resourceVersion string) (kind.Origin, error) {
			return s.planes.Origin(name, resourceVersion)
		},
		Begin: func(ctx context.Context, created *store.Version) (*store.Begin, error) {
			return s.planes.Begin(ctx, created)
		},
		Refresh: func(ctx context.Context) {
			if s.planes != nil {
				s.planes.Refresh(ctx)
			}
		},
	}
	p.Sessions = &console.Sessions{}
	s.capacity = fairness.NewCapacity(fairness.CapacityConfig{
		Seats: p.Limits.Reading + p.Limits.Writing, Places: p.Limits.Places})
	p.Limits.Share = s.capacity.Share(fairness.ShareConfig{Exempts: true})
	s.follow = append(s.follow, s.capacity.Run)
	p.Steps, p.StepShare = steps.NewPool(stepsAtOnce), plane.StepShare
}

// openPlanes opens the planes besides the first one.
func (s *Server) openPlanes(ctx context.Context) (err error) {
	if !s.config.Planes {
		s.warnOfPlanes()
		return nil
	}
	if err := s.openCredentials(); err != nil {
		return err
	}
	s.planes, err = planes.New(ctx, planes.Config{
		First: s.plane, Domain: s.config.PlanesDomain, Make: s.madeOf, Now: s.clock, Logger: s.config.Logger,
		Idle: s.config.planeIdle, Secret: s.credentials.ID(), Adopted: s.credentials.Adopted(),
		Controllers: strings.Join(s.config.Controllers.Selected(), ","),
		Definitions: s.shared.Definitions,
	})
	return err
}

// warnOfPlanes says that there are planes which are not served.
func (s *Server) warnOfPlanes() {
	if n := s.unservedPlanes(s.plane); n > 0 {
		s.config.Logger.Warn("the data directory has planes, which are not served without --planes; they are kept",
			"planes", n)
	}
}

// unservedPlanes is how many planes there are that are not served. They are objects of the first one.
func (s *Server) unservedPlanes(first *plane.Plane) int {
	if s.config.Planes {
		return 0
	}
	if sn, err := first.Store.Snapshot(0); err == nil {
		return sn.Count(kind.Path, "")
	}
	return 0
}

// planeURL is where the API of a plane is.
func (s *Server) planeURL(name string) string { return s.externalURL() + "/clusters/" + name }

// openCredentials opens what planes issue and believe, and to which addresses they may connect.
func (s *Server) openCredentials() (err error) {
	dir := ""
	if s.config.DataDir != "" {
		dir = s.config.inDataDir("pki")
	}
	s.credentials, err = credentials.Open(dir, credentials.Process{
		Authentication: s.shared.Authentication, LaterTokens: s.shared.LaterTokens,
		Signer: s.certificates.pki.Certificate, Administrator: administrator, First: s.shared.Authority,
	})
	if err != nil {
		return err
	}
	subjects, err := s.credentials.Subjects()
	if err != nil {
		return err
	}
	s.certificates.change(func() { s.certificates.planes = subjects })
	var own []netip.AddrPort
	if address, ok := s.address(); ok {
		own = append(own, address.AddrPort())
	}
	allowed, err := s.config.planesEgress()
	s.egress = egress.Restrict(own, allowed...)
	return err
}

// handler serves the requests that come in at the port.
func (s *Server) handler() http.Handler {
	if s.planes != nil {
		return s.planes
	}
	return s.plane.Handler()
}

// madeOf returns what a plane is made of: what the process has, without what belongs to the first plane alone.
func (s *Server) madeOf(_ context.Context, of planes.Plane) (*plane.Config, error) {
	c := *s.shared
	c.Logger, c.Types = c.Logger.With("plane", of.Name), s.plane.Types
	var err error
	if c.Authority, err = s.rolesOfPlane(); err != nil {
		return nil, err
	}
	if err := s.credentials.Of(of.UID, of.Name, of.Created, s.planeURL(of.Name)).Configure(&c); err != nil {
		return nil, err
	}
	// The pages of the process are at the first plane, and so are its planes and the sign-in at issuers, which know one
	// address of the console.
	c.Handlers, c.Planes, c.Issuers = nil, nil, nil
	// What the process is configured to send to others is not for those that a plane names.
	c.Aggregation.Dial, c.Nodes.Dial = nil, nil
	c.Admission.WithoutCredentials = true
	c.EndpointsOnly, c.Egress = true, s.egress
	// The owner of a plane chooses the names of webhooks, policies and APIServices, which are labels there.
	c.Admission.Metrics, c.Unavailable = admission.Metrics{}, nil
	if of.Spec.From != (kind.From{}) {
		c.Accounts.BootstrapAfter = of.Created // those that were copied are of the other plane
	}
	c.Limits.Share = s.capacity.Share(fairness.ShareConfig{Weight: int(of.Spec.Weight),
		Requests: planes.Requests(of.Spec)})
	c.Webhooks, c.StepShare = nil, planeSteps
	return &c, nil
}

// rolesOfPlane decides what users may do in a plane, by its roles alone: webhooks and policy files of the process do
// not know of planes.
func (s *Server) rolesOfPlane() (*authz.Authority, error) {
	modes := []authz.Mode{authz.RBAC}
	if slices.Contains(s.config.modes(), authz.Node) {
		modes = []authz.Mode{authz.Node, authz.RBAC}
	}
	return authz.New(authz.FromModes(modes, nil), authz.Options{Logger: s.config.Logger, Features: s.features})
}
