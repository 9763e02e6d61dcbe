package plane

import (
	"context"
	"errors"

	"plinth/internal/controller"
	"plinth/internal/storage"
)

// servicePorts configures the repair of node ports.
func (p *Plane) servicePorts() *controller.ServicePorts {
	return &controller.ServicePorts{Engine: p.Engine, Registry: p.Registry, Store: p.Store, Logger: p.config.Logger,
		Now: p.config.Now, Allocator: p.allocator, Bitmap: p.Storage.NodePorts, Key: storage.PortRange}
}

// serviceAddresses configures the repair of IPAddresses.
func (p *Plane) serviceAddresses() *controller.ServiceAddresses {
	return &controller.ServiceAddresses{Engine: p.Engine, Registry: p.Registry, Store: p.Store, Logger: p.config.Logger,
		Now: p.config.Now, Allocator: p.allocator}
}

// repairClaims compares what Services have with what is reserved for them, before the server gives them anything. As in
// the reference every server does that when it starts; the first one on an etcd makes the bitmap of node ports.
func (p *Plane) repairClaims(ctx context.Context) error {
	if !p.Storage.OnEtcd() {
		return nil
	}
	p.allocator.PortsReady = func() error {
		var value []byte
		if v, ok := p.Store.Get(storage.PortRange); ok {
			value = v.Data()
		}
		return p.Storage.NodePorts.Check(value)
	}
	return errors.Join(p.servicePorts().Repair(ctx), p.serviceAddresses().Repair(ctx))
}
