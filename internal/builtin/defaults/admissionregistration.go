package defaults

import "plinth/object"

// MutatingWebhookConfiguration defaults a MutatingWebhookConfiguration.
func MutatingWebhookConfiguration(obj object.Value) object.Value {
	return listOf(obj, "webhooks", mutatingWebhook)
}

// ValidatingWebhookConfiguration defaults a ValidatingWebhookConfiguration.
func ValidatingWebhookConfiguration(obj object.Value) object.Value {
	return listOf(obj, "webhooks", validatingWebhook)
}

func mutatingWebhook(hook object.Value) object.Value { return webhook(hook, true) }

func validatingWebhook(hook object.Value) object.Value { return webhook(hook, false) }

func webhook(hook object.Value, mutating bool) object.Value {
	w := over(hook)
	w.part("clientConfig", webhookClientConfig)
	w.pointer("failurePolicy", object.StringOf("Fail"))
	w.pointer("matchPolicy", object.StringOf("Equivalent"))
	w.pointer("namespaceSelector", emptyMap)
	w.pointer("objectSelector", emptyMap)
	if mutating {
		w.pointer("reinvocationPolicy", object.StringOf("Never"))
	}
	w.list("rules", admissionRule)
	w.pointer("timeoutSeconds", object.IntOf(10))
	return w.done()
}

func webhookClientConfig(config object.Value) object.Value {
	return optionalOf(config, "service", webhookService)
}

func webhookService(service object.Value) object.Value {
	return pointerOf(service, "port", object.IntOf(443))
}

func admissionRule(rule object.Value) object.Value {
	return pointerOf(rule, "scope", object.StringOf("*"))
}

// MutatingAdmissionPolicy defaults a MutatingAdmissionPolicy.
func MutatingAdmissionPolicy(obj object.Value) object.Value {
	return partOf(obj, "spec", admissionPolicySpec)
}

// ValidatingAdmissionPolicy defaults a ValidatingAdmissionPolicy.
func ValidatingAdmissionPolicy(obj object.Value) object.Value {
	return partOf(obj, "spec", admissionPolicySpec)
}

func admissionPolicySpec(spec object.Value) object.Value {
	w := over(spec)
	w.pointer("failurePolicy", object.StringOf("Fail"))
	w.optional("matchConstraints", matchResources)
	return w.done()
}

// MutatingAdmissionPolicyBinding defaults a MutatingAdmissionPolicyBinding.
func MutatingAdmissionPolicyBinding(obj object.Value) object.Value {
	return partOf(obj, "spec", admissionPolicyBindingSpec)
}

// MutatingAdmissionPolicyBindingV1alpha1 defaults a MutatingAdmissionPolicyBinding of v1alpha1.
func MutatingAdmissionPolicyBindingV1alpha1(obj object.Value) object.Value {
	return partOf(MutatingAdmissionPolicyBinding(obj), "spec", func(spec object.Value) object.Value {
		return optionalOf(spec, "paramRef", func(ref object.Value) object.Value {
			return pointerOf(ref, "parameterNotFoundAction", object.StringOf("Deny"))
		})
	})
}

// ValidatingAdmissionPolicyBinding defaults a ValidatingAdmissionPolicyBinding.
func ValidatingAdmissionPolicyBinding(obj object.Value) object.Value {
	return partOf(obj, "spec", admissionPolicyBindingSpec)
}

func admissionPolicyBindingSpec(spec object.Value) object.Value {
	return optionalOf(spec, "matchResources", matchResources)
}

func matchResources(match object.Value) object.Value {
	w := over(match)
	w.list("excludeResourceRules", admissionRule)
	w.pointer("matchPolicy", object.StringOf("Equivalent"))
	w.pointer("namespaceSelector", emptyMap)
	w.pointer("objectSelector", emptyMap)
	w.list("resourceRules", admissionRule)
	return w.done()
}
