package schema_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/gotypes"
	"plinth/object"
)

// podJSON is a Pod of about 4 kB as a controller sends it: two containers with probes, environment and volumes.
var podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"checksum/config":"3f0a9d0c1b7e5a442b1d6f9a8c7e6d5f4a3b2c1d","prometheus.io/port":"9102","prometheus.io/scrape":"true"},"generateName":"web-7c5ddbdf54-","labels":{"app.kubernetes.io/component":"frontend","app.kubernetes.io/name":"web","pod-template-hash":"7c5ddbdf54"},"namespace":"shop","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-7c5ddbdf54","uid":"5f1f3f0e-6d54-4c7e-8f2b-0f0b4f1c2d3e"}]},"spec":{"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{"labelSelector":{"matchLabels":{"app.kubernetes.io/name":"web"}},"topologyKey":"kubernetes.io/hostname"},"weight":100}]}},"containers":[` +
	strings.Join([]string{podContainer("web"), podContainer("sidecar")}, ",") +
	`],"dnsPolicy":"ClusterFirst","enableServiceLinks":true,"imagePullSecrets":[{"name":"registry"}],"preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{"fsGroup":2000,"runAsNonRoot":true},"serviceAccountName":"web","terminationGracePeriodSeconds":30,"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}],"volumes":[{"configMap":{"defaultMode":420,"name":"web-config"},"name":"config"},{"emptyDir":{},"name":"cache"},{"name":"tls","secret":{"defaultMode":420,"secretName":"web-tls"}}]}}`

func podContainer(name string) string {
	return `{"args":["--port=8080","--log-level=info"],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"key":"password","name":"db"}}},{"name":"REGION","value":"eu-central-1"}],"image":"registry.example.com/shop/` + name + `:1.14.2","imagePullPolicy":"IfNotPresent","livenessProbe":{"failureThreshold":3,"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"initialDelaySeconds":5,"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},"name":"` + name + `","ports":[{"containerPort":8080,"name":"http","protocol":"TCP"}],"readinessProbe":{"failureThreshold":3,"httpGet":{"path":"/ready","port":8080,"scheme":"HTTP"},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"250m","memory":"128Mi"}},"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","volumeMounts":[{"mountPath":"/etc/web","name":"config","readOnly":true},{"mountPath":"/var/cache","name":"cache"},{"mountPath":"/etc/tls","name":"tls","readOnly":true}]}`
}

func podValue(tb testing.TB) object.Value {
	p, err := object.ParseJSON([]byte(podJSON))
	if err != nil {
		tb.Fatal(err)
	}
	return p.Value
}

// A Pod as clients send it: without the members that Go always writes.
func BenchmarkDecode(b *testing.B) {
	v, pod := podValue(b), gotypes.Of[corev1.Pod]()
	b.SetBytes(int64(len(podJSON)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pod.Decode(v); err != nil {
			b.Fatal(err)
		}
	}
}

// A Pod is read and sent again unchanged.
func BenchmarkDecodeStored(b *testing.B) {
	pod := gotypes.Of[corev1.Pod]()
	decoded, err := pod.Decode(podValue(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pod.Decode(decoded.Value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDefault(b *testing.B) {
	v, pod := podValue(b), gotypes.Of[corev1.Pod]()
	b.ReportAllocs()
	for b.Loop() {
		pod.Default(v)
	}
}

func BenchmarkSettle(b *testing.B) {
	v, pod := podValue(b), gotypes.Of[corev1.Pod]()
	b.ReportAllocs()
	for b.Loop() {
		pod.Settle(v)
	}
}
