package envtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

var written struct {
	sync.Mutex
	dir string
}

// assets returns the directory that `plinth envtest` writes.
func assets(t *testing.T) string {
	t.Helper()
	written.Lock()
	defer written.Unlock()
	if written.dir != "" {
		return written.dir
	}
	if _, err := harness.Kubectl(); err != nil { // it is built beside the program
		t.Fatal(err)
	}
	plinth, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(plinth), "assets")
	if out, err := exec.Command(plinth, "envtest", dir).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "export KUBEBUILDER_ASSETS="+dir+"\n") {
		t.Fatalf("plinth envtest: %v\n%s", err, out)
	}
	written.dir = dir
	return dir
}

// environment starts the environment of a project's test suite, and stops it at the end of the test.
func environment(t *testing.T) *envtest.Environment {
	t.Helper()
	t.Setenv("KUBEBUILDER_ASSETS", assets(t))
	var log bytes.Buffer
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Err = &log
	began := time.Now()
	if _, err := env.Start(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		began := time.Now()
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it ended after %s", took)
		}
		if strings.Contains(log.String(), "level=ERROR") || t.Failed() {
			t.Errorf("the log of kube-apiserver:\n%s", log.String())
		}
	})
	return env
}

// A suite's environment starts, its users are authenticated, its kubectl works, and it stops.
//
// SPEC: RUN-2, AUTH-1
func TestEnvironment(t *testing.T) {
	env := environment(t)
	client := kubernetes.NewForConfigOrDie(env.Config)
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(namespaces.Items) < 4 {
		t.Fatalf("%d namespaces, %v", len(namespaces.Items), err)
	}
	for _, c := range []struct {
		user envtest.User
		may  bool
	}{{envtest.User{Name: "jane", Groups: []string{"system:masters"}},
		true}, {envtest.User{Name: "joe", Groups: []string{"devs"}}, false}} {
		user, err := env.AddUser(c.user, nil)
		if err != nil {
			t.Fatal(err)
		}
		own := kubernetes.NewForConfigOrDie(user.Config())
		_, err = own.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if c.may && err != nil || !c.may && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"joe"`)) {
			t.Errorf("%s: %v", c.user.Name, err)
		}
		kubectl, err := user.Kubectl()
		if err != nil {
			t.Fatal(err)
		}
		out, errOut, err := kubectl.Run("get", "namespaces", "-o", "name")
		text, _ := io.ReadAll(out)
		failure, _ := io.ReadAll(errOut)
		if c.may != (err == nil) || c.may != strings.Contains(string(text), "namespace/kube-system") {
			t.Errorf("kubectl as %s: %v\n%s%s", c.user.Name, err, text, failure)
		}
	}
}

// Only the API server is restarted, and all objects are kept.
//
// SPEC: RUN-2, STORE-1
func TestRestart(t *testing.T) {
	env := environment(t)
	client := kubernetes.NewForConfigOrDie(env.Config)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	before, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := env.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	// it has new certificates
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := kubernetes.NewForConfigOrDie(admin.Config()).CoreV1().ConfigMaps("default").Get(t.Context(), "kept",
		metav1.GetOptions{})
	if err != nil || after.UID != before.UID || after.ResourceVersion != before.ResourceVersion || after.Data["a"] != "b" {
		t.Errorf("%v, %v; it was %v", after, err, before)
	}
}

// freePort returns a port that is free at this moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// launch starts a program, and stops it at the end of the test. Its log is returned when it has ended.
func launch(t *testing.T, program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(program), err, &log)
			}
		}
	})
	return cmd, &log
}

// ready waits until a URL answers 200.
func ready(t *testing.T, client *http.Client, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		answer, err := client.Get(url)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("%s", answer.Status)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", url, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kwokctl's command lines, as its pkg/kwokctl/components builds them: with a secure port and authorization, without
// limits, and with and without admission.
//
// SPEC: RUN-1, RUN-2
func TestKwokctl(t *testing.T) {
	dir, programs := t.TempDir(), assets(t)
	client, peer, port := freePort(t), freePort(t), freePort(t)
	at := fmt.Sprintf("http://127.0.0.1:%d", client)
	members := fmt.Sprintf("http://127.0.0.1:%d", peer)
	launch(t, filepath.Join(programs, "etcd"),
		"--name=node0", "--auto-compaction-retention=1", "--quota-backend-bytes=8589934592", "--data-dir="+filepath.Join(dir,
			"etcd"),
		"--initial-advertise-peer-urls="+members, "--listen-peer-urls="+members, "--advertise-client-urls="+at,
		"--listen-client-urls="+at,
		"--initial-cluster=node0="+members, "--log-level=warn")
	ready(t, http.DefaultClient, at+"/health")
	pki := harness.Run(t, harness.Options{Kind: harness.Plinth, Dir: filepath.Join(dir, "pki")}) // for its certificates
	files := filepath.Join(dir, "pki", "data", "pki")
	for _, admission := range [][]string{{"--admission-control="}, nil} {
		cmd, log := launch(t, filepath.Join(programs, "kube-apiserver"), append([]string{
			"--etcd-prefix=/registry", "--allow-privileged=true", "--runtime-config=api/legacy=true,api/alpha=false",
			"--feature-gates=ComponentStatusz=true,WatchList=true",
			"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false",
			"--etcd-servers=" + at, "--authorization-mode=Node,RBAC", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d",
				port),
			"--tls-cert-file=" + filepath.Join(files, "server.crt"), "--tls-private-key-file=" + filepath.Join(files,
				"server.key"),
			"--client-ca-file=" + filepath.Join(files, "ca.crt"), "--service-account-key-file=" + filepath.Join(files,
				"admin.key"),
			"--service-account-signing-key-file=" + filepath.Join(files, "admin.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--proxy-client-key-file=" + filepath.Join(files, "admin.key"), "--proxy-client-cert-file=" + filepath.Join(files,
				"admin.crt"),
			"--v=4",
		}, admission...)...)
		config, err := pki.Config()
		if err != nil {
			t.Fatal(err)
		}
		config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
		insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		ready(t, insecure, config.Host+"/readyz")
		insecure.CloseIdleConnections()
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(),
			metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, log)
		}
		if strings.Contains(log.String(), "flags without effect are ignored") {
			t.Errorf("some flags have no effect:\n%s", log)
		}
	}
}

// An API server whose --etcd-servers is a real etcd stores its objects there, and the stub refuses the directory of
// one.
//
// SPEC: RUN-1
func TestRealEtcd(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	programs, err := reference.Build(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at, members := fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	real, _ := launch(t, filepath.Join(programs, "etcd"), "--data-dir="+dir, "--listen-client-urls="+at,
		"--advertise-client-urls="+at,
		"--listen-peer-urls="+members, "--log-level=error")
	ready(t, http.DefaultClient, at+"/health")
	port := freePort(t)
	server, log := launch(t, filepath.Join(assets(t), "kube-apiserver"), "--etcd-servers="+at, "--cert-dir="+t.TempDir(),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port))
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ready(t, insecure, fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
	insecure.CloseIdleConnections()
	_ = server.Process.Signal(syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	_ = real.Process.Kill()
	_ = real.Wait()
	out, err := exec.Command(filepath.Join(assets(t), "etcd"), "--data-dir="+dir,
		"--listen-client-urls="+at).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is that of a real etcd") {
		t.Errorf("a stub where etcd was: %v\n%s", err, out)
	}
}
