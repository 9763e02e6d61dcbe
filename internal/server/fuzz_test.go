package server

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"plinth/object"
)

// inProcess is a server with storage in memory that is called only through its handler. dir keeps the keys, whose
// generation takes the longest.
func inProcess(t testing.TB, dir string) *Server {
	t.Helper()
	c := Defaults()
	c.DataDir, c.Storage, c.SecurePort, c.Logger = dir, "memory", 0, slog.New(slog.DiscardHandler)
	c.TokenAuthFile = tokenFile(t, dir)
	s, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tokenFile writes the token file by which requests from asAdmin are authenticated as the administrator's.
func tokenFile(t testing.TB, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(file, []byte("sesame,admin,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// asAdmin makes the request one of the cluster's administrator.
func asAdmin(r *http.Request) *http.Request {
	r.Header.Set("Authorization", "Bearer sesame")
	return r
}

// A script is a sequence of steps, each after a line of ===, with a request line, headers, an empty line and a body.
const scriptStep = "\n===\n"

// scriptRequest reads a step. It is false for requests that an HTTP server would not pass to its handler.
func scriptRequest(step string) (*http.Request, bool) {
	head, body, _ := strings.Cut(step, "\n\n")
	lines := strings.Split(head, "\n")
	method, target, ok := strings.Cut(lines[0], " ")
	if _, err := url.ParseRequestURI(target); !ok || err != nil || !strings.HasPrefix(target, "/") ||
		strings.ContainsAny(target, " \t\r\x00") {
		return nil, false
	}
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		return nil, false
	}
	r.RequestURI = target
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsFunc(name, func(c rune) bool {
			return !strings.ContainsRune("-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", c)
		}) ||
			strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return nil, false
		}
		r.Header.Add(textproto.CanonicalMIMEHeaderKey(name), strings.TrimSpace(value))
	}
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return asAdmin(r), true
}

// No request panics or fails with a server error, and every refusal is a Status.
// SPEC: URI-9
func TestHostileRequests(t *testing.T) {
	dir := t.TempDir()
	const few = 50 // so that the servers do not take longer than the requests
	for _, script := range append(recordedScripts(t, few), hostileScripts()...) {
		runScript(t, dir, script)
	}
}

// The same for generated requests. The seeds are small, as every run starts a server. Without a search they are few, as
// TestHostileRequests sends all of these requests.
// SPEC: URI-9
func FuzzHandler(f *testing.F) {
	each := 111
	if flag.Lookup("test.fuzz").Value.String() != "" {
		each = 11
	}
	for i, script := range recordedScripts(f, 1) {
		if i%each == 0 {
			f.Add(script)
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, script string) { runScript(t, dir, script) })
}

// clientFaults are errors of the client for which the reference, too, answers with 500.
var clientFaults = []string{
	"Non-matching dry-run options in request and content",
	"This pod has more than one PodDisruptionBudget",
	"duplicate nodePort",
	"no preferred addresses found", // of a Node that has none
	`:1/containerLogs/`,            // of a kubelet that does not run
}

// runScript sends the requests of a script to a new server.
func runScript(t *testing.T, dir, script string) {
	t.Helper()
	s := inProcess(t, dir)
	defer s.Close()
	for i, step := range strings.Split(script, scriptStep) {
		r, ok := scriptRequest(step)
		if !ok {
			continue
		}
		if err := sendStep(s, r); err != nil {
			if len(step) > 2000 {
				step = step[:2000] + "…"
			}
			t.Errorf("step %d: %v\n%s", i, err, step)
		}
	}
}

// sendStep serves one request and returns what is wrong with the response.
func sendStep(s *Server, r *http.Request) (err error) {
	patience := 200 * time.Millisecond
	if strings.Contains(r.URL.RawQuery, "watch") || strings.Contains(r.URL.Path, "/watch/") {
		patience = 5 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w := httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil && (p != http.ErrAbortHandler || ctx.Err() == nil) {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	began := time.Now()
	s.http.Handler.ServeHTTP(w, r.WithContext(ctx))
	if took := time.Since(began); took > patience+10*time.Second {
		return fmt.Errorf("it took %s", took)
	}
	return judge(r, w)
}

// judge checks a response.
func judge(r *http.Request, w *httptest.ResponseRecorder) error {
	body := w.Body.String()
	media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	told := func(text string) error {
		return fmt.Errorf("%s: %d %s %.2000q", text, w.Code, media, body)
	}
	if strings.Contains(body, "caused apiserver to panic") {
		return told("panic")
	}
	switch w.Code {
	case http.StatusNotImplemented, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		if w.Code >= 500 && !slices.ContainsFunc(clientFaults,
			func(told string) bool { return strings.Contains(body, told) }) {
			return told("the server's fault")
		}
	}
	if r.Method == http.MethodHead || len(body) == 0 && w.Code < 400 {
		return nil
	}
	if media == "application/json" && w.Header().Get("Content-Encoding") == "" {
		if !utf8.ValidString(body) {
			return told("no UTF-8")
		}
		decoder := json.NewDecoder(strings.NewReader(body))
		for decoder.More() {
			var any json.RawMessage
			if err := decoder.Decode(&any); err != nil {
				return told("no JSON: " + err.Error())
			}
		}
	}
	path := r.URL.Path
	if w.Code < 400 || !strings.HasPrefix(path, "/api/") && !strings.HasPrefix(path, "/apis/") {
		return nil
	}
	switch media {
	case "application/yaml":
		parsed, err := object.ParseYAML([]byte(body))
		if err != nil {
			return told("no YAML: " + err.Error())
		}
		return checkStatus(w.Code, parsed.Value)
	case "application/vnd.kubernetes.protobuf":
		if !strings.HasPrefix(body, "k8s\x00") || !strings.Contains(body, "Status") {
			return told("no Status")
		}
		return nil
	case "application/json":
		parsed, err := object.ParseJSON([]byte(body))
		if err != nil {
			return told(err.Error())
		}
		return checkStatus(w.Code, parsed.Value)
	case "text/plain": // an unknown path, as in the reference
		if w.Code == http.StatusNotFound || w.Code == http.StatusMethodNotAllowed || w.Code == http.StatusNotAcceptable {
			return nil
		}
		if w.Code == http.StatusGatewayTimeout { // a Status without its type, as the reference's filter for time-outs has it
			parsed, err := object.ParseJSON([]byte(body))
			if err != nil {
				return told(err.Error())
			}
			if parsed.Value.At("code").Int() == http.StatusGatewayTimeout {
				return nil
			}
		}
	}
	return told("no Status")
}

func checkStatus(code int, status object.Value) error {
	said := status.At("code").Int()
	switch {
	case status.At("kind").Str() != "Status" && status.At("apiVersion").Str() != "v1":
		return errors.New("an error is no Status")
	case said != int64(code), status.At("status").Str() != "Failure", status.At("message").Str() == "",
		status.At("metadata").Kind() != object.Map:
		return fmt.Errorf("not well-formed with code %d: %s", code, object.AppendJSON(nil, status))
	}
	return nil
}

var repeated = regexp.MustCompile(`\$\(repeat ([0-9]+) "([^"]*)"\)`)

// recordedScripts are the requests that the conformance suite sends, a few at a time, after the first ones of their
// file, which create the namespace and the first objects.
func recordedScripts(f testing.TB, few int) []string {
	files, err := filepath.Glob("../../conformance/http/requests/testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no scripts to begin with", err)
	}
	var scripts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		steps := recordedSteps(string(text))
		const first = 3
		opening := strings.Join(steps[:min(first, len(steps))], scriptStep)
		for from := first; from < len(steps); from += few {
			scripts = append(scripts, opening+scriptStep+strings.Join(steps[from:min(from+few, len(steps))], scriptStep))
		}
	}
	return scripts
}

func recordedSteps(text string) []string {
	var steps []string
	for i, part := range strings.Split("\n"+text, "\n===") {
		if i == 0 {
			continue
		}
		_, part, _ = strings.Cut(part, "\n") // its title
		part, _, _ = strings.Cut(part, "\n-->")
		for strings.HasPrefix(part, "@") {
			_, part, _ = strings.Cut(part, "\n")
		}
		part = repeated.ReplaceAllStringFunc(part, func(call string) string {
			args := repeated.FindStringSubmatch(call)
			n, _ := strconv.Atoi(args[1])
			return strings.Repeat(args[2], min(n, 2000))
		})
		if part != "" && !strings.HasPrefix(part, "READ ") {
			steps = append(steps, part)
		}
	}
	return steps
}

// hostileShapes are members and lists of the wrong shape, in the places that every object has.
var hostileShapes = []string{
	`null`, `{}`, `[]`, `""`, `0`, `-1`, `1e999`, `true`, `[null]`, `[[]]`, `[{}]`, `{"":null}`, `{"a":null}`, `{"a":{}}`,
	`{"a":[null,{}]}`, `"\ud800"`, `"` + "é" + `"`,
	`9223372036854775807`, `-9223372036854775808`, `[{"a":null},null,{"name":null}]`, `"9999999999999999999999999Ei"`,
	`"2026-01-01T00:00:00Z"`,
}

// hostileScripts create, change and delete objects of many kinds with such shapes in them.
func hostileScripts() []string {
	collections := []string{
		"/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/configmaps",
		"/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/events",
		"/apis/events.k8s.io/v1/namespaces/default/events",
		"/apis/apps/v1/namespaces/default/deployments", "/apis/batch/v1/namespaces/default/jobs",
		"/apis/batch/v1/namespaces/default/cronjobs",
		"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
		"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
		"/api/v1/namespaces", "/api/v1/nodes", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"/apis/networking.k8s.io/v1/namespaces/default/ingresses",
		"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
		"/apis/policy/v1/namespaces/default/poddisruptionbudgets",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/coordination.k8s.io/v1/namespaces/default/leases",
		"/apis/storage.k8s.io/v1/csidrivers", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
		"/api/v1/persistentvolumes",
		"/apis/certificates.k8s.io/v1/certificatesigningrequests",
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
		"/api/v1/namespaces/default/pods/x/eviction", "/api/v1/namespaces/default/serviceaccounts/x/token",
		"/api/v1/namespaces/default/bindings",
	}
	members := []string{"metadata", "spec", "status", "data", "rules", "subjects", "template", "involvedObject",
		"regarding", "series", "webhooks", "endpoints"}
	var scripts []string
	for _, collection := range collections {
		var steps []string
		for i, shape := range hostileShapes {
			member := members[i%len(members)]
			steps = append(steps,
				fmt.Sprintf("POST %s\n\n{\"metadata\":{\"name\":\"x%d\"},%q:%s}", collection, i, member, shape),
				fmt.Sprintf("POST %s\n\n{\"metadata\":{\"name\":\"y%d\",\"labels\":%s,\"finalizers\":%s}}", collection, i,
					shape, shape),
				fmt.Sprintf(
					"POST %s\n\n{\"metadata\":{\"generateName\":\"z\",\"ownerReferences\":%s,\"annotations\":%s,\"managedFields\":%s}}", collection, shape, shape, shape),
				fmt.Sprintf("POST %s\n\n{\"metadata\":%s}", collection, shape),
				fmt.Sprintf("POST %s\n\n%s", collection, shape),
			)
			for _, m := range members {
				steps = append(steps, fmt.Sprintf("PATCH %s/x\nContent-Type: application/merge-patch+json\n\n{%q:%s}",
					collection, m, shape))
			}
			steps = append(steps,
				fmt.Sprintf("PATCH %s/x\nContent-Type: application/merge-patch+json\n\n%s", collection, shape),
				fmt.Sprintf(
					"PATCH %s/x\nContent-Type: application/json-patch+json\n\n[{\"op\":\"add\",\"path\":\"/metadata\",\"value\":%s},%s]", collection, shape, shape),
				fmt.Sprintf("PATCH %s/x\nContent-Type: application/json-patch+json\n\n[{\"op\":%s,\"path\":%s,\"from\":%s}]",
					collection, shape, shape, shape),
				fmt.Sprintf("PUT %s/x/status\n\n{\"metadata\":{\"name\":\"x\"},\"status\":%s}", collection, shape),
				fmt.Sprintf("PUT %s/x/scale\n\n{\"metadata\":{\"name\":\"x\"},\"spec\":%s,\"status\":%s}", collection,
					shape, shape),
				fmt.Sprintf("DELETE %s/x\n\n{\"preconditions\":%s,\"gracePeriodSeconds\":%s}", collection, shape, shape),
				fmt.Sprintf("DELETE %s?labelSelector=%s\n\n%s", collection, url.QueryEscape(shape), shape),
			)
		}
		opening := fmt.Sprintf(
			"POST %s\n\n{\"metadata\":{\"name\":\"x\"},\"spec\":{\"selector\":{\"matchLabels\":{\"a\":\"b\"}},\"template\":{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"restartPolicy\":\"Never\",\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}},\"containers\":[{\"name\":\"c\",\"image\":\"i\"}],\"ports\":[{\"port\":80}],\"maxReplicas\":2,\"scaleTargetRef\":{\"kind\":\"D\",\"name\":\"d\"}}}", collection)
		scripts = append(scripts, opening+scriptStep+strings.Join(steps, scriptStep)+scriptStep+"GET "+collection)
	}
	return scripts
}
