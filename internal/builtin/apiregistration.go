package builtin

import (
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/object"
)

// apiregistration is the group of APIServices, one for each group version that is served. This row serves them like any
// other kind; package aggregation has what an APIService does.
func apiregistration(c Config) group {
	return group{"apiregistration.k8s.io", []kind{{
		name: "apiservices", kind: "APIService",
		categories: []string{"api-extensions"},
		versions:   []version{of[apiregistrationv1.APIService, apiregistrationv1.APIServiceList]()},
		defaults:   defaults.APIService, rules: validation.APIService,
		untouched: statusAlone,
		cluster:   true, naming: segment, conditional: true,
		status: statusOnly, plainStatus: true, initial: availableIfLocal(c.Now),
		table: columns.APIServices,
	}}}
}

// availableIfLocal is the status of a new APIService: one of this server itself is available.
func availableIfLocal(now func() time.Time) func(obj, empty object.Value) object.Value {
	return func(obj, empty object.Value) object.Value {
		if !obj.At("spec", "service").IsNull() {
			return empty
		}
		text := object.StringOf
		return empty.With("conditions", object.ListOf(object.Fields("type", text("Available"), "status", text("True"),
			"lastTransitionTime", text(now().UTC().Format(time.RFC3339)), "reason", text("Local"),
			"message", text("Local APIServices are always available"))))
	}
}
