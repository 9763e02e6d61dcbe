package etcdform_test

import (
	"testing"

	"plinth/internal/store"
)

// pod is a running Pod as a Deployment, a scheduler and a kubelet leave it.
const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"checksum/config":"d0d2a0ab"},` +
	`"creationTimestamp":"2026-01-02T03:04:05Z","generateName":"web-5d8f6c9b7d-","generation":1,` +
	`"labels":{"app":"web","pod-template-hash":"5d8f6c9b7d","tier":"front"},"managedFields":[{"apiVersion":"v1",` +
	`"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},` +
	`"f:pod-template-hash":{},"f:tier":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0ab4a6a7-1f5c-4c4e-8f0a-8c8f8d0f3b11\"}":{}}},` +
	`"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},` +
	`"k:{\"name\":\"POD_IP\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},` +
	`"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},` +
	`"f:protocol":{}},"k:{\"containerPort\":9090,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},` +
	`"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},` +
	`"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},` +
	`"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},` +
	`"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/web\"}":{".":{},"f:mountPath":{},"f:name":{}}}}},"f:dnsPolicy":{},` +
	`"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},` +
	`"k:{\"name\":\"config\"}":{".":{},"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},"f:name":{}}}}},` +
	`"manager":"kube-controller-manager","operation":"Update","time":"2026-01-02T03:04:05Z"},{"apiVersion":"v1",` +
	`"fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"ContainersReady\"}":{".":{},` +
	`"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},` +
	`"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},` +
	`"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.1.2.3\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},` +
	`"manager":"kubelet","operation":"Update","subresource":"status","time":"2026-01-02T03:04:09Z"}],` +
	`"name":"web-5d8f6c9b7d-x2x4z","namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,` +
	`"controller":true,"kind":"ReplicaSet","name":"web-5d8f6c9b7d","uid":"0ab4a6a7-1f5c-4c4e-8f0a-8c8f8d0f3b11"}],` +
	`"uid":"6c0a6f2e-94b4-4c5e-9a9f-3a4a3a0a7c01"},"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"POD_IP",` +
	`"valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],"image":"registry.example.com/web:v1.2.3",` +
	`"imagePullPolicy":"IfNotPresent","name":"web","ports":[{"containerPort":8080,"name":"http","protocol":"TCP"},` +
	`{"containerPort":9090,"protocol":"TCP"}],"readinessProbe":{"failureThreshold":3,"httpGet":{"path":"/ready","port":"http",` +
	`"scheme":"HTTP"},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},"resources":{"limits":{"memory":"256Mi"},` +
	`"requests":{"cpu":"100m","memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",` +
	`"volumeMounts":[{"mountPath":"/etc/web","name":"config"},{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount",` +
	`"name":"kube-api-access-abcde","readOnly":true}]}],"dnsPolicy":"ClusterFirst","enableServiceLinks":true,"nodeName":"node-17",` +
	`"preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Always","schedulerName":"default-scheduler",` +
	`"securityContext":{},"serviceAccount":"default","serviceAccountName":"default","terminationGracePeriodSeconds":30,` +
	`"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},` +
	`{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}],` +
	`"volumes":[{"configMap":{"defaultMode":420,"name":"web"},"name":"config"},{"name":"kube-api-access-abcde","projected":{` +
	`"defaultMode":420,"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"items":[{` +
	`"key":"ca.crt","path":"ca.crt"}],"name":"kube-root-ca.crt"}},{"downwardAPI":{"items":[{"fieldRef":{"apiVersion":"v1",` +
	`"fieldPath":"metadata.namespace"},"path":"namespace"}]}}]}}]},"status":{"conditions":[{"lastProbeTime":null,` +
	`"lastTransitionTime":"2026-01-02T03:04:05Z","status":"True","type":"Initialized"},{"lastProbeTime":null,` +
	`"lastTransitionTime":"2026-01-02T03:04:09Z","status":"True","type":"Ready"},{"lastProbeTime":null,` +
	`"lastTransitionTime":"2026-01-02T03:04:09Z","status":"True","type":"ContainersReady"},{"lastProbeTime":null,` +
	`"lastTransitionTime":"2026-01-02T03:04:05Z","status":"True","type":"PodScheduled"}],"containerStatuses":[{` +
	`"containerID":"containerd://8f8e2f8d1a","image":"registry.example.com/web:v1.2.3","imageID":"registry.example.com/web@sha256:1",` +
	`"lastState":{},"name":"web","ready":true,"restartCount":0,"started":true,"state":{"running":{"startedAt":"2026-01-02T03:04:08Z"}}}],` +
	`"hostIP":"10.0.0.17","phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],"qosClass":"Burstable",` +
	`"startTime":"2026-01-02T03:04:05Z"}}`

var podKey = store.Key{Resource: "/pods", Name: "default/web-5d8f6c9b7d-x2x4z"}

// SPEC: STORE-3
func TestPod(t *testing.T) {
	f := newForm("")
	value, err := f.Encode(podKey, []byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	data, sidecar, exact, err := f.Decode(podKey, value)
	if err != nil || !exact || sidecar.Form == 0 || string(data) != pod {
		t.Errorf("exact %v, sidecar %+v, %v\nhave %s\nwant %s", exact, sidecar, err, data, pod)
	}
}

func BenchmarkEncodePod(b *testing.B) {
	f := newForm("")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Encode(podKey, []byte(pod)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePod(b *testing.B) {
	f := newForm("")
	value, err := f.Encode(podKey, []byte(pod))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(value)), "B/value")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := f.Decode(podKey, value); err != nil {
			b.Fatal(err)
		}
	}
}
