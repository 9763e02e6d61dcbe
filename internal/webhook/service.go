package webhook

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	"plinth/object"
)

// Services resolves Services to addresses, for Clients.Endpoint and for aggregated API servers.
//
// ClusterIPs are routed by kube-proxy on a node; without one, such as when this server runs alone, they are not
// reachable. Therefore a random ready address of the EndpointSlices is used, and the ClusterIP only if the Service has
// no EndpointSlices. (The reference has both: its endpoint resolver, and its ClusterIP resolver for servers on nodes.)
type Services struct {
	// Service returns a Service.
	Service func(ctx context.Context, namespace, name string) (object.Value, error)
	// Slices returns the EndpointSlices of a Service.
	Slices func(ctx context.Context, namespace, service string) ([]object.Value, error)
	// NoClusterIP fails for a Service without EndpointSlices, in place of its ClusterIP.
	NoClusterIP bool
}

// Endpoint returns an address HOST:PORT at which a port of a Service is served. Its errors are those of the reference.
func (s *Services) Endpoint(ctx context.Context, namespace, name string, port int64) (string, error) {
	service, err := s.Service(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	spec := service.At("spec")
	switch typ := spec.At("type").Str(); typ {
	case "ExternalName":
		return join(spec.At("externalName").Str(), port), nil
	case "ClusterIP", "LoadBalancer", "NodePort":
	default:
		return "", fmt.Errorf("unsupported service type %q", typ)
	}
	ports := spec.At("ports").Items()
	i := slices.IndexFunc(ports, func(p object.Value) bool { return p.At("port").Int() == port })
	if i < 0 {
		return "", fmt.Errorf("no service port %d found for service %q", port, name)
	}
	endpoints, err := s.Slices(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	var ready []string
	for _, slice := range endpoints {
		ready = appendReady(ready, slice, ports[i].At("name").Str())
	}
	ip := spec.At("clusterIP").Str()
	switch {
	case len(ready) > 0:
		return ready[rand.IntN(len(ready))], nil
	case len(endpoints) > 0 || ip == "" || ip == "None" || s.NoClusterIP:
		return "", fmt.Errorf("no endpoints available for service %q", name)
	}
	return join(ip, port), nil
}

// appendReady appends the ready addresses of an EndpointSlice, with its port of this name.
func appendReady(addresses []string, slice object.Value, port string) []string {
	for _, p := range slice.At("ports").Items() {
		if p.At("name").Str() != port || p.At("port").Int() == 0 {
			continue
		}
		for _, e := range slice.At("endpoints").Items() {
			if ready := e.At("conditions", "ready"); !ready.IsNull() && !ready.Bool() {
				continue
			}
			if first := e.At("addresses").Items(); len(first) > 0 {
				addresses = append(addresses, join(first[0].Str(), p.At("port").Int()))
			}
		}
	}
	return addresses
}

func join(host string, port int64) string { return net.JoinHostPort(host, strconv.FormatInt(port, 10)) }
