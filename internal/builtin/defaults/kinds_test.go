package defaults

import (
	"testing"
	"time"

	"plinth/object"
)

// kinds are, for each kind, the smallest object in which every rule fires, and the object with its defaults.
var kinds = []struct {
	kind     string
	fill     func(object.Value) object.Value
	in, want string
}{
	{"apiextensions.k8s.io/v1 CustomResourceDefinition", CustomResourceDefinition,
		`{"spec": {"names": {"kind": "Tin"}, "versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]}, "status": {"storedVersions": null}}`,
		`{"spec": {"conversion": {"strategy": "None"}, "names": {"kind": "Tin", "listKind": "TinList", "singular": "tin"},
		  "versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]}, "status": {"storedVersions": ["v2"]}}`},
	{"apiextensions.k8s.io/v1 CustomResourceDefinition", CustomResourceDefinition,
		`{"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {}}}}, "names": {}}}`,
		`{"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"port": 443}}}}, "names": {}}}`},
	{"v1 Endpoints", Endpoints, `{"subsets": [{"ports": [{"port": 1}]}]}`,
		`{"subsets": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}`},
	{"v1 LimitRange", LimitRange, `{"spec": {"limits": [{"max": {"a": "1u"}, "type": "Pod"}]}}`,
		`{"spec": {"limits": [{"max": {"a": "1m"}, "type": "Pod"}]}}`},
	{"v1 PersistentVolume", PersistentVolume,
		`{"spec": {"azureDisk": {}, "capacity": {"storage": "1u"}, "iscsi": {}, "rbd": {}, "scaleIO": {}}, "status": {}}`,
		`{"spec": {"azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared", "readOnly": false}, "capacity": {"storage": "1m"},
		  "iscsi": {"iscsiInterface": "default"}, "persistentVolumeReclaimPolicy": "Retain", "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
		  "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"}, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}`},
	{"v1 PersistentVolumeClaim", PersistentVolumeClaim,
		`{"spec": {"resources": {"limits": {"storage": "1u"}}}, "status": {"allocatedResources": {"storage": "1u"}, "capacity": {"storage": "1u"}}}`,
		`{"spec": {"resources": {"limits": {"storage": "1m"}}, "volumeMode": "Filesystem"}, "status": {"allocatedResources": {"storage": "1m"}, "capacity": {"storage": "1m"}, "phase": "Pending"}}`},
	{"v1 ResourceQuota", ResourceQuota,
		`{"spec": {"hard": {"a": "1u"}}, "status": {"hard": {"a": "1u"}, "used": {"a": "1n"}}}`,
		`{"spec": {"hard": {"a": "1m"}}, "status": {"hard": {"a": "1m"}, "used": {"a": "1m"}}}`},
	{"v1 Secret", Secret, `{"data": {}}`, `{"data": {}, "type": "Opaque"}`},
	{"apps/v1 StatefulSet", StatefulSet,
		`{"spec": {"template": {"spec": {"volumes": [{"ephemeral": {"volumeClaimTemplate": {"spec": {}}}, "name": "a"}]}}, "updateStrategy": {"type": "OnDelete"}, "volumeClaimTemplates": [{"spec": {}, "status": {}}]}}`,
		`{"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}, "podManagementPolicy": "OrderedReady", "replicas": 1, "revisionHistoryLimit": 10,
		  "template": {"spec": {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
		    "volumes": [{"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}, "name": "a"}]}},
		  "updateStrategy": {"type": "OnDelete"}, "volumeClaimTemplates": [{"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}]}}`},
	{"apps/v1 DaemonSet", DaemonSet,
		`{"spec": {"template": {"spec": ` + wholePodSpec + `}, "updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}}`,
		`{"spec": {"revisionHistoryLimit": 10, "template": {"spec": ` + wholePodSpec +
			`}, "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}, "type": "RollingUpdate"}}}`},
	{"batch/v1 CronJob", CronJob,
		`{"spec": {"jobTemplate": {"spec": {"podFailurePolicy": {"rules": [{"onPodConditions": [{"status": "", "type": "a"}]}]}, "template": {"spec": ` + wholePodSpec + `}}}}}`,
		`{"spec": {"concurrencyPolicy": "Allow", "failedJobsHistoryLimit": 1, "jobTemplate": {"spec": {"podFailurePolicy": {"rules": [{"onPodConditions": [{"status": "True", "type": "a"}]}]},
		  "template": {"spec": ` + wholePodSpec + `}}}, "successfulJobsHistoryLimit": 3, "suspend": false}}`},
	{"batch/v1 Job", Job,
		`{"metadata": {}, "spec": {"parallelism": 0, "template": {"metadata": {"labels": {"a": "b"}}, "spec": ` +
			wholePodSpec + `}}}`,
		`{"metadata": {"labels": {"a": "b"}}, "spec": {"backoffLimit": 6, "completionMode": "NonIndexed", "manualSelector": false, "parallelism": 0,
		  "podReplacementPolicy": "TerminatingOrFailed", "suspend": false, "template": {"metadata": {"labels": {"a": "b"}}, "spec": ` + wholePodSpec + `}}}`},
	{"autoscaling/v1 HorizontalPodAutoscaler", HorizontalPodAutoscalerV1, `{"spec": {}}`, `{"spec": {"minReplicas": 1}}`},
	{"autoscaling/v2 HorizontalPodAutoscaler", HorizontalPodAutoscalerV2, `{"spec": {"minReplicas": 0}}`,
		`{"spec": {"metrics": [{"resource": {"name": "cpu", "target": {"averageUtilization": 80, "type": "Utilization"}}, "type": "Resource"}], "minReplicas": 0}}`},
	{"admissionregistration.k8s.io/v1 MutatingWebhookConfiguration", MutatingWebhookConfiguration,
		`{"webhooks": [{"clientConfig": {"service": {}}, "rules": [{}]}]}`,
		`{"webhooks": [{"clientConfig": {"service": {"port": 443}}, "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
		  "reinvocationPolicy": "Never", "rules": [{"scope": "*"}], "timeoutSeconds": 10}]}`},
	{"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", ValidatingWebhookConfiguration,
		`{"webhooks": [{"clientConfig": {"url": "a"}}]}`,
		`{"webhooks": [{"clientConfig": {"url": "a"}, "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10}]}`},
	{"admissionregistration.k8s.io/v1 MutatingAdmissionPolicy", MutatingAdmissionPolicy, `{"spec": {}}`,
		`{"spec": {"failurePolicy": "Fail"}}`},
	{"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy", ValidatingAdmissionPolicy,
		`{"spec": {"failurePolicy": "Ignore", "matchConstraints": {"excludeResourceRules": [{}], "resourceRules": [{"scope": "Cluster"}]}}}`,
		`{"spec": {"failurePolicy": "Ignore", "matchConstraints": {"excludeResourceRules": [{"scope": "*"}], "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [{"scope": "Cluster"}]}}}`},
	{"admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding", MutatingAdmissionPolicyBinding, `{"spec": {}}`,
		`{"spec": {}}`},
	{"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding", ValidatingAdmissionPolicyBinding,
		`{"spec": {"matchResources": {}}}`,
		`{"spec": {"matchResources": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}}}`},
	{"authentication.k8s.io/v1 TokenRequest", TokenRequest, `{"spec": {"audiences": null}}`,
		`{"spec": {"audiences": null, "expirationSeconds": 3600}}`},
	{"certificates.k8s.io/v1 PodCertificateRequest", PodCertificateRequest, `{"spec": {}}`,
		`{"spec": {"maxExpirationSeconds": 86400}}`},
	{"discovery.k8s.io/v1 EndpointSlice", EndpointSlice, `{"ports": [{"port": 1}]}`,
		`{"ports": [{"name": "", "port": 1, "protocol": "TCP"}]}`},
	{"flowcontrol.apiserver.k8s.io/v1 FlowSchema", FlowSchema, `{"spec": {"matchingPrecedence": 0}}`,
		`{"spec": {"matchingPrecedence": 1000}}`},
	{"flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration", PriorityLevelConfiguration,
		`{"spec": {"exempt": {}, "limited": {"limitResponse": {"queuing": {"handSize": 0}}}}}`,
		`{"spec": {"exempt": {"lendablePercent": 0, "nominalConcurrencyShares": 0}, "limited": {"lendablePercent": 0,
		  "limitResponse": {"queuing": {"handSize": 8, "queueLengthLimit": 50, "queues": 64}}, "nominalConcurrencyShares": 30}}}`},
	{"networking.k8s.io/v1 IngressClass", IngressClass, `{"spec": {"parameters": {}}}`,
		`{"spec": {"parameters": {"scope": "Cluster"}}}`},
	{"networking.k8s.io/v1 NetworkPolicy", NetworkPolicy, `{"spec": {"ingress": [{"ports": [{}]}]}}`,
		`{"spec": {"ingress": [{"ports": [{"protocol": "TCP"}]}], "policyTypes": ["Ingress"]}}`},
	{"resource.k8s.io/v1 ResourceClaim", ResourceClaim,
		`{"spec": {"devices": {"requests": [{"exactly": {"tolerations": [{}]}}]}}, "status": {"allocation": {"devices": {"results": [{"tolerations": [{}]}]}}}}`,
		`{"spec": {"devices": {"requests": [{"exactly": {"allocationMode": "ExactCount", "count": 1, "tolerations": [{"operator": "Equal"}]}}]}},
		  "status": {"allocation": {"devices": {"results": [{"tolerations": [{"operator": "Equal"}]}]}}}}`},
	{"resource.k8s.io/v1 ResourceClaimTemplate", ResourceClaimTemplate,
		`{"spec": {"spec": {"devices": {"requests": [{"firstAvailable": [{"count": 2}]}]}}}}`,
		`{"spec": {"spec": {"devices": {"requests": [{"firstAvailable": [{"allocationMode": "ExactCount", "count": 2}]}]}}}}`},
	{"resource.k8s.io/v1beta1 ResourceClaim", ResourceClaimV1beta1,
		`{"spec": {"devices": {"requests": [{"deviceClassName": "c", "tolerations": [{}]}, {"deviceClassName": "c", "allocationMode": "All"}, {"firstAvailable": [{}]}]}}, "status": {"allocation": {"devices": {"results": [{"tolerations": [{}]}]}}}}`,
		`{"spec": {"devices": {"requests": [{"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "tolerations": [{"operator": "Equal"}]}, {"deviceClassName": "c", "allocationMode": "All"}, {"firstAvailable": [{"allocationMode": "ExactCount", "count": 1}]}]}}, "status": {"allocation": {"devices": {"results": [{"tolerations": [{"operator": "Equal"}]}]}}}}`},
	{"resource.k8s.io/v1beta1 ResourceClaimTemplate", ResourceClaimTemplateV1beta1,
		`{"spec": {"spec": {"devices": {"requests": [{"deviceClassName": "c", "allocationMode": "ExactCount"}, {}]}}}}`,
		`{"spec": {"spec": {"devices": {"requests": [{"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}, {}]}}}}`},
	{"resource.k8s.io/v1alpha3 ResourcePoolStatusRequest", ResourcePoolStatusRequest, `{"spec": {"driver": "d"}}`,
		`{"spec": {"driver": "d", "limit": 100}}`},
	{"resource.k8s.io/v1 ResourceSlice", atStart(ResourceSlice), `{"spec": {"devices": [{"taints": [{}]}]}}`,
		`{"spec": {"devices": [{"taints": [{"timeAdded": "1970-01-01T00:00:00Z"}]}]}}`},
	{"resource.k8s.io/v1beta1 ResourceSlice", atStart(ResourceSliceV1beta1),
		`{"spec": {"devices": [{"name": "a"}, {"basic": {"taints": [{}]}}]}}`,
		`{"spec": {"devices": [{"name": "a"}, {"basic": {"taints": [{"timeAdded": "1970-01-01T00:00:00Z"}]}}]}}`},
	{"scheduling.k8s.io/v1beta1 PodGroup", func(obj object.Value) object.Value { return PodGroup(obj, false) },
		`{"spec": {}}`, `{"spec": {"disruptionMode": {"single": {}}}}`},
	{"scheduling.k8s.io/v1beta1 PodGroup", func(obj object.Value) object.Value { return PodGroup(obj, true) },
		`{"spec": {"disruptionMode": {"all": {}}}}`,
		`{"spec": {"disruptionMode": {"all": {}}, "preemptionPolicy": "PreemptLowerPriority"}}`},
	{"scheduling.k8s.io/v1alpha3 PodGroup", func(obj object.Value) object.Value { return PodGroup(obj, false) },
		`{"spec": {}}`, `{"spec": {"disruptionMode": {"single": {}}}}`},
	{"scheduling.k8s.io/v1alpha3 CompositePodGroup",
		func(obj object.Value) object.Value { return PodGroup(obj, false) },
		`{"spec": {}}`, `{"spec": {"disruptionMode": {"single": {}}}}`},
	{"scheduling.k8s.io/v1 PriorityClass", PriorityClass, `{"value": 1}`,
		`{"preemptionPolicy": "PreemptLowerPriority", "value": 1}`},
	{"storage.k8s.io/v1 CSIDriver", CSIDriver, `{"spec": {}}`, `{"spec": {"attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "podInfoOnMount": false,
		"preventPodSchedulingIfMissing": false, "requiresRepublish": false, "seLinuxMount": false, "storageCapacity": false, "volumeLifecycleModes": ["Persistent"]}}`},
	{"storage.k8s.io/v1 StorageClass", StorageClass, `{"provisioner": "a"}`,
		`{"provisioner": "a", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}`},
	{"storage.k8s.io/v1 VolumeAttachment", VolumeAttachment,
		`{"spec": {"source": {"inlineVolumeSpec": {"hostPath": {}}}}}`,
		`{"spec": {"source": {"inlineVolumeSpec": {"hostPath": {"type": ""}}}}}`},
}

// wholePodSpec has every default already.
const wholePodSpec = `{"containers": null, "dnsPolicy": "Default", "restartPolicy": "Never", "schedulerName": "a", "securityContext": {"runAsUser": 0},
  "serviceAccount": "a", "serviceAccountName": "a", "terminationGracePeriodSeconds": 0,
  "volumes": [{"downwardAPI": {"defaultMode": 0, "items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "a"}}]}, "name": "a"}]}`

// atStart sets the defaults at the zero time.
func atStart(fill func(object.Value, time.Time) object.Value) func(object.Value) object.Value {
	return func(obj object.Value) object.Value { return fill(obj, time.Unix(0, 0)) }
}

// SPEC: VAL-4
func TestKinds(t *testing.T) {
	for _, c := range kinds {
		t.Run(c.kind, func(t *testing.T) {
			got := c.fill(parse(t, c.in))
			if want := parse(t, c.want); !object.Equal(got, want) {
				t.Fatalf("\n got %s\nwant %s", object.AppendJSON(nil, got), object.AppendJSON(nil, want))
			}
			if again := c.fill(got); again != got {
				t.Errorf("not done at once: %s", object.AppendJSON(nil, again))
			}
		})
	}
}
