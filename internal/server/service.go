package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// The Service kubernetes, by which Pods find the API, and its Endpoints and EndpointSlice. As in the reference the
// Service has the first address of --service-cluster-ip-range, and the endpoints have the address and port of the
// server. What other clients added to the objects is kept.

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
	c := &s.config
	ranges, err := c.serviceRanges()
	if err != nil {
		return err
	}
	prefix := ranges[0]
	port := int64(s.listener.Addr().(*net.TCPAddr).Port)
	text := object.StringOf
	clusterIP := text(prefix.Addr().Next().String())
	outside := object.Fields("name", text("https"), "port", object.IntOf(443), "protocol", text("TCP"),
		"targetPort", object.IntOf(port))
	kind := "ClusterIP"
	if c.ServiceNodePort > 0 {
		kind, outside = "NodePort", outside.With("nodePort", object.IntOf(int64(c.ServiceNodePort)))
	}
	labels := object.Fields("component", text("apiserver"), "provider", text("kubernetes"))
	service := object.Fields("spec", object.Fields("clusterIP", clusterIP, "ipFamilyPolicy", text("SingleStack"),
		"sessionAffinity", text("None"), "type", text(kind), "ports", object.ListOf(outside)))
	all := []func() error{func() error { return s.ensure(ctx, "", "v1", "services", labels, object.MapOf(), service) }}
	if address := c.reachable(); address.IsValid() && c.EndpointReconciler != "none" {
		ip := text(address.String())
		inside := object.ListOf(object.Fields("name", text("https"), "port", object.IntOf(port), "protocol", text("TCP")))
		skip := object.Fields("endpointslice.kubernetes.io/skip-mirror", text("true"))
		endpoints := object.Fields("subsets",
			object.ListOf(object.Fields("addresses", object.ListOf(object.Fields("ip", ip)), "ports", inside)))
		of := object.Fields("kubernetes.io/service-name", text("kubernetes"))
		slice := object.Fields("endpoints", object.ListOf(object.Fields("addresses", object.ListOf(ip),
			"conditions", object.Fields("ready", object.BoolOf(true)))), "ports", inside)
		all = append(all,
			func() error {
				return s.ensure(ctx, "", "v1", "endpoints", skip, endpoints.With("metadata", object.Fields("labels", skip)),
					endpoints)
			},
			func() error {
				return s.ensure(ctx, "discovery.k8s.io", "v1", "endpointslices", of,
					slice.With("metadata", object.Fields("labels", of)),
					slice.With("addressType", text(familyOf(address))))
			})
	}
	return concurrently(all...)
}

func familyOf(address netip.Addr) string {
	if address.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// ensure creates the object kubernetes of a type from all and labels, or merges changes into the existing one.
func (s *Server) ensure(ctx context.Context, group, version, resource string, labels, changes, all object.Value) error {
	r := s.registry.Builtin().Find(group, version, resource)
	if r == nil { // --runtime-config may have turned it off
		return nil
	}
	rq := &engine.Request{Resource: r, Namespace: "default", Name: "kubernetes", FieldManager: "kube-apiserver"}
	patch := engine.Patch{Type: engine.MergePatch, Body: object.AppendObject(nil, changes)}
	_, err := s.engine.Patch(ctx, rq, patch)
	if apierr.Is(err, apierr.NotFound) {
		made := *rq
		made.Name = ""
		body := all.With("metadata", object.Fields("name", object.StringOf("kubernetes"), "labels", labels))
		_, err = s.engine.Create(ctx, &made, object.Parsed{Value: body})
	}
	if err != nil {
		return fmt.Errorf("making %s kubernetes: %w", resource, err)
	}
	return nil
}
