package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What this test binary is, by the variable: the program plinth, or a process that starts it and waits for ever.
const (
	programVariable = "PLINTH_TEST_PROGRAM"
	asPlinth        = "plinth"
	asParent        = "parent"
)

func TestMain(m *testing.M) {
	switch os.Getenv(programVariable) {
	case asPlinth:
		main()
	case asParent:
		child := process(os.Args[1:]...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Run(); err != nil {
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// process is the program plinth, as a process that is not started yet.
func process(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programVariable+"="+asPlinth)
	return cmd
}

// testServerProcess is a running `plinth test-server --ready-json`, or the process that started one.
type testServerProcess struct {
	*exec.Cmd
	readyLine
	out *bufio.Reader // what it prints after the ready line
}

// startTestServer starts one in a directory and waits until it is ready. as is asPlinth or asParent.
func startTestServer(t *testing.T, as, dir string, args ...string) *testServerProcess {
	t.Helper()
	p := &testServerProcess{Cmd: process(append([]string{"test-server", "--ready-json"}, args...)...)}
	p.Dir, p.Env = dir, append(p.Env, programVariable+"="+as, "HOME="+dir, "TMPDIR="+dir)
	p.Stderr = t.Output()
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a parent that was killed, too, if its server still runs
		p.Process.Kill()
		if server, err := os.FindProcess(p.PID); err == nil && p.PID != 0 && p.PID != p.Process.Pid {
			server.Kill()
		}
		p.Wait()
	})
	p.out = bufio.NewReader(out)
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no line: %v, %s", err, line)
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p.readyLine); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return p
}

// ended waits until no process has the server's standard output any more, which has nothing but the ready line.
func (p *testServerProcess) ended(t *testing.T) {
	t.Helper()
	rest := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(p.out)
		rest <- text
	}()
	select {
	case text := <-rest:
		if len(text) > 0 {
			t.Errorf("standard output has more than the ready line: %s", text)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server still runs")
	}
}

// ask sends a request with a bearer token and returns the status and the body.
func (p *testServerProcess) ask(t *testing.T, token, method, path, body string) (int, string) {
	t.Helper()
	response := p.open(t, token, method, path, body)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (p *testServerProcess) open(t *testing.T, token, method, path, body string) *http.Response {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(p.CA)) {
		t.Fatalf("the authority is no PEM: %s", p.CA)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), method, p.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// files lists the files below a directory.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// The line has what a client needs. The token is of an administrator and of this start alone, and the disk has nothing
// unless a kubeconfig is requested, which has no token.
//
// SPEC: RUN-6
func TestReadyLine(t *testing.T) {
	dir := t.TempDir()
	one := startTestServer(t, asPlinth, dir)
	kubeconfig := filepath.Join("k", "config")
	two := startTestServer(t, asPlinth, dir, "--write-kubeconfig", kubeconfig)
	if !strings.HasPrefix(one.Host, "https://127.0.0.1:") || one.Host == two.Host || one.Kubeconfig != "" ||
		one.PID != one.Process.Pid || one.Token == two.Token || len(one.Token) < 26 || one.CA == two.CA {
		t.Errorf("the lines are %+v and %+v", one.readyLine, two.readyLine)
	}
	for token, want := range map[string]int{one.Token: 201, two.Token: 401, one.Token[1:]: 401, "": 403} {
		status, text := one.ask(t, token, http.MethodPost, whoami, `{}`)
		if status != want || status == 201 &&
			!(strings.Contains(text, `"username":"plinth-admin"`) && strings.Contains(text, `"system:masters"`)) {
			t.Errorf("with the token %q: %d, want %d: %s", token, status, want, text)
		}
	}
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, kubeconfig)); err != nil || two.Kubeconfig != real {
		t.Errorf("the kubeconfig is %s, want %s, %v", two.Kubeconfig, real, err)
	}
	if all := files(t, dir); len(all) != 1 {
		t.Errorf("on disk are %s", all)
	}
	if text, err := os.ReadFile(two.Kubeconfig); err != nil || strings.Contains(string(text), two.Token) {
		t.Errorf("the kubeconfig has the token, or %v", err)
	}
	if text, err := plinth("owners", "--kubeconfig", two.Kubeconfig, "ns/default"); err != nil {
		t.Errorf("with the kubeconfig: %v, %s", err, text)
	}
}

// A server ends with the process that started it, which did nothing for that, however it ends.
//
// SPEC: RUN-6
func TestEndsWithItsParent(t *testing.T) {
	p := startTestServer(t, asParent, t.TempDir())
	if p.PID == p.Process.Pid {
		t.Fatal("the server is its own parent")
	}
	if status, text := p.ask(t, p.Token, http.MethodGet, "/readyz", ""); status != 200 {
		t.Fatalf("readyz: %d %s", status, text)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.ended(t)
}

// A signal ends it without an error, though a watch is open and a request waits for its body.
//
// SPEC: RUN-6
func TestSignalEndsIt(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p := startTestServer(t, asPlinth, t.TempDir())
		defer p.open(t, p.Token, http.MethodGet, "/api/v1/namespaces?watch=true", "").Body.Close()
		body, open := io.Pipe()
		defer open.Close()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Host+whoami, body)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(p.CA))
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
		go client.Do(request) //nolint:bodyclose // it has no response
		if _, err := open.Write([]byte("{")); err != nil {
			t.Fatal(err)
		}
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		p.ended(t)
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v", signal, err)
		}
	}
}

const (
	// As tools write it that generate definitions from Go types.
	widgets = `---
# no object
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  creationTimestamp: null
spec:
  group: example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
status:
  acceptedNames: {kind: "", plural: ""}
  conditions: []
  storedVersions: []
`
	widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: factory}\nspec: {size: 3}\n"
	// A webhook that refuses each ConfigMap, as nothing answers there.
	hook = `{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
 "metadata": {"name": "nobody"}, "webhooks": [{"name": "nobody.example.com", "sideEffects": "None",
 "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
 "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]}]},
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}]}`
	pod = `{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
)

// Objects of files are there when the server is ready, in whatever order they are in the files: an object of a kind
// that a file defines later, in a namespace that it has later, and one that a webhook of the same file would refuse.
//
// SPEC: RUN-6
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"1.yaml": widget + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: factory}\n", "sub/2.yml": widgets,
		"3.json": hook, "notes.txt": "no object",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	extra := file(t, "extra", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
	p := startTestServer(t, asPlinth, t.TempDir(), "--manifests", dir, "--manifests="+extra)
	for path, want := range map[string]string{
		"/apis/example.com/v1/namespaces/factory/widgets/w": `"size":3`,
		"/api/v1/namespaces/default/configmaps/c":           `"a":"b"`,
		"/api/v1/namespaces/default/secrets/s":              `"kind":"Secret"`,
	} {
		if status, text := p.ask(t, p.Token, http.MethodGet, path, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d, no %s in %s", path, status, want, text)
		}
	}
	status, text := p.ask(t, p.Token, http.MethodDelete, "/api/v1/namespaces/default/configmaps/c", "")
	if status != 500 || !strings.Contains(text, "nobody.example.com") {
		t.Errorf("the webhook is not called: %d %s", status, text)
	}
}

// No controller runs, and so Pods need no ServiceAccount; both as in envtest, and both change with --controllers.
//
// SPEC: RUN-6
func TestControllersOfATestServer(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	for _, c := range []struct {
		args    []string
		status  int
		account bool
	}{
		{nil, 201, false},
		{[]string{"--controllers=*"}, 201, true},
		{[]string{"--controllers=*,-serviceaccount"}, 201, false},
		{[]string{"--disable-admission-plugins="}, 403, false},
	} {
		p := startTestServer(t, asPlinth, t.TempDir(), c.args...)
		status, text := p.ask(t, p.Token, http.MethodPost, pods, pod)
		if status != c.status || strings.Contains(text, `"serviceAccountName":"default"`) != c.account {
			t.Errorf("%s: %d, want %d: %s", c.args, status, c.status, text)
		}
	}
}

// What cannot start says why on standard error, and prints no line.
//
// SPEC: RUN-6
func TestTestServerRefuses(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct{ flag, want string }{
		{"--colour=red", "unknown flag: --colour"},
		{"--data-dir=x", "unknown flag: --data-dir"},
		{"here", "takes no arguments"},
		{"--controllers=none", "not in the list of known controllers"},
		{"--feature-gates=None=true", "--feature-gates"},
		{"--secure-port=70000", "--secure-port"},
		{"--manifests=/does/not/exist", "no such file"},
		{"--manifests=" + empty, "no files of YAML or JSON"},
		{"--manifests=" + file(t, "a.yaml", config+"---\na: b: c"), "a.yaml: document 2: "},
		{"--manifests=" + file(t, "a.yaml", config+"kind: Secret\n"), `key "kind" already set`},
		{"--manifests=" + file(t, "a.yaml", "kind: ConfigMap"), "document 1: no object"},
		{"--manifests=" + file(t, "a.yaml", "[1]"), "document 1: no object"},
		{"--manifests=" + file(t, "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {generateName: a}"), "metadata.name"},
		{"--manifests=" + file(t, "a.yaml", config+"colour: red\n"), ".colour: field not declared in schema"},
		{"--manifests=" + file(t, "a.yaml", widget), "Widget factory/w: example.com/v1 is not served"},
		{"--manifests=" + file(t, "a.yaml", strings.ReplaceAll(config, "ConfigMap", "Config")), "v1 has no such kind"},
		{"--manifests=" + file(t, "a.yaml", strings.ReplaceAll(config, "default", "none")), `namespaces "none" not found`},
	} {
		cmd := process("test-server", "--ready-json", c.flag)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		var code *exec.ExitError
		if !errors.As(err, &code) || code.ExitCode() != 1 || len(out) > 0 ||
			!strings.Contains(complaint.String(), "plinth: ") || !strings.Contains(complaint.String(), c.want) {
			t.Errorf("%s: %v, %q, no %q in %s", c.flag, err, out, c.want, complaint.String())
		}
	}
}

// For people there is a text.
//
// SPEC: RUN-6
func TestGreetingOfATestServer(t *testing.T) {
	for _, kubeconfig := range []string{"", filepath.Join(t.TempDir(), "kubeconfig")} {
		cmd := process("test-server", "--write-kubeconfig="+kubeconfig)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for _, want := range []string{" is ready at https://127.0.0.1:", "", kubeconfig} {
			if !lines.Scan() || !strings.Contains(lines.Text(), want) {
				t.Errorf("no %q in %q", want, lines.Text())
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// A process with planes makes one that is asked for, and ends with its standard input. Flags of one server mean nothing
// to it.
//
// SPEC: BEY-7
func TestPlanes(t *testing.T) {
	p := &testServerProcess{Cmd: process("test-server", "--planes", "--ready-json")}
	p.Stderr = t.Output()
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	p.out = bufio.NewReader(out)
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.readyLine)
	}
	if err != nil || p.Planes != 1 {
		t.Fatalf("%v: %s", err, line)
	}
	if code, text := p.ask(t, "another", http.MethodPost, "/v1/planes", "{}"); code != http.StatusUnauthorized {
		t.Errorf("without the token: %d %s", code, text)
	}
	if code, text := p.ask(t, p.Token, http.MethodPost, "/v1/planes", `{"colour":1}`); code != http.StatusBadRequest {
		t.Errorf("a member that is not known: %d %s", code, text)
	}
	code, text := p.ask(t, p.Token, http.MethodPost, "/v1/planes", "{}")
	var plane readyLine
	if err := json.Unmarshal([]byte(text), &plane); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	of := &testServerProcess{readyLine: plane}
	if code, text := of.ask(t, plane.Token, http.MethodGet, "/api/v1/namespaces/default", ""); code != http.StatusOK {
		t.Errorf("the plane: %d %s", code, text)
	}
	in.Close()
	p.ended(t)
	wrong := process("test-server", "--planes", "--controllers=*")
	if out, err := wrong.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "--controllers is for one server") {
		t.Errorf("%v: %s", err, out)
	}
}
