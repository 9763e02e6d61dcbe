package columns

import (
	"strings"

	rbacv1beta1 "k8s.io/api/rbac/v1beta1"

	"plinth/object"
)

// rbac.authorization.k8s.io; roles have the common columns.
var (
	ClusterRoles, Roles Table

	ClusterRoleBindings = bindings(doc[rbacv1beta1.ClusterRoleBinding]("roleRef"), "clusterRoleBinding")

	RoleBindings = bindings(doc[rbacv1beta1.RoleBinding]("roleRef"), "roleBinding")
)

func bindings(role, kind string) Table {
	return of(name,
		str("Role", role, func(obj object.Value) any {
			return obj.At("roleRef", "kind").Str() + "/" + obj.At("roleRef", "name").Str()
		}),
		age,
		wide(str("Users", "Users in the "+kind, subjects("User"))),
		wide(str("Groups", "Groups in the "+kind, subjects("Group"))),
		wide(str("ServiceAccounts", "ServiceAccounts in the "+kind, subjects("ServiceAccount"))),
	)
}

func subjects(kind string) cell {
	return func(obj object.Value) any {
		var names []string
		for _, s := range obj.At("subjects").Items() {
			if s.At("kind").Str() != kind {
				continue
			}
			name := s.At("name").Str()
			if kind == "ServiceAccount" {
				name = s.At("namespace").Str() + "/" + name
			}
			names = append(names, name)
		}
		return strings.Join(names, ", ")
	}
}
