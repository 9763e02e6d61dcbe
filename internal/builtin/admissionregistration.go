package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/object"
)

func admissionregistration() group {
	extensions := []string{"api-extensions"}
	webhooks := func(obj object.Value) object.Value { return obj.At("webhooks") }
	return group{"admissionregistration.k8s.io", "v1", []kind{
		{
			name: "mutatingadmissionpolicies", kind: "MutatingAdmissionPolicy", categories: extensions,
			defaults: defaults.MutatingAdmissionPolicy, rules: validation.MutatingAdmissionPolicy,
			warnings: warnings.MutatingAdmissionPolicy,
			schema:   gotypes.Of[admissionregistrationv1.MutatingAdmissionPolicy],
			list:     gotypes.Of[admissionregistrationv1.MutatingAdmissionPolicyList],
			cluster:  true, conditional: true, generation: spec, table: columns.MutatingAdmissionPolicies,
		},
		{
			name: "mutatingadmissionpolicybindings", kind: "MutatingAdmissionPolicyBinding", categories: extensions,
			defaults: defaults.MutatingAdmissionPolicyBinding, rules: validation.MutatingAdmissionPolicyBinding,
			warnings: warnings.MutatingAdmissionPolicyBinding,
			schema:   gotypes.Of[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			list:     gotypes.Of[admissionregistrationv1.MutatingAdmissionPolicyBindingList],
			cluster:  true, conditional: true, generation: spec, table: columns.MutatingAdmissionPolicyBindings,
		},
		{
			name: "mutatingwebhookconfigurations", kind: "MutatingWebhookConfiguration", categories: extensions,
			defaults: defaults.MutatingWebhookConfiguration, rules: validation.MutatingWebhookConfiguration,
			warnings: warnings.MutatingWebhookConfiguration,
			schema:   gotypes.Of[admissionregistrationv1.MutatingWebhookConfiguration],
			list:     gotypes.Of[admissionregistrationv1.MutatingWebhookConfigurationList],
			cluster:  true, conditional: true, generation: webhooks, table: columns.MutatingWebhookConfigurations,
		},
		{
			name: "validatingadmissionpolicies", kind: "ValidatingAdmissionPolicy", categories: extensions,
			defaults: defaults.ValidatingAdmissionPolicy, rules: validation.ValidatingAdmissionPolicy,
			warnings:  warnings.ValidatingAdmissionPolicy,
			untouched: statusAlone,
			schema:    gotypes.Of[admissionregistrationv1.ValidatingAdmissionPolicy],
			list:      gotypes.Of[admissionregistrationv1.ValidatingAdmissionPolicyList],
			cluster:   true, conditional: true, status: statusOnly, generation: spec,
			table: columns.ValidatingAdmissionPolicies,
		},
		{
			name: "validatingadmissionpolicybindings", kind: "ValidatingAdmissionPolicyBinding", categories: extensions,
			defaults: defaults.ValidatingAdmissionPolicyBinding, rules: validation.ValidatingAdmissionPolicyBinding,
			warnings: warnings.ValidatingAdmissionPolicyBinding,
			schema:   gotypes.Of[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			list:     gotypes.Of[admissionregistrationv1.ValidatingAdmissionPolicyBindingList],
			cluster:  true, conditional: true, generation: spec, table: columns.ValidatingAdmissionPolicyBindings,
		},
		{
			name: "validatingwebhookconfigurations", kind: "ValidatingWebhookConfiguration", categories: extensions,
			defaults: defaults.ValidatingWebhookConfiguration, rules: validation.ValidatingWebhookConfiguration,
			warnings: warnings.ValidatingWebhookConfiguration,
			schema:   gotypes.Of[admissionregistrationv1.ValidatingWebhookConfiguration],
			list:     gotypes.Of[admissionregistrationv1.ValidatingWebhookConfigurationList],
			cluster:  true, conditional: true, generation: webhooks, table: columns.ValidatingWebhookConfigurations,
		},
	}}
}
