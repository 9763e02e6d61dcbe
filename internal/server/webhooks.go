package server

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
func (s *Server) services() *webhook.Services {
	return &webhook.Services{Service: s.service, Slices: s.slicesAtHand}
}

// webhooks creates the clients that call webhooks.
func (s *Server) webhooks() *webhook.Clients {
	return &webhook.Clients{Endpoint: s.services().Endpoint, InProcess: s.config.Webhooks}
}

// atHand is the resourceVersion with which this server reads the Services that it calls: the state that it has, without
// asking etcd whether there is a newer one. They are read for each call. The reference reads them from a cache, too.
const atHand = "0"

// service reads a Service. That it does not exist is no error of the API for whoever needs it.
func (s *Server) service(ctx context.Context, namespace, name string) (object.Value, error) {
	service, err := s.coreObjectAt(ctx, "services", namespace, name, atHand)
	if apierr.Is(err, apierr.NotFound) {
		return object.Nil, fmt.Errorf("service %q not found", name)
	}
	return service, err
}

func (s *Server) slicesAtHand(ctx context.Context, namespace, service string) ([]object.Value, error) {
	return s.endpointSlicesAt(ctx, namespace, service, atHand)
}

// findService reads a Service.
func (s *Server) findService(ctx context.Context, namespace, name string) (object.Value, error) {
	return s.coreObject(ctx, "services", namespace, name)
}

// endpointSlices reads the EndpointSlices of a Service.
func (s *Server) endpointSlices(ctx context.Context, namespace, service string) ([]object.Value, error) {
	return s.endpointSlicesAt(ctx, namespace, service, "")
}

func (s *Server) endpointSlicesAt(ctx context.Context, namespace, service, version string) (slices []object.Value,
	err error) {
	r := s.registry.Builtin().Find("discovery.k8s.io", "v1", "endpointslices")
	if r == nil {
		return nil, nil
	}
	list, err := s.engine.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{
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
