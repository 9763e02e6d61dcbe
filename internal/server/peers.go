package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"plinth/internal/endpoints"
	"plinth/internal/features"
	"plinth/internal/store/etcd"
	"plinth/object"
)

// On etcd, the servers of a cluster know of each other by keys that each of them renews: one by its address, from which
// the endpoints of the Service kubernetes are made, and one by its identity, which tells kube-apiservers where to
// forward requests for versions that they do not serve themselves. The keys, their values and times are the
// reference's.
const (
	serverKeys  = "masterleases"
	peerKeys    = "peerserverleases"
	keyDuration = 15 * time.Second
	keyRenewal  = 10 * time.Second

	// After an error the next round comes sooner, before the key has ended: first after minKeyRetry, as it may be that
	// another server is about to write the same, and then after twice as long each time.
	minKeyRetry = 100 * time.Millisecond
	maxKeyRetry = 2 * time.Second
)

// errNoServers is why endpoints stay as they are: the server's own key, which was just put, is not in the list.
var errNoServers = errors.New("there is no address of any server, not even of this one")

// peer keeps the keys of this server, and the endpoints of the Service kubernetes.
type peer struct {
	*Server
	address          netip.Addr
	servers, peers   *etcd.Keys // nil: the server has no such key
	identity         string
	portsWereChecked bool
	failed           int // rounds, one after the other
}

// joinPeers makes the server known to the other servers on its etcd, and makes the Service kubernetes and its
// endpoints. The first round is over when it returns; what has failed is tried again.
func (s *Server) joinPeers(ctx context.Context) {
	p := &peer{Server: s, address: s.reachable(), identity: s.identity}
	switch {
	case s.config.EndpointReconciler == "none":
	case !p.address.IsValid():
		s.config.Logger.Warn("the Service kubernetes has no endpoint for this server, as it has only loopback addresses")
	case s.config.EndpointReconciler != "master-count":
		p.servers = s.etcd.Keys(serverKeys)
	}
	if host, _ := s.peerAddress(); host != "" && p.identity != "" &&
		s.features.On(features.UnknownVersionInteroperabilityProxy) {
		p.peers = s.etcd.Keys(peerKeys)
	}
	wait := p.round(ctx)
	s.run(func() {
		for {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
				// It is not interrupted: a put that is still on its way would come after the deletion.
				wait = p.round(context.WithoutCancel(s.leaving))
				continue
			case <-s.leaving.Done():
			}
			timer.Stop()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.leaving), drainTime)
			defer cancel()
			if err := p.leave(ctx); err != nil {
				s.config.Logger.Warn("the endpoints still have the address of this server, for a while", "error", err)
			}
			return
		}
	})
}

// round renews the keys and brings the endpoints up to date, and returns the time until the next round.
func (p *peer) round(ctx context.Context) time.Duration {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, keyRenewal/2)
	defer cancel()
	err := concurrently(
		func() error {
			return p.renew(bounded, p.peers, p.identity, func(live object.Value) object.Value {
				host, port := p.peerAddress()
				return endpoints.Peer(live, p.identity, host, endpoints.Ports(port))
			})
		},
		func() error {
			// First the key: so the others list this server, whatever happens to its own writes.
			if err := p.renew(bounded, p.servers, p.address.String(), func(live object.Value) object.Value {
				return endpoints.Server(live, p.address.String())
			}); err != nil {
				return err
			}
			service, err := p.kubernetesService()
			if err != nil {
				return err
			}
			return errors.Join(p.createMissing(bounded, []initial{service}), p.reconcile(bounded))
		})
	if err == nil || ctx.Err() != nil {
		p.failed = 0
		return max(0, keyRenewal-time.Since(began))
	}
	if p.failed++; p.failed == 3 {
		p.config.Logger.Warn("the Service kubernetes, its endpoints, or the key of this server in etcd is not up to date, "+
			"trying again", "error", err)
	}
	return min(maxKeyRetry, minKeyRetry<<min(p.failed-1, 6))
}

// renew puts a key again.
func (p *peer) renew(
	ctx context.Context, keys *etcd.Keys, name string, next func(live object.Value) object.Value,
) error {
	if keys == nil {
		return nil
	}
	return keys.Put(ctx, name, keyDuration, func(value []byte) ([]byte, error) {
		live := object.Nil
		if value != nil {
			// What cannot be read is replaced: the key has the name of this server.
			live, _ = p.form.DecodeServer(value)
		}
		return p.form.EncodeServer(next(live))
	})
}

// addresses are those of all servers that have a key.
func (p *peer) addresses(ctx context.Context) (all []string, err error) {
	list, err := p.servers.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, kv := range list {
		obj, err := p.form.DecodeServer(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("the key %s/%s is of no server: %w", serverKeys, kv.Name, err)
		}
		if address := endpoints.Address(obj); address != "" {
			all = append(all, address)
		}
	}
	return all, nil
}

// reconcile makes the endpoints equal to the list of all servers.
func (p *peer) reconcile(ctx context.Context) error {
	ports := endpoints.Ports(int64(p.port()))
	switch {
	case p.config.EndpointReconciler == "none" || !p.address.IsValid():
		return nil
	case p.servers == nil:
		return p.writeEndpoints(ctx, func(live object.Value) object.Value {
			return endpoints.Counted(live, p.address.String(), p.config.APIServerCount, ports)
		})
	}
	addresses, err := p.addresses(ctx)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return errNoServers
	}
	// A server that was killed, and starts again at another port, finds its endpoints with the old one. If other servers
	// are there, the ports may be theirs.
	fix := !p.portsWereChecked && len(addresses) == 1 && addresses[0] == p.address.String()
	err = p.writeEndpoints(ctx, func(live object.Value) object.Value {
		return endpoints.Serving(live, addresses, ports, fix)
	})
	p.portsWereChecked = p.portsWereChecked || err == nil
	return err
}

// writeEndpoints writes the Endpoints, and the EndpointSlice that follows from them.
func (p *peer) writeEndpoints(ctx context.Context, next func(live object.Value) object.Value) error {
	ends := next(object.Nil)
	if err := p.createMissing(ctx, []initial{{
		version: "v1", resource: "endpoints", namespace: "default", name: "kubernetes", body: ends,
		revise: func(live object.Value) object.Value {
			ends = next(live)
			return ends
		},
	}}); err != nil {
		return err
	}
	return p.createMissing(ctx, []initial{{
		group: "discovery.k8s.io", version: "v1", resource: "endpointslices", namespace: "default", name: "kubernetes",
		body:   endpoints.Slice(object.Nil, ends),
		revise: func(live object.Value) object.Value { return endpoints.Slice(live, ends) },
		replace: func(live object.Value) bool {
			return live.At("addressType").Str() != endpoints.Family(ends)
		},
	}})
}

// leave deletes the keys of the server, and removes its address from the endpoints.
func (p *peer) leave(ctx context.Context) error {
	return concurrently(
		func() error {
			if p.peers == nil {
				return nil
			}
			_, err := p.peers.Delete(ctx, p.identity)
			return err
		},
		func() error {
			ports := endpoints.Ports(int64(p.port()))
			switch {
			case p.config.EndpointReconciler == "none" || !p.address.IsValid():
				return nil
			case p.servers == nil:
				return p.writeEndpoints(ctx, func(live object.Value) object.Value {
					return endpoints.Without(endpoints.Unmirrored(live), p.address.String())
				})
			}
			if _, err := p.servers.Delete(ctx, p.address.String()); err != nil {
				return err
			}
			addresses, err := p.addresses(ctx)
			if err != nil {
				return err
			}
			// The last server leaves no address behind.
			return p.writeEndpoints(ctx, func(live object.Value) object.Value {
				return endpoints.Serving(live, addresses, ports, false)
			})
		})
}
