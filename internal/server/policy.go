package server

import (
	"context"
	"errors"

	"plinth/internal/authz"
	"plinth/object"
)

// inherited lists the missing roles and bindings that inherit from existing ones, see [authz.Default.Inherit].
func (s *Server) inherited(ctx context.Context) (all []initial, err error) {
	for _, d := range authz.Bootstrap(s.features) {
		if d.Ancestor() == "" {
			continue
		}
		i := initial{group: authz.RBACGroup, version: "v1", resource: d.Resource, name: d.Name}
		live, err := s.live(ctx, &i, d.Name)
		var from object.Value
		if err == nil {
			from, err = s.live(ctx, &i, d.Ancestor())
		}
		if errors.Is(err, errUnreadable) { // as createMissing leaves it
			continue
		}
		if err != nil {
			return nil, err
		}
		if !live.IsNull() || from.IsNull() {
			continue
		}
		if body, ok := d.Inherit(from); ok {
			i.body = body
			all = append(all, i)
		}
	}
	return all, nil
}

// bootstrapPolicy lists the RBAC roles and bindings that every server has. As in the reference they are brought up to
// date at each start, and are not watched afterwards.
func (s *Server) bootstrapPolicy() (all []initial) {
	for _, d := range authz.Bootstrap(s.features) {
		all = append(all, initial{
			group: authz.RBACGroup, version: "v1", resource: d.Resource, namespace: d.Namespace, name: d.Name, body: d.Body,
			revise: func(live object.Value) object.Value {
				next, _ := authz.Reconcile(live, d.Body)
				return next
			},
			replace: func(live object.Value) bool {
				_, remedy := authz.Reconcile(live, d.Body)
				return remedy == authz.Replace
			},
		})
	}
	return all
}
