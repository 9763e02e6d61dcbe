package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/object"
)

func admissionregistration() group {
	extensions := []string{"api-extensions"}
	webhooks := func(obj object.Value) object.Value { return obj.At("webhooks") }
	return group{"admissionregistration.k8s.io", "v1", []kind{
		{
			name: "mutatingadmissionpolicies", kind: "MutatingAdmissionPolicy", categories: extensions,
			schema:  gotypes.Of[admissionregistrationv1.MutatingAdmissionPolicy],
			cluster: true, conditional: true, generation: spec, table: columns.MutatingAdmissionPolicies,
		},
		{
			name: "mutatingadmissionpolicybindings", kind: "MutatingAdmissionPolicyBinding", categories: extensions,
			schema:  gotypes.Of[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			cluster: true, conditional: true, generation: spec, table: columns.MutatingAdmissionPolicyBindings,
		},
		{
			name: "mutatingwebhookconfigurations", kind: "MutatingWebhookConfiguration", categories: extensions,
			schema:  gotypes.Of[admissionregistrationv1.MutatingWebhookConfiguration],
			cluster: true, conditional: true, generation: webhooks, table: columns.MutatingWebhookConfigurations,
		},
		{
			name: "validatingadmissionpolicies", kind: "ValidatingAdmissionPolicy", categories: extensions,
			schema:  gotypes.Of[admissionregistrationv1.ValidatingAdmissionPolicy],
			cluster: true, conditional: true, status: statusOnly, generation: spec,
			table: columns.ValidatingAdmissionPolicies,
		},
		{
			name: "validatingadmissionpolicybindings", kind: "ValidatingAdmissionPolicyBinding", categories: extensions,
			schema:  gotypes.Of[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			cluster: true, conditional: true, generation: spec, table: columns.ValidatingAdmissionPolicyBindings,
		},
		{
			name: "validatingwebhookconfigurations", kind: "ValidatingWebhookConfiguration", categories: extensions,
			schema:  gotypes.Of[admissionregistrationv1.ValidatingWebhookConfiguration],
			cluster: true, conditional: true, generation: webhooks, table: columns.ValidatingWebhookConfigurations,
		},
	}}
}
