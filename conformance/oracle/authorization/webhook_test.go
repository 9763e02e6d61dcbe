package authorization

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	kubeauthorizer "k8s.io/kubernetes/pkg/kubeapiserver/authorizer"

	"plinth/internal/access"
	"plinth/internal/authz"
)

// hookAnswers are what the webhook answers; a status code precedes the body. With again set, two thirds of the reviews
// get this answer at the first attempt only, and then the first one of the list.
var hookAnswers = []struct {
	code  int
	body  string
	again bool
}{
	{200, `{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":true}}`, false},
	{201,
		`{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":true,"reason":"as you like"}}`, false},
	{200, `{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":false}}`, false},
	{200,
		`{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":false,"reason":"who knows"}}`, false},
	{200,
		`{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":false,"denied":true,"reason":"never"}}`, false},
	{200,
		`{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":true,"denied":true,"reason":"both"}}`, false},
	{200,
		`{"apiVersion":"authorization.k8s.io/VERSION","kind":"SubjectAccessReview","status":{"allowed":false,"evaluationError":"failed"}}`, false},
	{200, `{"status":{"allowed":true}}`, false},
	{200, `{"status":{"Allowed":true}}`, false},
	{200, `{}`, false},
	{200, ``, false},
	{200, `null`, false},
	{200, `[]`, false},
	{200, `nonsense`, false},
	{200, `{"status":{"allowed":"yes"}}`, false},
	{200, `{"status":{"allowed":true,"reason":3}}`, false},
	{200, `{"status":[]}`, false},
	{200, `{"status":{"allowed":true}`, false},
	{200, "status:\n  allowed: true\n", false},
	{200, `{"apiVersion":"authorization.k8s.io/OTHER","kind":"SubjectAccessReview","status":{"allowed":true}}`, false},
	{200, `{"apiVersion":"authorization.k8s.io/VERSION","kind":"SelfSubjectAccessReview","status":{"allowed":true}}`,
		false},
	{200, `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","code":500}`, false},
	{400, `no`, false}, {401, ``, false}, {403,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"get out","reason":"Forbidden","code":403}`, false},
	{404, `page not found`, false}, {302, ``, false},
	{500, `broken`, true}, {503, ``, true}, {504, `slow`, true}, {429, `later`, true},
	{500,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"internal","reason":"InternalError","code":500}`,
		true},
	{409,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"wait","reason":"Conflict","code":409,"details":{"retryAfterSeconds":1}}`, true},
}

// decider is the webhook of one of the two: its answer depends on the review and on how often it has received it.
type decider struct {
	*httptest.Server
	kubeconfig string

	mu    sync.Mutex
	asked []string
	count map[string]int
}

func newDecider(t *testing.T) *decider {
	d := &decider{count: map[string]int{}}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var review struct {
			APIVersion string
			Spec       any
		}
		if err := json.Unmarshal(body, &review); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
			return
		}
		version := strings.TrimPrefix(review.APIVersion, "authorization.k8s.io/")
		spec, _ := json.Marshal(review.Spec)
		d.mu.Lock()
		d.asked = append(d.asked, r.URL.String()+" "+r.Header.Get("Content-Type")+" "+string(sorted(body)))
		times := d.count[string(spec)]
		d.count[string(spec)]++
		d.mu.Unlock()
		h := fnv.New64()
		h.Write(spec)
		chosen := int(h.Sum64() % uint64(2*len(hookAnswers))) // one half of the answers are plain
		if chosen >= len(hookAnswers) {
			chosen %= 6
		}
		answer := hookAnswers[chosen]
		if answer.again && times > 0 && h.Sum64()%3 > 0 {
			answer = hookAnswers[0]
		}
		other := map[string]string{"v1": "v1beta1", "v1beta1": "v1"}[version]
		text := strings.NewReplacer("VERSION", version, "OTHER", other).Replace(answer.body)
		if strings.HasPrefix(text, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(answer.code)
		io.WriteString(w, text)
	}))
	t.Cleanup(d.Close)
	d.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: sesame}}]\n"+
			"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", d.URL+"/decide")
	if err := os.WriteFile(d.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// sorted returns JSON with its members in order.
func sorted(text []byte) []byte {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return text
	}
	text, _ = json.Marshal(v)
	return text
}

// reviews returns the reviews that the webhook has received since the last call.
func (d *decider) reviews() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.asked
	d.asked = nil
	return asked
}

// hookConfigs returns configurations with webhooks, without authorizers that read objects.
func hookConfigs(kubeconfig string) (all []string) {
	const hook = "authorizers.0.webhook."
	others := []replace{{"authorizers.1", map[string]any{"type": "AlwaysDeny", "name": "alwaysdeny"}},
		{"authorizers.2", map[string]any{
			"type": "Webhook", "name": "two", "webhook": map[string]any{
				"timeout": "30s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion", "authorizedTTL": "1ms",
				"cacheUnauthorizedRequests": false,
				"connectionInfo":            map[string]any{"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
			}}}}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, policy := range []string{"Deny", "NoOpinion"} {
			for _, conditions := range [][]string{
				nil,
				{"request.user != 'bob'"},
				{"has(request.resourceAttributes)", "request.resourceAttributes.namespace != 'ns2'"},
				{"request.resourceAttributes.verb == 'list'"}, // an error for paths
				{"request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'a' && 'b' in r.values)",
					"request.groups.exists(g, g == 'devs')"},
				{"!has(request.resourceAttributes) || !has(request.resourceAttributes.fieldSelector)",
					"request.extra['k'].size() > 1"},
				{"request.nonResourceAttributes.path.startsWith('/h') || request.uid == ''"},
				{"request.groups.map(a, request.groups.map(b, request.groups.map(c, a + b + c))).size() >= 0 && request.user != ''"},
			} {
				list := []any{}
				for _, text := range conditions {
					list = append(list, map[string]any{"expression": text})
				}
				all = append(all, configWith(kubeconfig, append(others, replace{hook + "subjectAccessReviewVersion", version},
					replace{hook + "failurePolicy", policy}, replace{hook + "matchConditions", list})...))
			}
		}
	}
	return all
}

// hookRequest returns a random request, as a webhook may get it in a review.
func hookRequest(r *rand.Rand) *access.Attributes {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	a := &access.Attributes{User: access.User{Name: pick("alice", "bob", "", "system:node:n"), UID: pick("", "7")}}
	for _, group := range []string{"devs", "ops", "system:authenticated"} {
		if r.IntN(2) == 0 {
			a.User.Groups = append(a.User.Groups, group)
		}
	}
	switch r.IntN(4) {
	case 0:
		a.User.Extra = map[string][]string{"k": {"v", "w"}, "other.io/x": {}}
	case 1:
		a.User.Extra = map[string][]string{"k": {"ü\"\\<"}}
	}
	if a.Verb = pick("get", "list", "watch", "create", "deletecollection", ""); r.IntN(4) == 0 {
		a.Path = pick("/healthz", "/", "", "/apis/a.io/")
		return a
	}
	a.IsResource, a.Path = true, "/ignored"
	a.Group, a.Version, a.Resource = pick("", "apps"), pick("v1", "*"), pick("pods", "deployments")
	a.Subresource, a.Namespace, a.Name = pick("", "", "status"), pick("", "ns1", "ns2"), pick("", "x", "y")
	a.FieldSelector = pick("", "", "metadata.name=x", "metadata.name!=x,spec.a==b", "=", "a=b,c", "a=",
		"metadata.name in (a)")
	a.LabelSelector = pick("", "", "a=b", "a in (b,c),!d", "a notin (c,b),e", "a!=b,a>3", "a in (", "a,a,a", "x/y/z=1")
	return a
}

// recordOf converts a request to the form of the reference's authorizers.
func recordOf(a *access.Attributes) authorizer.Attributes {
	record := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra},
		Verb: a.Verb, Path: a.Path, ResourceRequest: a.IsResource, APIGroup: a.Group, APIVersion: a.Version,
		Resource:    a.Resource,
		Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
	}
	if a.FieldSelector != "" {
		if selector, err := fields.ParseSelector(a.FieldSelector); err != nil {
			record.FieldSelectorParsingErr = err
		} else {
			record.FieldSelectorRequirements = selector.Requirements()
		}
	}
	if a.LabelSelector != "" {
		if selector, err := labels.Parse(a.LabelSelector); err != nil {
			record.LabelSelectorParsingErr = err
		} else {
			record.LabelSelectorRequirements, _ = selector.Requirements()
		}
	}
	return record
}

// Parts of errors that differ: the addresses of the two webhooks, the packages of types, and the message for an empty
// response.
var differentInHooks = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`0-length response with status code: \d+ and content type: [a-z/]*`), "0-length response"},
	{regexp.MustCompile(`of type (v1|v1beta1|authz)\.`), "of type "},
}

func hookError(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, d := range differentInHooks {
		text = d.found.ReplaceAllString(text, d.as)
	}
	// Errors that differ only in such parts are listed once on the side where these are equal, and twice on the other.
	if inner, ok := strings.CutPrefix(text, "["); ok {
		parts := slices.Compact(strings.Split(strings.TrimSuffix(inner, "]"), ", "))
		if text = "[" + strings.Join(parts, ", ") + "]"; len(parts) == 1 {
			text = parts[0]
		}
	}
	return text
}

// Both make the same decisions with the same reasons, and send their webhooks the same reviews, equally often.
//
// SPEC: AUTH-2
func TestWebhooks(t *testing.T) {
	const each, leastReviews = 120, 2000
	compiler := authorizationcel.NewDefaultCompiler()
	r := rand.New(rand.NewPCG(1, 14))
	hooks := [2]*decider{newDecider(t), newDecider(t)}
	reviews, errs := 0, 0
	decided := map[access.Decision]int{}
	configs := hookConfigs(hooks[0].kubeconfig)
	for i, text := range hookConfigs(hooks[1].kubeconfig) {
		config, err := kubeauthorizer.LoadAndValidateData([]byte(configs[i]), compiler, nil)
		if err != nil {
			t.Fatal(err)
		}
		reference, _, err := kubeauthorizer.Config{
			AuthorizationConfiguration: config, WebhookRetryBackoff: &wait.Backoff{Duration: time.Microsecond,
				Factor: 1.5, Jitter: 0.2, Steps: 5},
		}.New(t.Context(), "server")
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := authz.ParseConfig([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := authz.New(parsed, authz.Options{Logger: slog.New(slog.DiscardHandler), RetryDelay: time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			a := hookRequest(r)
			decision, reason, err := reference.Authorize(context.Background(), recordOf(a))
			got, why, gotErr := ours.Authorize(context.Background(), a)
			want := map[authorizer.Decision]access.Decision{
				authorizer.DecisionAllow: access.Allow, authorizer.DecisionDeny: access.Deny,
				authorizer.DecisionNoOpinion: access.NoOpinion,
			}[decision]
			if got != want || why != reason || hookError(gotErr) != hookError(err) {
				t.Errorf("%s\n%+v\n--- reference\n%v %q %s\n+++ here\n%v %q %s", text, a, want, reason, hookError(err),
					got, why, hookError(gotErr))
			}
			sent, sentHere := hooks[0].reviews(), hooks[1].reviews()
			if !slices.Equal(sent, sentHere) {
				t.Errorf("%s\n--- reference\n%s\n+++ here\n%s", text, strings.Join(sent, "\n"), strings.Join(sentHere, "\n"))
			}
			reviews += len(sent)
			decided[want]++
			if err != nil {
				errs++
			}
		}
		if t.Failed() && i > 3 {
			break
		}
	}
	t.Logf("%d reviews, %d errors, %v", reviews, errs, decided)
	if reviews < leastReviews || errs < 300 || decided[access.Allow] < 300 || decided[access.Deny] < 300 ||
		decided[access.NoOpinion] < 300 {
		t.Errorf("only %d reviews were compared, %d errors, %v decisions", reviews, errs, decided)
	}
}
