package server

import (
	"context"
	"errors"

	"plinth/internal/controller"
	"plinth/internal/storage"
)

// servicePorts configures the repair of node ports.
func (s *Server) servicePorts() *controller.ServicePorts {
	return &controller.ServicePorts{Engine: s.engine, Registry: s.registry, Store: s.store, Logger: s.config.Logger,
		Now: s.config.Now, Allocator: s.allocator, Bitmap: s.storage.NodePorts, Key: storage.PortRange}
}

// serviceAddresses configures the repair of IPAddresses.
func (s *Server) serviceAddresses() *controller.ServiceAddresses {
	return &controller.ServiceAddresses{Engine: s.engine, Registry: s.registry, Store: s.store, Logger: s.config.Logger,
		Now: s.config.Now, Allocator: s.allocator}
}

// repairClaims compares what Services have with what is reserved for them, before the server gives them anything. As in
// the reference every server does that when it starts; the first one on an etcd makes the bitmap of node ports.
func (s *Server) repairClaims(ctx context.Context) error {
	if !s.storage.OnEtcd() {
		return nil
	}
	s.allocator.PortsReady = func() error {
		var value []byte
		if v, ok := s.store.Get(storage.PortRange); ok {
			value = v.Data()
		}
		return s.storage.NodePorts.Check(value)
	}
	return errors.Join(s.servicePorts().Repair(ctx), s.serviceAddresses().Repair(ctx))
}
