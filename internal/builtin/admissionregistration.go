package builtin

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/object"
)

func admissionregistration() group {
	extensions := []string{"api-extensions"}
	webhooks := func(obj object.Value) object.Value { return obj.At("webhooks") }
	return group{"admissionregistration.k8s.io", []kind{
		{
			name: "mutatingadmissionpolicies", kind: "MutatingAdmissionPolicy", categories: extensions,
			defaults: defaults.MutatingAdmissionPolicy, rules: validation.MutatingAdmissionPolicy,
			warnings: warnings.MutatingAdmissionPolicy,
			versions: []version{
				of[admissionv1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicyList](),
				of[admissionv1beta1.MutatingAdmissionPolicy, admissionv1beta1.MutatingAdmissionPolicyList](),
				of[admissionv1alpha1.MutatingAdmissionPolicy, admissionv1alpha1.MutatingAdmissionPolicyList](),
			},
			cluster: true, conditional: true, generation: spec, table: columns.MutatingAdmissionPolicies,
		},
		{
			name: "mutatingadmissionpolicybindings", kind: "MutatingAdmissionPolicyBinding", categories: extensions,
			defaults: defaults.MutatingAdmissionPolicyBinding, rules: validation.MutatingAdmissionPolicyBinding,
			warnings: warnings.MutatingAdmissionPolicyBinding,
			versions: []version{
				of[admissionv1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBindingList](),
				of[admissionv1beta1.MutatingAdmissionPolicyBinding, admissionv1beta1.MutatingAdmissionPolicyBindingList](),
				of[admissionv1alpha1.MutatingAdmissionPolicyBinding, admissionv1alpha1.MutatingAdmissionPolicyBindingList]().
					but(func(k *kind) { k.defaults = defaults.MutatingAdmissionPolicyBindingV1alpha1 }),
			},
			cluster: true, conditional: true, generation: spec, table: columns.MutatingAdmissionPolicyBindings,
		},
		{
			name: "mutatingwebhookconfigurations", kind: "MutatingWebhookConfiguration", categories: extensions,
			defaults: defaults.MutatingWebhookConfiguration, rules: validation.MutatingWebhookConfiguration,
			warnings: warnings.MutatingWebhookConfiguration,
			versions: []version{
				of[admissionv1.MutatingWebhookConfiguration, admissionv1.MutatingWebhookConfigurationList](),
			},
			cluster: true, conditional: true, generation: webhooks, table: columns.MutatingWebhookConfigurations,
		},
		{
			name: "validatingadmissionpolicies", kind: "ValidatingAdmissionPolicy", categories: extensions,
			defaults: defaults.ValidatingAdmissionPolicy, rules: validation.ValidatingAdmissionPolicy,
			warnings:  warnings.ValidatingAdmissionPolicy,
			untouched: statusAlone,
			versions: []version{
				of[admissionv1.ValidatingAdmissionPolicy, admissionv1.ValidatingAdmissionPolicyList](),
			},
			cluster: true, conditional: true, status: statusOnly, generation: spec,
			table: columns.ValidatingAdmissionPolicies,
		},
		{
			name: "validatingadmissionpolicybindings", kind: "ValidatingAdmissionPolicyBinding", categories: extensions,
			defaults: defaults.ValidatingAdmissionPolicyBinding, rules: validation.ValidatingAdmissionPolicyBinding,
			warnings: warnings.ValidatingAdmissionPolicyBinding,
			versions: []version{
				of[admissionv1.ValidatingAdmissionPolicyBinding, admissionv1.ValidatingAdmissionPolicyBindingList](),
			},
			cluster: true, conditional: true, generation: spec, table: columns.ValidatingAdmissionPolicyBindings,
		},
		{
			name: "validatingwebhookconfigurations", kind: "ValidatingWebhookConfiguration", categories: extensions,
			defaults: defaults.ValidatingWebhookConfiguration, rules: validation.ValidatingWebhookConfiguration,
			warnings: warnings.ValidatingWebhookConfiguration,
			versions: []version{
				of[admissionv1.ValidatingWebhookConfiguration, admissionv1.ValidatingWebhookConfigurationList](),
			},
			cluster: true, conditional: true, generation: webhooks, table: columns.ValidatingWebhookConfigurations,
		},
	}}
}
