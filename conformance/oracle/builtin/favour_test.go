package builtin

import (
	"maps"
	"strings"
)

// favour makes values at which code branches more frequent: words by the name of the field, booleans, one of the three
// states of a container, and resources with a meaning. Words under "{name}" are members of that map, words under
// "[name]" items of that list.
func (m *mutator) favour(words map[string][]any, v any) any {
	switch v := v.(type) {
	case document:
		out := document{}
		for _, key := range sorted(v) {
			value := v[key]
			inner, isDocument := value.(document)
			items, isList := value.([]any)
			switch _, isBool := value.(bool); {
			case words[key] != nil && m.rng.IntN(2) == 0 && value != nil:
				text, isText := value.(string)
				if isText == isString(words[key][0]) && strings.Trim(text, "0123456789") == text { // and not a quantity
					value = words[key][m.rng.IntN(len(words[key]))]
				}
			case isBool && m.rng.IntN(5) == 0:
				value = m.rng.IntN(2) == 0
			case isDocument && (key == "state" || key == "lastState") && m.rng.IntN(4) > 0:
				inner = m.oneOf(inner)
				value = m.favour(words, inner)
			case isDocument && (key == "capacity" || key == "hard" || key == "used") && m.rng.IntN(2) == 0:
				value = m.resources()
			case isDocument && words["{"+key+"}"] != nil && m.rng.IntN(2) == 0:
				value = m.members(inner, words["{"+key+"}"])
			case isList && words["["+key+"]"] != nil && m.rng.IntN(2) == 0:
				value = m.items(items, words["["+key+"]"])
			default:
				value = m.favour(words, value)
			}
			out[key] = value
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = m.favour(words, item)
		}
		return out
	}
	return v
}

func isString(v any) bool {
	_, is := v.(string)
	return is
}

// members puts some members into a map: "key=value".
func (m *mutator) members(in document, words []any) document {
	out := maps.Clone(in)
	for range 1 + m.rng.IntN(3) {
		key, value, _ := strings.Cut(words[m.rng.IntN(len(words))].(string), "=")
		out[key] = value
	}
	return out
}

// items replaces a list by some words.
func (m *mutator) items(in []any, words []any) []any {
	if len(in) > 0 && !isString(in[0]) {
		return in
	}
	var out []any
	for range m.rng.IntN(4) {
		out = append(out, words[m.rng.IntN(len(words))])
	}
	return out
}

// name gives an object a name that leads to warnings.
func (m *mutator) name(doc document) {
	if names := []string{"n", "n", "a.b", "a.static.k8s.io"}; m.rng.IntN(2) == 0 {
		doc["metadata"].(document)["name"] = names[m.rng.IntN(len(names))]
	}
}

var (
	oldNodeLabels = []any{"beta.kubernetes.io/arch", "beta.kubernetes.io/os", "failure-domain.beta.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "beta.kubernetes.io/instance-type", "app.kubernetes.io/created-by",
		"scheduler.alpha.kubernetes.io/preferAvoidPods", "node-role.kubernetes.io/master", "a"}
	addresses = []any{"2001:DB8::1", "1.2.3.4", "010.0.0.1", "::ffff:1.2.3.4", "2001:db8::1", "x", ""}
	networks  = []any{"2001:DB8::/32", "10.0.0.0/8", "10.0.0.1/8", "010.0.0.0/8", "::ffff:1.2.3.4/104", "x"}
	amounts   = []any{"memory=1500m", "memory=1Gi", "memory=1", "ephemeral-storage=100m", "ephemeral-storage=2",
		"storage=1500m", "storage=3Gi", "cpu=1500m"}
	paths = []any{"a", "a/", "a/b", "b", "ab", "", "b/c/d", "/"}
)

// warnedOf are values that lead to a warning, or nearly do.
var warnedOf = map[string][]any{
	"key": oldNodeLabels, "topologyKey": oldNodeLabels,
	"{nodeSelector}": anyValue(oldNodeLabels), "{matchLabels}": anyValue(oldNodeLabels),
	"[values]": {"ok", "x y", "", "-"},
	"ip":       addresses, "loadBalancerIP": addresses, "clusterIP": {"", "None", "2001:DB8::1", "1.2.3.4"},
	"[addresses]": addresses, "[externalIPs]": addresses, "[clusterIPs]": addresses, "[nameservers]": addresses,
	"cidr": networks, "[except]": networks, "[podCIDRs]": networks, "[loadBalancerSourceRanges]": networks,
	"{limits}": amounts, "{requests}": amounts, "{overhead}": amounts,
	"hostIP": {"", "1.1.1.1", "1.1.1.2"}, "hostPort": {0.0, 1.0, 2.0}, "containerPort": {1.0, 2.0},
	"name": {"a", "b", "c", ""}, "value": {"$(a)", "x$(a)", "y", "$(b)z"}, "path": paths, "secretName": {"s"},
	"certificateChainPath": paths, "keyPath": paths, "credentialBundlePath": paths,
	"terminationGracePeriodSeconds": {-1.0, 0.0, 1.0},
	"completions":                   {100000.0, 100001.0}, "parallelism": {10000.0, 10001.0},
	"completionMode": {"Indexed", "NonIndexed"}, "schedule": {"TZ=UTC * * * * *", "* * * * *", "CRON_TZ=UTC * * * * *"},
	"revisionHistoryLimit": {-1.0, 0.0, 1.0}, "persistentVolumeReclaimPolicy": {"Recycle", "Retain"},
	"type": {"kubernetes.io/tls", "Opaque", "ClusterIP", "ExternalName", "LoadBalancer", "RuntimeDefault", "Unconfined",
		"Localhost"},
	"localhostProfile": {"a", "b"}, "os": {"windows", "linux"},
	"sessionAffinity": {"None", "ClientIP"}, "externalName": {"", "a.b"},
	"trafficDistribution": {"PreferClose", "PreferSameZone"}, "addressType": {"FQDN", "IPv4", "IPv6"},
	"{hard}": {"requests.cpu=2", "cpu=3", "limits.cpu=1", "limits.cpu=2500m", "requests.memory=2Gi", "memory=1Gi",
		"limits.memory=1Gi", "storage=2", "requests.storage=2", "limits.storage=1", "requests.ephemeral-storage=2",
		"ephemeral-storage=4", "limits.ephemeral-storage=1"},
	"driver":      {"Foo.bar", "foo.bar"},
	"audience":    {"a", "b"},
	"[apiGroups]": {"*", "authentication.k8s.io", "authorization.k8s.io", ""},
	"[resources]": {"*", "selfsubjectreviews", "tokenreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews",
		"selfsubjectrulesreviews", "subjectaccessreviews", "pods"},
	"generation": {1.0, 2.0}, "externalID": {"", "x"}, "signerName": {"a.b/c"},
	"{annotations}": {"kubernetes.io/ingress.class=a", "service.kubernetes.io/topology-aware-hints=a",
		"kubernetes.io/enforce-mountable-secrets=true", "volume.beta.kubernetes.io/storage-class=a",
		"volume.beta.kubernetes.io/mount-options=a", "scheduler.alpha.kubernetes.io/critical-pod=a",
		"security.alpha.kubernetes.io/sysctls=a", "security.alpha.kubernetes.io/unsafe-sysctls=a",
		"seccomp.security.alpha.kubernetes.io/pod=x", "container.seccomp.security.alpha.kubernetes.io/a=x",
		"container.apparmor.security.beta.kubernetes.io/a=unconfined",
		"container.apparmor.security.beta.kubernetes.io/a=localhost/a",
		"container.apparmor.security.beta.kubernetes.io/b=runtime/default",
		"container.apparmor.security.beta.kubernetes.io/b=localhost/ x",
		"container.apparmor.security.beta.kubernetes.io/c=localhost/", "container.apparmor.security.beta.kubernetes.io/c=x"},
	"{labels}": {"endpoints.kubernetes.io/managed-by=endpoint-controller", "endpoints.kubernetes.io/managed-by=a",
		"endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io",
		"endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io"},
}

// anyValue returns labels with any value.
func anyValue(names []any) (all []any) {
	for _, name := range names {
		all = append(all, name.(string)+"=x")
	}
	return all
}
