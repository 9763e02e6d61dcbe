package discovery

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
)

// gated are requests whose answers depend on feature gates, or on the emulated release by which they are on or off. In
// their order: some need the objects of others.
var gated = [...]struct{ name, method, path, body string }{
	{"a toleration that compares", "POST", pods, pod("lt", `"tolerations":[{"key":"a","operator":"Lt","value":"5"}]`)},
	{"one that compares with a word", "POST", pods, pod("lt2", `"tolerations":[{"key":"a","operator":"Gt","value":"x"}]`)},
	{"a rule that restarts all", "POST", pods, container("all", `"restartPolicy":"Never","restartPolicyRules":[{"action":`+
		`"RestartAllContainers","exitCodes":{"operator":"In","values":[1]}}]`)},
	{"rules of a sidecar", "POST", pods, pod("side", `"initContainers":[{"name":"i","image":"i","restartPolicy":"Always",`+
		`"restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}]}]`)},
	{"users in the network of the node", "POST", pods, pod("net", `"hostUsers":false,"hostNetwork":true`)},
	{"SELinux by mount", "POST", pods, pod("se", `"securityContext":{"seLinuxChangePolicy":"MountOption"}`)},
	{"SELinux, recursive", "POST", pods, pod("se2", `"securityContext":{"seLinuxChangePolicy":"Recursive"}`)},
	{"a cost of deletion", "POST", pods, strings.Replace(pod("cost", `"priority":0`), `"name":"cost"`,
		`"name":"cost","annotations":{"controller.kubernetes.io/pod-deletion-cost":"x"}`, 1)},
	{"a volume of an image", "POST", pods, pod("image", `"volumes":[{"name":"v","image":{"reference":"r"}},{"name":"w"}],`+
		`"initContainers":[{"name":"i","image":"i","volumeMounts":[{"name":"v","mountPath":"/a"},{"name":"w",`+
		`"mountPath":"/b"}]}]`)},
	{"one in a template", "POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":` +
		`{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i",` +
		`"volumeMounts":[{"name":"v","mountPath":"/a"}]}],"volumes":[{"name":"v","image":{"reference":"r"}}]}}}}`},
	{"a pod that is nominated", "POST", pods, pod("nominated", `"priority":0`)},
	{"… by its status", "PATCH", pods + "/nominated/status", `{"status":{"nominatedNodeName":"n"}}`},
	{"… and bound", "POST", pods + "/nominated/binding", `{"target":{"name":"n"}}`},
	{"… is read", "GET", pods + "/nominated", ""},
	{"… and nominated again", "PATCH", pods + "/nominated/status", `{"status":{"nominatedNodeName":"m"}}`},
	{"a pod to resize", "POST", pods, pod("size", `"initContainers":[{"name":"i","image":"i","resources":{"requests":`+
		`{"cpu":"1"}}}]`)},
	{"… its init container", "PATCH", pods + "/size/resize", `{"spec":{"initContainers":[{"name":"i","image":"i","resources":` +
		`{"requests":{"cpu":"2"}}}]}}`},
	{"… which loses its requests", "PATCH", pods + "/size/resize", `{"spec":{"initContainers":[{"name":"i","image":"i",` +
		`"resources":{"requests":null}}]}}`},
	{"a Service that begins with a digit", "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"1a"},` +
		`"spec":{"ports":[{"port":80}]}}`},
	{"… in an Ingress", "POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", `{"metadata":{"name":"i"},` +
		`"spec":{"defaultBackend":{"service":{"name":"1a","port":{"number":80}}}}}`},
	{"a ServiceCIDR with a status", "POST", "/apis/networking.k8s.io/v1/servicecidrs", `{"metadata":{"name":"s"},"spec":` +
		`{"cidrs":["10.9.0.0/24"]},"status":{"conditions":[{"type":"T","status":"True","reason":"R","message":"",` +
		`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`},
	{"… which changes", "PATCH", "/apis/networking.k8s.io/v1/servicecidrs/s", `{"status":{"conditions":[{"type":"U",` +
		`"status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`},
	{"a volume", "POST", "/api/v1/persistentvolumes", `{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},` +
		`"accessModes":["ReadWriteOnce"],"local":{"path":"/a"},"nodeAffinity":{"required":{"nodeSelectorTerms":[` +
		`{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}}}`},
	{"… which moves", "PATCH", "/api/v1/persistentvolumes/v", `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[` +
		`{"matchExpressions":[{"key":"b","operator":"Exists"}]}]}}}}`},
	{"a claim of another namespace", "POST", "/api/v1/namespaces/default/persistentvolumeclaims", `{"metadata":` +
		`{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"dataSourceRef":{"kind":` +
		`"PersistentVolumeClaim","name":"x","namespace":"other"}}}`},
	{"a selector that asks a list", "POST", "/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"name":"c"},"spec":` +
		`{"selectors":[{"cel":{"expression":"device.attributes['d'].a.includes('x')"}}]}}`},
	{"one that asks who shares", "POST", "/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"name":"c2"},"spec":` +
		`{"selectors":[{"cel":{"expression":"device.allowMultipleAllocations"}}]}}`},
	{"one that asks a list of its own", "POST", "/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"name":"c3"},` +
		`"spec":{"selectors":[{"cel":{"expression":"[1, 2].includes(1)"}}]}}`},
	{"a claim that computes", "POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `{"metadata":{"name":` +
		`"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","derivedAttributes":[{"name":` +
		`"d.example.com/a","expression":"quantity('1')"},{"name":"d.example.com/b","expression":"[device.driver]"}]}}],` +
		`"constraints":[{"matchAttribute":"d.example.com/a"},{"matchAttribute":"d.example.com/b"}]}}}`},
	{"a rule of a definition", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":` +
		`"as.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[` +
		`{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` +
		`{"type":"array","maxItems":5,"items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.includes(1)"}]}}}}}]}}`},
	{"an expression of a policy", "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		`{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],` +
			`"operations":["CREATE"],"resources":["secrets"]}]},"validations":[{"expression":"[1].includes(1)"}]}}`},
	{"a condition of a webhook", "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		`{"metadata":{"name":"w"},"webhooks":[{"name":"w.example.com","clientConfig":{"url":"https://127.0.0.1:1"},` +
			`"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore","matchConditions":[{"name":"m",` +
			`"expression":"[1].includes(1)"}]}]}`},
}

const pods = "/api/v1/namespaces/default/pods"

func pod(name, spec string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":` +
		`{"memory":"1Gi"}}}],` + spec + `}}`
}

func container(name, member string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"i",` + member + `}]}}`
}

// What a server accepts, and what it drops, depends on the emulated release, on the oldest release that has to be able
// to read it, and on feature gates, as in the reference.
//
// SPEC: RUN-4, EXT-1
func TestGatedFields(t *testing.T) {
	if !harness.WantReference() {
		return
	}
	var byDefault []string
	for _, flags := range [][]string{
		nil,
		{"--emulated-version=1.36"},
		{"--emulated-version=1.35"},
		{"--emulated-version=1.34"},
		{"--min-compatibility-version=1.37"},
		{"--feature-gates=TaintTolerationComparisonOperators=true,UserNamespacesHostNetworkSupport=true," +
			"MutablePVNodeAffinity=true,CrossNamespaceVolumeDataSource=true,PodDeletionCost=false,SELinuxMount=false," +
			"DRAListTypeAttributes=true,DRADerivedAttributes=true"},
		{"--feature-gates=RestartAllContainersOnContainerExits=false,ClearingNominatedNodeNameAfterBinding=false," +
			"ServiceCIDRStatusFieldWiping=false,DRADerivedAttributes=true"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			alone := append([]string{"--controllers=-namespace-controller"}, flags...) // as the reference is
			here := answers(t, harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: alone}))
			there := answers(t, harness.Run(t, harness.Options{Kind: harness.Reference, Flags: flags}))
			accepted := 0
			for i := range gated {
				if there[i][0] == '2' {
					accepted++
				}
				if here[i] != there[i] {
					t.Errorf("%s:\n%s\nthe reference:\n%s", gated[i].name, here[i], there[i])
				}
			}
			if flags == nil {
				byDefault = there
			} else if slices.Equal(there, byDefault) {
				t.Error("the reference answers as it does by default")
			}
			if accepted < 10 {
				t.Errorf("the reference has accepted %d requests", accepted)
			}
		})
	}
}

// answers sends all requests, and returns the answers without what differs between two runs.
func answers(t *testing.T, server *harness.Server) (all []string) {
	t.Helper()
	for _, g := range gated {
		request, err := http.NewRequest(g.method, server.URL+g.path, strings.NewReader(g.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
		request.Header.Set("Content-Type", "application/json")
		if g.method == http.MethodPatch {
			request.Header.Set("Content-Type", "application/merge-patch+json")
			if strings.HasPrefix(g.path, pods) {
				request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
			}
		}
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		without(doc["metadata"], "uid", "creationTimestamp", "resourceVersion", "managedFields", "finalizers")
		without(doc["status"], "lastPhaseTransitionTime", "acceptedNames")
		without(doc["spec"], "clusterIP", "clusterIPs")
		if !strings.HasPrefix(g.path, "/apis/networking") { // they have times
			without(doc["status"], "conditions")
		}
		normal, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(answer.StatusCode, " ", string(normal)))
	}
	return all
}

// without removes members of a map, such as those that controllers write.
func without(v any, names ...string) {
	if members, ok := v.(map[string]any); ok {
		for _, name := range names {
			delete(members, name)
		}
	}
}
