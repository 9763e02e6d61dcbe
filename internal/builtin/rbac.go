package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
)

func rbac() group {
	writesRole := func(r *engine.Resource, parts *Parts) {
		if parts.Authority != nil {
			r.Permit = parts.Authority.PermitRole
		}
	}
	writesBinding := func(r *engine.Resource, parts *Parts) {
		if parts.Authority != nil {
			r.Permit = parts.Authority.PermitBinding
		}
	}
	return group{"rbac.authorization.k8s.io", []kind{
		{
			name: "clusterrolebindings", kind: "ClusterRoleBinding",
			versions: []version{of[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList]()},
			defaults: defaults.RoleBinding, rules: validation.ClusterRoleBinding,
			cluster:    true,
			putCreates: true, naming: segment, table: columns.ClusterRoleBindings, acts: writesBinding,
		},
		{
			name: "clusterroles", kind: "ClusterRole",
			versions:   []version{of[rbacv1.ClusterRole, rbacv1.ClusterRoleList]()},
			cluster:    true,
			rules:      validation.ClusterRole,
			putCreates: true, naming: segment, table: columns.ClusterRoles, acts: writesRole,
		},
		{
			name: "rolebindings", kind: "RoleBinding",
			versions: []version{of[rbacv1.RoleBinding, rbacv1.RoleBindingList]()},
			defaults: defaults.RoleBinding, rules: validation.RoleBinding,
			putCreates: true, naming: segment, table: columns.RoleBindings, acts: writesBinding,
		},
		{
			name: "roles", kind: "Role", versions: []version{of[rbacv1.Role, rbacv1.RoleList]()},
			rules:      validation.Role,
			putCreates: true, naming: segment, table: columns.Roles, acts: writesRole,
		},
	}}
}
