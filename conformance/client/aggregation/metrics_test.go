package aggregation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/kubelet"
	"plinth/conformance/internal/shell"
)

// An autoscaler scales by what metrics-server has measured at the nodes, and kubectl shows it.
//
// SPEC: EXT-2
func TestMetricsServer(t *testing.T) {
	if os.Getenv("AGGREGATION") == "" {
		t.Skip("AGGREGATION is not set")
	}
	program := build(t, "sigs.k8s.io/metrics-server@v0.9.0", "./cmd/metrics-server")
	compare(t, autoscaled(t, harness.Plinth, program), autoscaled(t, harness.Reference, program))
}

const (
	metrics        = "/apis/metrics.k8s.io/v1beta1"
	metricsService = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	deployments    = "/apis/apps/v1/namespaces/default/deployments"
)

// machine is a node as metrics-server sees it: it serves what its Pods use.
type machine struct {
	client kubernetes.Interface
	name   string
	usage  *atomic.Int64 // of each Pod, in thousandths of a processor

	mu   sync.Mutex
	last time.Time
	used map[string]float64 // seconds, by NAMESPACE/NAME
}

// ServeHTTP is the kubelet's /metrics/resource.
func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pods, err := m.client.CoreV1().Pods("").List(r.Context(), meta.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", m.name).String()})
	if err != nil || r.URL.Path != "/metrics/resource" {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	passed := now.Sub(m.last).Seconds()
	if m.last.IsZero() {
		passed = 1
	}
	m.last = now
	m.used[""] += passed
	var b strings.Builder
	stamp := now.UnixMilli()
	fmt.Fprintf(&b, "node_cpu_usage_seconds_total %f %d\nnode_memory_working_set_bytes 1.073741824e+09 %[2]d\n", m.used[""],
		stamp)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != core.PodRunning || pod.Status.StartTime == nil {
			continue
		}
		key := pod.Namespace + "/" + pod.Name
		m.used[key] += passed * float64(m.usage.Load()) / 1000
		of := fmt.Sprintf(`{container="main",namespace="%s",pod="%s"}`, pod.Namespace, pod.Name)
		fmt.Fprintf(&b, "container_cpu_usage_seconds_total%s %f %d\ncontainer_memory_working_set_bytes%[1]s 1.048576e+07 %[3]d\n"+
			"container_start_time_seconds%[1]s %[4]d %[3]d\n", of, m.used[key]+1, stamp, pod.Status.StartTime.Unix())
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	w.Write([]byte(b.String()))
}

// autoscaled does the same at one of the servers, and returns what is seen.
func autoscaled(t *testing.T, kind harness.Kind, program string) []string {
	t.Helper()
	s := &site{TB: t, program: program, files: t.TempDir()}
	var flags []string
	if kind == harness.Reference {
		var err error
		flags, err = authority.FrontProxy(s.files)
		s.must(err)
	}
	s.server = harness.Run(t, harness.Options{Kind: kind, Flags: append(flags, "--authorization-mode=Node,RBAC")})
	config, err := s.server.Config()
	s.must(err)
	client := kubernetes.NewForConfigOrDie(config)
	controlplane.Run(t, s.server, controlplane.Options{Manager: []string{"--horizontal-pod-autoscaler-sync-period=1s",
		"--horizontal-pod-autoscaler-cpu-initialization-period=1ms",
		"--horizontal-pod-autoscaler-initial-readiness-delay=1ms"}})
	usage := &atomic.Int64{}
	usage.Store(100)
	s.nodes(config, client, usage)
	s.choosePort()
	s.certify("metrics-server.kube-system.svc")
	s.run("--metric-resolution=10s", "--kubelet-request-timeout=5s", "--kubelet-insecure-tls",
		"--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP")
	s.serveMetrics()
	s.workload()

	sh, err := shell.New(s.files, t.TempDir(), s.server.Kubeconfig)
	s.must(err)
	s.soon("the Pods are measured", func() bool {
		_, text := s.do("GET", metrics+"/namespaces/default/pods", "", "", "application/json")
		return strings.Count(text, `"usage"`) >= 2
	})
	s.scaled(6) // of at most 6: with any number each Pod uses twice what it should
	s.soon("all Pods are measured", func() bool {
		_, text := s.do("GET", metrics+"/namespaces/default/pods", "", "", "application/json")
		return strings.Count(text, `"usage"`) == 6
	})
	for _, line := range []string{"kubectl top nodes", "kubectl top pods | sed -E 's/elastic-[a-z0-9]+-[a-z0-9]+/POD/'",
		"kubectl top pods --containers --no-headers | sed -E 's/elastic-[a-z0-9]+-[a-z0-9]+/POD/'",
		"kubectl api-resources --api-group=metrics.k8s.io", "kubectl explain nodes --api-version=metrics.k8s.io/v1beta1",
		"kubectl explain pods.containers --api-version=metrics.k8s.io/v1beta1",
		"kubectl get --raw " + metrics, "kubectl get apiservice v1beta1.metrics.k8s.io --no-headers",
		"kubectl get nodes.metrics.k8s.io --no-headers | wc -l"} {
		s.answers = append(s.answers, line+"\n"+roughly(sh.Run(line, "").String()))
	}
	usage.Store(10)
	s.scaled(2)
	return s.answers
}

var (
	processors = regexp.MustCompile(` +\d+m +\d+%| +\d+m |\d+[smh]\d*`)
	blanks     = regexp.MustCompile(` +`)
)

// roughly is a text without what is measured.
func roughly(text string) string {
	return blanks.ReplaceAllString(processors.ReplaceAllString(text, " # "), " ")
}

// nodes runs the nodes of the cluster.
func (s *site) nodes(config *rest.Config, client kubernetes.Interface, usage *atomic.Int64) {
	s.Helper()
	simulated := &kubelet.Kubelet{Ports: map[string]int{}, Nodes: harness.Nodes, RunTime: time.Second,
		Client: func(name string) (kubernetes.Interface, error) {
			own := rest.AnonymousClientConfig(config)
			own.BearerToken, own.QPS, own.Burst = harness.NodeToken(name), 500, 1000
			return kubernetes.NewForConfig(own)
		}}
	for _, name := range harness.Nodes {
		m := httptest.NewTLSServer(&machine{client: client, name: name, usage: usage, used: map[string]float64{}})
		s.Cleanup(m.Close)
		simulated.Ports[name] = m.Listener.Addr().(*net.TCPAddr).Port
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- simulated.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
}

// serveMetrics registers metrics-server.
func (s *site) serveMetrics() {
	s.Helper()
	made := func(path, body string) {
		if code, text := s.do("POST", path, body, "application/json", "application/json"); code != http.StatusCreated {
			s.Fatalf("%s: %d %s", path, code, text)
		}
	}
	made("/api/v1/namespaces/kube-system/services", `{"metadata":{"name":"metrics-server"},"spec":`+
		`{"type":"ExternalName","externalName":"127.0.0.1"}}`)
	made("/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"group":`+
		`"metrics.k8s.io","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100,"service":{"namespace":`+
		`"kube-system","name":"metrics-server","port":`+s.port+`},"caBundle":"`+
		base64.StdEncoding.EncodeToString(s.ca)+`"}}`)
	s.until(metricsService, "application/json", `"status":"True"`)
}

// workload makes a Deployment and its autoscaler, which keeps the usage of processors at half of what is requested.
func (s *site) workload() {
	s.Helper()
	for path, body := range map[string]string{
		deployments: `{"metadata":{"name":"elastic"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"e"}},"template":` +
			`{"metadata":{"labels":{"app":"e"}},"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"main",` +
			`"image":"registry.example/e:1","resources":{"requests":{"cpu":"100m"}}}]}}}}`,
		"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers": `{"metadata":{"name":"elastic"},"spec":{` +
			`"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"elastic"},"minReplicas":2,"maxReplicas":6,` +
			`"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}],` +
			`"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`,
	} {
		if code, text := s.do("POST", path, body, "application/json", "application/json"); code != http.StatusCreated {
			s.Fatalf("%s: %d %s", path, code, text)
		}
	}
}

// scaled waits until the Deployment has a number of replicas that are ready.
func (s *site) scaled(want int) {
	s.Helper()
	s.soon(fmt.Sprintf("%d replicas", want), func() bool {
		_, text := s.do("GET", deployments+"/elastic", "", "", "application/json")
		var d struct {
			Status struct{ Replicas, ReadyReplicas int }
		}
		return json.Unmarshal([]byte(text), &d) == nil && d.Status.Replicas == want && d.Status.ReadyReplicas == want
	})
	s.answers = append(s.answers, fmt.Sprintf("%d replicas", want))
}
