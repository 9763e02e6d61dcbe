package plane

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/webhook"
	"plinth/object"
)

// services resolves Services to addresses, for webhooks and for aggregated API servers. They are looked up in this
// server's own store.
func (p *Plane) services() *webhook.Services {
	return &webhook.Services{Service: p.service, Slices: p.slicesAtHand}
}

// webhooks creates the clients that call webhooks.
func (p *Plane) webhooks() *webhook.Clients {
	return &webhook.Clients{Endpoint: p.services().Endpoint, InProcess: p.config.Webhooks, Egress: p.config.Egress}
}

// atHand is the resourceVersion with which this server reads the Services that it calls: the state that it has, without
// asking etcd whether there is a newer one. They are read for each call. The reference reads them from a cache, too.
const atHand = "0"

// service reads a Service. That it does not exist is no error of the API for whoever needs it.
func (p *Plane) service(ctx context.Context, namespace, name string) (object.Value, error) {
	service, err := p.coreObjectAt(ctx, "services", namespace, name, atHand)
	if apierr.Is(err, apierr.NotFound) {
		return object.Nil, fmt.Errorf("service %q not found", name)
	}
	return service, err
}

func (p *Plane) slicesAtHand(ctx context.Context, namespace, service string) ([]object.Value, error) {
	return p.endpointSlicesAt(ctx, namespace, service, atHand)
}

// findService reads a Service.
func (p *Plane) findService(ctx context.Context, namespace, name string) (object.Value, error) {
	return p.coreObject(ctx, "services", namespace, name)
}

// endpointSlices reads the EndpointSlices of a Service.
func (p *Plane) endpointSlices(ctx context.Context, namespace, service string) ([]object.Value, error) {
	return p.endpointSlicesAt(ctx, namespace, service, "")
}

func (p *Plane) endpointSlicesAt(ctx context.Context, namespace, service, version string) (slices []object.Value,
	err error) {
	r := p.Registry.Builtin().Find("discovery.k8s.io", "v1", "endpointslices")
	if r == nil {
		return nil, nil
	}
	list, err := p.Engine.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{
		Labels: labels.SelectorFromSet(labels.Set{"kubernetes.io/service-name": service}), ResourceVersion: version,
	})
	if err != nil {
		return nil, err
	}
	for o := range list.Items {
		obj, err := engine.ObjectOf(o)
		if err != nil {
			return nil, err
		}
		slices = append(slices, obj)
	}
	return slices, list.Err()
}
