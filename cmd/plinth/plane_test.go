package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/background"
	"plinth/internal/planes/kind"
	"plinth/internal/planes/kind/kindtest"
)

// planeHost is a server with the type Plane, and a home directory with a kubeconfig for it.
type planeHost struct {
	*httptest.Server
	kubeconfig string
}

// newPlaneHost makes a server; with a nil config it has no planes. The token "secret" is that of an administrator, any
// other one that of jane.
func newPlaneHost(t *testing.T, planes *kind.Config) *planeHost {
	t.Helper()
	p := kindtest.New(t, planes)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := access.User{Name: "jane", Groups: []string{"system:authenticated"}}
		if r.Header.Get("Authorization") == "Bearer secret" {
			user.Groups = append(user.Groups, access.Masters)
		}
		r = r.WithContext(auth.As(r.Context(), &access.Identity{User: user}))
		r.Header.Del("Authorization")
		p.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(p.Quit)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", "")
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := &planeHost{s, filepath.Join(home, ".kube", "config")}
	h.write(t, "current-context: dev\n# mine\nclusters:\n- name: plinth\n  cluster:\n    server: "+s.URL+"\n    proxy-url: \"\"\n"+
		"contexts:\n- name: dev\n  context: {cluster: plinth, user: root, namespace: team}\n"+
		"users:\n- name: root\n  user: {token: secret}\n")
	return h
}

func (h *planeHost) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(h.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *planeHost) read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(h.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// says fails unless a command succeeds and its output has all of the texts.
func says(t *testing.T, args []string, texts ...string) string {
	t.Helper()
	out, err := plinth(args...)
	if err != nil {
		t.Fatalf("plinth %s: %v", strings.Join(args, " "), err)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("plinth %s does not say %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
	return out
}

// fails fails unless a command fails with a text.
func fails(t *testing.T, text string, args ...string) {
	t.Helper()
	if out, err := plinth(args...); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("plinth %s: %v, and not %q:\n%s", strings.Join(args, " "), err, text, out)
	}
}

func words(s string) []string { return strings.Fields(s) }

// SPEC: BEY-9, BEY-10, BEY-12
func TestPlaneCommands(t *testing.T) {
	h := newPlaneHost(t, &kind.Config{Origin: func(string, string) (kind.Origin, error) {
		return kind.Origin{UID: "u", Revision: 12}, nil
	}})
	before := h.read(t)
	says(t, words("plane list"), "There are no planes; plinth plane create NAME")
	says(t, words("plane create main"), "The plane main is at "+h.URL+"/clusters/main.\n",
		"plinth plane kubeconfig main --merge")
	says(t, words("plane create pr-1 --from main@12 --ttl 90m --objects 10 --bytes 64Mi --requests 3 --weight 2 "+
		"--read-only --wait"),
		"The plane pr-1 is at "+h.URL+"/clusters/pr-1 until 20")
	if h.read(t) != before {
		t.Errorf("the kubeconfig has changed:\n%s", h.read(t))
	}
	var list struct {
		Kind  string
		Items []struct {
			Metadata struct {
				Name          string
				ManagedFields []any
			}
			Spec map[string]any
		}
	}
	out := says(t, words("plane list -o json"))
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.Kind != "PlaneList" || len(list.Items) != 2 ||
		list.Items[1].Metadata.Name != "pr-1" || list.Items[1].Metadata.ManagedFields != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	spec, err := json.Marshal(list.Items[1].Spec)
	const want = `{"from":{"name":"main","resourceVersion":"12"},"limits":{"bytes":"64Mi","objects":10,"requests":3},` +
		`"readOnly":true,"ttlSeconds":5400,"weight":2}`
	if err != nil || string(spec) != want {
		t.Errorf("the spec is\n%s and not\n%s", spec, want)
	}
	says(t, words("plane list -o yaml"), "kind: PlaneList\n", "\n    name: pr-1\n")
	if out := says(t, words("plane list -o name")); out != "main\npr-1\n" {
		t.Errorf("the names are %q", out)
	}
	table := strings.Split(says(t, words("plane list")), "\n")
	if !slices.Equal(words(table[0]), words("NAME PHASE OBJECTS BYTES FROM EXPIRES AGE")) ||
		!slices.Equal(words(table[1])[:6], words("main Ready - - - -")) ||
		!slices.Equal(words(table[2])[:5], words("pr-1 Ready - - main@12")) {
		t.Errorf("the table is %q", table)
	}
	says(t, words("plane list -o wide"), " URL\n")

	fails(t, `planes.plinth "main" already exists`, words("plane create main")...)
	fails(t, "metadata.name: Invalid value: \"a.b\"", words("plane create a.b")...)
	fails(t, "--from=@1 is no NAME", words("plane create x --from @1")...)
	fails(t, "--from=a@ is no NAME", words("plane create x --from a@")...)
	fails(t, "--ttl=1ms is less than a second", words("plane create x --ttl 1ms")...)
	fails(t, "--bytes=64MB is no quantity", words("plane create x --bytes 64MB")...)
	fails(t, "spec.weight", words("plane create x --weight 1001")...)
	fails(t, "--context is the name of the context that --merge adds", words("plane create x --context y")...)
	fails(t, `there is no output "jsn": did you mean -o json?`, words("plane list -o jsn")...)
	fails(t, `there is no command "plane creat": did you mean plinth plane create?`, words("plane creat")...)
	fails(t, "create needs NAME: plinth plane create NAME", words("plane create")...)
	fails(t, `planes.plinth "none" not found`, words("plane delete none")...)
	fails(t, `planes.plinth "none" not found`, words("plane kubeconfig none")...)

	if out := says(t, words("plane delete pr-1 main")); out != "The plane pr-1 is deleted.\nThe plane main is deleted.\n" {
		t.Errorf("the delete says %q", out)
	}
	says(t, words("plane list"), "There are no planes")
}

// The end of a server that is removed takes the contexts of its planes with it, as --merge has added them: none that
// was changed since, and none of another server.
//
// SPEC: BEY-9
func TestStopRemovesContextsOfPlanes(t *testing.T) {
	h := newPlaneHost(t, &kind.Config{})
	before := h.read(t)
	says(t, words("plane create pr-1 --merge"))
	says(t, words("plane create pr-2 --merge"))
	const cluster = "clusters:\n- {name: x@y, cluster: {server: 'https://y/clusters/x'}}\n"
	config := strings.Replace(h.read(t), "clusters:\n", cluster, 1)
	config = strings.Replace(config, "contexts:\n", "contexts:\n- {name: x@y, context: {cluster: x@y, user: root}}\n", 1)
	changed := strings.Replace(config, "    cluster: pr-2@plinth\n", "    cluster: pr-2@plinth\n    namespace: x\n", 1)
	if changed == config {
		t.Fatalf("the kubeconfig is\n%s", config)
	}
	h.write(t, changed)
	state := background.State{URL: "https://y", Context: "dev", Kubeconfig: h.kubeconfig}
	if said := removePlanes(t.Context(), &state); said != "" || h.read(t) != changed {
		t.Errorf("for a context that is another server's now: %s\n%s", said, h.read(t))
	}
	state.URL = h.URL
	said := removePlanes(t.Context(), &state)
	left := h.read(t)
	if !strings.Contains(said, "context pr-1@plinth in "+h.kubeconfig+" is removed.") ||
		!strings.Contains(said, "context pr-2@plinth stays") || strings.Contains(said, "x@y") {
		t.Errorf("it says %s", said)
	}
	if strings.Contains(left, "pr-1@plinth") || !strings.Contains(left, "namespace: x") ||
		strings.Count(left, "x@y") != 3 {
		t.Errorf("left is\n%s", left)
	}
	h.write(t, before)
	says(t, words("plane kubeconfig pr-1 --merge"))
	if said := removePlanes(t.Context(), &state); said == "" || h.read(t) != before {
		t.Errorf("left is\n%s\nand not\n%s", h.read(t), before)
	}
}

// The context of a plane is added beside what is there, found again, and removed.
//
// SPEC: BEY-9, RUN-7
func TestContextsOfPlanes(t *testing.T) {
	h := newPlaneHost(t, &kind.Config{})
	before := h.read(t)
	says(t, words("plane create pr-1 --merge"), "kubectl --context pr-1@plinth get namespaces")
	check := func(file, context, user, url string) {
		t.Helper()
		config, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := config.Contexts[context]
		if c == nil || c.Cluster != context && file == h.kubeconfig || c.AuthInfo != user ||
			config.Clusters[c.Cluster].Server != url || config.AuthInfos[user].Token != "secret" || c.Namespace != "" {
			t.Fatalf("the context %s is %+v in\n%s", context, c, h.read(t))
		}
	}
	check(h.kubeconfig, "pr-1@plinth", "root", h.URL+"/clusters/pr-1")
	if !strings.Contains(h.read(t), "current-context: dev\n# mine\n") {
		t.Errorf("what was there is not:\n%s", h.read(t))
	}
	// Again: it changes nothing.
	says(t, words("plane kubeconfig pr-1 --merge"), "The context pr-1@plinth is in "+h.kubeconfig)
	text := says(t, words("plane kubeconfig pr-1"))
	alone := file(t, "alone", text)
	check(alone, "pr-1@plinth", "root", h.URL+"/clusters/pr-1")

	// With the context of a plane, the planes are those of its server, and the names are the same.
	says(t, words("plane list --kubeconfig "+alone), "pr-1")
	says(t, words("plane create pr-2 --merge --kubeconfig "+alone), "kubectl --context pr-2@plinth get namespaces")
	check(h.kubeconfig, "pr-2@plinth", "pr-2@plinth", h.URL+"/clusters/pr-2") // the user is read from another file: a copy
	says(t, words("plane kubeconfig pr-1 --merge --context mine"), "The context mine is in")

	// A name that is taken is an error before there is a plane.
	config := h.read(t)
	const context = "- {name: pr-3@plinth, context: {cluster: plinth, user: root}}\n"
	h.write(t, strings.Replace(config, "contexts:\n", "contexts:\n"+context, 1))
	fails(t, h.kubeconfig+" has another context of the name pr-3@plinth; --context gives", words("plane create pr-3 --merge")...)
	h.write(t, strings.Replace(config, "clusters:\n", "clusters:\n- {name: pr-3@plinth, cluster: {server: 'https://x'}}\n", 1))
	fails(t, "has another cluster of the name pr-3@plinth", words("plane create pr-3 --merge")...)
	h.write(t, config)
	if out := says(t, words("plane list -o name")); out != "pr-1\npr-2\n" {
		t.Errorf("the planes are %q", out)
	}

	// Without a terminal nobody is asked.
	says(t, words("plane delete pr-1"), "Its context pr-1@plinth is in "+h.kubeconfig+" still", "Its context mine is in")
	check(h.kubeconfig, "pr-1@plinth", "root", h.URL+"/clusters/pr-1")
	says(t, words("plane create pr-1"))
	config = strings.Replace(h.read(t), "    cluster: mine\n", "    cluster: mine\n    namespace: x\n", 1)
	h.write(t, config)
	says(t, words("plane delete pr-1 --contexts"), "Its context pr-1@plinth in "+h.kubeconfig+" is removed.",
		"Its context mine stays in "+h.kubeconfig+", as it was changed")
	h.write(t, strings.Replace(h.read(t), "\n    namespace: x\n", "\n", 1))
	says(t, words("plane create pr-1"))
	says(t, words("plane delete pr-1 pr-2 --contexts"), "Its context mine in ", "Its context pr-2@plinth in ")
	if after := h.read(t); after != before {
		t.Errorf("after all it is\n%s\nand not\n%s", after, before)
	}
}

// Credentials of all sorts are copied as they are; names of files are made absolute.
//
// SPEC: BEY-9
func TestKubeconfigOfAPlaneIsACopy(t *testing.T) {
	h := newPlaneHost(t, &kind.Config{})
	h.write(t, "current-context: dev\nclusters:\n- name: c\n  cluster: {server: '"+h.URL+"/', certificate-authority: ca.crt, "+
		"tls-server-name: host}\ncontexts:\n- {name: dev, context: {cluster: c, user: u}}\n"+
		"users:\n- name: u\n  user: {exec: {command: ./login, args: [a], apiVersion: v1}, tokenFile: /run/token}\n")
	config, err := clientcmd.Load([]byte(says(t, words("plane kubeconfig pr-1"))))
	if err != nil {
		t.Fatal(err)
	}
	cluster, user, dir := config.Clusters["pr-1@c"], config.AuthInfos["u"], filepath.Dir(h.kubeconfig)
	if config.CurrentContext != "pr-1@c" || cluster.Server != h.URL+"/clusters/pr-1" || cluster.TLSServerName != "host" ||
		cluster.CertificateAuthority != filepath.Join(dir, "ca.crt") || user.TokenFile != "/run/token" ||
		user.Exec.Command != filepath.Join(dir, "login") || !slices.Equal(user.Exec.Args, []string{"a"}) {
		t.Errorf("it is %+v %+v %+v", config.CurrentContext, cluster, user)
	}
	fails(t, "come from the program ./login, which plinth plane does not run", words("plane list")...)
	h.write(t, "current-context: dev\nclusters: [{name: c, cluster: {server: '"+h.URL+"'}}]\n"+
		"contexts: [{name: dev, context: {cluster: c}}]\n")
	// Who may not read the plane may access it all the same.
	says(t, words("plane kubeconfig pr-1"), "server: "+h.URL+"/clusters/pr-1")
	fails(t, `User "jane" cannot list resource "planes"`, words("plane list")...)
}

// A server without planes, and one that is none of ours.
//
// SPEC: BEY-9
func TestServersWithoutPlanes(t *testing.T) {
	h := newPlaneHost(t, nil)
	for _, command := range []string{"plane list", "plane list -o name", "plane create a", "plane delete a",
		"plane kubeconfig a"} {
		fails(t, "the server at "+h.URL+" has no planes: it has to be started with plinth serve --planes", words(command)...)
	}
	h.Server.Config.Handler = http.NotFoundHandler()
	fails(t, "has no planes", words("plane list")...)
	h.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	})
	fails(t, "502 Bad Gateway", words("plane list")...)
	// Below another path, it is no plane.
	h.write(t, strings.ReplaceAll(h.read(t), h.URL, h.URL+"/k8s/clusters/c-1"))
	if _, base, err := planeContext([]string{h.kubeconfig}); err != nil || base != h.URL+"/k8s/clusters/c-1" {
		t.Errorf("the server is %s, %v", base, err)
	}
}

// A plane with finalizers is waited for, and so is one that settles.
//
// SPEC: BEY-12
func TestWaitForPlanes(t *testing.T) {
	h := newPlaneHost(t, &kind.Config{})
	send := func(method, path, body string) {
		t.Helper()
		r, err := http.NewRequest(method, h.URL+planesPath+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer secret"}, "Content-Type": {"application/merge-patch+json"}}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			t.Fatalf("%s %s: %s", method, path, response.Status)
		}
	}
	says(t, words("plane create a"))
	send("PATCH", "/a", `{"metadata":{"finalizers":["example.com/keep"]}}`)
	says(t, words("plane delete a"), "The plane a is being deleted: it is kept by example.com/keep.")
	fails(t, "the plane a is not gone within 1ms: it is kept by example.com/keep", words("plane delete a --wait --timeout 1ms")...)

	// The watch is there before the plane changes: the server sees it first.
	watched := make(chan struct{}, 1)
	inner := h.Config.Handler
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			watched <- struct{}{}
		}
		inner.ServeHTTP(w, r)
	})
	done := make(chan string)
	go func() {
		out, err := plinth(words("plane delete a --wait")...)
		if err != nil {
			out = err.Error()
		}
		done <- out
	}()
	<-watched
	send("PATCH", "/a", `{"metadata":{"finalizers":null}}`)
	if out := <-done; out != "The plane a is deleted.\n" {
		t.Errorf("it says %q", out)
	}
	s, err := planesAt([]string{h.kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	says(t, words("plane create b"))
	condition := func(status string) string {
		return `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"","lastTransitionTime":` +
			`"2030-01-01T00:00:00Z"},{"type":"Settled","status":"` + status + `","reason":"R","message":"",` +
			`"lastTransitionTime":"2030-01-01T00:00:00Z"}]}}`
	}
	send("PATCH", "/b/status", condition("False"))
	settled := make(chan error)
	go func() { settled <- s.await(t.Context(), "b", isSettled) }()
	<-watched
	send("PATCH", "/b/status", condition("True"))
	if err := <-settled; err != nil {
		t.Error(err)
	}
}

// SPEC: BEY-12, RUN-10
func TestCompletionOfPlanes(t *testing.T) {
	newPlaneHost(t, &kind.Config{})
	says(t, words("plane create main"))
	says(t, words("plane create pr-1"))
	for command, want := range map[string]string{
		"plane delete":        "main pr-1",
		"plane delete main":   "pr-1",
		"plane kubeconfig":    "main pr-1",
		"plane create --from": "main pr-1",
		"plane list -o":       "wide json yaml name",
		"plane":               "create delete kubeconfig list",
	} {
		out := says(t, append(append([]string{"__complete"}, words(command)...), ""))
		var got []string
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "Completion") {
				got = append(got, words(line)[0])
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("plinth %s is completed by %q, not %q", command, got, want)
		}
	}
}
