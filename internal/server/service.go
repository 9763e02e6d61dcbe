package server

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"plinth/internal/endpoints"
	"plinth/object"
)

// The Service kubernetes, by which Pods find the API, and its Endpoints and EndpointSlice. As in the reference the
// Service has the first address of --service-cluster-ip-range, and the endpoints have the address and port of the
// server. What other clients added to the objects is kept.

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

// defaultCIDR is the ServiceCIDR of --service-cluster-ip-range. If the live object has only the first of two
// configured ranges, the second is added. If it has other ranges, the object and its status stay as they are.
func (s *Server) defaultCIDR() (initial, error) {
	ranges, err := s.config.serviceRanges()
	if err != nil {
		return initial{}, err
	}
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	cidrs := object.Strings(texts...)
	text := object.StringOf
	return initial{
		group: "networking.k8s.io", version: "v1", resource: "servicecidrs", name: "kubernetes",
		body: object.Fields("spec", object.Fields("cidrs", cidrs)),
		revise: func(live object.Value) object.Value {
			if has := live.At("spec", "cidrs").Items(); len(texts) == 2 && len(has) == 1 && has[0].Str() == texts[0] {
				return live.WithAt(cidrs, "spec", "cidrs")
			}
			return live
		},
		statusManager: "kubernetes-service-cidr-controller",
		status: func(live object.Value) object.Value {
			status := conditionIn(live, "Ready").At("status").Str()
			other := !live.IsNull() && !object.Equal(live.At("spec", "cidrs"), cidrs)
			if other || deleting(live) || status == "True" || status == "False" {
				return object.Nil
			}
			return object.Fields("conditions", object.ListOf(object.Fields("type", text("Ready"), "status", text("True"),
				"message", text("Kubernetes default Service CIDR is ready"), "lastTransitionTime", s.now())))
		},
	}, nil
}

// ensureKubernetesService creates the Service kubernetes and its endpoints. Existing endpoints are brought up to date;
// an existing Service is left as it is, as in the reference.
func (s *Server) ensureKubernetesService(ctx context.Context) error {
	service, err := s.kubernetesService()
	if err != nil {
		return err
	}
	all := []initial{service}
	if address := s.reachable(); address.IsValid() && s.config.EndpointReconciler != "none" {
		all = append(all, ownEndpoints(address, int64(s.port()))...)
	}
	writes := make([]func() error, len(all))
	for i := range all {
		all[i].namespace, all[i].name = "default", "kubernetes"
		writes[i] = func() error { return s.createMissing(ctx, all[i:i+1]) }
	}
	return concurrently(writes...)
}

// kubernetesService is the Service kubernetes.
func (s *Server) kubernetesService() (initial, error) {
	c := &s.config
	ranges, err := c.serviceRanges()
	if err != nil {
		return initial{}, err
	}
	text := object.StringOf
	clusterIP := text(ranges[0].Addr().Next().String())
	outside := object.Fields("name", text("https"), "port", object.IntOf(443), "protocol", text("TCP"),
		"targetPort", object.IntOf(int64(s.port())))
	kind := "ClusterIP"
	if c.ServiceNodePort > 0 {
		kind, outside = "NodePort", outside.With("nodePort", object.IntOf(int64(c.ServiceNodePort)))
	}
	labels := object.Fields("component", text("apiserver"), "provider", text("kubernetes"))
	return initial{
		version: "v1", resource: "services", namespace: "default", name: "kubernetes",
		body: object.Fields("metadata", object.Fields("labels", labels),
			"spec", object.Fields("clusterIP", clusterIP, "ipFamilyPolicy", text("SingleStack"),
				"sessionAffinity", text("None"), "type", text(kind), "ports", object.ListOf(outside))),
	}, nil
}

// ownEndpoints are the Endpoints and the EndpointSlice of a server at this address and port. The addressType of an
// EndpointSlice is immutable, so a slice of the other IP family is deleted and created again, as in the reference. On
// etcd, where other servers may be, the endpoints are those of peers.go.
func ownEndpoints(address netip.Addr, port int64) []initial {
	text := object.StringOf
	ip, family := text(address.String()), text(familyOf(address))
	ports := endpoints.Ports(port)
	subsets := object.ListOf(object.Fields("addresses", object.ListOf(object.Fields("ip", ip)), "ports", ports))
	ends := object.ListOf(object.Fields("addresses", object.ListOf(ip),
		"conditions", object.Fields("ready", object.BoolOf(true))))
	labelled := func(body object.Value, name, value string) object.Value {
		return body.WithAt(text(value), "metadata", "labels", name)
	}
	alone := func(v object.Value) object.Value { return endpoints.Unmirrored(v.With("subsets", subsets)) }
	slice := func(v object.Value) object.Value {
		return labelled(v.With("endpoints", ends).With("ports", ports), "kubernetes.io/service-name", "kubernetes")
	}
	return []initial{
		{version: "v1", resource: "endpoints", body: alone(object.MapOf()), revise: alone},
		{group: "discovery.k8s.io", version: "v1", resource: "endpointslices",
			body: slice(object.Fields("addressType", family)), revise: slice,
			replace: func(live object.Value) bool { return !object.Equal(live.At("addressType"), family) }},
	}
}

func familyOf(address netip.Addr) string {
	if address.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
