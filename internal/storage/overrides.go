package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"plinth/internal/httpapi"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// eventsPath is the path of the kind whose objects may be in another etcd. Events are many, nothing depends on them,
// and they expire, so they are what --etcd-servers-overrides is used for. All other objects are followed together: by
// the views, by garbage collection and by quotas.
const eventsPath = "/events"

// elsewhere is the etcd of --etcd-servers-overrides, and the store of the Events in it.
type elsewhere struct {
	cluster *etcd.Cluster
	store   *store.Store
}

// eventServers are the servers that an override names for Events; none: they are with all other objects.
func (e *Etcd) eventServers() (servers []string, err error) {
	for _, override := range e.Overrides {
		of, list, _ := strings.Cut(override, "#")
		named := strings.Split(list, ";")
		if strings.Count(override, "#") != 1 || strings.Count(of, "/") != 1 || slices.Contains(named, "") {
			return nil, fmt.Errorf("--etcd-servers-overrides: %q is not of the form group/resource#servers, where servers "+
				"are URLs, separated by semicolons", override)
		}
		if of != eventsPath {
			return nil, fmt.Errorf("--etcd-servers-overrides: %s cannot be in another etcd, only %s can", of, eventsPath)
		}
		servers = named
	}
	return servers, nil
}

// splitLayout is the layout of one of two etcds: of the one with Events alone, or of the one with all other objects.
type splitLayout struct {
	etcdLayout
	events bool
}

func (l splitLayout) has(k store.Key) bool { return (k.Resource == eventsPath) == l.events }

// Path implements etcd.Layout.
func (l splitLayout) Path(k store.Key) (string, bool) {
	at, ok := l.etcdLayout.Path(k)
	return at, ok && l.has(k)
}

// Key implements etcd.Layout.
func (l splitLayout) Key(path string) (store.Key, bool) {
	k, ok := l.etcdLayout.Key(path)
	return k, ok && l.has(k)
}

// openElsewhere opens the store of the Events, if they have an etcd of their own. is says how the others are stored.
func openElsewhere(ctx context.Context, c *Etcd, current etcd.Config, config store.Config) (*elsewhere, error) {
	servers, err := c.eventServers()
	if err != nil || servers == nil {
		return nil, err
	}
	others := current.Layout.(splitLayout)
	current.Endpoints, current.Layout = servers, splitLayout{others.etcdLayout, true}
	current.Bits, current.Apart = nil, nil
	e := &elsewhere{}
	if e.cluster, err = etcd.Connect(ctx, current); err != nil {
		return nil, fmt.Errorf("--etcd-servers-overrides: %w", err)
	}
	config.Charge, config.Rules = nil, ""
	if e.store, err = e.cluster.Open(ctx, config, nil); err != nil {
		return nil, errors.Join(err, e.cluster.Close())
	}
	return e, nil
}

// close closes the store and the connection.
func (e *elsewhere) close() error {
	if e == nil {
		return nil
	}
	return errors.Join(e.store.Close(), e.cluster.Close())
}

// checks are the health checks of the reference.
func (e *elsewhere) checks(c *Etcd) []httpapi.Check {
	if e == nil {
		return nil
	}
	return []httpapi.Check{
		{Name: "etcd-override-0", Run: etcdHealthy(e.cluster, e.store, c.HealthTimeout)},
		{Name: "etcd-override-readiness-0", ReadyOnly: true, Run: etcdHealthy(e.cluster, e.store, c.ReadyTimeout)},
	}
}
