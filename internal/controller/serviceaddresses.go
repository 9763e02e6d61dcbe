package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/apierr"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// ServiceAddresses compares the cluster IPs of Services with IPAddresses, where other processes write them, too (etcd).
// An IPAddress is created before its Service and deleted after it, in commits of their own, as is the second one of a
// Service here. So a process that ends in between leaves an IPAddress without a Service. It creates those that are
// missing, and removes those that are left over, after a time in which their Services may still be written
// (addresses.Allocator.RepairAddress, addresses.RepairOrphan).
type ServiceAddresses struct {
	Engine    *engine.Engine
	Registry  *engine.Registry
	Store     *store.Store
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
	Allocator *addresses.Allocator

	services, ips *engine.Resource
	reporter      *reporter
}

// Start begins its loops, which look at each Service and IPAddress that changes, and at all of them every three
// minutes, since either may be right until the other one changes.
func (c *ServiceAddresses) Start(g *steps.Group) {
	if !c.found() {
		return
	}
	first := true
	g.Loop(func(ctx context.Context, _ *steps.Loop) time.Time {
		if !first {
			if err := c.Repair(ctx); err != nil && ctx.Err() == nil {
				c.Logger.Warn("the addresses of Services were not all compared with IPAddresses", "error", err)
			}
		}
		first = false
		return time.Now().Add(claimInterval)
	}, nil)
	(&follower{
		engine: c.Engine, logger: c.Logger, name: c.reporter.controller, types: []*engine.Resource{c.services, c.ips},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			switch {
			case of == c.services && !gone:
				return 0, c.service(ctx, o.Key)
			case of == c.services:
				return 0, nil
			case gone:
				return 0, c.removed(ctx, o)
			}
			return c.address(ctx, o.Key)
		},
	}).start(g)
}

// found says whether the types are served.
func (c *ServiceAddresses) found() bool {
	types := c.Registry.Now()
	c.services, c.ips = types.Find("", "v1", "services"), types.Find("networking.k8s.io", "v1", "ipaddresses")
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.reporter == nil {
		c.reporter = &reporter{engine: c.Engine, registry: c.Registry, logger: c.Logger, now: c.Now,
			controller: "ipallocator-repair-controller"}
	}
	return c.services != nil && c.ips != nil
}

// Repair looks at all Services and IPAddresses. An error of one does not stop the others.
func (c *ServiceAddresses) Repair(ctx context.Context) error {
	if !c.found() {
		return nil
	}
	sn, err := c.Store.Snapshot(0)
	if err != nil {
		return err
	}
	var errs []error
	look := func(of *engine.Resource, at func(store.Key) error) {
		sn.Ascend(of.Stored.Path, "", "", func(v *store.Version) bool {
			if err := at(v.Key); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", v.Key, err))
			}
			return ctx.Err() == nil
		})
	}
	look(c.services, func(k store.Key) error { return c.service(ctx, k) })
	look(c.ips, func(k store.Key) error {
		_, err := c.address(ctx, k)
		return err
	})
	return errors.Join(append(errs, ctx.Err())...)
}

// removed looks at the Service of an IPAddress that is gone: if it still has the address, another one is created.
func (c *ServiceAddresses) removed(ctx context.Context, o *engine.Object) error {
	obj, err := engine.ObjectOf(o)
	if err != nil {
		return nil // it cannot be decoded, so whose it was is not known
	}
	if r, holder := c.ips.Holder(obj); r == c.services {
		return c.service(ctx, holder)
	}
	return nil
}

// read is an object as of a snapshot; null if there is none, or one that cannot be decoded.
func read(sn *store.Snapshot, k store.Key) object.Value {
	v, ok := sn.Get(k)
	if !ok {
		return object.Nil
	}
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return object.Nil
	}
	return obj
}

// newest returns a snapshot: that at hand, or with sure set the newest one.
func (c *ServiceAddresses) newest(ctx context.Context, sure bool) (*store.Snapshot, error) {
	if _, err := c.Store.Fresh(ctx, store.Key{}, sure); err != nil {
		return nil, err
	}
	return c.Store.Snapshot(0)
}

// service looks at a Service. What is wrong according to the state at hand is looked at again with the newest one:
// there the Service may be gone, and its addresses with it.
func (c *ServiceAddresses) service(ctx context.Context, k store.Key) error {
	for sure := false; ; sure = true {
		sn, err := c.newest(ctx, sure)
		if err != nil {
			return err
		}
		service := read(sn, k)
		if service.IsNull() {
			return nil
		}
		ips, valid := addresses.ClusterIPs(service)
		clean := true
		for i, ip := range ips {
			if !valid[i] {
				continue // validation refuses it
			}
			has := read(sn, c.ips.Key("", ip.String()))
			holder := object.Nil
			if r, key := c.ips.Holder(has); r == c.services {
				if v, ok := sn.Get(key); ok && v.Sidecar.Unreadable != nil {
					continue // it may have the address
				}
				holder = read(sn, key)
			}
			remedy, found := c.Allocator.RepairAddress(service, ip, has, holder)
			if clean = clean && remedy == addresses.Nothing && len(found) == 0; clean || !sure {
				continue
			}
			c.reporter.report(ctx, found...)
			if err := c.apply(ctx, remedy, service, ip, has); err != nil {
				return err
			}
		}
		if clean || sure {
			return nil
		}
	}
}

// apply gives an address of a Service its IPAddress.
func (c *ServiceAddresses) apply(ctx context.Context, remedy addresses.Remedy, service object.Value, ip netip.Addr,
	has object.Value) error {
	if remedy == addresses.Recreate {
		if err := c.remove(ctx, ip.String(), has); err != nil {
			return err
		}
	}
	if remedy == addresses.Nothing {
		return nil
	}
	rq := &engine.Request{Resource: c.ips, User: serverItself, FieldManager: "kube-apiserver"}
	_, err := c.Engine.Create(ctx, rq, object.Parsed{Value: c.Allocator.IPAddress(ip, service)})
	if apierr.Is(err, apierr.AlreadyExists) {
		return nil // another process was faster; its IPAddress is looked at when it arrives
	}
	return err
}

// remove deletes an IPAddress, unless another one has its name by now.
func (c *ServiceAddresses) remove(ctx context.Context, name string, ip object.Value) error {
	rq := &engine.Request{Resource: c.ips, Name: name, User: serverItself}
	return unlessChanged(c.Engine.Delete(ctx, rq,
		engine.DeleteOptions{PreconditionUID: ip.At("metadata", "uid").Str()}))
}

// address looks at an IPAddress, and says when to look at it again.
func (c *ServiceAddresses) address(ctx context.Context, k store.Key) (again time.Duration, err error) {
	for sure := false; ; sure = true {
		sn, err := c.newest(ctx, sure)
		if err != nil {
			return 0, err
		}
		ip, service := read(sn, k), object.Nil
		if ip.IsNull() {
			return 0, nil
		}
		if r, key := c.ips.Holder(ip); r == c.services {
			if v, ok := sn.Get(key); ok && v.Sidecar.Unreadable != nil {
				return 0, nil // it may have the address
			}
			service = read(sn, key)
		}
		remedy, again, found := addresses.RepairOrphan(ip, service, c.Now())
		if remedy == addresses.Nothing {
			return again, nil
		}
		if sure {
			c.reporter.report(ctx, found...)
			return 0, c.remove(ctx, k.Name, ip)
		}
	}
}
