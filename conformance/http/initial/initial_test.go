package initial

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its objects in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

const recorded = "testdata/objects.yaml"

// clients is the certificate of an authority for clients.
const clients = `-----BEGIN CERTIFICATE-----
MIIBezCCASGgAwIBAgIUR0ot4qoDbHUMR1FkK8VLs7bPTSwwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHY2xpZW50czAgFw0yNjExMjIxMDMwNTdaGA8yMTI2MTAyOTEw
MzA1N1owEjEQMA4GA1UEAwwHY2xpZW50czBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABGAk8d+x+C1j7C2GaLTaP92HQJC6N4tTzL2QnBvQo/OAhjbREx7fIKMneSQq
CyfVsl0L0xQPJ/c2iYRxT6AlFIujUzBRMB0GA1UdDgQWBBQSq4g4PG1VRQYjVXop
ohKmzcvLUDAfBgNVHSMEGDAWgBQSq4g4PG1VRQYjVXopohKmzcvLUDAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQDMEFmHgrZtSQ6cPR9huL4cPYv0
GLLUV0RO78uEYfoxvwIgG2ZmyIp+KjdBBL9qRZne+G9uWfEOCYUPhsE0m4N5PaQ=
-----END CERTIFICATE-----
`

// elsewhere is the group whose objects are compared by conformance/oracle/authorization.
const elsewhere = "rbac.authorization.k8s.io"

// objects returns the objects of a server, by type, namespace and name, without the parts that differ between servers.
func objects(t *testing.T, server *harness.Server) map[string]any {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	types, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(config)
	found := map[string]any{}
	for _, list := range types {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if gv.Group == elsewhere || !slices.Contains(r.Verbs, "list") {
				continue
			}
			items, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(), v1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items.Items {
				key := gv.WithResource(r.Name).GroupResource().String() + " "
				if item.GetNamespace() != "" {
					key += item.GetNamespace() + "/"
				}
				found[key+item.GetName()] = normal(t, server, item)
			}
		}
	}
	return found
}

var (
	moments     = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	days        = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	holders     = regexp.MustCompile(`_[0-9a-f-]{36}$`)
	certificate = regexp.MustCompile(`^(-----BEGIN CERTIFICATE-----\n[^-]*-----END CERTIFICATE-----\n)+$`)
)

// normal returns an object without the parts that differ between servers.
func normal(t *testing.T, server *harness.Server, item unstructured.Unstructured) any {
	t.Helper()
	item.SetUID("")
	item.SetResourceVersion("")
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				v[key] = walk(member)
			}
			return v
		case []any:
			for i, member := range v {
				v[i] = walk(member)
			}
			return v
		case string:
			switch {
			case moments.MatchString(v):
				return "TIME"
			case days.MatchString(v):
				return "DAY"
			case certificate.MatchString(v):
				return "CERTIFICATES"
			case v == hostname:
				return "HOST"
			}
			return holders.ReplaceAllString(strings.ReplaceAll(v, ":"+at.Port(), ":PORT"), "_UUID")
		case int64:
			if fmt.Sprint(v) == at.Port() {
				return "PORT"
			}
		}
		return v
	}
	return walk(item.Object)
}

func readRecord(t *testing.T) (want map[string]any) {
	t.Helper()
	text, err := os.ReadFile(recorded)
	if err == nil {
		err = yaml.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// whenQuiet waits until a server has made the objects that it makes after it is ready.
func whenQuiet(t *testing.T, server *harness.Server) map[string]any {
	t.Helper()
	last := objects(t, server)
	for same, until := 0, time.Now().Add(time.Minute); same < 3; {
		if time.Now().After(until) {
			t.Fatal("the objects of the server keep changing")
		}
		time.Sleep(500 * time.Millisecond)
		next := objects(t, server)
		if same++; !reflect.DeepEqual(next, last) {
			same = 0
		}
		last = next
	}
	return last
}

// start starts a server, with the same flags for both.
func start(t *testing.T, o harness.Options) *harness.Server {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(ca, []byte(clients), 0o600); err != nil {
		t.Fatal(err)
	}
	// The harness runs the reference with this range.
	o.Flags = []string{"--client-ca-file=" + ca, "--service-cluster-ip-range=10.0.0.0/16",
		// Without them, Plinth makes an authority for forwarded requests.
		"--requestheader-client-ca-file=" + ca, "--requestheader-allowed-names=proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-"}
	// no controller manager runs beside the reference, and without "*" only the named controllers run
	if o.Kind == harness.Plinth {
		o.Flags = append(o.Flags, "--controllers=-service-cidr-controller")
	}
	return harness.Run(t, o)
}

// A new server has exactly the objects of the reference, with the same contents.
//
// SPEC: URI-5, RUN-1
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	want := readRecord(t)
	compare(t, whenQuiet(t, start(t, harness.Options{Kind: harness.Plinth})), want)
}

// identity is the Lease of the process, in which a server says that it is there.
const identity = "leases.coordination.k8s.io kube-system/apiserver-wlv32tlttr4jl3gtroqexyxapa"

// A new plane has these objects, but for the Lease, which the first plane has for the process, and with the name of its
// own front proxy.
//
// SPEC: BEY-9
func TestPlane(t *testing.T) {
	if *rewrite {
		return
	}
	want := readRecord(t)
	if want[identity] == nil {
		t.Error("there is no Lease of a server")
	}
	delete(want, identity)
	trusted := want["configmaps kube-system/extension-apiserver-authentication"].(map[string]any)["data"].(map[string]any)
	trusted["requestheader-allowed-names"] = `["front-proxy-client"]`
	compare(t, whenQuiet(t, start(t, harness.Options{Kind: harness.Plinth, Plane: "tested"})), want)
}

// TestRecords compares the record with the reference, or makes it.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	have := whenQuiet(t, start(t, harness.Options{Kind: harness.Reference}))
	text, err := yaml.Marshal(have)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(recorded, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != string(text) {
		t.Errorf("the reference has other objects than those in %s: run with -rewrite", recorded)
	}
}

// compare reports what differs, in both directions.
func compare(t *testing.T, have, want map[string]any) {
	t.Helper()
	same := 0
	for _, key := range slices.Sorted(maps.Keys(want)) {
		got, ok := have[key]
		switch {
		case !ok:
			t.Errorf("%s is missing", key)
		case !reflect.DeepEqual(plain(t, got), plain(t, want[key])):
			t.Errorf("%s\nis\n%s\nand there\n%s", key, print(t, got), print(t, want[key]))
		default:
			same++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[key]; !ok {
			t.Errorf("%s is there, and not on the reference", key)
		}
	}
	if same < 30 {
		t.Errorf("only %d objects are the same", same)
	}
}

// plain converts a value to the types of encoding/json.
func plain(t *testing.T, v any) (p any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func print(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
