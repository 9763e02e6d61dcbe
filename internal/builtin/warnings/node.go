package warnings

import (
	"fmt"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/object"
)

// nodeLabels are deprecated labels of nodes, with the ends of their warnings.
var nodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

func node(obj object.Value) (warnings []string) {
	spec := obj.At("spec")
	if !spec.At("configSource").IsNull() {
		warnings = append(warnings, "spec.configSource: the feature is removed")
	}
	if spec.At("externalID").Str() != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range spec.At("podCIDRs").Items() {
		warnings = append(warnings, network(fmt.Sprintf("spec.podCIDRs[%d]", i), cidr.Str())...)
	}
	return warnings
}

func runtimeClass(obj object.Value) (warnings []string) {
	for _, m := range obj.At("scheduling", "nodeSelector").Members() {
		if why, deprecated := nodeLabels[m.Key]; deprecated {
			warnings = append(warnings, "scheduling.nodeSelector: "+why)
		}
	}
	return warnings
}

func nodeAffinity(prefix string, affinity object.Value) (warnings []string) {
	const at = "%sspec.affinity.nodeAffinity.%s"
	for i, term := range affinity.At(required, "nodeSelectorTerms").Items() {
		warnings = append(warnings, nodeTerm(fmt.Sprintf(at+".nodeSelectorTerms[%d]", prefix, required, i), term,
			false)...)
	}
	for i, term := range affinity.At(preferred).Items() {
		warnings = append(warnings, nodeTerm(fmt.Sprintf(at+"[%d].preference", prefix, preferred, i),
			term.At("preference"), true)...)
	}
	return warnings
}

// nodeTerm warns of deprecated labels and, where validation does not check values, of values that no label can have.
func nodeTerm(path string, term object.Value, values bool) (warnings []string) {
	for i, e := range term.At("matchExpressions").Items() {
		key := e.At("key").Str()
		if why, deprecated := nodeLabels[key]; deprecated {
			warnings = append(warnings, fmt.Sprintf("%s.matchExpressions[%d].key: %s is %s", path, i, key, why))
		}
		if !values {
			continue
		}
		for j, value := range e.At("values").Items() {
			for _, wrong := range utilvalidation.IsValidLabelValue(value.Str()) {
				warnings = append(warnings, fmt.Sprintf("%s.matchExpressions[%d].values[%d]: %s is invalid, %s", path,
					i, j, value.Str(), wrong))
			}
		}
	}
	return warnings
}
