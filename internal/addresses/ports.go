package addresses

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
)

var (
	errPortTaken = errors.New("provided port is already allocated")
	errPortsFull = errors.New("range is full")
)

// firstDryPort is the first port that a dry run shows, as in the reference.
const firstDryPort = 32769

// givePorts allocates the node ports that the ports of a Service lack.
func (g *grant) givePorts() error {
	switch {
	case !g.hasPorts():
		return nil
	case g.old == nil:
		return g.givePortsNew()
	}
	return g.givePortsAgain()
}

// givePortsNew allocates node ports for a new Service. Ports with the same number, for several protocols, get the same
// node port, unless others are requested.
func (g *grant) givePortsNew() error {
	byPort, askedFor := map[int64]int64{}, g.askedFor()
	for i, p := range g.ports {
		asked, port := nodePort(p), p.At("port").Int()
		if asked == 0 && !g.wantsPorts() {
			continue
		}
		switch known := byPort[port]; {
		case known == 0:
			number := askedFor[port]
			if number != 0 {
				if err := g.thisPort(number); err != nil {
					return g.refusedPort(i, number, err)
				}
			} else {
				var err error
				if number, err = g.anyPort(); err != nil {
					return apierr.NewInternal(fmt.Errorf("failed to allocate a nodePort: %w", err))
				}
			}
			g.setNodePort(i, number)
			byPort[port] = number
		case asked == 0:
			g.setNodePort(i, known)
		case asked != known:
			if err := g.thisPort(asked); err != nil {
				return g.refusedPort(i, asked, err)
			}
		}
	}
	return nil
}

// askedFor returns the requested node ports by port number: the node port of the first port with that number that has
// one.
func (g *grant) askedFor() map[int64]int64 {
	first := map[int64]int64{}
	for _, p := range g.ports {
		if port := p.At("port").Int(); first[port] == 0 {
			first[port] = nodePort(p)
		}
	}
	return first
}

// givePortsAgain allocates node ports for an updated Service, which keeps those that it has.
func (g *grant) givePortsAgain() error {
	var had map[int64]bool // the node ports of its ports; not healthCheckNodePort
	if g.old.hasPorts() {
		had = g.old.nodePorts()
	}
	type place struct {
		protocol string
		number   int64
	}
	seen := map[place]bool{}
	for i, p := range g.ports {
		number := nodePort(p)
		switch {
		case number == 0 && !g.wantsPorts():
			continue
		case number == 0:
			var err error
			if number, err = g.anyPort(); err != nil {
				return apierr.NewInternal(fmt.Errorf("failed to allocate a nodePort: %w", err))
			}
			g.setNodePort(i, number)
		case !had[number] && !g.given[number]:
			if err := g.thisPort(number); err != nil {
				return g.refusedPort(i, number, err)
			}
		}
		at := place{p.At("protocol").Str(), number}
		if seen[at] {
			return &apierr.Error{Code: 500, Message: fmt.Sprintf("duplicate nodePort: {%s %d}",
				at.protocol, at.number)}
		}
		seen[at] = true
	}
	return nil
}

// giveHealthPort allocates the healthCheckNodePort of a Service, on which nodes report whether they have an endpoint,
// if it needs one and did not have one.
func (g *grant) giveHealthPort() error {
	if !g.hasHealthPort() || g.old != nil && g.old.hasHealthPort() {
		return nil
	}
	if g.healthPort != 0 {
		if err := g.thisPort(g.healthPort); err != nil {
			return apierr.NewInternal(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %v",
				g.healthPort, err))
		}
		return nil
	}
	var err error
	if g.healthPort, err = g.anyPort(); err != nil {
		return apierr.NewInternal(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %v", 0, err))
	}
	return nil
}

// thisPort allocates a requested port. A dry run accepts one outside of the range, as in the reference.
func (g *grant) thisPort(number int64) error {
	if !g.Dry && (number < g.first || number > g.last) {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d",
			g.first, g.last)
	}
	if err := g.portsReady(); err != nil {
		return err
	}
	if claim := portClaim(number); g.given[number] || g.Taken(&claim) {
		return errPortTaken
	}
	g.give(number)
	return nil
}

// anyPort allocates any free port. A dry run returns one that may not be free, as in the reference.
func (g *grant) anyPort() (int64, error) {
	if g.Dry {
		number := int64(firstDryPort)
		if g.greatest > 0 {
			number = g.greatest + 1
		}
		g.give(number)
		return number, nil
	}
	if err := g.portsReady(); err != nil {
		return 0, err
	}
	size := uint64(g.last - g.first + 1)
	for i := range offsets(size, portBand.lower(size)) {
		number := g.first + int64(i)
		if claim := portClaim(number); !g.given[number] && !g.Taken(&claim) {
			g.give(number)
			return number, nil
		}
	}
	return 0, errPortsFull
}

// portsReady returns why no port can be given. A dry run gives none.
func (g *grant) portsReady() error {
	if g.Dry || g.PortsReady == nil {
		return nil
	}
	return g.PortsReady()
}

// give records a port for the Service.
func (g *grant) give(number int64) {
	g.given[number], g.greatest = true, max(g.greatest, number)
}

func (g *grant) refusedPort(i int, number int64, why error) error {
	return g.invalid(field.Invalid(spec.Child("ports").Index(i).Child("nodePort"), number, why.Error()))
}
