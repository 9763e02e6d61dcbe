package builtin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"plinth/object"
)

// SPEC: LIST-7
func TestSelectableFields(t *testing.T) {
	all := types(t)
	for _, c := range []struct{ typ, obj, want string }{
		{
			"pods",
			`{"spec":{"nodeName":"n","restartPolicy":"Always","schedulerName":"s","serviceAccountName":"a"},"status":{"phase":"Running","podIP":"1.2.3.4","podIPs":[{"ip":"1.2.3.4"}]}}`,
			"spec.hostNetwork=false spec.nodeName=n spec.restartPolicy=Always spec.schedulerName=s spec.serviceAccountName=a status.nominatedNodeName= status.phase=Running status.podIP=1.2.3.4",
		},
		{"nodes", `{"spec":{"unschedulable":true}}`, "spec.unschedulable=true"},
		{"nodes", `{"spec":{}}`, "spec.unschedulable=false"},
		{"namespaces", `{"status":{"phase":"Active"}}`, "status.phase=Active"},
		{"secrets", `{"type":"Opaque"}`, "type=Opaque"},
		{"services", `{"spec":{"clusterIP":"None","type":"ClusterIP"}}`, "spec.clusterIP=None spec.type=ClusterIP"},
		{"replicationcontrollers", `{"status":{"replicas":3}}`, "status.replicas=3"},
		{"batch/v1 jobs", `{"status":{}}`, "status.successful=0"},
		{"certificates.k8s.io/v1 certificatesigningrequests", `{"spec":{"signerName":"a/b"}}`, "spec.signerName=a/b"},
		{"resource.k8s.io/v1 resourceslices", `{"spec":{"driver":"d","pool":{"name":"p"}}}`,
			"spec.driver=d spec.nodeName= spec.pool.name=p"},
		{
			"events", `{"involvedObject":{"kind":"Pod","name":"p"},"reason":"r","reportingComponent":"c","type":"Normal"}`,
			"involvedObject.apiVersion= involvedObject.fieldPath= involvedObject.kind=Pod involvedObject.name=p involvedObject.namespace= involvedObject.resourceVersion= involvedObject.uid= reason=r reportingComponent=c source=c type=Normal",
		},
		{
			"events.k8s.io/v1 events", `{"regarding":{"kind":"Pod"},"reportingController":"c"}`,
			"reason= regarding.apiVersion= regarding.fieldPath= regarding.kind=Pod regarding.name= regarding.namespace= regarding.resourceVersion= regarding.uid= reportingController=c type=",
		},
	} {
		var got []string
		for _, p := range all[c.typ].Fields(parse(t, c.obj)) {
			got = append(got, fmt.Sprintf("%s=%s", p.Name, p.Value))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s\nhave %s\nwant %s", c.typ, text, c.want)
		}
	}
}

// The names are known without an object, and sorted. Types without selectable fields of their own have a nil function.
// SPEC: LIST-7
func TestSelectableFieldNames(t *testing.T) {
	for name, r := range types(t) {
		if r.Fields == nil {
			continue
		}
		var names []string
		for _, p := range r.Fields(object.Nil) {
			names = append(names, p.Name)
		}
		if len(names) == 0 || !slices.IsSorted(names) {
			t.Errorf("%s: %v", name, names)
		}
	}
	for _, name := range []string{"configmaps", "apps/v1 deployments", "apps/v1 replicasets", "persistentvolumes"} {
		if types(t)[name].Fields != nil {
			t.Errorf("%s have fields of their own; the reference has none", name)
		}
	}
}
