package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/shell"
)

// methods are the words that begin a request line. Patches have a word for each type.
var methods = map[string]struct{ method, contentType string }{
	"GET":       {http.MethodGet, ""},
	"POST":      {http.MethodPost, "application/yaml"},
	"PUT":       {http.MethodPut, "application/yaml"},
	"DELETE":    {http.MethodDelete, "application/yaml"},
	"APPLY":     {http.MethodPatch, "application/apply-patch+yaml"},
	"MERGE":     {http.MethodPatch, "application/merge-patch+json"},
	"JSON":      {http.MethodPatch, "application/json-patch+json"},
	"STRATEGIC": {http.MethodPatch, "application/strategic-merge-patch+json"},
}

// homes are the paths of resources that scripts name without their whole path; ~ is the script's namespace.
var homes = map[string]string{
	"configmaps": "/api/v1/~/", "secrets": "/api/v1/~/", "pods": "/api/v1/~/", "services": "/api/v1/~/",
	"events":                 "/api/v1/~/",
	"replicationcontrollers": "/api/v1/~/", "serviceaccounts": "/api/v1/~/", "endpoints": "/api/v1/~/",
	"persistentvolumeclaims": "/api/v1/~/",
	"resourcequotas":         "/api/v1/~/",
	"namespaces":             "/api/v1/", "nodes": "/api/v1/", "persistentvolumes": "/api/v1/",
	"deployments": "/apis/apps/v1/~/", "replicasets": "/apis/apps/v1/~/", "statefulsets": "/apis/apps/v1/~/",
	"daemonsets":               "/apis/apps/v1/~/",
	"horizontalpodautoscalers": "/apis/autoscaling/v2/~/", "jobs": "/apis/batch/v1/~/", "cronjobs": "/apis/batch/v1/~/",
	"networkpolicies": "/apis/networking.k8s.io/v1/~/", "ingresses": "/apis/networking.k8s.io/v1/~/",
	"roles": "/apis/rbac.authorization.k8s.io/v1/~/", "rolebindings": "/apis/rbac.authorization.k8s.io/v1/~/",
	"clusterroles": "/apis/rbac.authorization.k8s.io/v1/", "poddisruptionbudgets": "/apis/policy/v1/~/",
}

// runner sends the steps of one script to one server.
type runner struct {
	server    *harness.Server
	client    *http.Client
	namespace string
	home, dir string
	shell     *shell.Shell
	seen      seen
}

// newRunner creates the script's namespace. All scripts share home, where discovery and the schemas are cached.
func newRunner(server *harness.Server, client *http.Client, home string, s *script) (*runner, error) {
	r := &runner{server: server, client: client, namespace: "apply-" + s.name(), home: home,
		dir: filepath.Join(home, s.name()), seen: seen{}}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	config, err := clientcmd.LoadFromFile(server.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Contexts[config.CurrentContext].Namespace = r.namespace
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	if r.shell, err = shell.New(r.dir, home, kubeconfig, "TMPDIR="+r.dir); err != nil {
		return nil, err
	}
	_, _, err = r.send(http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata": {"name": %q}}`, r.namespace),
		http.Header{"Content-Type": {"application/json"}})
	return r, err
}

// do runs a step and returns its normalised result.
func (r *runner) do(st *step) (string, error) {
	command, err := r.expand(st.command)
	if err != nil {
		return "", err
	}
	stdin, err := r.expand(st.stdin)
	if err != nil {
		return "", err
	}
	var out string
	if strings.HasPrefix(command, "$ ") {
		printed := r.shell.Run(strings.ReplaceAll(strings.TrimPrefix(command, "$ "), "\n$ ", "\n"), stdin)
		printed.Stderr = withoutExplanation(printed.Stderr)
		out = r.normalise(printed.String())
	} else if out, err = r.request(command, stdin, st.headers); err != nil {
		return "", err
	}
	for _, target := range st.show {
		status, body, err := r.send(http.MethodGet, r.path(target), "", http.Header{})
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("(%d)", status)
		if status == http.StatusOK {
			if text, err = r.seen.print(body); err != nil {
				return "", err
			}
		}
		out = strings.TrimSpace(out) + "\n--- " + target + "\n" + text
	}
	return strings.TrimSpace(out), nil
}

// requestTimeout is much longer than any request takes.
const requestTimeout = 60 * time.Second

// request sends a request line with its body and returns the printed response.
func (r *runner) request(line, body string, headers []string) (string, error) {
	word, target, _ := strings.Cut(line, " ")
	m := methods[word]
	header := http.Header{"User-Agent": {"conformance/1.0"}}
	if body != "" {
		header.Set("Content-Type", m.contentType)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		header.Set(name, strings.TrimSpace(value))
	}
	if strings.HasSuffix(header.Get("Content-Type"), "patch+json") {
		converted, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			return "", err
		}
		body = string(converted)
	}
	status, answer, err := r.send(m.method, r.path(target), body, header)
	if err != nil {
		return "", err
	}
	text, err := r.answer(status, answer)
	return r.normalise(text), err
}

// path returns the complete URL path of a target.
func (r *runner) path(target string) string {
	resource, _, _ := strings.Cut(target, "/")
	resource, _, _ = strings.Cut(resource, "?")
	if home, ok := homes[resource]; ok {
		target = home + target
	}
	return strings.Replace(target, "/~/", "/namespaces/"+r.namespace+"/", 1)
}

func (r *runner) send(method, path, body string, header http.Header) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.server.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header = header.Clone()
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	response, err := r.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

var macro = regexp.MustCompile(`\$\{(rv|uid) ([^}]+)\}`)

// expand substitutes the current resourceVersion or uid of an object.
func (r *runner) expand(text string) (string, error) {
	var failed error
	out := macro.ReplaceAllStringFunc(text, func(found string) string {
		m := macro.FindStringSubmatch(found)
		_, body, err := r.send(http.MethodGet, r.path(m[2]), "", http.Header{})
		var object struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		if err == nil {
			err = json.Unmarshal(body, &object)
		}
		if err != nil {
			failed = fmt.Errorf("%s: %w", found, err)
		}
		if m[1] == "uid" {
			return object.Metadata.UID
		}
		return object.Metadata.ResourceVersion
	})
	return out, failed
}
