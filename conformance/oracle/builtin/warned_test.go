package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
)

// warnedInputs are writes that random ones rarely resemble, for each kind and verb: the new object and, for a verb
// other than create, the old one, without apiVersion and kind.
var warnedInputs = map[string][][2]string{
	"CSIDriver update": {
		{`"spec":{"tokenRequests":[{"audience":"a"}]}`, `"spec":{"tokenRequests":[{"audience":"a"}]}`},
		{`"spec":{"tokenRequests":[{"audience":"a"}]}`, `"spec":{"tokenRequests":[{"audience":"b"}]}`},
	},
	"CronJob update": {{labelled(cronJobOf), cronJobOf}, {cronJobOf, `"spec":{}`}},
	"DaemonSet update": {
		{labelled(workloadOf), workloadOf}, {workloadOf, `"spec":{}`},
		{`"spec":{"minReadySeconds":1,` + deprecatedTemplate + `}`, workloadOf},
	},
	"Deployment create": {
		{inTemplate("runtime/default", `{"type":"RuntimeDefault"}`)},
		{inTemplate("runtime/default", `{"type":"Unconfined"}`)},
		{inTemplate("runtime/default", `null`)}, {inTemplate("nonsense", `null`)},
		{inTemplate("nonsense", `{"type":"Unconfined"}`)},
		{inTemplate("unconfined", `{"type":"Unconfined"}`)},
		{inTemplate("localhost/a", `{"type":"Localhost","localhostProfile":"a"}`)},
		{inTemplate("localhost/a", `{"type":"Localhost","localhostProfile":"b"}`)},
		{inTemplate("localhost/ a", `{"type":"Localhost","localhostProfile":" a"}`)},
	},
	"Deployment update": {{labelled(workloadOf), workloadOf}, {labelled(fifth), fifth}, {workloadOf, `"spec":{}`}},
	"Job update":        {{labelled(workloadOf), workloadOf}, {workloadOf, `"spec":{}`}},
	"Node create":       {{`"spec":{"podCIDRs":["10.0.0.0/24","2001:DB8::/64"]}`}},
	"Pod create": {
		{annotatedPod("runtime/default", `{}`)}, {annotatedPod("unconfined", `{}`)}, {annotatedPod("nonsense", `{}`)},
		{annotatedPod("localhost/a", `{}`)}, {annotatedPod("localhost/", `{}`)}, {annotatedPod("localhost/ a", `{}`)},
		{annotatedPod("a", `{}`)},
		{annotatedPod("runtime/default", `{"os":{"name":"windows"}}`)},
		{annotatedPod("runtime/default", `{"os":{"name":"linux"}}`)},
		{annotatedPod("runtime/default", `{"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}}`)},
		{annotatedPod("unconfined", `{"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}}`)},
		{annotatedPod("unconfined", `{"securityContext":{"appArmorProfile":{"type":"Unconfined"}}}`)},
		{annotatedPod("nonsense", `{"securityContext":{"appArmorProfile":{"type":"Unconfined"}}}`)},
		{annotatedPod("localhost/a",
			`{"securityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":"a"}}}`)},
		{annotatedPod("localhost/", `{"securityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":""}}}`)},
		{annotatedPod("localhost/ a",
			`{"securityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":" a"}}}`)},
		{annotatedPod("a", `{"securityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":"a"}}}`)},
		{longProfile(4095)}, {longProfile(4096)},
		{volumeOf(`"configMap":{"name":"m","items":[{"path":"/abs"},{"path":""}]}`)},
		{volumeOf(`"configMap":{"name":"m","items":[{"path":""},{"path":"/abs"}]}`)},
		{volumeOf(`"configMap":{"name":"m","items":[{"path":"/a"},{"path":"b"}]}`)},
		{volumeOf(`"configMap":{"name":"m","items":[{"path":"a/b"},{"path":"a/"}]}`)},
		{volumeOf(`"configMap":{"name":"m","items":[{"path":"a"},{"path":"a/b"}]}`)},
		{volumeOf(`"secret":{"secretName":"s","items":[{"path":"ab"},{"path":"a"},{"path":"a"}]}`)},
		{volumeOf(`"downwardAPI":{"items":[{"path":"a"},{"path":"a"}]}`)},
		{projectedOf(`{}`)},
		{projectedOf(`{"configMap":{"name":"m","items":[{"path":"a"}]}}`)},
		{projectedOf(`{"configMap":{"name":"m"}}`)},
		{projectedOf(`{"secret":{"name":"s","items":[{"path":"a"}]}}`)},
		{projectedOf(`{"downwardAPI":{"items":[{"path":"a"}]}}`)},
		{projectedOf(`{"clusterTrustBundle":{"name":"n","path":"a"}}`)},
		{projectedOf(`{"clusterTrustBundle":{"signerName":"n","path":"a"}}`)},
		{projectedOf(`{"podCertificate":{"keyPath":"a","certificateChainPath":"b","credentialBundlePath":"c"}}`)},
		{projectedOf(`{"podCertificate":{"keyPath":"b","certificateChainPath":"a"}}`)},
		{projectedOf(`{"podCertificate":{"credentialBundlePath":"a"}}`)},
	},
	"ReplicationController update": {{labelled(workloadOf), workloadOf}, {`"spec":{}`, workloadOf}},
	"ResourceQuota create": {
		{`"spec":{"hard":{"requests.cpu":"4","cpu":"1","limits.cpu":"2"}}`},
		{`"spec":{"hard":{"requests.cpu":"1","cpu":"4","limits.cpu":"2"}}`},
		{`"spec":{"hard":{"memory":"4","limits.memory":"2"}}`},
		{`"spec":{"hard":{"requests.memory":"4","limits.memory":"2"}}`},
		{`"spec":{"hard":{"storage":"4","limits.storage":"2"}}`},
		{`"spec":{"hard":{"requests.storage":"4","limits.storage":"2"}}`},
		{`"spec":{"hard":{"requests.ephemeral-storage":"4","limits.ephemeral-storage":"2"}}`},
		{`"spec":{"hard":{"requests.cpu":"2","limits.cpu":"2"}}`},
		{`"spec":{"hard":{"requests.cpu":"2"}}`}, {`"spec":{"hard":{"limits.cpu":"-1"}}`},
	},
	"Secret create": {
		{tlsSecret(certificate, certificateKey)}, {tlsSecret(certificate, otherKey)}, {tlsSecret("", "")},
		{`"type":"Opaque","data":{"tls.crt":"","tls.key":""}`},
	},
	"Service create": {
		{`"spec":{"type":"ClusterIP","clusterIP":"None","sessionAffinity":"None","externalIPs":["1.1.1.1"]}`},
	},
	"StatefulSet update": {{labelled(workloadOf), workloadOf}, {workloadOf, `"spec":{}`}},
}

const (
	deprecatedTemplate = `"template":{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"a"}}}`
	workloadOf         = `"metadata":{"name":"a"},"spec":{` + deprecatedTemplate + `}`
	fifth              = `"metadata":{"name":"a","generation":5},"spec":{` + deprecatedTemplate + `}`
	cronJobOf          = `"metadata":{"name":"a"},"spec":{"jobTemplate":{"spec":{` + deprecatedTemplate + `}}}`

	appArmorOfC = "container.apparmor.security.beta.kubernetes.io/c"
)

// labelled returns an object with one more label, which does not change its generation.
func labelled(obj string) string {
	return strings.Replace(obj, `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1)
}

// annotatedPod returns a Pod with an annotation that names the AppArmor profile of its container.
func annotatedPod(profile, spec string) string {
	spec = strings.Replace(`{"containers":[{"name":"c"}],`+spec[1:], ",}", "}", 1)
	return fmt.Sprintf(`"metadata":{"name":"a","annotations":{%q:%q}},"spec":%s`, appArmorOfC, profile, spec)
}

// longProfile returns a Pod with the name of a profile of n bytes, in the annotation and for all containers.
func longProfile(n int) string {
	name := strings.Repeat("a", n)
	return annotatedPod("localhost/"+name,
		fmt.Sprintf(`{"securityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":%q}}}`, name))
}

// inTemplate returns an object with a template that names the AppArmor profile of its container in an annotation, and
// that of all containers in a field.
func inTemplate(annotation, ofPod string) string {
	return fmt.Sprintf(`"metadata":{"name":"a"},"spec":{"template":{"metadata":{"annotations":{%q:%q}},`+
		`"spec":{"containers":[{"name":"c"}],"securityContext":{"appArmorProfile":%s}}}}`, appArmorOfC, annotation, ofPod)
}

func volumeOf(source string) string {
	return fmt.Sprintf(`"metadata":{"name":"a"},"spec":{"volumes":[{"name":"v",%s}]}`, source)
}

// projectedOf returns a Pod with a projected volume in which a source follows one with the file a.
func projectedOf(source string) string {
	return volumeOf(fmt.Sprintf(`"projected":{"sources":[{"serviceAccountToken":{"path":"a"}},%s]}`, source))
}

func tlsSecret(certificate, key string) string {
	return fmt.Sprintf(`"type":"kubernetes.io/tls","data":{"tls.crt":%q,"tls.key":%q}`, certificate, key)
}

// A certificate and its key in PEM, and the key of another, as a Secret has them.
const (
	certificate    = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJCakNCcmFBREFnRUNBZ0VCTUFvR0NDcUdTTTQ5QkFNQ01Bd3hDakFJQmdOVkJBTVRBV0V3SUJjTk56QXcKTVRBeE1EQXdNREF3V2hnUE1qQTVOakV3TURJd056QTJOREJhTUF3eENqQUlCZ05WQkFNVEFXRXdXVEFUQmdjcQpoa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVFkNjRWUG8zQmluaERmY3RDRTZ6SzBCSG1xWC92dXk1dlNUdUdBCkRVbWt3MkZMS1pDZ2paMzFPTGxOdUxHalpPN1F1c0tSYnZOWXBUa0FkR21SUXRpc01Bb0dDQ3FHU000OUJBTUMKQTBnQU1FVUNJUUNLSEhFUjNzR1JOVkFTMmh4eDBBOUp4d0RmZFRGUzJDaldyVHFCbWlNTk9nSWdPcWd2ZUNLLwo3QWZ5NllPS1hTdE9rS2RZRm9PSWp5dVlwcUUrdzhPODY1dz0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
	certificateKey = "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCk1IY0NBUUVFSUpPNHFHTk5YNjc0bmdmZDVmNlViSndWUStnbE5TSXFWbTVjajNTaGZ5Q3FvQW9HQ0NxR1NNNDkKQXdFSG9VUURRZ0FFSGV1RlQ2TndZcDRRMzNMUWhPc3l0QVI1cWwvNzdzdWIwazdoZ0ExSnBNTmhTeW1Rb0kyZAo5VGk1VGJpeG8yVHUwTHJDa1c3eldLVTVBSFJwa1VMWXJBPT0KLS0tLS1FTkQgRUMgUFJJVkFURSBLRVktLS0tLQo="
	otherKey       = "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCk1IY0NBUUVFSUYxNWxaajhJSEFqRXJLU1huRkE2MHo2c09CcEFENkUvcmptZXlEeHpERjRvQW9HQ0NxR1NNNDkKQXdFSG9VUURRZ0FFMmN5eXBudGJjTlQ5TERJMHdud2hxUlBFWmowaVNCVjRFcjBwRVZYbnJrYXpGazY0Q3pMaQo5MnRtbHhXTEdXWkpXMHFDb09RRU4zeExJaU9BOFhCU0VnPT0KLS0tLS1FTkQgRUMgUFJJVkFURSBLRVktLS0tLQo="
)

// byHand returns the inputs of warnedInputs for a kind and a verb.
func byHand(r *engine.Resource, verb string) (all [][]byte) {
	for _, bodies := range warnedInputs[r.Kind+" "+verb] {
		in := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s}`, r.APIVersion(), r.Kind, bodies[0])
		if verb != "create" {
			in = fmt.Appendf(nil, `[%s,{"apiVersion":%q,"kind":%q,%s}]`, in, r.APIVersion(), r.Kind, bodies[1])
		}
		all = append(all, in)
	}
	return all
}

func TestWarnedInputsAreOfKinds(t *testing.T) {
	unused := maps.Clone(warnedInputs)
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		for _, verb := range []string{"create", "update"} {
			if r.Has("update") && !slices.Contains(elsewhere, r.Group) {
				delete(unused, r.Kind+" "+verb)
			}
		}
	}
	for key := range unused {
		t.Errorf("there is no %s", key)
	}
}
