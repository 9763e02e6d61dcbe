// Package peers is what servers of one cluster know of each other: each has an identity and a Lease, on etcd a key with
// its address, from which the endpoints of the Service kubernetes are made, and one of them runs the controllers.
package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"plinth/internal/endpoints"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/features"
	"plinth/internal/initial"
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

	// leaveTime is how long a server that closes tries to take back what it has written of itself.
	leaveTime = 10 * time.Second
)

// errNoServers is why endpoints stay as they are: the server's own key, which was just put, is not in the list.
var errNoServers = errors.New("there is no address of any server, not even of this one")

// Config is a server among others.
type Config struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Features features.Set
	Objects  *initial.Objects // bring the Service kubernetes and its endpoints up to date
	Logger   *slog.Logger
	Now      func() time.Time
	Identity string // its name among others; "": it has none
	// Address is where other machines reach the server, at Port; invalid if they do not. Host and HostPort are where
	// other servers do; "": they do not.
	Address  netip.Addr
	Port     int
	Host     string
	HostPort int64
	// On etcd: the cluster, and the form of the values of keys. Reconciler says how endpoints are made from the servers:
	// --endpoint-reconciler-type. Count is the number of servers, for the reconciler "master-count".
	Etcd       *etcd.Cluster
	Form       *etcdform.Form
	Reconciler string
	Count      int
	// Leads is told whether this server holds a Lease of an election; nil: nobody is.
	Leads func(lease string, leads bool)
}

// peer keeps the keys of this server, and the endpoints of the Service kubernetes.
type peer struct {
	*Config
	servers, peers   *etcd.Keys // nil: the server has no such key
	portsWereChecked bool
	failed           int // rounds, one after the other
}

// Join makes the server known to the other servers on its etcd, and makes the Service kubernetes and its endpoints. The
// first round is over when it returns; what has failed is tried again by run, which ends after leaving: then the server
// takes its address back.
func (c *Config) Join(ctx context.Context) (run func(leaving context.Context)) {
	p := &peer{Config: c}
	switch {
	case c.Reconciler == "none":
	case !p.Address.IsValid():
		c.Logger.Warn("the Service kubernetes has no endpoint for this server, as it has only loopback addresses")
	case c.Reconciler != "master-count":
		p.servers = c.Etcd.Keys(serverKeys)
	}
	if c.Host != "" && p.Identity != "" && c.Features.On(features.UnknownVersionInteroperabilityProxy) {
		p.peers = c.Etcd.Keys(peerKeys)
	}
	wait := p.round(ctx)
	return func(leaving context.Context) {
		for {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
				// It is not interrupted: a put that is still on its way would come after the deletion.
				wait = p.round(context.WithoutCancel(leaving))
				continue
			case <-leaving.Done():
			}
			timer.Stop()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(leaving), leaveTime)
			defer cancel()
			if err := p.leave(ctx); err != nil {
				c.Logger.Warn("the endpoints still have the address of this server, for a while", "error", err)
			}
			return
		}
	}
}

// round renews the keys and brings the endpoints up to date, and returns the time until the next round.
func (p *peer) round(ctx context.Context) time.Duration {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, keyRenewal/2)
	defer cancel()
	err := initial.Concurrently(
		func() error {
			return p.renew(bounded, p.peers, p.Identity, func(live object.Value) object.Value {
				return endpoints.Peer(live, p.Identity, p.Host, endpoints.Ports(p.HostPort))
			})
		},
		func() error {
			// First the key: so the others list this server, whatever happens to its own writes.
			if err := p.renew(bounded, p.servers, p.Address.String(), func(live object.Value) object.Value {
				return endpoints.Server(live, p.Address.String())
			}); err != nil {
				return err
			}
			return errors.Join(p.Objects.Ensure(bounded, []initial.Object{p.Objects.Service()}), p.reconcile(bounded))
		})
	if err == nil || ctx.Err() != nil {
		p.failed = 0
		return max(0, keyRenewal-time.Since(began))
	}
	if p.failed++; p.failed == 3 {
		p.Logger.Warn("the Service kubernetes, its endpoints, or the key of this server in etcd is not up to date, "+
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
			live, _ = p.Form.DecodeServer(value)
		}
		return p.Form.EncodeServer(next(live))
	})
}

// addresses are those of all servers that have a key.
func (p *peer) addresses(ctx context.Context) (all []string, err error) {
	list, err := p.servers.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, kv := range list {
		obj, err := p.Form.DecodeServer(kv.Value)
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
	ports := endpoints.Ports(int64(p.Port))
	switch {
	case p.Reconciler == "none" || !p.Address.IsValid():
		return nil
	case p.servers == nil:
		return p.writeEndpoints(ctx, func(live object.Value) object.Value {
			return endpoints.Counted(live, p.Address.String(), p.Count, ports)
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
	fix := !p.portsWereChecked && len(addresses) == 1 && addresses[0] == p.Address.String()
	err = p.writeEndpoints(ctx, func(live object.Value) object.Value {
		return endpoints.Serving(live, addresses, ports, fix)
	})
	p.portsWereChecked = p.portsWereChecked || err == nil
	return err
}

// writeEndpoints writes the Endpoints, and the EndpointSlice that follows from them.
func (p *peer) writeEndpoints(ctx context.Context, next func(live object.Value) object.Value) error {
	ends := next(object.Nil)
	if err := p.Objects.Ensure(ctx, []initial.Object{{
		Version: "v1", Resource: "endpoints", Namespace: "default", Name: "kubernetes", Body: ends,
		Revise: func(live object.Value) object.Value {
			ends = next(live)
			return ends
		},
	}}); err != nil {
		return err
	}
	return p.Objects.Ensure(ctx, []initial.Object{{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Namespace: "default", Name: "kubernetes",
		Body:   endpoints.Slice(object.Nil, ends),
		Revise: func(live object.Value) object.Value { return endpoints.Slice(live, ends) },
		Replace: func(live object.Value) bool {
			return live.At("addressType").Str() != endpoints.Family(ends)
		},
	}})
}

// leave deletes the keys of the server, and removes its address from the endpoints.
func (p *peer) leave(ctx context.Context) error {
	return initial.Concurrently(
		func() error {
			if p.peers == nil {
				return nil
			}
			_, err := p.peers.Delete(ctx, p.Identity)
			return err
		},
		func() error {
			ports := endpoints.Ports(int64(p.Port))
			switch {
			case p.Reconciler == "none" || !p.Address.IsValid():
				return nil
			case p.servers == nil:
				return p.writeEndpoints(ctx, func(live object.Value) object.Value {
					return endpoints.Without(endpoints.Unmirrored(live), p.Address.String())
				})
			}
			if _, err := p.servers.Delete(ctx, p.Address.String()); err != nil {
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
