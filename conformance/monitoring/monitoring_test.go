// Package monitoring checks the alerts and the dashboard of docs/monitoring with Prometheus' own code: each rule and
// each query is one, and every metric in them is served. It is a module of its own, as Prometheus needs newer versions
// of much that the reference is linked with.
package monitoring

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
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

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	alertsFile    = "../../docs/monitoring/alerts.yaml"
	dashboardFile = "../../docs/monitoring/dashboard.json"
)

// queries are the queries of the alerts and of the dashboard.
func queries(t *testing.T) (all []string) {
	t.Helper()
	rules, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
				t.Errorf("%s has no severity or no summary", rule.Alert)
			}
			all = append(all, rule.Expr)
		}
	}
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("%s shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			all = append(all, strings.ReplaceAll(target.Expr, "$job", "plinth"))
		}
	}
	if len(all) < 25 {
		t.Fatalf("there are only %d queries", len(all))
	}
	return all
}

// metrics are the names of the metrics in queries.
func metrics(t *testing.T, queries []string) []string {
	t.Helper()
	names := map[string]bool{}
	for _, query := range queries {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			if selector, ok := n.(*parser.VectorSelector); ok {
				names[selector.Name] = true
			}
			return nil
		})
	}
	return slices.Sorted(maps.Keys(names))
}

// server is a program that serves, and those who ask it.
type server struct {
	t   *testing.T
	url string
}

var ready = regexp.MustCompile(`https://127\.0\.0\.1:\d+`)

// build builds the program into a directory.
func build(t *testing.T, dir string) (program string) {
	t.Helper()
	program = filepath.Join(dir, "plinth")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/plinth")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// start starts the program with further flags. dir has its tokens.
func start(t *testing.T, program, dir string, flags ...string) *server {
	t.Helper()
	serve := exec.CommandContext(t.Context(), program, append([]string{"serve", "--secure-port=0",
		"--data-dir=" + filepath.Join(dir, "data"), "--token-auth-file=" + filepath.Join(dir, "tokens")}, flags...)...)
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	serve.WaitDelay = time.Minute
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Wait() })
	text, buffer := "", make([]byte, 4<<10)
	for !ready.MatchString(text) {
		n, err := out.Read(buffer)
		if text += string(buffer[:n]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return &server{t, ready.FindString(text)}
}

// ask sends a request with a token, and returns the code and the body.
func (s *server) ask(ctx context.Context, token, method, path, body string) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (s *server) post(path, body string) {
	s.t.Helper()
	if code, text := s.ask(s.t.Context(), "root", "POST", path, body); code != 201 {
		s.t.Fatalf("%s: %d %s", path, code, text)
	}
}

// happen makes what has to happen before some metrics have a series. A request of a level without seats executes as
// long as it is alone there; while a webhook that never answers holds it, the next one is refused.
func (s *server) happen(dir string) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	s.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"held"},"subjects":[
		{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"held"}],
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`)
	const flow = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	s.post(flow+"prioritylevelconfigurations", `{"metadata":{"name":"none"},"spec":{"type":"Limited","limited":{
		"nominalConcurrencyShares":0,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`)
	s.post(flow+"flowschemas", `{"metadata":{"name":"none"},"spec":{"matchingPrecedence":2,
		"priorityLevelConfiguration":{"name":"none"},"rules":[{"subjects":[{"kind":"User","user":{"name":"held"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]}]}}`)
	s.post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"none"},
		"webhooks":[{"name":"none.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":30,
		"failurePolicy":"Ignore","clientConfig":{"url":"https://`+silent.Addr().String()+`/"},"rules":[{"operations":["CREATE"],
		"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`)
	held := make(chan int)
	go func() {
		code, _ := s.ask(s.t.Context(), "held", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
		held <- code
	}()
	call, err := silent.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	if code, text := s.ask(s.t.Context(), "held", "GET", "/api/v1/nodes", ""); code != 429 {
		s.t.Errorf("a second request of a level without seats: %d %s", code, text)
	}
	call.Close()
	silent.Close()
	if code := <-held; code != 201 {
		s.t.Errorf("the request that the webhook held: %d", code)
	}
	code, _ := s.ask(s.t.Context(), "root", "GET", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1", "")
	if code != 200 {
		s.t.Errorf("a watch: %d", code)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte("too few"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// startEtcd starts an etcd, and returns its URL.
func startEtcd(t *testing.T, dir string) string {
	t.Helper()
	find := exec.CommandContext(t.Context(), "go", "run", "./programs")
	find.Dir, find.Stderr = "..", os.Stderr
	programs, err := find.Output()
	if err != nil {
		t.Fatal(err)
	}
	// The path of a socket is short, and no other process takes it.
	sockets, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	client, peer := "unix://"+filepath.Join(sockets, "c"), "unix://"+filepath.Join(sockets, "p")
	etcd := exec.CommandContext(t.Context(), filepath.Join(strings.TrimSpace(string(programs)), "etcd"), "--data-dir", dir,
		"--log-level=error", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	etcd.Stderr = os.Stderr
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = etcd.Process.Kill()
		_ = etcd.Wait()
		os.RemoveAll(sockets)
	})
	return client
}

// withTokens makes a directory with tokens for a server.
func withTokens(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte("root,root,1,system:masters\nheld,held,2,\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every metric of a query is one that a server serves: one with its own store, or one on an etcd.
//
// SPEC: RUN-3
func TestMetricsAreServed(t *testing.T) {
	names := metrics(t, queries(t))
	program := build(t, t.TempDir())
	etcd := withTokens(t)
	key := filepath.Join(etcd, "sa.key")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := start(t, program, etcd, "--etcd-servers="+startEtcd(t, filepath.Join(etcd, "etcd")),
		"--service-account-signing-key-file="+key)
	var ofEtcd []string
	names = slices.DeleteFunc(names, func(name string) bool {
		found := strings.Contains(name, "etcd_") || strings.HasPrefix(name, "leader_election_")
		if found {
			ofEtcd = append(ofEtcd, name)
		}
		return found
	})
	if missing := replica.missing(ofEtcd); len(missing) > 0 || len(ofEtcd) < 4 {
		t.Errorf("of %q no server on an etcd serves %q", ofEtcd, missing)
	}

	dir := withTokens(t)
	s := start(t, program, dir, "--backup-url=file://"+filepath.Join(dir, "backup"))
	s.happen(dir)
	if names = s.missing(names); len(names) > 0 {
		t.Errorf("no server serves %q", names)
	}
}

// missing are the metrics that the server does not serve, after a minute at most.
func (s *server) missing(names []string) (missing []string) {
	s.t.Helper()
	t := s.t
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		code, page := s.ask(t.Context(), "root", "GET", "/metrics", "")
		if code != 200 {
			t.Fatalf("/metrics: %d %s", code, page)
		}
		missing = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return strings.Contains(page, "\n"+name+"{") || strings.Contains(page, "\n"+name+" ")
		})
		if len(missing) == 0 {
			break
		}
	}
	return missing
}
