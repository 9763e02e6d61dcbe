package plane

import (
	"context"
	"slices"
	"sync"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/httpapi"
	"plinth/internal/peerproxy"
)

// peers finds who answers the requests for a resource that the plane does not serve.
func (p *Plane) peers(group, version, resource string) httpapi.Backend {
	if !p.config.Peers.Serves(group, version, resource) {
		return nil
	}
	if p.serves(group, version, resource) {
		return nil
	}
	return p.config.Peers.Forwards(group, version, resource)
}

// serves says whether a type is one of the plane's own, although its definition may not be readable.
func (p *Plane) serves(group, version, resource string) bool {
	types := p.Registry.Now()
	return types.Find(group, version, resource) != nil || types.Unreadable()[resource+"."+group] != nil
}

// emptyAtOthers deletes the objects of a namespace that other servers serve, and says what is left.
func (p *Plane) emptyAtOthers(ctx context.Context, namespace string, user access.User) aggregation.Contents {
	left := p.Aggregator.Empty(ctx, namespace, user)
	if p.config.Peers != nil {
		left.Add(p.config.Peers.Empty(ctx, namespace, user, p.serves))
	}
	return left
}

// shared are the versions that objects define, as of the last time that somebody asked.
type shared struct {
	mu      sync.Mutex
	types   *engine.Types
	remotes []*discovery.Remote
	all     *peerproxy.Versions
}

// sharedVersions is peerproxy.Config.Shared.
func (p *Plane) sharedVersions() *peerproxy.Versions {
	types, remotes := p.Registry.Now(), p.Aggregator.Remotes()
	s := &p.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil && s.types == types && slices.Equal(s.remotes, remotes) {
		return s.all
	}
	all := peerproxy.Versions{}
	for _, gv := range types.GroupVersions() {
		if slices.ContainsFunc(gv.Resources, func(r *engine.Resource) bool { return r.Stored != nil && r.Stored.Custom }) {
			all[[2]string{gv.Group, gv.Version}] = true
		}
	}
	for _, r := range remotes {
		all[[2]string{r.Group, r.Version}] = true
	}
	s.types, s.remotes, s.all = types, remotes, &all
	return s.all
}
