package etcd

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// trust is by what several servers on one etcd, of either kind, know each other: an authority of their certificates,
// which is in a file, and one of the client certificate with which they forward requests.
type trust struct {
	ca, cert, key string
	proxy         []string // flags
}

func newTrust(t *testing.T) *trust {
	t.Helper()
	dir := t.TempDir()
	by, err := authority.New("servers", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	made, err := by.Sign(pkix.Name{CommonName: "kube-apiserver"}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.DNSNames, c.IPAddresses = []string{"kubernetes.default.svc"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(authority.Write(dir, "server", made),
		os.WriteFile(file("ca.crt"), by.PEM(), 0o600)); err != nil {
		t.Fatal(err)
	}
	proxy, err := authority.FrontProxy(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &trust{file("ca.crt"), file("server.crt"), file("server.key"), proxy}
}

// freePort is a port at which a server may listen. One that is started again has the same.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// startPeer starts a server that other ones reach. The reference ignores --peer-advertise-ip: it has to be reached at
// the address of the machine.
func startPeer(t *testing.T, trusting *trust, kind harness.Kind, etcd, name string, flags ...string) *server {
	t.Helper()
	o := harness.Options{Kind: kind, Etcd: etcd, Flags: append([]string{"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file=" + trusting.cert, "--tls-private-key-file=" + trusting.key}, trusting.proxy...)}
	if kind == harness.Reference {
		o.Hostname = name
		o.Flags = append(o.Flags, "--bind-address=0.0.0.0")
	} else {
		port := freePort(t)
		o.Flags = append(o.Flags, fmt.Sprintf("--secure-port=%d", port), "--peer-advertise-ip=127.0.0.1",
			fmt.Sprintf("--peer-advertise-port=%d", port))
	}
	o.Flags = append(o.Flags, flags...)
	s := &server{Server: harness.Run(t, o)}
	// Its certificate is of the tests' authority, and not of its own.
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: harness.AdminToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	s.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, s.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	s.connect(t)
	return s
}

// Two servers of which each lacks what the other one serves: versions of groups, versions of one group, and versions
// that are not served by default.
var (
	leftFlags = []string{"--runtime-config=autoscaling/v2=false,events.k8s.io/v1=false," +
		"admissionregistration.k8s.io/v1alpha1=true"}
	rightFlags = []string{"--runtime-config=batch/v1=false,autoscaling/v1=false"}
)

const (
	cronJobs        = "/apis/batch/v1/namespaces/default/cronjobs"
	allAggregated   = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	peerProxied     = "X-Kubernetes-Peer-Proxied"
	noPeer          = allAggregated + ";profile=nopeer"
	noAddressOfPeer = "Error getting ip and port info of the remote server while proxying"
)

// asked is an answer.
type asked struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request as the administrator, unless the header says otherwise.
func (s *server) ask(t *testing.T, method, path, body string, header ...string) asked {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	client := s.OldClient()
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return asked{answer.StatusCode, answer.Header, string(text)}
}

// serves waits until a list of a resource through a server has this code.
func (s *server) serves(t *testing.T, path string, code int) {
	t.Helper()
	eventually(t, path, func() error {
		if got := s.ask(t, "GET", path, ""); got.code != code {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
}

// groupVersions are those that a client finds.
func (s *server) groupVersions(t *testing.T, alone bool) (all []string) {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client.NoPeerDiscovery = alone
	_, resources, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range resources {
		all = append(all, list.GroupVersion)
	}
	slices.Sort(all)
	return all
}

// Of two servers that serve different types, each answers for both. A server that comes later is found, one that is
// killed is 503 until it is there again, and what one serves that was stopped is 404.
//
// SPEC: STORE-2, URI-12
func TestMixedVersions(t *testing.T) {
	p, trusting := startEtcd(t, reference.EtcdOptions{}), newTrust(t)
	client := etcdClient(t, p.URL)
	with := func(flags []string) []string { return append([]string{"--peer-ca-file=" + trusting.ca}, flags...) }
	right := startPeer(t, trusting, harness.Plinth, p.URL, "", with(rightFlags)...)
	if got := right.ask(t, "GET", cronJobs, ""); got.code != 404 {
		t.Errorf("without a peer: %d", got.code)
	}
	if all := right.groupVersions(t, false); slices.Contains(all, "batch/v1") ||
		!slices.Equal(all, right.groupVersions(t, true)) {
		t.Errorf("without a peer, there are %v", all)
	}
	left := startPeer(t, trusting, harness.Plinth, p.URL, "", with(leftFlags)...)
	right.serves(t, cronJobs, 200)
	left.serves(t, "/apis/autoscaling/v2/horizontalpodautoscalers", 200)
	foundByClients(t, right)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"} {
		t.Run(contentType, func(t *testing.T) { throughPeer(t, left, right, contentType) })
	}
	t.Run("whose requests", func(t *testing.T) { usersOfPeer(t, right) })
	t.Run("WebSocket", func(t *testing.T) { socketThroughPeer(t, right) })
	t.Run("namespace", func(t *testing.T) { emptiedThroughPeer(t, left, right) })
	t.Run("definitions", func(t *testing.T) { definedBesidePeer(t, left, right) })

	// One that is not told whom to believe is a server alone.
	alone := startPeer(t, trusting, harness.Plinth, p.URL, "", rightFlags...)
	if got := alone.ask(t, "GET", cronJobs, ""); got.code != 404 {
		t.Errorf("without --peer-ca-file: %d", got.code)
	}
	if all := alone.groupVersions(t, false); slices.Contains(all, "batch/v1") {
		t.Error("without --peer-ca-file, discovery has what others serve")
	}

	left.Kill()
	got := right.ask(t, "GET", cronJobs, "")
	found := len(keysUnder(t, client, "peerserverleases")) == 3 // also when it was asked, as nobody renews its key
	if dialed := strings.HasPrefix(got.body, "error trying to reach service: dial tcp 127.0.0.1:"); got.code != 503 ||
		found && !dialed || !dialed && !strings.Contains(got.body, noAddressOfPeer) {
		t.Errorf("the peer is dead, and its address known: %t: %d %s", found, got.code, got.body)
	}
	eventually(t, "the address of a dead peer", func() error {
		if got := right.ask(t, "GET", cronJobs, ""); got.code != 503 || !strings.Contains(got.body, noAddressOfPeer) {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	if err := left.Restart(); err != nil {
		t.Fatal(err)
	}
	right.serves(t, cronJobs, 200)
	if err := left.Stop(); err != nil {
		t.Fatal(err)
	}
	right.serves(t, cronJobs, 404)
	if all := right.groupVersions(t, false); slices.Contains(all, "batch/v1") {
		t.Error("discovery has what a server served that was stopped")
	}
	metrics := right.ask(t, "GET", "/metrics", "").body
	for _, line := range []string{
		`apiserver_rerouted_request_total{code="200",group="",resource="",version=""} `,
		`apiserver_rerouted_request_total{code="201",group="batch",resource="cronjobs",version="v1"} `,
		`apiserver_rerouted_request_total{code="503",group="batch",resource="cronjobs",version="v1"} `,
		`apiserver_peer_proxy_errors_total{group="batch",resource="cronjobs",type="endpoint_resolution",version="v1"} `,
		"aggregator_discovery_peer_aggregated_cache_misses_total ", "aggregator_discovery_nopeer_requests_total ",
	} {
		if !strings.Contains(metrics, "\n"+line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// foundByClients checks that clients find what a peer serves, and what the server serves itself if they want that.
func foundByClients(t *testing.T, s *server) {
	t.Helper()
	all, own := s.groupVersions(t, false), s.groupVersions(t, true)
	for _, version := range []string{"batch/v1", "autoscaling/v1", "autoscaling/v2",
		"admissionregistration.k8s.io/v1alpha1"} {
		if !slices.Contains(all, version) || slices.Contains(own, version) != (version == "autoscaling/v2") {
			t.Errorf("%s: clients find %v, and of the server alone %v", version, all, own)
		}
	}
	kubectl, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		out, err := exec.Command(kubectl, append(args, "--kubeconfig", s.Kubeconfig)...).CombinedOutput()
		return string(out), err
	}
	out, err := run("api-resources", "--cached=false")
	if err != nil || !strings.Contains(out, "cronjobs ") {
		t.Errorf("kubectl api-resources: %v\n%s", err, out)
	}
	if out, err := run("get", "cronjobs", "-A"); err != nil {
		t.Errorf("kubectl get: %v\n%s", err, out)
	}
}

// throughPeer does with a type what clients do, through a server that does not serve it, in one encoding.
func throughPeer(t *testing.T, serves, lacks *server, contentType string) {
	ctx := t.Context()
	clients := func(s *server) *kubernetes.Clientset {
		config, err := s.Config()
		if err != nil {
			t.Fatal(err)
		}
		config.ContentType, config.AcceptContentTypes = contentType, contentType+",application/json"
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	far, near := clients(lacks).BatchV1().CronJobs("default"), clients(serves).BatchV1().CronJobs("default")
	list, err := far.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	watch, err := far.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	made, err := far.Create(ctx, cronJob("job"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Create(ctx, cronJob("job"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second one: %v", err)
	}
	made.Spec.Schedule = "1 1 * * *"
	if _, err = far.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := far.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	if _, err := far.Patch(ctx, "job", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := near.Patch(ctx, "job", types.MergePatchType, []byte(`{"spec":{"suspend":true}}`),
		metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	got, err := far.Get(ctx, "job", metav1.GetOptions{})
	if err != nil || got.Spec.Schedule != "1 1 * * *" || got.Labels["a"] != "b" || got.Spec.Suspend == nil ||
		!*got.Spec.Suspend {
		t.Errorf("it is %v, %v", got, err)
	}
	if err := far.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "a=b"}); err != nil {
		t.Error(err)
	}
	if _, err := far.Get(ctx, "job", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was deleted: %v", err)
	}
	var events []string
	for len(events) < 5 {
		select {
		case e, open := <-watch.ResultChan():
			if !open {
				t.Fatalf("the watch ended after %v", events)
			}
			events = append(events, string(e.Type))
		case <-time.After(30 * time.Second):
			t.Fatalf("the watch has only %v", events)
		}
	}
	if want := "ADDED MODIFIED MODIFIED MODIFIED DELETED"; strings.Join(events, " ") != want {
		t.Errorf("watched %v, want %s", events, want)
	}
}

func cronJob(name string) *batchv1.CronJob {
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.CronJobSpec{Schedule: "* * * * *",
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}}}}}
}

// usersOfPeer checks whose a forwarded request is, and that none goes back and forth.
func usersOfPeer(t *testing.T, lacks *server) {
	for _, test := range []struct {
		header []string
		code   int
	}{
		{nil, 200},
		{[]string{peerProxied, "true"}, 404},
		{[]string{peerProxied, "false"}, 200},
		{[]string{"Authorization", "Bearer " + harness.UserToken}, 403},
		{[]string{"Authorization", "Bearer " + harness.UserToken, "X-Remote-User", "root", "X-Remote-Group",
			"system:masters"}, 403},
		{[]string{"Authorization", "Bearer wrong"}, 401},
		{[]string{"Impersonate-User", "jane"}, 403},
		{[]string{"Impersonate-User", "jane", "Impersonate-Group", "system:masters"}, 200},
	} {
		if got := lacks.ask(t, "GET", cronJobs, "", test.header...); got.code != test.code {
			t.Errorf("%v: %d %s, want %d", test.header, got.code, got.body, test.code)
		}
	}
	// Who wrote an object is whom this server knows.
	text, err := json.Marshal(cronJob("of-jane"))
	if err != nil {
		t.Fatal(err)
	}
	if got := lacks.ask(t, "POST", cronJobs+"?dryRun=All", string(text), "Content-Type", "application/json",
		"User-Agent", "of-jane/1"); got.code != 201 || !strings.Contains(got.body, `"manager":"of-jane"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// socketThroughPeer watches through a WebSocket.
func socketThroughPeer(t *testing.T, lacks *server) {
	conn, err := tls.Dial("tcp", strings.TrimPrefix(lacks.URL, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /apis/batch/v1/cronjobs?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", harness.AdminToken)
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols ||
		answer.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%v, %v", answer, err)
	}
	text, err := json.Marshal(cronJob("socket"))
	if err != nil {
		t.Fatal(err)
	}
	if got := lacks.ask(t, "POST", cronJobs, string(text), "Content-Type", "application/json"); got.code != 201 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	frame := make([]byte, 200)
	if _, err := io.ReadFull(r, frame); err != nil || !strings.Contains(string(frame), `"type":"ADDED"`) {
		t.Errorf("the socket has %q, %v", frame, err)
	}
	if got := lacks.ask(t, "DELETE", cronJobs+"/socket", ""); got.code != 200 {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// emptiedThroughPeer checks that the server that runs the controllers, and lacks a type, empties a namespace of its
// objects, too.
func emptiedThroughPeer(t *testing.T, serves, lacks *server) {
	ctx := t.Context()
	if !lacks.controls(t) {
		t.Fatal("another server runs the controllers")
	}
	serves.makeNamespace(t, "mixed")
	text, err := json.Marshal(cronJob("left-behind"))
	if err != nil {
		t.Fatal(err)
	}
	const in = "/apis/batch/v1/namespaces/mixed/cronjobs"
	if got := serves.ask(t, "POST", in, string(text), asJSON...); got.code != 201 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	if err := serves.Resource(namespaces).Delete(ctx, "mixed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace", serves.gone("mixed"))
	if got := serves.ask(t, "GET", in+"/left-behind", ""); got.code != 404 {
		t.Errorf("an object is left behind: %d %s", got.code, got.body)
	}
}

// controls says whether a server runs the controllers.
func (s *server) controls(t *testing.T) bool {
	t.Helper()
	get := func(name string) *unstructured.Unstructured {
		lease, err := s.Resource(leases).Namespace("kube-system").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	holder, _, _ := unstructured.NestedString(get("plinth-controllers").Object, "spec", "holderIdentity")
	identity, _, _ := strings.Cut(holder, "_")
	return "https://"+get(identity).GetAnnotations()["kubernetes.io/peer-advertise-address"] == s.URL
}

// definedBesidePeer checks that a definition, which all servers have, is not taken from a peer: when it is gone, so is
// its version.
func definedBesidePeer(t *testing.T, left, right *server) {
	ctx := t.Context()
	if _, err := left.Resource(definitions).Create(ctx, object(t, widgetDefinition), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const path, version = "/apis/stable.example.com/v1/widgets", "stable.example.com/v1"
	right.serves(t, path, 200)
	// A third server makes the others ask again what is served, now that the definition is there.
	identities := len(right.identityLeases(t))
	lease := object(t, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: apiserver-none,
labels: {apiserver.kubernetes.io/identity: kube-apiserver}}, spec: {holderIdentity: none, leaseDurationSeconds: 3600,
renewTime: "%s"}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	if _, err := left.Resource(leases).Namespace("kube-system").Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third server", func() error {
		if n := len(right.identityLeases(t)); n != identities+1 {
			return fmt.Errorf("%d servers", n)
		}
		if !strings.Contains(right.ask(t, "GET", "/metrics", "").body,
			`apiserver_peer_discovery_sync_errors_total{type="hostport_resolution"}`) {
			return errors.New("it was not asked")
		}
		return nil
	})
	if all := right.groupVersions(t, false); !slices.Contains(all, version) || !slices.Contains(all, "batch/v1") {
		t.Errorf("there are %v", all)
	}
	if err := left.Resource(definitions).Delete(ctx, "widgets.stable.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	right.serves(t, path, 404)
	if all := right.groupVersions(t, false); slices.Contains(all, version) {
		t.Error("discovery has the version of a definition that is gone")
	}
	if err := left.Resource(leases).Namespace("kube-system").Delete(ctx, "apiserver-none",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// script is what is asked of each of two servers, left and right.
var script = []struct {
	of           string
	method, path string
	body         string
	header       []string
}{
	{of: "right", method: "GET", path: cronJobs},
	{of: "right", method: "POST", path: cronJobs, body: scriptJob, header: asJSON},
	{of: "right", method: "POST", path: cronJobs, body: scriptJob, header: asJSON},
	{of: "right", method: "POST", path: cronJobs + "?dryRun=All&fieldManager=x",
		body: strings.ReplaceAll(scriptJob, `"j"`, `"k"`), header: asJSON},
	{of: "right", method: "GET", path: cronJobs + "/j"},
	{of: "right", method: "GET", path: cronJobs + "/j?pretty=true&z=1&a=2;b=3"},
	{of: "left", method: "GET", path: cronJobs + "/j"},
	{of: "right", method: "GET", path: cronJobs,
		header: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}},
	{of: "right", method: "GET", path: cronJobs + "/none"},
	{of: "right", method: "GET", path: cronJobs + "/none", header: []string{"Accept", "application/yaml"}},
	{of: "right", method: "GET", path: cronJobs + "/j/status"},
	{of: "right", method: "GET", path: cronJobs + "/j/nosuch"},
	{of: "right", method: "PUT", path: cronJobs + "/j", body: "{", header: asJSON},
	{of: "right", method: "PATCH", path: cronJobs + "/j", body: `{"metadata":{"labels":{"a":"b"}}}`,
		header: []string{"Content-Type", "application/merge-patch+json"}},
	{of: "right", method: "PATCH", path: cronJobs + "/j", body: `{"spec":{"suspend":true}}`,
		header: []string{"Content-Type", "application/strategic-merge-patch+json"}},
	{of: "right", method: "GET", path: "/apis/batch/v1/cronjobs?watch=1&timeoutSeconds=1"},
	{of: "right", method: "GET", path: "/apis/batch/v1/watch/cronjobs?timeoutSeconds=1"},
	{of: "right", method: "GET", path: cronJobs + "/j", header: []string{peerProxied, "true"}},
	{of: "right", method: "GET", path: cronJobs + "/j", header: []string{peerProxied, "false"}},
	{of: "right", method: "GET", path: cronJobs + "/j", header: []string{"Authorization", "Bearer " + harness.UserToken}},
	{of: "right", method: "GET", path: cronJobs + "/j", header: []string{"Impersonate-User", "jane"}},
	{of: "right", method: "GET", path: cronJobs + "/j", header: []string{"Impersonate-User", "jane", "Impersonate-Group",
		"system:masters"}},
	{of: "right", method: "HEAD", path: cronJobs + "/j"},
	{of: "right", method: "OPTIONS", path: cronJobs},
	{of: "right", method: "GET", path: "/apis/batch/v1"},
	{of: "right", method: "GET", path: "/apis/batch"},
	{of: "right", method: "GET", path: "/apis/batch/v1/nosuch"},
	{of: "right", method: "GET", path: "/apis/batch/v2/cronjobs"},
	{of: "right", method: "DELETE", path: cronJobs + "/j", header: asJSON,
		body: `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`},
	{of: "right", method: "DELETE", path: cronJobs},
	{of: "left", method: "GET", path: "/apis/autoscaling/v2/horizontalpodautoscalers"},
	{of: "left", method: "GET", path: "/apis/autoscaling/v2"},
	{of: "left", method: "GET", path: "/apis/autoscaling/v1/horizontalpodautoscalers"},
	{of: "right", method: "GET", path: "/apis/autoscaling/v1/horizontalpodautoscalers"},
	{of: "right", method: "GET", path: "/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies"},
	{of: "left", method: "GET", path: "/apis", header: []string{"Accept", allAggregated}},
	{of: "left", method: "GET", path: "/apis", header: []string{"Accept", noPeer}},
	{of: "left", method: "GET", path: "/apis", header: []string{"Accept", allAggregated + ";profile=other"}},
	{of: "left", method: "GET", path: "/apis"},
	{of: "left", method: "GET", path: "/api", header: []string{"Accept", allAggregated}},
	{of: "left", method: "GET", path: "/api", header: []string{"Accept", noPeer}},
	{of: "right", method: "GET", path: "/apis", header: []string{"Accept", allAggregated}},
	{of: "right", method: "GET", path: "/apis", header: []string{"Accept", noPeer}},
	{of: "right", method: "GET", path: "/apis"},
}

var asJSON = []string{"Content-Type", "application/json"}

const scriptJob = `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"j"},"spec":{"schedule":"* * * * *",
"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`

// changing is what differs from run to run.
var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|` +
	`\d+\.\d+\.\d+\.\d+:\d+`)

var resourceVersions = regexp.MustCompile(`("resourceVersion":\s*)"\d+"`)

// comparable is an answer without what differs from run to run, and without the headers that Plinth sends besides those
// of the reference.
func (a asked) comparable() string {
	var names []string
	for name, values := range a.header {
		switch name {
		case "Date", "Content-Length", "Etag", "Vary":
		default:
			names = append(names, fmt.Sprintf("%s: %q\n", name, values))
		}
	}
	slices.Sort(names)
	body := changing.ReplaceAllString(resourceVersions.ReplaceAllString(a.body, `$1"…"`), "…")
	var values []any // of a watch there are several
	var err error
	for decoder := json.NewDecoder(strings.NewReader(body)); err == nil; {
		var value any
		if err = decoder.Decode(&value); err == nil {
			values = append(values, value)
		}
	}
	if text, failed := json.Marshal(values); errors.Is(err, io.EOF) && failed == nil {
		body = string(text)
	}
	return fmt.Sprintf("%d\n%s\n%s", a.code, changing.ReplaceAllString(strings.Join(names, ""), "…"), body)
}

// The answers of two servers of which each lacks what the other one serves are the same, whether both are
// kube-apiservers, both Plinths, or one of each: those of forwarded requests, and the documents of discovery.
//
// SPEC: STORE-3, URI-12
func TestMixedVersionsOfReference(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	var want []string
	for _, kinds := range [][2]harness.Kind{{harness.Reference, harness.Reference}, {harness.Plinth, harness.Plinth},
		{harness.Plinth, harness.Reference}, {harness.Reference, harness.Plinth}} {
		t.Run(fmt.Sprintf("%s and %s", kinds[0], kinds[1]), func(t *testing.T) {
			got := scripted(t, kinds)
			if want == nil {
				want = got
				return
			}
			for i, of := range script {
				if got[i] != want[i] {
					t.Errorf("%s: %s %s %v: %s", of.of, of.method, of.path, of.header, difference(got[i], want[i]))
				}
			}
		})
	}
}

// difference shows where two texts begin to differ.
func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	part := func(s string) string { return s[max(0, i-200):min(len(s), i+300)] }
	return fmt.Sprintf("\n%s\nwant\n%s", part(got), part(want))
}

// scripted starts two servers and asks them what is in script.
func scripted(t *testing.T, kinds [2]harness.Kind) (answers []string) {
	p, trusting := startEtcd(t, reference.EtcdOptions{}), newTrust(t)
	peer := "--peer-ca-file=" + trusting.ca
	servers := map[string]*server{
		"left":  startPeer(t, trusting, kinds[0], p.URL, "left", append(leftFlags, peer)...),
		"right": startPeer(t, trusting, kinds[1], p.URL, "right", append(rightFlags, peer)...),
	}
	servers["right"].serves(t, cronJobs, 200)
	servers["left"].serves(t, "/apis/autoscaling/v2/horizontalpodautoscalers", 200)
	for _, of := range script {
		header := of.header
		if !slices.Contains(header, "Accept") {
			header = append([]string{"Accept", "application/json"}, header...)
		}
		answers = append(answers, servers[of.of].ask(t, of.method, of.path, of.body, header...).comparable())
	}
	return answers
}
