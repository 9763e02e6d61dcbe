package releases

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"plinth/conformance/internal/harness"
)

var last = flag.Bool("last", false, "build the last release, or a commit of some days ago, and try it")

func TestMain(m *testing.M) { harness.Main(m) }

// The program of the last release and that of the work tree open one data directory in turns, after an orderly end and
// after a kill. Each finds all objects that the other one has left, to the byte: with their resourceVersions, UIDs and
// managedFields. Each writes objects of its own, changes and deletes those of the other one, and takes part in their
// ownership.
//
// SPEC: STORE-1
func TestLastRelease(t *testing.T) {
	if !*last {
		t.Skip("-last is not set")
	}
	revision, err := harness.LastRelease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the last release is %s", revision)
	before, err := harness.ProgramAt(t.Context(), t.TempDir(), revision)
	if err != nil {
		t.Fatal(err)
	}
	now, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	left := map[string]string{}
	for turn, program := range []string{before, now, before, now} {
		// The flags that both know: the harness leaves out more controllers than an old one has.
		s, err := harness.Start(harness.Options{Kind: harness.Plinth, Program: program, Dir: dir,
			Flags: []string{"--controllers=*,-serviceaccount-controller,-root-ca-certificate-publisher-controller"}})
		if err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		p := &plane{t, s, s.Client(), turn}
		compare(t, turn, left, p.objects())
		p.write()
		left = p.objects()
		if want := 8 * (turn + 1); len(left) < want {
			t.Fatalf("turn %d leaves %d objects, and not %d:\n%v", turn, len(left), want, left)
		}
		if turn%2 == 0 {
			s.Kill()
		} else if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// compare compares objects by their paths.
func compare(t *testing.T, turn int, left, found map[string]string) {
	t.Helper()
	for path, want := range left {
		if got := found[path]; got != want {
			t.Errorf("turn %d: %s was\n%s\nand is\n%s", turn, path, want, got)
		}
	}
	for path, got := range found {
		if _, ok := left[path]; !ok {
			t.Errorf("turn %d: %s is new:\n%s", turn, path, got)
		}
	}
}

// plane is a server in a turn.
type plane struct {
	t      *testing.T
	server *harness.Server
	client *http.Client
	turn   int
}

// do sends a request, which has to succeed.
func (p *plane) do(method, path, contentType, body string) []byte {
	p.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, p.server.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	r.Header.Set("Content-Type", contentType)
	answer, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		p.t.Fatalf("turn %d: %s %s: %s %v\n%s", p.turn, method, path, answer.Status, err, text)
	}
	return text
}

const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
	asApply = "application/apply-patch+yaml"
	// mark is the label of the objects of this test; the server's own may be others in another release.
	mark = "of=releases"
)

// write adds objects, and changes and deletes those of the turns before.
func (p *plane) write() {
	const configMaps = "/api/v1/namespaces/kept/configmaps"
	if p.turn == 0 {
		p.do("POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"kept","labels":{"of":"releases"}}}`)
		p.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", asJSON,
			`{"metadata":{"name":"things.example.com","labels":{"of":"releases"}},"spec":{"group":"example.com",
			"scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
			"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":
			{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`)
		p.established()
	}
	labels := `"labels":{"of":"releases"}`
	for _, o := range []struct{ path, spec string }{
		{configMaps, `"data":{"a":"1","b":"ü"},"binaryData":{"c":"AAH/"}`},
		{"/api/v1/namespaces/kept/secrets", `"stringData":{"password":"x"}`},
		{"/api/v1/namespaces/kept/services", `"spec":{"selector":{"app":"web"},"ports":[{"port":80}]}`},
		{"/api/v1/namespaces/kept/pods", `"spec":{"containers":[{"name":"web","image":"web","env":[{"name":"A","value":"1"}]}]}`},
		{"/apis/apps/v1/namespaces/kept/deployments", `"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},
			"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web"}]}}}`},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/kept/roles",
			`"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`},
		{"/apis/coordination.k8s.io/v1/namespaces/kept/leases", `"spec":{"holderIdentity":"me","renewTime":"2026-01-02T03:04:05.678901Z"}`},
		{"/apis/example.com/v1/namespaces/kept/things", `"apiVersion":"example.com/v1","kind":"Thing","spec":{"n":1.5,"big":9007199254740993,"list":[null,{"x":""}]}`},
	} {
		p.do("POST", o.path, asJSON, fmt.Sprintf(`{"metadata":{"name":"o-%d",%s},%s}`, p.turn, labels, o.spec))
		// One more, which the next turn deletes, and its change.
		p.do("POST", o.path, asJSON, fmt.Sprintf(`{"metadata":{"name":"gone-%d",%s},%s}`, p.turn, labels, o.spec))
		if p.turn > 0 {
			p.do("PATCH", fmt.Sprintf("%s/o-%d", o.path, p.turn-1), asMerge,
				fmt.Sprintf(`{"metadata":{"annotations":{"turn":"%d"}}}`, p.turn))
			p.do("DELETE", fmt.Sprintf("%s/gone-%d?gracePeriodSeconds=0", o.path, p.turn-1), asJSON, "")
		}
	}
	// All turns apply to one object, each as a manager of its own that shares a field with the others.
	p.do("PATCH", fmt.Sprintf("%s/shared?fieldManager=turn-%d", configMaps, p.turn), asApply,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared",%s},"data":{"both":"1","of-%d":"x"}}`,
			labels, p.turn))
	// One waits for its finalizer.
	p.do("POST", configMaps, asJSON, fmt.Sprintf(`{"metadata":{"name":"waits-%d",%s,"finalizers":["example.com/wait"]}}`,
		p.turn, labels))
	p.do("DELETE", fmt.Sprintf("%s/waits-%d", configMaps, p.turn), asJSON, "")
	if p.turn > 0 {
		p.do("PATCH", fmt.Sprintf("%s/waits-%d", configMaps, p.turn-1), asMerge, `{"metadata":{"finalizers":null}}`)
	}
}

// established waits until the definition is.
func (p *plane) established() {
	p.t.Helper()
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if bytes.Contains(p.do("GET", definition, "", ""), []byte(`"type":"Established"`)) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatal("the definition is not established")
		}
	}
}

// objects returns the objects of this test, of all types in all versions, by path and name, as JSON.
func (p *plane) objects() map[string]string {
	p.t.Helper()
	config, err := p.server.Config()
	if err != nil {
		p.t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		p.t.Fatal(err)
	}
	_, all, err := client.ServerGroupsAndResources()
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string]string{}
	for _, group := range all {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			p.t.Fatal(err)
		}
		root := "/apis/" + group.GroupVersion
		if gv.Group == "" {
			root = "/api/v1"
		}
		for i := range group.APIResources {
			r := &group.APIResources[i]
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			path := root + "/" + r.Name
			var list struct{ Items []json.RawMessage }
			if err := json.Unmarshal(p.do("GET", path+"?labelSelector="+mark, "", ""), &list); err != nil {
				p.t.Fatal(err)
			}
			for _, item := range list.Items {
				var o metav1.PartialObjectMetadata
				if err := json.Unmarshal(item, &o); err != nil {
					p.t.Fatal(err)
				}
				found[path+" "+o.Namespace+"/"+o.Name] = string(item)
			}
		}
	}
	return found
}
