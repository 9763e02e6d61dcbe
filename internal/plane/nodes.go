package plane

import (
	"context"
	"fmt"

	"plinth/internal/engine"
	"plinth/internal/httpapi"
	"plinth/internal/nodes"
	"plinth/object"
)

// newNodes creates what sends requests on to nodes, Pods and Services.
func (p *Plane) newNodes() (err error) {
	c := p.config.Nodes
	c.Object, c.EndpointSlices = p.coreObject, p.endpointSlices
	c.IPv6 = p.config.Addresses.Ranges[0].Addr().Is6()
	c.Features, c.Logger, c.Egress = p.config.Features, p.config.Logger, p.config.Egress
	p.nodes, err = nodes.New(c)
	return err
}

// backends finds who answers requests in place of the engine.
func (p *Plane) backends(group, version, resource, subresource string) httpapi.Backend {
	if group == "" && version == "v1" {
		return p.nodes.Backend(resource, subresource)
	}
	return p.Aggregator.Forwards(group, version)
}

// coreObject reads an object of the core group.
func (p *Plane) coreObject(ctx context.Context, resource, namespace, name string) (object.Value, error) {
	return p.coreObjectAt(ctx, resource, namespace, name, "")
}

func (p *Plane) coreObjectAt(ctx context.Context, resource, namespace, name, version string) (object.Value, error) {
	r := p.Registry.Builtin().Find("", "v1", resource)
	if r == nil {
		return object.Nil, fmt.Errorf("%s are not served here", resource)
	}
	result, err := p.Engine.Get(ctx, &engine.Request{Resource: r, Namespace: namespace, Name: name}, version)
	if err != nil {
		return object.Nil, err
	}
	return engine.ObjectOf(result.Object)
}
