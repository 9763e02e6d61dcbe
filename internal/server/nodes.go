package server

import (
	"context"
	"fmt"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/internal/metrics"
	"plinth/internal/nodes"
	"plinth/object"
)

// newNodes creates what sends requests on to nodes, Pods and Services.
func (s *Server) newNodes() (*nodes.Nodes, error) {
	c := &s.config
	services, err := c.Services.Config()
	if err != nil {
		return nil, err
	}
	counts := metrics.NewNodes()
	s.shown = append(s.shown, counts.Collectors()...)
	return nodes.New(nodes.Config{
		Object: s.coreObject, EndpointSlices: s.endpointSlices,
		Kubelets: c.Kubelets, IPv6: services.Ranges[0].Addr().Is6(), BytesPerSecond: c.ConnectionBytesPerSecond,
		TranslateStreamCloseWebsocketRequests: s.features.On(features.TranslateStreamCloseWebsocketRequests),
		PortForwardWebsockets:                 s.features.On(features.PortForwardWebsockets),
		ExtendWebSocketsToKubelet:             s.features.On(features.ExtendWebSocketsToKubelet),
		PodLogsQuerySplitStreams:              s.features.On(features.PodLogsQuerySplitStreams),
		Logger:                                c.Logger,
		Metrics:                               counts.Hooks(),
	})
}

// backends finds who answers requests in place of the engine.
func (s *Server) backends(group, version, resource, subresource string) httpapi.Backend {
	if group == "" && version == "v1" {
		return s.nodes.Backend(resource, subresource)
	}
	return s.aggregator.Forwards(group, version)
}

// coreObject reads an object of the core group.
func (s *Server) coreObject(ctx context.Context, resource, namespace, name string) (object.Value, error) {
	return s.coreObjectAt(ctx, resource, namespace, name, "")
}

func (s *Server) coreObjectAt(ctx context.Context, resource, namespace, name, version string) (object.Value, error) {
	r := s.registry.Builtin().Find("", "v1", resource)
	if r == nil {
		return object.Nil, fmt.Errorf("%s are not served here", resource)
	}
	result, err := s.engine.Get(ctx, &engine.Request{Resource: r, Namespace: namespace, Name: name}, version)
	if err != nil {
		return object.Nil, err
	}
	return engine.ObjectOf(result.Object)
}
