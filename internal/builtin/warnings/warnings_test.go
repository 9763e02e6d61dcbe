package warnings

import (
	"slices"
	"testing"

	"plinth/internal/engine"
	"plinth/object"
)

func parse(t *testing.T, text string) object.Value {
	t.Helper()
	if text == "" {
		return object.Nil
	}
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return parsed.Value
}

// creations are new objects and the warnings for them, as the reference returned them.
var creations = []struct {
	name  string
	rules Rules
	obj   string
	want  []string
}{
	{"nothing to say", Pod,
		`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"A","value":"$(A)2"}]}]}}`, nil},
	{"a name with a dot", ReplicaSet, `{"metadata":{"name":"a.b"}}`, []string{
		"metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"}},
	{"labels of nodes", PodTemplate,
		`{"template":{"spec":{"nodeSelector":{"beta.kubernetes.io/arch":"a"},"topologySpreadConstraints":[{"topologyKey":"beta.kubernetes.io/os"}]}}}`, []string{
			`template.spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead`,
			`template.spec.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`,
			`template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod`}},
	{"affinity", Pod,
		`{"metadata":{"name":"a"},"spec":{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchExpressions":[{"key":"a","values":["ok","x y"]}]}}]},"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{}],"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{}}]}}}}`, []string{
			`spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[1]: x y is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			`spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod`,
			`spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod`}},
	{"volumes", Pod,
		`{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"a","gitRepo":{}},{"name":"b","configMap":{"name":"m","items":[{"path":"p/"},{"path":"p/q"},{"path":"r"}]}},{"name":"c","projected":{"sources":[{},{"secret":{"name":"s","items":[{"path":"t"}]}},{"serviceAccountToken":{"path":"t"}}]}},{"name":"d","ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1500m"}}}}}}]}}`, []string{
			`spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+`,
			`spec.volumes[3].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`,
			`volume "b" (ConfigMap "m"): overlapping paths: "p/q" with "p"`,
			`volume "c" (Projected) has no sources provided`,
			`volume "c" (Projected): overlapping paths: "t" (ServiceAccountToken) with "t" (Secret "s")`}},
	{"lists with repetitions", Pod,
		`{"metadata":{"name":"a"},"spec":{"hostAliases":[{"ip":"::1"},{"ip":"::1"}],"imagePullSecrets":[{"name":"a"},{"name":"a"},{}]}}`, []string{
			`spec.hostAliases[1].ip: duplicate ip "::1"`, `spec.imagePullSecrets[1].name: duplicate name "a"`,
			`spec.imagePullSecrets[2].name: invalid empty name ""`}},
	{"containers", Pod,
		`{"metadata":{"name":"a"},"spec":{"initContainers":[{"name":"i","ports":[{"containerPort":1,"protocol":"TCP","name":"p"}]}],"containers":[{"name":"c","env":[{"name":"A"},{"name":"A","value":"$(A)"}],"resources":{"limits":{"memory":"100m"}},"ports":[{"containerPort":1,"protocol":"TCP","name":"p"},{"containerPort":1,"protocol":"TCP","hostPort":2},{"containerPort":3,"protocol":"UDP","hostIP":"1.1.1.1"}]}]}}`, []string{
			`spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer`,
			`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`,
			`spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]`,
			`spec.containers[0].ports[1]: overlapping port definition with spec.initContainers[0].ports[0]`,
			`spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]`,
			`spec.containers[0].ports[2]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:3 Protocol:UDP HostIP:1.1.1.1}`,
			`spec.containers[0].ports[0]: duplicate port name "p" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]`}},
	{"security profiles in annotations", DaemonSet,
		`{"spec":{"template":{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined","container.seccomp.security.alpha.kubernetes.io/c":"x","seccomp.security.alpha.kubernetes.io/pod":"x"}},"spec":{"containers":[{"name":"c"}]}}}}`, []string{
			`spec.template.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead`,
			`spec.template.metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "seccompProfile" field instead`,
			`spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
	{"a Pod's AppArmor annotation", Pod,
		`{"metadata":{"name":"a","annotations":{"container.apparmor.security.beta.kubernetes.io/c":"runtime/default"}},"spec":{"containers":[{"name":"c"}]}}`, []string{
			`metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
	{"a StatefulSet", StatefulSet,
		`{"spec":{"revisionHistoryLimit":-1,"volumeClaimTemplates":[{"spec":{"resources":{"limits":{"storage":"1500m"}}}}]}}`,
		[]string{
			`spec.volumeClaimTemplates[0].resources.limits[storage]: fractional byte value "1500m" is invalid, must be an integer`, negativeHistory}},
	{"a CronJob", CronJob,
		`{"metadata":{"name":"a"},"spec":{"jobTemplate":{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}}}`, []string{
			"spec.jobTemplate.spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"}},
	{"a headless Service", Service,
		`{"spec":{"type":"ClusterIP","clusterIP":"None","clusterIPs":["None"],"externalIPs":["1.1.1.1"],"loadBalancerIP":"1.2.3.4","sessionAffinity":"ClientIP","externalName":"a.b"}}`, []string{
			"spec.loadBalancerIP is ignored for headless services", "spec.externalIPs is ignored for headless services",
			"spec.SessionAffinity is ignored for headless services",
			`spec.externalName is ignored when spec.type is not "ExternalName"`}},
	{"a Service outside", Service,
		`{"metadata":{"annotations":{"service.kubernetes.io/topology-aware-hints":"a"}},"spec":{"type":"LoadBalancer","externalIPs":["2001:DB8::1"],"loadBalancerSourceRanges":["10.0.0.0/8"],"trafficDistribution":"PreferClose"}}`, []string{
			"annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
			`spec.externalIPs[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`,
			"spec.externalIPs is deprecated and may no longer be implemented in some clusters",
			`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`}},
	{"an Ingress", Ingress,
		`{"metadata":{"annotations":{"kubernetes.io/ingress.class":"a"}},"spec":{}}`, []string{
			`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`}},
	{"a NetworkPolicy", NetworkPolicy,
		`{"spec":{"egress":[{"to":[{},{"ipBlock":{"cidr":"2001:DB8::/32"}}]}]}}`, []string{
			`spec.egress[0].to[1].ipBlock.cidr: IPv6 CIDR value "2001:DB8::/32" should be in RFC 5952 canonical format ("2001:db8::/32")`}},
	{"an EndpointSlice", EndpointSlice,
		`{"addressType":"FQDN","metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}}`, []string{
			"spec.addressType: FQDN endpoints are deprecated"}},
	{"Endpoints", Endpoints, `{"subsets":[{"notReadyAddresses":[{"ip":"2001:DB8::1"}]}]}`, []string{
		`subsets[0].notReadyAddresses[0].ip: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`}},
	{"a Node", Node, `{"spec":{"externalID":"x"}}`,
		[]string{"spec.externalID: this field is deprecated, and is unused by Kubernetes"}},
	{"a PersistentVolume", PersistentVolume,
		`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"a"}},"spec":{"persistentVolumeReclaimPolicy":"Recycle","storageos":{}}}`, []string{
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`,
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
			"spec.storageOS: deprecated in v1.22, non-functional in v1.25+"}},
	{"a Secret", Secret, `{"type":"kubernetes.io/tls","data":{"tls.crt":"","tls.key":""}}`,
		[]string{"tls: failed to find any PEM data in certificate input"}},
	{"a ServiceAccount", ServiceAccount,
		`{"metadata":{"annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}}}`, []string{
			"metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}},
	{"a ResourceQuota", ResourceQuota,
		`{"spec":{"hard":{"cpu":"4","limits.cpu":"2","requests.storage":"1","limits.storage":"1"}}}`, []string{
			"ResourceQuota cpu (4) should be less than limits.cpu (2)"}},
	{"a CSIDriver", CSIDriver, `{"spec":{"tokenRequests":[{"audience":"a"}]}}`,
		[]string{tokensInSecrets}},
	{"a StorageClass", StorageClass,
		`{"allowedTopologies":[{"matchLabelExpressions":[{"key":"beta.kubernetes.io/os"}]}]}`, []string{
			`allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.14; use "kubernetes.io/os" instead`}},
	{"a CSIStorageCapacity", CSIStorageCapacity,
		`{"nodeTopology":{"matchLabels":{"beta.kubernetes.io/os":"a"},"matchExpressions":[{"key":"beta.kubernetes.io/arch"}]}}`, []string{
			`nodeTopology.matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead`,
			`nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated since v1.14; use "kubernetes.io/os" instead`}},
	{"a RuntimeClass", RuntimeClass, `{"scheduling":{"nodeSelector":{"beta.kubernetes.io/os":"a"}}}`,
		[]string{
			`scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/os" instead`}},
	{"a ResourceSlice", ResourceSlice, `{"spec":{"driver":"Foo.bar"}}`, []string{
		`spec.driver: driver names should be lowercase; "Foo.bar" contains uppercase characters`}},
	{"a webhook", MutatingWebhookConfiguration,
		`{"webhooks":[{"rules":[{"apiGroups":["*"],"resources":["tokenreviews"]},{"apiGroups":["authentication.k8s.io"],"resources":["tokenreviews","tokenreviews"]}]}]}`, []string{
			"webhooks[0].rules[1]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"}},
}

// SPEC: VAL-2
func TestCreate(t *testing.T) {
	for _, c := range creations {
		obj := parse(t, c.obj)
		if got := c.rules.Create(obj, obj); !slices.Equal(got, c.want) {
			t.Errorf("%s:\nhave %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestUpdate(t *testing.T) {
	const selector = `"spec":{"template":{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"a"}}}}`
	const deprecated = `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`
	for _, c := range []struct {
		name     string
		rules    Rules
		old, obj string
		want     []string
	}{
		{"the same generation", Deployment, `{"metadata":{"generation":1}}`,
			`{"metadata":{"generation":1},` + selector + `}`, nil},
		{"a new generation", Deployment, `{"metadata":{"generation":1}}`,
			`{"metadata":{"generation":2},` + selector + `}`, []string{deprecated}},
		{"the template of before", ReplicationController, `{"metadata":{"generation":1},` + selector + `}`,
			`{"metadata":{"generation":2}}`, []string{deprecated}},
		{"the template of before, and no new generation", ReplicationController, `{` + selector + `}`,
			`{` + selector + `}`, nil},
		{"the same template", DaemonSet, `{` + selector + `}`,
			`{"metadata":{"generation":2},` + selector + `}`, nil},
		{"a new template", DaemonSet, `{}`, `{` + selector + `}`, []string{deprecated}},
		{"another path", StatefulSet, `{}`,
			`{"spec":{"volumeClaimTemplates":[{"spec":{"resources":{"limits":{"storage":"1500m"}}}}]}}`, []string{
				`spec.volumeClaimTemplates[0].Spec.resources.limits[storage]: fractional byte value "1500m" is invalid, must be an integer`}},
		{"a time zone", CronJob, `{}`, `{"spec":{"schedule":"TZ=UTC * * * * *"}}`, []string{
			"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"}},
		{"many indexes", Job, `{}`,
			`{"metadata":{"generation":2},"spec":{"completionMode":"Indexed","completions":100001,"parallelism":10001}}`,
			[]string{
				"spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"}},
		{"an annotation that stays", ServiceAccount, creations[20].obj, creations[20].obj, nil},
		{"the same token requests", CSIDriver, `{"spec":{"tokenRequests":[{}]}}`,
			`{"spec":{"tokenRequests":[{}]}}`, nil},
		{"a reserved name", ValidatingAdmissionPolicy, `{}`,
			`{"metadata":{"name":"a.static.k8s.io"}}`, []string{
				`metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`}},
	} {
		if got := c.rules.Update(parse(t, c.obj), parse(t, c.old)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\nhave %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestStatus(t *testing.T) {
	const upper = `IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`
	got := Pod.Status(parse(t, `{"status":{"podIPs":[{"ip":"1.1.1.1"},{"ip":"2001:DB8::1"}]}}`), object.Nil)
	if !slices.Equal(got, []string{"status.podIPs[1].ip: " + upper}) {
		t.Errorf("%q", got)
	}
	got = ValidatingAdmissionPolicy.Status(parse(t, `{"metadata":{"name":"a.static.k8s.io"}}`), object.Nil)
	if len(got) != 1 {
		t.Errorf("a reserved name: %q", got)
	}
	got = Service.Status(parse(t,
		`{"status":{"loadBalancer":{"ingress":[{"hostname":"a"},{"ip":"2001:DB8::1"}]}}}`), object.Nil)
	if !slices.Equal(got, []string{"status.loadBalancer.ingress[1]: " + upper}) {
		t.Errorf("%q", got)
	}
}

// SPEC: DEL-2
func TestDelete(t *testing.T) {
	no := false
	rule := Job.Delete
	const want = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove " +
		"them or set propagationPolicy=Orphan to suppress this warning"
	if !slices.Equal(rule(engine.DeleteOptions{}), []string{want}) ||
		rule(engine.DeleteOptions{PropagationPolicy: "Orphan"}) != nil ||
		rule(engine.DeleteOptions{OrphanDependents: &no}) != nil {
		t.Error("what becomes of a Job's Pods is warned of if and only if nobody says it")
	}
}
