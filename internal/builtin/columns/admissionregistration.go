package columns

import (
	"plinth/object"
)

// admissionregistration.k8s.io
var (
	MutatingAdmissionPolicies = of(name,
		integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration",
			size("spec", "mutations")),
		paramKind, age,
	)

	MutatingAdmissionPolicyBindings = of(name, policyName, paramRef, age)

	MutatingWebhookConfigurations = of(name, webhooks, age)

	ValidatingAdmissionPolicies = of(name,
		integer("Validations", "Validations indicates the number of validation rules defined in this configuration",
			size("spec", "validations")),
		paramKind, age,
	)

	ValidatingAdmissionPolicyBindings = of(name, policyName, paramRef, age)

	ValidatingWebhookConfigurations = of(name, webhooks, age)

	webhooks = integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration",
		size("webhooks"))

	paramKind = str("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy",
		func(obj object.Value) any {
			kind := obj.At("spec", "paramKind")
			if kind.IsNull() {
				return unset
			}
			return kind.At("apiVersion").Str() + "/" + kind.At("kind").Str()
		})

	policyName = str("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to",
		text("spec", "policyName"))

	paramRef = str("ParamRef", "ParamRef indicates the param resource which sets the configuration param",
		func(obj object.Value) any {
			ref := obj.At("spec", "paramRef")
			name, namespace := ref.At("name").Str(), ref.At("namespace").Str()
			switch {
			case name != "":
				return or(namespace, "*") + "/" + name
			case !ref.At("selector").IsNull():
				return labelSelector(ref.At("selector")).String()
			}
			return unset
		})
)
