package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
)

func rbac() group {
	return group{"rbac.authorization.k8s.io", "v1", []kind{
		{
			name: "clusterrolebindings", kind: "ClusterRoleBinding", schema: gotypes.Of[rbacv1.ClusterRoleBinding], cluster: true,
			putCreates: true, naming: segment, table: columns.ClusterRoleBindings,
		},
		{
			name: "clusterroles", kind: "ClusterRole", schema: gotypes.Of[rbacv1.ClusterRole], cluster: true,
			putCreates: true, naming: segment, table: columns.ClusterRoles,
		},
		{
			name: "rolebindings", kind: "RoleBinding", schema: gotypes.Of[rbacv1.RoleBinding],
			putCreates: true, naming: segment, table: columns.RoleBindings,
		},
		{
			name: "roles", kind: "Role", schema: gotypes.Of[rbacv1.Role],
			putCreates: true, naming: segment, table: columns.Roles,
		},
	}}
}
