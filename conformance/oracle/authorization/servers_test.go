package authorization

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// hookSteps are requests of the user "somebody", of the administrator, and without credentials. The decider begins anew
// for each server, so that both get the same answers.
var hookSteps = []struct{ token, request, body string }{
	{harness.AdminToken, "POST /api/v1/namespaces", `{"metadata":{"name":"ns1"}}`},
	{harness.UserToken, "GET /api/v1/namespaces/ns1/configmaps", ""},
	{harness.UserToken,
		"GET /api/v1/namespaces/ns1/configmaps?labelSelector=a+in+(b,c),!d&fieldSelector=metadata.name%3Dx", ""},
	{harness.UserToken, "GET /api/v1/namespaces/ns1/configmaps?labelSelector=a+in+(", ""},
	{harness.UserToken, "POST /api/v1/namespaces/ns1/configmaps", `{"metadata":{"name":"a"}}`},
	{harness.UserToken, "POST /api/v1/namespaces/ns1/configmaps", `{"metadata":{"name":"b"}}`},
	{harness.UserToken, "GET /api/v1/namespaces/ns1/configmaps/a", ""},
	{harness.UserToken, "PUT /api/v1/namespaces/ns1/configmaps/c", `{"metadata":{"name":"c"}}`},
	{harness.UserToken, "DELETE /api/v1/namespaces/ns1/configmaps", ""},
	{harness.UserToken, "GET /api/v1/namespaces/ns2/pods/x/status", ""},
	{harness.UserToken, "GET /apis/apps/v1/deployments?watch=true&timeoutSeconds=1", ""},
	{harness.UserToken, "GET /healthz", ""},
	{harness.UserToken, "GET /metrics", ""},
	{harness.UserToken, "GET /apis/nowhere.io/v1", ""},
	{"", "GET /api/v1/nodes", ""},
	{"", "GET /version", ""},
	{harness.UserToken, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods","namespace":"ns1"}}}`},
	{harness.UserToken, "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"ns1"}}`},
	{harness.AdminToken, "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"ns1"}}`},
	{harness.AdminToken, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		`{"spec":{"user":"u1","uid":"7","groups":["g"],"extra":{"k":["v"]},"resourceAttributes":{"verb":"list","resource":"pods","version":"v1","labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"Near"}]}}}}`},
	{harness.AdminToken, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		`{"spec":{"user":"u2","resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"rawSelector":"spec.nodeName=n"}}}}`},
	{harness.AdminToken, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		`{"spec":{"user":"u3","nonResourceAttributes":{"verb":"get","path":"/x"}}}`},
	{harness.AdminToken, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		`{"spec":{"user":"u4","groups":["system:masters"],"nonResourceAttributes":{"verb":"get","path":"/x"}}}`},
	{harness.AdminToken, "POST /apis/authorization.k8s.io/v1/namespaces/ns1/localsubjectaccessreviews",
		`{"metadata":{"namespace":"ns1"},"spec":{"user":"u5","resourceAttributes":{"namespace":"ns1","verb":"get","resource":"secrets","name":"x"}}}`},
}

// The parts of responses that differ in each run.
var differentInAnswers = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`"(resourceVersion|uid)":"[^"]*"`), `"$1":""`},
	{regexp.MustCompile(`"(creationTimestamp|time)":"[^"]*"`), `"$1":""`},
	{regexp.MustCompile(`(0-length response)[^"]*`), "$1"},
	{regexp.MustCompile(`of type (v1|authz)\.`), "of type "},
}

// play sends all requests to a server and returns, for each, the response and the reviews that the webhook received,
// except those about the server itself.
func play(t *testing.T, server *harness.Server, hook *decider) (all []string) {
	t.Helper()
	client := server.OldClient()
	client.Timeout = time.Minute
	hook.reviews()
	for _, step := range hookSteps {
		method, path, _ := strings.Cut(step.request, " ")
		request, err := http.NewRequest(method, server.URL+path, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		if step.token != "" {
			request.Header.Set("Authorization", "Bearer "+step.token)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("%s: %v", step.request, err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		text := string(body)
		if json.Valid(body) {
			text = string(sorted(body))
		}
		if strings.HasSuffix(path, "rulesreviews") { // the reference lists rules in random order
			words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[]{},", r) })
			slices.Sort(words)
			text = strings.Join(words, " ")
		}
		for _, d := range differentInAnswers {
			text = d.found.ReplaceAllString(text, d.as)
		}
		if response.StatusCode == 200 && (strings.Contains(path, "/metrics") || strings.Contains(path, "/version") ||
			strings.Contains(path, "/deployments")) {
			text = "" // differs between servers
		}
		asked := slices.DeleteFunc(hook.reviews(), func(review string) bool {
			return strings.Contains(review,
				`"user":"system:apiserver"`)
		})
		all = append(all, fmt.Sprintf("%s\n%d %s\n%s", step.request, response.StatusCode, text, strings.Join(asked, "\n")))
	}
	return all
}

// Servers with the same configuration and the same webhook give the same responses and send the same reviews,
// configured by a file with conditions and by flags.
//
// SPEC: AUTH-2
func TestServers(t *testing.T) {
	hook := newDecider(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "authorization.json")
	text := configWith(hook.kubeconfig, replace{"authorizers.0.webhook.subjectAccessReviewVersion", "v1"},
		replace{"authorizers.0.webhook.matchConditions",
			[]any{map[string]any{"expression": "!has(request.resourceAttributes) || request.resourceAttributes.name != 'a'"}}},
		replace{"authorizers.1", map[string]any{"type": "AlwaysDeny", "name": "alwaysdeny"}})
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{
		"file": {"--authorization-config=" + file},
		"flags": {"--authorization-mode=RBAC,Webhook", "--authorization-webhook-config-file=" + hook.kubeconfig,
			"--authorization-webhook-cache-unauthorized-ttl=0"},
	} {
		t.Run(name, func(t *testing.T) {
			hook.count = map[string]int{}
			ours := play(t, harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: flags}), hook)
			codes, reviews := map[string]int{}, 0
			for _, line := range ours {
				parts := strings.SplitN(line, "\n", 3)
				codes[parts[1][:3]]++
				reviews += strings.Count(parts[2], "SubjectAccessReview")
			}
			if reviews < 15 || codes["403"] < 3 || codes["200"]+codes["201"] < 8 {
				t.Errorf("%d reviews, codes %v", reviews, codes)
			}
			if !harness.WantReference() {
				return
			}
			hook.count = map[string]int{}
			for i, want := range play(t, harness.Run(t, harness.Options{Kind: harness.Reference, Flags: flags}), hook) {
				if want != ours[i] {
					t.Errorf("--- reference\n%s\n+++ here\n%s", want, ours[i])
				}
			}
		})
	}
}

// badStarts are flags with which neither server starts, and the message of both; FILE is a file with the text.
var badStarts = []struct{ flags, text, says string }{
	{"--authorization-config=/nowhere", "", "open /nowhere: no such file or directory"},
	{"--authorization-config=FILE", "", "authorizers: Required value: at least one authorization mode must be defined"},
	{"--authorization-config=FILE", "x",
		"failed to load AuthorizationConfiguration from file: couldn't get version/kind; json parse error: "},
	{"--authorization-config=FILE",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: x}]",
		"expected name rbac for authorizer RBAC instead of x"},
	{"--authorization-config=FILE",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: rbac, x: y}]", `strict decoding error: unknown field "authorizers[0].x"`},
	{"--authorization-config=FILE --authorization-mode=RBAC", "",
		"--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"},
	{"--authorization-config=FILE --authorization-webhook-version=v1", "",
		"--authorization-config can not be specified when"},
	{"--authorization-mode=Nope", "", `authorization-mode "Nope" is not a valid mode`},
	{"--authorization-mode=RBAC,Node,RBAC", "",
		`authorization-mode ["RBAC" "Node" "RBAC"] has mode specified more than once`},
	{"--authorization-mode=Webhook", "", "authorization-mode Webhook's authorization config file not passed"},
	{"--authorization-mode=RBAC --authorization-webhook-config-file=FILE", "",
		"cannot specify --authorization-webhook-config-file without mode Webhook"},
}

// SPEC: AUTH-2
func TestBadStarts(t *testing.T) {
	plinth, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{plinth}
	if harness.WantReference() {
		folder, err := reference.Build(os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, filepath.Join(folder, reference.APIServer))
	}
	for i, c := range badStarts {
		dir := t.TempDir()
		file := filepath.Join(dir, fmt.Sprint("file", i))
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := strings.Fields(strings.ReplaceAll(c.flags, "FILE", file))
		for _, program := range programs {
			args := append([]string{"serve", "--data-dir=" + filepath.Join(dir, "data"), "--secure-port=0"}, flags...)
			if program != plinth {
				if err := reference.ServiceAccountKeys(dir); err != nil {
					t.Fatal(err)
				}
				args = append([]string{"--etcd-servers=http://127.0.0.1:1", "--cert-dir=" + dir,
					"--service-account-issuer=https://a", "--service-account-key-file=" +
						filepath.Join(dir, "sa.pub"), "--service-account-signing-key-file=" + filepath.Join(dir, "sa.key")}, flags...)
			}
			out, err := exec.Command("timeout", append([]string{"30", program}, args...)...).CombinedOutput()
			if said := strings.ReplaceAll(string(out), `\"`, `"`); err == nil || !strings.Contains(said, c.says) {
				t.Errorf("%s %s: %v\n%s\ndoes not say %s", filepath.Base(program), flags, err, said, c.says)
			}
		}
	}
}
