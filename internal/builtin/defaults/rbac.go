package defaults

import "plinth/object"

const rbacGroup = "rbac.authorization.k8s.io"

// RoleBinding defaults a RoleBinding or a ClusterRoleBinding.
func RoleBinding(obj object.Value) object.Value {
	w := over(obj)
	w.part("roleRef", roleRef)
	w.list("subjects", subject)
	return w.done()
}

func roleRef(ref object.Value) object.Value { return textOf(ref, "apiGroup", rbacGroup) }

// subject sets the API group of users and groups; that of service accounts is the core group, "".
func subject(s object.Value) object.Value {
	switch s.At("kind").Str() {
	case "User", "Group":
		return textOf(s, "apiGroup", rbacGroup)
	}
	return s
}
