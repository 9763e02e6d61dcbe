package server

import (
	"context"
	"time"

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
	keep  func(*Server, context.Context) error
}

var upkeepTable = []upkeepRow{
	{"the system namespaces", []string{"/namespaces"}, func(s *Server, ctx context.Context) error {
		return s.createMissing(ctx, initialNamespaces())
	}},
	{"the Service kubernetes and its endpoints", []string{"/services", "/endpoints", "discovery.k8s.io/endpointslices"},
		func(s *Server, ctx context.Context) error {
			if s.etcd != nil {
				return nil // see joinPeers
			}
			return s.ensureKubernetesService(ctx)
		}},
	{"the default ServiceCIDR", []string{"networking.k8s.io/servicecidrs"}, func(s *Server, ctx context.Context) error {
		cidr, err := s.defaultCIDR()
		if err != nil {
			return err
		}
		return s.createMissing(ctx, []initial{cidr})
	}},
	{"the ConfigMaps of the server", []string{"/configmaps"}, (*Server).ensureConfigMaps},
	{"the objects of priority and fairness", nil, func(s *Server, ctx context.Context) error {
		if err := s.createMissing(ctx, flowControl(s.now, s.config.PriorityAndFairness)); err != nil {
			return err
		}
		return s.deleteObsoleteFlowControl(ctx)
	}},
}

const (
	// upkeepEvery is how often it is looked whether objects have changed: the interval at which the reference looks at
	// the Service kubernetes.
	upkeepEvery = 10 * time.Second
	// upkeepAlways is how often they are looked at in any case: what they should be depends on files and on the time, too.
	upkeepAlways = time.Minute
)

// keepUp brings the objects of upkeepTable back until ctx ends.
func (s *Server) keepUp(ctx context.Context) {
	rows := make([]upkeep, len(upkeepTable))
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	for always := time.Now().Add(upkeepAlways); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		due := !time.Now().Before(always)
		if due {
			always = time.Now().Add(upkeepAlways)
		}
		for i := range upkeepTable {
			rows[i].look(ctx, s, &upkeepTable[i], due)
		}
	}
}

// upkeep is what is known of a row.
type upkeep struct {
	at     int64 // the newest revision of its collections when the objects were last as they should be
	failed bool
}

// look brings the objects of a row up to date if they may not be. An error is logged once.
func (u *upkeep) look(ctx context.Context, s *Server, row *upkeepRow, due bool) {
	at := newest(s.store, row.types)
	if at == u.at && !due {
		return
	}
	err := row.keep(s, ctx)
	if err == nil {
		u.at = at
	} else if !u.failed && ctx.Err() == nil {
		s.config.Logger.Warn("objects of the server are not up to date, trying again", "objects", row.what, "error", err)
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
