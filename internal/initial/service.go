package initial

import (
	"context"
	"net/netip"

	"plinth/internal/endpoints"
	"plinth/object"
)

// The Service kubernetes, by which Pods find the API, and its Endpoints and EndpointSlice. As in the reference the
// Service has the first address of --service-cluster-ip-range, and the endpoints have the address and port of the
// server. What other clients added to the objects is kept.

// defaultCIDR is the ServiceCIDR of --service-cluster-ip-range. If the live object has only the first of two
// configured ranges, the second is added. If it has other ranges, the object and its status stay as they are.
func (o *Objects) defaultCIDR() Object {
	var texts []string
	for _, r := range o.Ranges {
		texts = append(texts, r.String())
	}
	cidrs := object.Strings(texts...)
	text := object.StringOf
	return Object{
		Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs", Name: "kubernetes",
		Body: object.Fields("spec", object.Fields("cidrs", cidrs)),
		Revise: func(live object.Value) object.Value {
			if has := live.At("spec", "cidrs").Items(); len(texts) == 2 && len(has) == 1 && has[0].Str() == texts[0] {
				return live.WithAt(cidrs, "spec", "cidrs")
			}
			return live
		},
		StatusManager: "kubernetes-service-cidr-controller",
		Status: func(live object.Value) object.Value {
			status := conditionIn(live, "Ready").At("status").Str()
			other := !live.IsNull() && !object.Equal(live.At("spec", "cidrs"), cidrs)
			if other || deleting(live) || status == "True" || status == "False" {
				return object.Nil
			}
			return object.Fields("conditions", object.ListOf(object.Fields("type", text("Ready"), "status", text("True"),
				"message", text("Kubernetes default Service CIDR is ready"), "lastTransitionTime", o.now())))
		},
	}
}

// EnsureService creates the Service kubernetes and its endpoints. Existing endpoints are brought up to date;
// an existing Service is left as it is, as in the reference.
func (o *Objects) EnsureService(ctx context.Context) error {
	all := []Object{o.Service()}
	if address := o.Self.Endpoint; address.IsValid() {
		all = append(all, ownEndpoints(address, int64(o.Self.Port))...)
	}
	writes := make([]func() error, len(all))
	for i := range all {
		all[i].Namespace, all[i].Name = "default", "kubernetes"
		writes[i] = func() error { return o.Ensure(ctx, all[i:i+1]) }
	}
	return Concurrently(writes...)
}

// Service is the Service kubernetes.
func (o *Objects) Service() Object {
	text := object.StringOf
	clusterIP := text(o.Ranges[0].Addr().Next().String())
	outside := object.Fields("name", text("https"), "port", object.IntOf(443), "protocol", text("TCP"),
		"targetPort", object.IntOf(int64(o.Self.Port)))
	kind := "ClusterIP"
	if o.NodePort > 0 {
		kind, outside = "NodePort", outside.With("nodePort", object.IntOf(int64(o.NodePort)))
	}
	labels := object.Fields("component", text("apiserver"), "provider", text("kubernetes"))
	return Object{
		Version: "v1", Resource: "services", Namespace: "default", Name: "kubernetes",
		Body: object.Fields("metadata", object.Fields("labels", labels),
			"spec", object.Fields("clusterIP", clusterIP, "ipFamilyPolicy", text("SingleStack"),
				"sessionAffinity", text("None"), "type", text(kind), "ports", object.ListOf(outside))),
	}
}

// ownEndpoints are the Endpoints and the EndpointSlice of a server at this address and port. The addressType of an
// EndpointSlice is immutable, so a slice of the other IP family is deleted and created again, as in the reference. With
// peers, the endpoints are those of package peers.
func ownEndpoints(address netip.Addr, port int64) []Object {
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
	return []Object{
		{Version: "v1", Resource: "endpoints", Body: alone(object.MapOf()), Revise: alone},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
			Body: slice(object.Fields("addressType", family)), Revise: slice,
			Replace: func(live object.Value) bool { return !object.Equal(live.At("addressType"), family) }},
	}
}

func familyOf(address netip.Addr) string {
	if address.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
