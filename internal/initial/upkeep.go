package initial

import (
	"context"
	"time"

	"plinth/internal/controller/steps"
	"plinth/internal/store"
)

// While it runs, a kube-apiserver brings back the objects that every cluster has, if somebody deletes or changes them:
// `kubectl delete services --all` does not take the Service kubernetes away for long. It does so by polling, and so
// does this server. --controllers has no part in it (RUN-8).

// upkeepRow is some of these objects.
type upkeepRow struct {
	what string
	// types are the paths of their types in the store: as soon as one of their collections has changed, the objects are
	// looked at. Nil: not before upkeepAlways.
	types []string
	keep  func(*Objects, context.Context) error
}

var upkeepTable = []upkeepRow{
	{"the system namespaces", []string{"/namespaces"}, func(o *Objects, ctx context.Context) error {
		return o.Ensure(ctx, initialNamespaces())
	}},
	{"the Service kubernetes and its endpoints", []string{"/services", "/endpoints", "discovery.k8s.io/endpointslices"},
		func(o *Objects, ctx context.Context) error {
			if o.Self.Peers {
				return nil
			}
			return o.EnsureService(ctx)
		}},
	{"the default ServiceCIDR", []string{"networking.k8s.io/servicecidrs"}, func(o *Objects, ctx context.Context) error {
		return o.Ensure(ctx, []Object{o.defaultCIDR()})
	}},
	{"the ConfigMaps of the server", []string{"/configmaps"}, (*Objects).EnsureConfigMaps},
	{"the objects of priority and fairness", nil, func(o *Objects, ctx context.Context) error {
		if err := o.Ensure(ctx, o.FlowControl()); err != nil {
			return err
		}
		return o.deleteObsoleteFlowControl(ctx)
	}},
}

const (
	// upkeepEvery is how often it is looked whether objects have changed: the interval at which the reference looks at
	// the Service kubernetes.
	upkeepEvery = 10 * time.Second
	// upkeepAlways is how often they are looked at in any case: what they should be depends on files and on the time,
	// too.
	upkeepAlways = time.Minute
)

// KeepUp begins to bring the objects of upkeepTable back.
func (o *Objects) KeepUp(g *steps.Group) {
	rows := make([]upkeep, len(upkeepTable))
	next, always := time.Now().Add(upkeepEvery), time.Now().Add(upkeepAlways)
	g.Loop(func(ctx context.Context, _ *steps.Loop) time.Time {
		now := time.Now()
		if now.Before(next) {
			return next
		}
		next = now.Add(upkeepEvery)
		due := !now.Before(always)
		if due {
			always = now.Add(upkeepAlways)
		}
		for i := range upkeepTable {
			rows[i].look(ctx, o, &upkeepTable[i], due)
		}
		return next
	}, nil)
}

// upkeep is what is known of a row.
type upkeep struct {
	at     int64 // the newest revision of its collections when the objects were last as they should be
	failed bool
}

// look brings the objects of a row up to date if they may not be. An error is logged once.
func (u *upkeep) look(ctx context.Context, o *Objects, row *upkeepRow, due bool) {
	at := newest(o.Store, row.types)
	if at == u.at && !due {
		return
	}
	err := row.keep(o, ctx)
	if err == nil {
		u.at = at
	} else if !u.failed && ctx.Err() == nil {
		o.Logger.Warn("objects of the server are not up to date, trying again", "objects", row.what, "error", err)
	}
	u.failed = err != nil
}

// newest is the revision of the last change of these types.
func newest(of *store.Store, types []string) (revision int64) {
	for _, path := range types {
		revision = max(revision, of.Collection(path).Revision())
	}
	return revision
}
