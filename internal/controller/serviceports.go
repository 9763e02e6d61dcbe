package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// PortBitmap converts the value in which the node ports are that are reserved.
type PortBitmap interface {
	Ports(value []byte) ([]int64, error)
	// Rebuild returns a value with these ports; value is the one before, nil if there is none.
	Rebuild(value []byte, ports []int64) ([]byte, error)
}

// ServicePorts compares the node ports of Services with those that are reserved, where other processes reserve them,
// too (etcd). They write the reservation and the Service one after the other, so a process that ends in between leaves
// a port that no Service has. Each round reserves what is missing, and releases what has been found unused often enough
// (addresses.Allocator.RepairPorts); the first one also writes the value that all others change.
type ServicePorts struct {
	Engine    *engine.Engine
	Registry  *engine.Registry
	Store     *store.Store
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
	Allocator *addresses.Allocator
	Bitmap    PortBitmap
	Key       store.Key // of the bitmap, whose bytes are the value

	reporter *reporter
	leaks    addresses.Leaks
}

// claimInterval is how often claims are compared with Services, as in the reference.
const claimInterval = 3 * time.Minute

// Start begins its loop, which makes a round every three minutes.
func (c *ServicePorts) Start(g *steps.Group) {
	g.Loop(func(ctx context.Context, _ *steps.Loop) time.Time {
		if err := c.Repair(ctx); err != nil && ctx.Err() == nil {
			c.Logger.Warn("the node ports of Services were not compared with those that are reserved", "error", err)
		}
		return time.Now().Add(claimInterval)
	}, nil)
}

// portAttempts is how often a round is made again because ports were reserved or released meanwhile.
const portAttempts = 10

// Repair makes one round.
func (c *ServicePorts) Repair(ctx context.Context) error {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.reporter == nil {
		c.reporter = &reporter{engine: c.Engine, registry: c.Registry, logger: c.Logger, now: c.Now,
			controller: "portallocator-repair-controller"}
	}
	for attempt := 1; ; attempt++ {
		round, err := c.round(ctx)
		if lost := (*store.ConflictError)(nil); errors.As(err, &lost) && attempt < portAttempts {
			continue
		}
		if err != nil {
			return err
		}
		c.leaks = round.Leaks
		c.reporter.report(ctx, round.Findings...)
		if len(round.Flagged) > 0 {
			c.Logger.Warn("node ports may have leaked: flagging for later clean up", "ports", round.Flagged)
		}
		if len(round.Released) > 0 {
			c.Logger.Warn("node ports appear to have leaked: cleaning up", "ports", round.Released)
		}
		return nil
	}
}

// round is one attempt. The bitmap is read first, and written on the condition that it has not changed:
// addresses.Allocator.RepairPorts relies on both.
func (c *ServicePorts) round(ctx context.Context) (*addresses.PortRound, error) {
	bitmap, _, err := c.Store.Live(ctx, c.Key, true)
	if err != nil {
		return nil, err
	}
	var value []byte
	var reserved []int64
	pre := store.Absent(c.Key)
	if bitmap != nil {
		value, pre = bitmap.Data(), store.At(bitmap)
		if reserved, err = c.Bitmap.Ports(value); err != nil {
			return nil, fmt.Errorf("the reserved node ports cannot be read: %w", err)
		}
	}
	services, complete, err := c.services()
	if err != nil {
		return nil, err
	}
	round := c.Allocator.RepairPorts(reserved, services, c.leaks, complete)
	rebuilt, err := c.Bitmap.Rebuild(value, round.Reserved)
	if err != nil || bitmap != nil && bytes.Equal(value, rebuilt) {
		return round, err
	}
	_, err = c.Store.Commit(ctx, append(engine.OfTerm(ctx), pre), []store.Change{{Key: c.Key, Data: rebuilt,
		Sidecar: &store.Sidecar{}}})
	return round, err
}

// services are all Services that can be read, and whether those are all.
func (c *ServicePorts) services() (all []object.Value, complete bool, err error) {
	sn, err := c.Store.Snapshot(0)
	if err != nil {
		return nil, false, err
	}
	complete = true
	sn.Ascend(c.Registry.Now().Find("", "v1", "services").Stored.Path, "", "", func(v *store.Version) bool {
		obj, err := engine.ObjectOf(v)
		if err != nil {
			complete = false
		} else {
			all = append(all, obj)
		}
		return true
	})
	return all, complete, nil
}
