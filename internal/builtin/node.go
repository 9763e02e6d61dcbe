package builtin

import (
	nodev1 "k8s.io/api/node/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/object"
)

func nodes() group {
	return group{"node.k8s.io", []kind{
		{
			name: "runtimeclasses", kind: "RuntimeClass",
			versions: []version{of[nodev1.RuntimeClass, nodev1.RuntimeClassList]()},
			cluster:  true,
			rules:    validation.RuntimeClass, warnings: warnings.RuntimeClass,
			putCreates: true, conditional: true, table: columns.RuntimeClasses,
		},
	}}
}

// podCIDR makes the first of podCIDRs equal to podCIDR, which takes precedence.
func podCIDR(obj object.Value) object.Value {
	one, all := obj.At("spec", "podCIDR"), obj.At("spec", "podCIDRs").Items()
	switch {
	case one.Len() > 0 && (len(all) == 0 || !object.Equal(one, all[0])):
		return obj.WithAt(object.ListOf(one), "spec", "podCIDRs")
	case one.Len() == 0 && len(all) > 0 && all[0].Len() > 0:
		return obj.WithAt(all[0], "spec", "podCIDR")
	}
	return obj
}

// dropNodeConfig drops the fields of the dynamic kubelet configuration, a feature that was removed.
func dropNodeConfig(obj object.Value) object.Value {
	return obj.WithoutAt("spec", "configSource").WithoutAt("status", "config")
}

// keepNodeConfig drops the field in the spec unless the old Node has it, keepNodeStatusConfig the one in the status.
func keepNodeConfig(obj, old object.Value) object.Value {
	if old.At("spec", "configSource").IsNull() {
		obj = obj.WithoutAt("spec", "configSource")
	}
	return obj
}

func keepNodeStatusConfig(obj, old object.Value) object.Value {
	if old.At("status", "config").IsNull() {
		obj = obj.WithoutAt("status", "config")
	}
	return obj
}
