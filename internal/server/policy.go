package server

import (
	"plinth/internal/authz"
	"plinth/object"
)

// bootstrapPolicy lists the RBAC roles and bindings that every server has. As in the reference they are brought up to
// date at each start, and are not watched afterwards.
func bootstrapPolicy() (all []initial) {
	for _, d := range authz.Bootstrap() {
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
