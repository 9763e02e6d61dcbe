package peers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/endpoints"
	"plinth/internal/engine"
)

// Follow tells changed the identities of the other servers, by their Leases, whenever one has come or gone or was
// started again, until ctx ends. A server that was killed is among them until its Lease is deleted.
func (c *Config) Follow(ctx context.Context, changed func(identities []string)) {
	leases := c.Registry.Builtin().Find("coordination.k8s.io", "v1", "leases")
	if leases == nil {
		return
	}
	rq := &engine.Request{Resource: leases, Namespace: "kube-system", OwnStart: true}
	options := engine.WatchOptions{ListOptions: engine.ListOptions{
		Labels: labels.SelectorFromSet(labels.Set{IdentityLabel: "kube-apiserver"})}}
	for ctx.Err() == nil {
		watch, err := c.Engine.Watch(ctx, rq, options)
		if err == nil {
			err = c.follow(ctx, watch, changed)
			watch.Close()
		}
		if ctx.Err() == nil {
			c.Logger.Debug("following the Leases of other servers", "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// follow tells changed what one watch of the Leases says.
func (c *Config) follow(ctx context.Context, watch *engine.Watch, changed func(identities []string)) error {
	holders := map[string]string{}
	for first := true; ; first = false {
		events, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		news := first
		for _, e := range events {
			if e.Type == engine.Bookmark {
				continue
			}
			lease, err := engine.ObjectOf(e.Object)
			if err != nil {
				return err
			}
			name, holder := lease.At("metadata", "name").Str(), lease.At("spec", "holderIdentity").Str()
			before, known := holders[name]
			switch {
			case name == c.Identity:
			case e.Type == engine.Deleted:
				delete(holders, name)
				news = news || known
			case holder != "":
				holders[name] = holder
				news = news || before != holder
			}
		}
		if news {
			changed(slices.Sorted(maps.Keys(holders)))
		}
	}
}

// AddressOf is HOST:PORT at which another server says that it is reached.
func (c *Config) AddressOf(ctx context.Context, identity string) (string, error) {
	value, err := c.Etcd.Keys(peerKeys).Get(ctx, identity)
	if err != nil {
		return "", err
	}
	if value == nil {
		return "", fmt.Errorf("there is no key %s/%s", peerKeys, identity)
	}
	obj, err := c.Form.DecodeServer(value)
	if err != nil {
		return "", fmt.Errorf("the key %s/%s is of no server: %w", peerKeys, identity, err)
	}
	return endpoints.PeerAddress(obj), nil
}
