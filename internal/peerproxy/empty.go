package peerproxy

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/object"
)

// Empty deletes the objects of a namespace, as a user, that are of types which peers alone serve, and says what is
// left. Otherwise they would stay in the etcd when the namespace is gone: the controllers run in one of the servers.
func (p *Proxy) Empty(ctx context.Context, namespace string, user access.User,
	served func(group, version, resource string) bool) aggregation.Contents {
	all := aggregation.Contents{Remaining: map[string]int{}, Finalizers: map[string]int{}}
	v := p.now()
	if v == nil {
		return all
	}
	done := map[resource]bool{}
	for _, identity := range slices.Sorted(maps.Keys(v.of.groups)) {
		at := func(ctx context.Context) (http.RoundTripper, string, error) {
			address, err := p.addressOf(ctx, identity)
			return p.transport.Load(), address, err
		}
		skip := func(group, version, name string) bool {
			of := resource{group, version, name}
			if done[of] || v.leftOut(group, version) || served(group, version, name) {
				return true
			}
			done[of] = true
			return false
		}
		for _, groups := range [][]object.Value{v.of.core[identity], v.of.groups[identity]} {
			all.Add(aggregation.EmptyAt(ctx, at, http.Header{Forwarded: {"true"}}, groups, skip, namespace, user))
		}
	}
	return all
}
