package aggregation

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/modules"
	"plinth/conformance/internal/reference"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	sample  = "/apis/wardle.example.com/v1alpha1"
	service = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.wardle.example.com"
	// discovery is the media type of aggregated discovery.
	discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	table     = "application/json;as=Table;v=v1;g=meta.k8s.io"
	merge     = "application/merge-patch+json"
)

// The sample server is served through Plinth as it is through the reference.
//
// SPEC: EXT-2, URI-8, DEL-5
func TestSampleServer(t *testing.T) {
	if os.Getenv("AGGREGATION") == "" {
		t.Skip("AGGREGATION is not set")
	}
	program := build(t, "k8s.io/sample-apiserver@v0."+strings.TrimPrefix(reference.Kubernetes, "1."), ".")
	there, here := session(t, harness.Reference, program), session(t, harness.Plinth, program)
	compare(t, here, there)
}

// compare reports the answers that differ.
func compare(t *testing.T, here, there []string) {
	t.Helper()
	if len(there) != len(here) {
		t.Fatalf("%d answers, %d of the reference", len(here), len(there))
	}
	for i := range there {
		if here[i] != there[i] {
			t.Errorf("Plinth:\n%s\nthe reference:\n%s", here[i], there[i])
		}
	}
}

// build builds a program of a module, as it is published.
func build(t *testing.T, module, path string) string {
	t.Helper()
	source := t.TempDir()
	if err := modules.Copy(source, map[string]string{".": module}); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "backend")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, path)
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// site is the sample server beside one server.
type site struct {
	testing.TB
	server  *harness.Server
	program string
	etcd    string
	port    string
	files   string // the folder of its certificate
	ca      []byte
	process *exec.Cmd
	answers []string
}

// session does the same at one of the servers, and returns the answers.
func session(t *testing.T, kind harness.Kind, program string) []string {
	t.Helper()
	s := &site{TB: t, program: program, files: t.TempDir()}
	var flags []string
	if kind == harness.Reference {
		var err error
		flags, err = authority.FrontProxy(s.files)
		s.must(err)
	}
	s.server = harness.Run(t, harness.Options{Kind: kind, Flags: flags})
	started, err := reference.StartEtcd(context.Background(), reference.EtcdOptions{Dir: t.TempDir()})
	s.must(err)
	t.Cleanup(func() {
		started.Command.Process.Kill()
		started.Command.Wait()
	})
	s.etcd = started.URL
	s.choosePort()
	s.certify("api.wardle.svc")
	s.start()
	s.register()
	s.use()
	s.garbage()
	s.end()
	return s.answers
}

// choosePort chooses the port of the backend.
func (s *site) choosePort() {
	s.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	s.port = fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	s.must(listener.Close())
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// certify makes the certificate of the backend, for the name of its Service.
func (s *site) certify(name string) {
	by, err := authority.New("serving", time.Hour)
	s.must(err)
	made, err := by.Sign(pkix.Name{CommonName: "server"}, func(c *x509.Certificate) {
		c.ExtKeyUsage, c.DNSNames = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []string{name}
	})
	s.must(err)
	s.must(authority.Write(s.files, "serving", made))
	s.ca = by.PEM()
}

// start starts the sample server.
func (s *site) start() {
	s.run("--etcd-servers", s.etcd)
}

// run starts the backend with the flags that all have, and more.
func (s *site) run(flags ...string) {
	log, err := os.OpenFile(filepath.Join(s.files, "backend.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	s.must(err)
	defer log.Close()
	config := s.server.Kubeconfig
	s.process = exec.Command(s.program, append([]string{"--secure-port", s.port, "--bind-address", "127.0.0.1",
		"--tls-cert-file", filepath.Join(s.files, "serving.crt"), "--tls-private-key-file",
		filepath.Join(s.files, "serving.key"), "--kubeconfig", config, "--authentication-kubeconfig", config,
		"--authorization-kubeconfig", config}, flags...)...)
	s.process.Stdout, s.process.Stderr = log, log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.must(s.process.Start())
	process := s.process
	s.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
		if s.Failed() {
			text, _ := os.ReadFile(log.Name())
			s.Logf("the end of the backend's log:\n%s", text[max(0, len(text)-2000):])
		}
	})
}

// do sends a request, and returns the code and the body of the answer.
func (s *site) do(method, path, body, contentType, accept string, header ...string) (int, string) {
	s.Helper()
	request, err := http.NewRequest(method, s.server.URL+path, strings.NewReader(body))
	s.must(err)
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", accept)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := s.server.Client().Do(request)
	s.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	s.must(err)
	return answer.StatusCode, string(text)
}

// say sends a request, and notes the answer.
func (s *site) say(method, path, body, contentType, accept string, header ...string) {
	s.Helper()
	code, text := s.do(method, path, body, contentType, accept, header...)
	s.answers = append(s.answers, fmt.Sprintf("%s %s %s: %d\n%s", method, path, accept, code, s.normal(text)))
}

func (s *site) get(path string) { s.Helper(); s.say("GET", path, "", "", "application/json") }

var (
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	uids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`)
	revisions = regexp.MustCompile(`"resourceVersion":"\d+"`)
	ports     = regexp.MustCompile(`127\.0\.0\.1:\d+|"port":\d+`)
)

// normal is an answer without what differs between two runs.
func (s *site) normal(text string) string {
	var lines []string
	for line := range strings.Lines(text) { // a watch sends several
		lines = append(lines, line)
	}
	if json.Valid([]byte(text)) {
		lines = []string{text}
	}
	for i, line := range lines {
		var v any
		if json.Unmarshal([]byte(line), &v) == nil {
			if sorted, err := json.Marshal(v); err == nil {
				lines[i] = string(sorted)
			}
		}
		for _, r := range []*regexp.Regexp{times, uids, revisions, ports} {
			lines[i] = r.ReplaceAllString(lines[i], "~")
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.Join(lines, "\n"), base64.StdEncoding.EncodeToString(s.ca), "CA"))
}

// until waits until an answer contains a text.
func (s *site) until(path, accept, text string) {
	s.Helper()
	var last string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, last = s.do("GET", path, "", "", accept); strings.Contains(s.compact(last), text) {
			return
		}
	}
	s.Fatalf("%s: no %s in\n%s", path, text, last)
}

// compact is JSON without white space.
func (s *site) compact(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

// register creates the Service and the APIService of the sample server.
func (s *site) register() {
	if code, text := s.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"wardle"}}`, "application/json",
		"application/json"); code != http.StatusCreated {
		s.Fatalf("%d %s", code, text)
	}
	spec := `"group":"wardle.example.com","version":"v1alpha1","groupPriorityMinimum":1000,"versionPriority":15,` +
		`"service":{"namespace":"wardle","name":"api","port":` + s.port + `},"caBundle":"` +
		base64.StdEncoding.EncodeToString(s.ca) + `"`
	if code, text := s.do("POST", "/apis/apiregistration.k8s.io/v1/apiservices",
		`{"metadata":{"name":"v1alpha1.wardle.example.com"},"spec":{`+spec+`}}`, "application/json",
		"application/json"); code != http.StatusCreated {
		s.Fatalf("%d %s", code, text)
	}
	s.until(service, "application/json", `"reason":"ServiceNotFound"`)
	s.get(sample)
	s.get("/apis/wardle.example.com")
	s.document(discovery)
	if code, text := s.do("POST", "/api/v1/namespaces/wardle/services", `{"metadata":{"name":"api"},"spec":`+
		`{"type":"ExternalName","externalName":"127.0.0.1"}}`, "application/json", "application/json"); code !=
		http.StatusCreated {
		s.Fatalf("%d %s", code, text)
	}
	s.until(service, "application/json", `"status":"True"`)
	s.until("/apis", discovery, `"resource":"fischers"`)
}

// document notes what a discovery document says of the sample server.
func (s *site) document(accept string) {
	s.Helper()
	_, text := s.do("GET", "/apis", "", "", accept)
	var list struct{ Items, Groups []map[string]any }
	s.must(json.Unmarshal([]byte(text), &list))
	for i, group := range append(list.Items, list.Groups...) {
		name := fmt.Sprint(group["name"], group["metadata"])
		if strings.Contains(name, "wardle") {
			found, _ := json.Marshal(group)
			s.answers = append(s.answers, fmt.Sprintf("/apis %s: %d: %s", accept, i, found))
		}
	}
}

// use does what clients do with the objects of the sample server.
func (s *site) use() {
	const objects = sample + "/namespaces/default/flunders"
	flunder := func(name string) string {
		return `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"` + name +
			`"},"spec":{"reference":"x"}}`
	}
	s.get(service)
	s.until("/openapi/v3"+sample, "application/json", `"title":"Wardle"`)
	for _, path := range []string{sample, sample + "/", "/apis/wardle.example.com", sample + "/flunders",
		sample + "/nothing",
		"/apis/wardle.example.com/v9", "/openapi/v3" + sample} {
		s.get(path)
	}
	s.openAPI()
	s.document(discovery)
	s.document("application/json")
	s.say("POST", objects, flunder("a"), "application/json", "application/json")
	s.say("POST", objects, flunder("a"), "application/json", "application/json")
	s.say("POST", objects, `{`, "application/json", "application/json")
	s.get(objects + "/a")
	s.say("PATCH", objects+"/a", `{"metadata":{"labels":{"a":"b"}}}`, merge, "application/json")
	s.say("GET", sample+"/flunders", "", "", table)
	s.say("GET", sample+"/flunders?watch=1&timeoutSeconds=1", "", "", "application/json")
	// Whoever a client says that it is, the sample server is told who it is.
	s.say("GET", objects+"/a", "", "", "application/json", "Impersonate-User", "eve", "X-Remote-User", "admin",
		"X-Remote-Group", "system:masters")
	s.say("DELETE", objects+"/a", "", "application/json", "application/json")
	// A namespace that has an object of the sample server.
	s.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"gone"}}`, "application/json", "application/json")
	s.say("POST", sample+"/namespaces/gone/flunders", flunder("b"), "application/json", "application/json")
}

// migration notes what becomes of migrations of the objects of the sample server, of a resource that has objects and of
// one that has none.
func (s *site) migration() {
	s.Helper()
	const migrations = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"
	for _, resource := range []string{"flunders", "fischers"} {
		code, text := s.do("POST", migrations, `{"metadata":{"name":"`+resource+`"},"spec":{"resource":{"group":`+
			`"wardle.example.com","resource":"`+resource+`"}}}`, "application/json", "application/json")
		if code != http.StatusCreated {
			s.Fatalf("%d %s", code, text)
		}
		s.until(migrations+"/"+resource, "application/json", `"reason":"MigrationCompleted"`)
		_, text = s.do("GET", migrations+"/"+resource, "", "", "application/json")
		var obj struct {
			Status struct {
				Conditions []struct{ Type, Status, Reason, Message string }
			}
		}
		s.must(json.Unmarshal([]byte(text), &obj))
		slices.SortFunc(obj.Status.Conditions, func(a, b struct{ Type, Status, Reason, Message string }) int {
			return strings.Compare(a.Type, b.Type)
		})
		s.answers = append(s.answers, fmt.Sprint("migration of ", resource, obj.Status.Conditions))
	}
	_, text := s.do("GET", sample+"/namespaces/gone/flunders/b", "", "", "application/json")
	s.answers = append(s.answers, s.normal(text))
}

// openAPI notes what the OpenAPI documents have of the sample server: its paths and definitions in version 2, and in
// version 3 where its document is, which has a hash in its URL.
func (s *site) openAPI() {
	s.Helper()
	s.until("/openapi/v2", "application/json", sample+"/flunders")
	_, text := s.do("GET", "/openapi/v2", "", "", "application/json")
	var document struct{ Paths, Definitions map[string]json.RawMessage }
	s.must(json.Unmarshal([]byte(text), &document))
	found := 0
	for _, part := range []map[string]json.RawMessage{document.Paths, document.Definitions} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if strings.Contains(name, "wardle") {
				found++
				s.answers = append(s.answers, "/openapi/v2 "+name+": "+s.normal(string(part[name])))
			}
		}
	}
	if found < 10 {
		s.Errorf("%d paths and definitions of the sample server", found)
	}
	_, text = s.do("GET", "/openapi/v3", "", "", "application/json")
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	s.must(json.Unmarshal([]byte(text), &index))
	url := index.Paths[strings.TrimPrefix(sample, "/")].ServerRelativeURL
	path, hash, _ := strings.Cut(url, "?hash=")
	if hash == "" {
		s.Errorf("there is no hash in %q", url)
	}
	code, text := s.do("GET", url, "", "", "application/json")
	s.answers = append(s.answers, fmt.Sprintf("%s?hash: %d\n%s", path, code, s.normal(text)))
}

// priorities changes those of local APIServices, and notes the order of the discovery documents.
func (s *site) priorities() {
	s.Helper()
	type document struct {
		Groups []struct {
			Name             string
			PreferredVersion struct{ Version string }
		}
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct{ Version string }
		}
	}
	read := func() (groups document) {
		for _, accept := range []string{"application/json", discovery} {
			_, text := s.do("GET", "/apis", "", "", accept)
			s.must(json.Unmarshal([]byte(text), &groups))
		}
		return groups
	}
	const services = "/apis/apiregistration.k8s.io/v1/apiservices/"
	for _, edit := range [][2]string{{"v1.autoscaling", `"versionPriority":31`},
		{"v1.batch", `"groupPriorityMinimum":17900`}, {"v1.apps", `"groupPriorityMinimum":1`},
		{"v1.policy", `"groupPriorityMinimum":1000`}, {"v2.autoscaling", `"groupPriorityMinimum":1000`},
		{"v1.autoscaling", `"groupPriorityMinimum":1000`}} {
		code, text := s.do("PATCH", services+edit[0], `{"spec":{`+edit[1]+`}}`, merge, "application/json")
		if code != http.StatusOK {
			s.Fatalf("%d %s", code, text)
		}
	}
	// The last two edits put autoscaling among the last groups, and apps is behind all.
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		groups := read()
		names := map[string]int{}
		for i, g := range groups.Groups {
			names[g.Name] = i
		}
		if names["apps"] == len(names)-1 && names["autoscaling"] > names["discovery.k8s.io"] {
			s.answers = append(s.answers, fmt.Sprint(groups))
			break
		}
		if time.Now().After(end) {
			s.Fatalf("the edits are not seen in %v", groups)
		}
	}
	s.get("/apis/autoscaling")
	// The list of groups is that of the APIServices, and the server itself answers for a group that has none.
	groups := func() string {
		_, text := s.do("GET", "/apis", "", "", "application/json")
		return s.compact(text)
	}
	for _, name := range []string{"v1.batch", "v1.autoscaling", "v1."} {
		if code, text := s.do("DELETE", services+name, "", "application/json", "application/json"); code != http.StatusOK {
			s.Fatalf("%d %s", code, text)
		}
	}
	code, text := s.do("POST", strings.TrimSuffix(services, "/"), `{"metadata":{"name":"v1.none.example.com"},"spec":{`+
		`"group":"none.example.com","version":"v1","groupPriorityMinimum":17450,"versionPriority":5}}`, "application/json",
		"application/json")
	if code != http.StatusCreated {
		s.Fatalf("%d %s", code, text)
	}
	for end := time.Now().Add(time.Minute); strings.Contains(groups(), `"name":"batch"`) ||
		strings.Contains(groups(), `"autoscaling/v1"`) || !strings.Contains(groups(), "none.example.com"); {
		if time.Now().After(end) {
			s.Fatalf("the deletes are not seen in %s", groups())
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, path := range []string{"/apis", "/apis/batch", "/apis/autoscaling", "/apis/none.example.com",
		"/apis/none.example.com/v1", "/apis/batch/v1"} {
		s.get(path)
	}
	s.document(discovery)
}

// metrics notes which metrics there are of APIServices and backends. Only the gauges have the same values in two runs:
// how often a backend that is not there yet is asked depends on the moment.
func (s *site) metrics() {
	s.Helper()
	_, text := s.do("GET", "/metrics", "", "", "")
	var lines []string
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(series, "{")
		if !strings.HasPrefix(name, "aggregator_") && !strings.HasPrefix(name, "apiserver_kube_aggregator_") {
			continue
		}
		if name == "aggregator_unavailable_apiservice" {
			series += " " + value
		}
		lines = append(lines, series)
	}
	slices.Sort(lines)
	if len(lines) < 20 { // of each local group version, too
		s.Errorf("%d metrics of APIServices", len(lines))
	}
	s.answers = append(s.answers, "/metrics\n"+strings.Join(lines, "\n"))
}

// end stops and kills the sample server.
func (s *site) end() {
	s.must(s.process.Process.Signal(syscall.SIGSTOP))
	s.until(service, "application/json", `"reason":"FailedDiscoveryCheck"`)
	s.get(sample + "/flunders")
	s.until("/apis", discovery, `"Stale"`)
	s.document(discovery)
	if code, text := s.do("GET", "/readyz", "", "", ""); code != http.StatusOK {
		s.Errorf("/readyz: %d %s", code, text)
	}
	s.must(s.process.Process.Signal(syscall.SIGCONT))
	s.until(service, "application/json", `"status":"True"`)
	s.must(s.process.Process.Kill())
	s.process.Wait()
	s.until(service, "application/json", "connection refused")
	s.get(service)
	s.get(sample + "/flunders")
	s.start()
	s.until(service, "application/json", `"status":"True"`)
	s.until("/apis", discovery, `"resource":"fischers"`)
	s.get(sample + "/flunders")
	s.metrics()
	s.priorities()
	if s.server.Kind == harness.Plinth { // the reference's namespaces are emptied by another program
		s.do("DELETE", "/api/v1/namespaces/gone", "", "application/json", "application/json")
		s.until("/api/v1/namespaces/gone", "application/json", `"code":404`)
		if _, text := s.do("GET", sample+"/namespaces/gone/flunders", "", "", "application/json"); !strings.Contains(
			s.compact(text), `"items":[]`) {
			s.Errorf("the namespace is gone, and not its objects: %s", text)
		}
	}
	s.do("DELETE", service, "", "application/json", "application/json")
	s.until("/apis/wardle.example.com", "application/json", "404 page not found")
	s.get(sample + "/flunders")
}
