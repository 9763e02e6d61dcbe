package initial

import (
	"context"
	"errors"

	"plinth/internal/authz"
	"plinth/object"
)

// inherited lists the missing roles and bindings that inherit from existing ones, see [authz.Default.Inherit].
func (o *Objects) inherited(ctx context.Context) (all []Object, err error) {
	for _, d := range authz.Bootstrap(o.Features) {
		if d.Ancestor() == "" {
			continue
		}
		i := Object{Group: authz.RBACGroup, Version: "v1", Resource: d.Resource, Name: d.Name}
		live, err := o.live(ctx, &i, d.Name)
		var from object.Value
		if err == nil {
			from, err = o.live(ctx, &i, d.Ancestor())
		}
		if errors.Is(err, errUnreadable) { // as Ensure leaves it
			continue
		}
		if err != nil {
			return nil, err
		}
		if !live.IsNull() || from.IsNull() {
			continue
		}
		if body, ok := d.Inherit(from); ok {
			i.Body = body
			all = append(all, i)
		}
	}
	return all, nil
}

// bootstrapPolicy lists the RBAC roles and bindings that every server has. As in the reference they are brought up to
// date at each start, and are not watched afterwards.
func (o *Objects) bootstrapPolicy() (all []Object) {
	for _, d := range authz.Bootstrap(o.Features) {
		all = append(all, Object{
			Group: authz.RBACGroup, Version: "v1", Resource: d.Resource, Namespace: d.Namespace, Name: d.Name, Body: d.Body,
			Revise: func(live object.Value) object.Value {
				next, _ := authz.Reconcile(live, d.Body)
				return next
			},
			Replace: func(live object.Value) bool {
				_, remedy := authz.Reconcile(live, d.Body)
				return remedy == authz.Replace
			},
		})
	}
	return all
}
