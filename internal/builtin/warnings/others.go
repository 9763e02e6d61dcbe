package warnings

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

const mountableSecrets = "kubernetes.io/enforce-mountable-secrets"

func account(obj object.Value) []string { return accountUpdate(obj, object.Nil) }

// accountUpdate warns when the annotation is set, not when it is kept.
func accountUpdate(obj, old object.Value) []string {
	if annotated(old.At("metadata"), mountableSecrets) || !annotated(obj.At("metadata"), mountableSecrets) {
		return nil
	}
	return []string{fmt.Sprintf(
		"metadata.annotations[%s]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
		mountableSecrets)}
}

// secret warns of a TLS key that does not match its certificate.
func secret(obj object.Value) []string {
	if obj.At("type").Str() != "kubernetes.io/tls" {
		return nil
	}
	decoded := func(key string) []byte {
		data, err := base64.StdEncoding.DecodeString(obj.At("data", key).Str())
		if err != nil {
			return nil // text that is not base64 has been refused
		}
		return data
	}
	if _, err := tls.X509KeyPair(decoded("tls.crt"), decoded("tls.key")); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// quota warns of a limit on requests that is greater than the limit on limits.
func quota(obj object.Value) (warnings []string) {
	hard := obj.At("spec", "hard")
	for _, name := range []string{"cpu", "memory", "storage", "ephemeral-storage"} {
		asked := "requests." + name
		if hard.At(asked).IsNull() && (name == "cpu" || name == "memory") {
			asked = name
		}
		limit := "limits." + name
		request, err1 := resource.ParseQuantity(hard.At(asked).Str())
		most, err2 := resource.ParseQuantity(hard.At(limit).Str())
		if err1 == nil && err2 == nil && request.Cmp(most) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", asked,
				request.String(), limit, most.String()))
		}
	}
	return warnings
}

func resourceSlice(obj object.Value) []string {
	if name := obj.At("spec", "driver").Str(); name != strings.ToLower(name) {
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters",
			name)}
	}
	return nil
}

const staticSuffix = ".static.k8s.io"

// reservedName warns of names that are reserved for configuration in files.
func reservedName(obj, _ object.Value) []string {
	if strings.HasSuffix(obj.At("metadata", "name").Str(), staticSuffix) {
		return []string{fmt.Sprintf(
			"metadata.name: names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix)}
	}
	return nil
}

// outsideAdmission are the types for which no webhook is called.
var outsideAdmission = []string{
	"selfsubjectreviews.authentication.k8s.io", "tokenreviews.authentication.k8s.io",
	"localsubjectaccessreviews.authorization.k8s.io", "selfsubjectaccessreviews.authorization.k8s.io",
	"selfsubjectrulesreviews.authorization.k8s.io", "subjectaccessreviews.authorization.k8s.io",
}

// webhooks warns of rules that match no request.
func webhooks(obj object.Value) (warnings []string) {
	for i, hook := range obj.At("webhooks").Items() {
		for j, rule := range hook.At("rules").Items() {
			for _, typ := range unheard(rule.At("apiGroups").Items(), rule.At("resources").Items()) {
				warnings = append(warnings,
					fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect",
						i, j, typ))
			}
		}
	}
	return warnings
}

// unheard returns the types in a rule for which no webhook is called; none for a rule with a wildcard.
func unheard(groups, resources []object.Value) (types []string) {
	all := func(v object.Value) bool { return v.Str() == "*" }
	if slices.ContainsFunc(groups, all) || slices.ContainsFunc(resources, all) {
		return nil
	}
	for _, g := range groups {
		for _, r := range resources {
			if typ := r.Str() + "." + g.Str(); slices.Contains(outsideAdmission, typ) && !slices.Contains(types, typ) {
				types = append(types, typ)
			}
		}
	}
	return types
}

func webhooksUpdate(obj, old object.Value) []string {
	return append(reservedName(obj, old), webhooks(obj)...)
}
