package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// Objects that decide on requests are encrypted with a key that is gone. What they would refuse is refused, what they
// would answer is not answered by anybody else, and the server says that it is not ready. With the key, or without the
// objects, all is as before.
//
// SPEC: AUTH-3, STORE-5, EXT-1, EXT-2
func TestKeyOfRulesRemoved(t *testing.T) {
	const (
		registration = "/apis/admissionregistration.k8s.io/v1/"
		things       = "/apis/example.com/v1/namespaces/default/things"
		policy       = `"failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],` +
			`"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[{"expression":"false"}]`
		definition  = thingDefinition
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		remote      = `{"metadata":{"name":"v1.example.com"},"spec":{"group":"example.com","version":"v1",
			"groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,
			"service":{"namespace":"default","name":"nobody"}}}`
		force = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	)
	for _, c := range []struct {
		resources string      // that are encrypted
		made      [][2]string // paths and bodies, created one after the other
		asked     [3]string   // a request: method, path, body
		before    int         // its code with the key
		after     int         // and without
		text      string      // part of the answer without the key
	}{
		{"validatingadmissionpolicies.admissionregistration.k8s.io", [][2]string{
			{registration + "validatingadmissionpolicies", `{"metadata":{"name":"p"},"spec":{` + policy + `}}`},
			{registration + "validatingadmissionpolicybindings",
				`{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`}},
			[3]string{http.MethodPost, inDefault + "configmaps", `{"metadata":{"name":"c"}}`}, 422, 403,
			`not yet ready to handle request: validatingadmissionpolicies.admissionregistration.k8s.io \"p\" cannot be read`},
		{"validatingadmissionpolicybindings.admissionregistration.k8s.io", [][2]string{
			{registration + "validatingadmissionpolicies", `{"metadata":{"name":"p"},"spec":{` + policy + `}}`},
			{registration + "validatingadmissionpolicybindings",
				`{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`}},
			[3]string{http.MethodPost, inDefault + "configmaps", `{"metadata":{"name":"c"}}`}, 422, 403,
			`not yet ready to handle request`},
		{"mutatingwebhookconfigurations.admissionregistration.k8s.io", [][2]string{
			{registration + "mutatingwebhookconfigurations", `{"metadata":{"name":"w"},"webhooks":[{"name":"w.example.com",
				"clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],
				"operations":["CREATE"],"resources":["configmaps"]}],"admissionReviewVersions":["v1"],"sideEffects":"None"}]}`}},
			[3]string{http.MethodPost, inDefault + "configmaps", `{"metadata":{"name":"c"}}`}, 500, 403,
			`not yet ready to handle request`},
		{"storageclasses.storage.k8s.io", [][2]string{
			{"/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"s","annotations":{
				"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"x/y"}`}},
			[3]string{http.MethodPost, inDefault + "persistentvolumeclaims?dryRun=All", `{"metadata":{"name":"c"},"spec":{
				"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`}, 201, 403,
			`storageclasses.storage.k8s.io \"s\" cannot be read`},
		{"customresourcedefinitions.apiextensions.k8s.io", [][2]string{{definitions, definition}},
			[3]string{http.MethodGet, things, ""}, 200, 503, `\"things.example.com\" cannot be read`},
		{"customresourcedefinitions.apiextensions.k8s.io", [][2]string{{definitions, definition}},
			[3]string{http.MethodPost, definitions + "?dryRun=All", strings.ReplaceAll(definition, "things", "others")},
			201, 503, "which names are free"},
		{"apiservices.apiregistration.k8s.io", [][2]string{{aggregatedPath, remote}, {definitions, definition}},
			[3]string{http.MethodGet, things, ""}, 503, 503, "service unavailable"},
		{"flowschemas.flowcontrol.apiserver.k8s.io", nil, [3]string{http.MethodGet, "/version", ""}, 200, 200, ""},
		{"clusterrolebindings.rbac.authorization.k8s.io", nil, [3]string{http.MethodGet, "/version", ""}, 200, 200, ""},
	} {
		t.Run(c.resources, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a request that is refused waits for ten seconds before
				e := newEncrypted(t)
				e.piped = true
				e.configure(c.resources, withKeys("aescbc", "one"))
				e.start()
				for _, made := range c.made {
					e.send(http.MethodPost, made[0], made[1], 201)
				}
				e.send(c.asked[0], c.asked[1], c.asked[2], c.before)

				e.configure(c.resources, withKeys("aescbc", "two"))
				e.start()
				text := e.send(c.asked[0], c.asked[1], c.asked[2], c.after)
				if !strings.Contains(text, c.text) {
					t.Errorf("without the key: %s", text)
				}
				ready := 500
				if strings.HasPrefix(c.resources, "storageclasses") { // it concerns few requests
					ready = 200
				}
				e.send(http.MethodGet, "/readyz/informer-sync", "", ready)
				e.send(http.MethodGet, "/livez", "", 200)

				e.configure(c.resources, withKeys("aescbc", "two", "one"))
				e.start()
				e.send(http.MethodGet, "/readyz", "", 200)
				e.send(c.asked[0], c.asked[1], c.asked[2], c.before)
			})
		})
	}
}

// A namespace is not gone as long as it is not known which objects it has: those of a definition that cannot be read.
//
// SPEC: URI-5, STORE-5
func TestNamespaceBesideUnreadableDefinition(t *testing.T) {
	const (
		namespace = "/api/v1/namespaces/ns"
		things    = "/apis/example.com/v1/namespaces/ns/things"
	)
	e := newEncrypted(t)
	e.configure("customresourcedefinitions.apiextensions.k8s.io", withKeys("aescbc", "one"))
	e.start()
	e.send(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", thingDefinition, 201)
	e.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"ns"}}`, 201)
	e.send(http.MethodPost, things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t",
		"finalizers":["x/y"]}}`, 201)
	e.configure("customresourcedefinitions.apiextensions.k8s.io", withKeys("aescbc", "two"))
	e.start()
	e.send(http.MethodDelete, namespace, "", 200)
	e.await(func() bool {
		text := e.send(http.MethodGet, namespace, "", 200)
		return strings.Contains(text, "unable to retrieve the complete list of server APIs: example.com: ")
	})
	e.configure("customresourcedefinitions.apiextensions.k8s.io", withKeys("aescbc", "two", "one"))
	e.start()
	e.await(func() bool {
		return strings.Contains(e.send(http.MethodGet, things+"/t", "", 200), "deletionTimestamp")
	})
	e.send(http.MethodPatch, things+"/t", `{"metadata":{"finalizers":null}}`, 200)
	e.await(func() bool {
		response, err := e.client.send(t.Context(), http.MethodGet, namespace, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode == 404
	})
}

const thingDefinition = `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

const aggregatedPath = "/apis/apiregistration.k8s.io/v1/apiservices"

// A policy that cannot be read is removed, while it refuses everything else; then the server is ready. Requests that
// were waiting are answered.
//
// SPEC: AUTH-3, DEL-6
func TestUnreadablePolicyIsRemoved(t *testing.T) {
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	e := newEncrypted(t)
	e.configure("validatingadmissionpolicies.admissionregistration.k8s.io", withKeys("aescbc", "one"))
	e.start()
	e.send(http.MethodPost, policies, `{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[
		{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},
		"validations":[{"expression":"false"}]}}`, 201)
	e.configure("validatingadmissionpolicies.admissionregistration.k8s.io", withKeys("aescbc", "two"))
	e.start()
	answered := make(chan int, 1)
	go func() {
		response, err := e.client.send(t.Context(), http.MethodPost, inDefault+"configmaps", "application/json",
			json.RawMessage(`{"metadata":{"name":"c"}}`))
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	e.send(http.MethodGet, "/readyz", "", 500)
	e.send(http.MethodDelete, policies+"/p?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", 200)
	if code := <-answered; code != 201 {
		t.Errorf("a create that waited: %d, want 201", code)
	}
	e.send(http.MethodGet, "/readyz", "", 200)
}
