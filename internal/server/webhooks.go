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
	return &webhook.Services{Service: s.service, Slices: s.endpointSlices}
}

// webhooks creates the clients that call webhooks.
func (s *Server) webhooks() *webhook.Clients {
	return &webhook.Clients{Endpoint: s.services().Endpoint, InProcess: s.config.Webhooks}
}

// service reads a Service. That it does not exist is no error of the API for whoever needs it.
func (s *Server) service(ctx context.Context, namespace, name string) (object.Value, error) {
	service, err := s.findService(ctx, namespace, name)
	if apierr.Is(err, apierr.NotFound) {
		return object.Nil, fmt.Errorf("service %q not found", name)
	}
	return service, err
}

// findService reads a Service.
func (s *Server) findService(ctx context.Context, namespace, name string) (object.Value, error) {
	return s.coreObject(ctx, "services", namespace, name)
}

// endpointSlices reads the EndpointSlices of a Service.
func (s *Server) endpointSlices(ctx context.Context, namespace, service string) (slices []object.Value, err error) {
	r := s.registry.Builtin().Find("discovery.k8s.io", "v1", "endpointslices")
	if r == nil {
		return nil, nil
	}
	list, err := s.engine.List(ctx, &engine.Request{Resource: r, Namespace: namespace}, engine.ListOptions{
		Labels: labels.SelectorFromSet(labels.Set{"kubernetes.io/service-name": service}),
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
