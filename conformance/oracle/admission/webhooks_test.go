package admission

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	genericwebhook "k8s.io/apiserver/pkg/util/webhook"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	kubeadmission "k8s.io/kubernetes/pkg/kubeapiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	ours "plinth/internal/admission"
	"plinth/internal/admission/hooks"
	"plinth/internal/admission/webhooks"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/webhook"
)

// hookServer answers the webhooks of both sides: the last part of the path says how. It keeps what it was asked.
type hookServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newHookServer(t testing.TB) *hookServer {
	h := &hookServer{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(h.answer))
	t.Cleanup(h.Close)
	return h
}

// take returns what was asked since the last call: in order, or sorted if the order is by chance.
func (h *hookServer) take(ordered bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.asked
	h.asked = nil
	if !ordered {
		slices.Sort(asked)
	}
	return asked
}

// client is the clientConfig of a hook that answers in this way.
func (h *hookServer) client(way string) string {
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return fields("url", quoted(h.URL+"/"+way), "caBundle", base64.StdEncoding.EncodeToString(bundle))
}

// hookWays are ways to answer that do not refuse a request; UID stands for that of the request, PATCH(x) for a patch.
var hookWays = map[string]string{
	"allow":       `{"uid":"UID","allowed":true}`,
	"allow-too":   `{"uid":"UID","allowed":true,"status":{"message":"fine","code":200}}`,
	"warn":        `{"uid":"UID","allowed":true,"warnings":["one","two"],"auditAnnotations":{"a":"b","c":"d"}}`,
	"empty-patch": `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"PATCH([])"}`,
}

// hookPatches are ways that change the object, or try to.
var hookPatches = map[string]string{
	"set":       `[{"op":"add","path":"/metadata/annotations","value":{"set":"by the hook"}}]`,
	"label":     `[{"op":"add","path":"/metadata/labels/hooked","value":"yes"}]`,
	"label-app": `[{"op":"add","path":"/metadata/labels","value":{"app":"web","tier":"front"}}]`,
	"unlabel":   `[{"op":"remove","path":"/metadata/labels"}]`,
	"same":      `[{"op":"replace","path":"/metadata/name","value":"p"}]`,
	"image":     `[{"op":"replace","path":"/spec/containers/0/image","value":"other"}]`,
	"container": `[{"op":"add","path":"/spec/containers/-","value":{"name":"x","image":"x:1"}}]`,
	"unknown":   `[{"op":"add","path":"/nothing","value":"x"}]`,
	"data":      `[{"op":"add","path":"/data","value":{"k":"v"}}]`,
	"bad-type":  `[{"op":"add","path":"/spec","value":"none"}]`,
	"bad-path":  `[{"op":"remove","path":"/data/none"}]`,
	"bad-test":  `[{"op":"test","path":"/metadata/name","value":"nobody"}]`,
	"bad-op":    `[{"op":"spoil","path":"/metadata"}]`,
	"bad-patch": `{}`,
}

// hookRefusals are ways that refuse a request, or are no answer.
var hookRefusals = map[string]string{
	"deny":         `{"uid":"UID","allowed":false}`,
	"message":      `{"uid":"UID","allowed":false,"status":{"message":"it is blue"}}`,
	"reason":       `{"uid":"UID","allowed":false,"status":{"reason":"Conflict"}}`,
	"code":         `{"uid":"UID","allowed":false,"status":{"code":418,"message":"a teapot","reason":"Teapot"}}`,
	"low-code":     `{"uid":"UID","allowed":false,"status":{"code":399}}`,
	"bound-code":   `{"uid":"UID","allowed":false,"status":{"code":400}}`,
	"details":      `{"uid":"UID","allowed":false,"status":{"code":422,"details":{"name":"n","group":"g","kind":"k","uid":"u","retryAfterSeconds":7,"causes":[{"field":"a","message":"b","reason":"c"}]}}}`,
	"warn-deny":    `{"uid":"UID","allowed":false,"warnings":["it was close"],"auditAnnotations":{"a":"b"}}`,
	"other-uid":    `{"uid":"7a4e1d1c-0000-4000-8000-000000000000","allowed":true}`,
	"no-uid":       `{"allowed":true}`,
	"no-type":      `{"uid":"UID","allowed":true,"patch":"PATCH([])"}`,
	"empty-type":   `{"uid":"UID","allowed":true,"patchType":"","patch":"PATCH([])"}`,
	"wrong-type":   `{"uid":"UID","allowed":true,"patchType":"MergePatch","patch":"PATCH([{}])"}`,
	"no-patch":     `{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`,
	"bad-base64":   `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"&"}`,
	"bad-allowed":  `{"uid":"UID","allowed":"yes"}`,
	"no-response":  ``,
	"garbage":      ``,
	"nothing":      ``,
	"other-kind":   `{"uid":"UID","allowed":true}`,
	"bare-kind":    `{"uid":"UID","allowed":true}`,
	"other-group":  `{"uid":"UID","allowed":true}`,
	"v1":           `{"uid":"UID","allowed":true}`,
	"v1beta1":      `{"uid":"UID","allowed":true}`,
	"no-kind":      `{"uid":"UID","allowed":true}`,
	"no-version":   `{"uid":"UID","allowed":true}`,
	"status-500":   ``,
	"status-404":   ``,
	"status-429":   ``,
	"status-named": ``,
}

var hookPatch = regexp.MustCompile(`PATCH\((.*)\)`)

// answerOf is the body of an answer, and its code.
func answerOf(way, version, uid string) (int, string) {
	response := hookWays[way] + hookRefusals[way]
	if patch := hookPatches[way]; patch != "" {
		response = `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"PATCH(` + patch + `)"}`
	}
	response = hookPatch.ReplaceAllStringFunc(response, func(s string) string {
		return base64.StdEncoding.EncodeToString([]byte(hookPatch.FindStringSubmatch(s)[1]))
	})
	response = strings.ReplaceAll(response, "UID", uid)
	apiVersion, kind := version, "AdmissionReview"
	switch way {
	case "garbage", "nothing":
		return http.StatusOK, map[string]string{"garbage": "garbage"}[way]
	case "status-500", "status-404", "status-429":
		code := 0
		_, _ = fmt.Sscanf(way, "status-%d", &code)
		return code, "no"
	case "status-named":
		return http.StatusConflict, `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"busy","code":409,` +
			`"reason":"Conflict"}`
	case "no-response":
		return http.StatusOK, fmt.Sprintf(`{"apiVersion":%q,"kind":%q}`, version, kind)
	case "other-kind":
		apiVersion, kind = "v1", "Pod"
	case "bare-kind":
		kind = "Review"
	case "other-group":
		apiVersion = "v1"
	case "v1", "v1beta1":
		apiVersion = "admission.k8s.io/" + way
	case "no-kind":
		kind = ""
	case "no-version":
		apiVersion = ""
	}
	return http.StatusOK, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"response":%s}`, apiVersion, kind, response)
}

func (h *hookServer) answer(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var review struct {
		APIVersion, Kind string
		Request          struct{ UID string }
	}
	if err == nil {
		err = json.Unmarshal(text, &review)
	}
	if err != nil || review.Request.UID == "" {
		http.Error(w, "no review", http.StatusTeapot)
		return
	}
	way := strings.TrimPrefix(r.URL.Path, "/")
	var whole any
	_ = json.Unmarshal(text, &whole) // it was read above
	asked, _ := json.Marshal(pruned(whole))
	h.mu.Lock()
	h.asked = append(h.asked, r.URL.Path+" "+limitOf(r.URL.Query().Get("timeout"))+" "+
		strings.ReplaceAll(string(asked), review.Request.UID, "UID"))
	h.mu.Unlock()
	code, body := answerOf(way, review.APIVersion, review.Request.UID)
	if strings.HasPrefix(body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

// limitOf is the time limit that a webhook is told, in tens of seconds: it is less by the time that has passed.
func limitOf(timeout string) string {
	limit, err := time.ParseDuration(timeout)
	if err != nil || limit != limit.Truncate(time.Second) {
		return "a wrong limit: " + timeout
	}
	return fmt.Sprint((limit + 10*time.Second - 1).Truncate(10 * time.Second))
}

// RoundTrip answers the webhooks of our side without a network: our side is made anew for each mutant.
func (h *hookServer) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	h.answer(recorder, r)
	response := recorder.Result()
	response.Request = r
	return response, nil
}

// here are the webhooks that our side asks in the process; nil: it has none.
func (w *world) here() webhook.InProcess {
	if w.hooks == nil {
		return nil
	}
	return func(string) http.RoundTripper { return w.hooks }
}

// pruned is a value without the members that are empty: the reference writes those of its Go types.
func pruned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			switch member = pruned(member); of := member.(type) {
			case nil:
				delete(v, key)
			case map[string]any:
				if len(of) == 0 {
					delete(v, key)
				}
			default:
				v[key] = member
			}
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
	}
	return v
}

// hooked makes the reference's side of a world with webhooks: a chain of its plugins, in its order.
func (w *world) hooked(t testing.TB, init admission.PluginInitializer) admission.Interface {
	t.Helper()
	all := append([]string{w.plugin}, w.others...)
	names := slices.DeleteFunc(slices.Clone(options.AllOrderedPlugins), func(name string) bool {
		return !slices.Contains(all, name)
	})
	made, err := register.NewFromPlugins(names, configurationOf{w}, admission.PluginInitializers{
		init, webhookinit.NewPluginInitializer(nil, genericwebhook.NewDefaultServiceResolver()),
		kubeadmission.NewPluginInitializer(), controlplane.NewPluginInitializer(nil, exclusion.Excluded()),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// configurationOf has the configurations of the plugins of a world.
type configurationOf struct{ *world }

func (c configurationOf) ConfigFor(plugin string) (io.Reader, error) {
	if plugin == c.plugin && c.configuration != "" {
		return strings.NewReader(c.configuration), nil
	}
	return nil, nil
}

// withoutChance is a message without what is by chance, or only the sources of the reference have: the UID of a review,
// the line that made a scheme, and the error of a parser.
func withoutChance(message string) string {
	message = reviewUID.ReplaceAllString(message, "UID")
	message = schemeLine.ReplaceAllString(message, "")
	return parserError.ReplaceAllString(message, "$1")
}

var (
	reviewUID   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	schemeLine  = regexp.MustCompile(` in scheme \\?"[^"]*"`)
	parserError = regexp.MustCompile(`(?s)(json parse error: ).*`)
)

// keys are the keys of a map, in order.
func keys(m map[string]string) []string {
	all := make([]string, 0, len(m))
	for key := range m {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

// hook is a random webhook that answers in one of these ways. safe says that it can be asked, also about dry runs.
func (r random) hook(h *hookServer, name, again string, safe bool, ways []string) string {
	number, conditions := 0, ""
	any := r.IntN(3) == 0 // it is asked about everything
	if !any && r.IntN(3) == 0 {
		conditions = r.times(1+r.IntN(2), func() string {
			number++
			return fields("name", fmt.Sprint("c", number), "expression", quoted(r.condition(false, false)))
		})
	}
	rule := fields("apiGroups", r.one(`["*"]`, `["*"]`, `[""]`, `[apps]`), "apiVersions", r.one(`["*"]`, `[v1]`, `[v2]`),
		"operations", r.one(`["*"]`, `["*"]`, `[CREATE]`, `[DELETE, UPDATE]`), "resources", r.one(`["*/*"]`, `["*/*"]`,
			`["*"]`, `[pods]`, `[configmaps, pods]`, `[deployments, deployments/scale]`, `["*/scale"]`), "scope",
		r.one("", "", `"*"`, "Namespaced", "Cluster"))
	rules := "[" + rule + "]"
	if any || r.IntN(2) == 0 {
		rules = `[{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]`
	}
	if !any && r.IntN(6) == 0 {
		rules = "[" + fields("apiGroups", "[autoscaling]", "apiVersions", r.one("[v1]", "[v2]"), "operations", `["*"]`,
			"resources", `["*"]`) + "]"
	}
	if r.IntN(3) == 0 {
		rules = `[{apiGroups: [none], apiVersions: [v1], operations: ["*"], resources: ["*"]}, ` + rules[1:]
	}
	effects, reviews := r.one("None", "NoneOnDryRun"), r.one("[v1]", "[v1]", "[v1beta1]", "[v2, v1beta1, v1]")
	if !safe && !any {
		effects, reviews = r.one(effects, "Some", "Unknown"), r.one(reviews, reviews, reviews, "[v2]")
	}
	selector := func(label string) string {
		key, _, _ := strings.Cut(label, ":")
		if any {
			return ""
		}
		return r.one("", "", "", fmt.Sprintf("{matchLabels: {%s}}", label),
			fmt.Sprintf("{matchExpressions: [{key: %s, operator: DoesNotExist}]}", key),
			fmt.Sprintf("{matchExpressions: [{key: %s, operator: NotIn, values: [web, b]}]}", key))
	}
	return fields("name", name, "clientConfig", h.client(r.one(ways...)), "rules", rules,
		"failurePolicy", r.one("", "Fail", "Ignore"), "sideEffects", effects, "timeoutSeconds", r.one("", "", "20", "30"),
		"admissionReviewVersions", reviews, "matchConditions", conditions,
		"objectSelector", selector("app: web"), "namespaceSelector", selector("team: a"),
		"matchPolicy", r.one("", "Exact", "Equivalent"), "reinvocationPolicy", again)
}

// hookConfigurations are random configurations with n webhooks, of which those behind the first one answer in other
// ways. again says that the webhooks are mutating.
func (r random) hookConfigurations(h *hookServer, kind string, first, others []string) []string {
	var all []string
	for i := range 1 + r.IntN(3) {
		var items []string
		for range 1 + r.IntN(2) {
			ways, again, safe := others, "", kind == "Validating"
			if i == 0 && len(items) == 0 {
				ways, safe = first, false
			}
			if kind == "Mutating" {
				again = r.one("", "Never", "IfNeeded", "IfNeeded", "IfNeeded")
			}
			items = append(items, r.hook(h, r.one("a", "b", "c")+".example.com", again, safe, ways))
		}
		all = append(all, doc("admissionregistration.k8s.io/v1", kind+"WebhookConfiguration", "",
			fmt.Sprint(r.one("p", "q", "r"), i), nil, "webhooks", "["+strings.Join(items, ", ")+"]"))
	}
	return all
}

// webhookWorld is a world with configurations of webhooks, and with metrics that count; nil: without any.
func webhookWorld(t *testing.T, h *hookServer, kind string, f *figures, objects ...string) *world {
	var metrics ours.Metrics
	if f != nil {
		metrics = countHooks(f)
	}
	return (&world{
		plugin: kind + "AdmissionWebhook", objects: append(policyObjects(), objects...), reason: "because", hooks: h,
		allow:   func(verb, _, _, _, _, _ string) bool { return verb != "list" && verb != "get" },
		metrics: metrics, figures: f,
	}).build(t)
}

// validatingHooks is a world of random validating webhooks. Not more than one of them refuses a request: the reference
// answers with the refusal that it gets first.
func validatingHooks(t *testing.T, h *hookServer, r random, f *figures) *world {
	ways := append(keys(hookRefusals), "set", "empty-patch", "allow")
	return webhookWorld(t, h, "Validating", f, r.hookConfigurations(h, "Validating", ways,
		[]string{"allow", "allow-too", "warn"})...)
}

// mutatingHooks is a world of random mutating webhooks.
func mutatingHooks(t *testing.T, h *hookServer, r random, f *figures) *world {
	ways := append(append(keys(hookWays), keys(hookPatches)...), "set", "label", "label-app", "unlabel", "image",
		"container", "data")
	return webhookWorld(t, h, "Mutating", f, r.hookConfigurations(h, "Mutating",
		append(keys(hookRefusals), ways...), ways)...)
}

// Random webhooks are asked about requests of all kinds: the same ones, the same questions, and the answers have the
// same effect.
//
// SPEC: AUTH-3, DRY-2
func TestValidatingAdmissionWebhook(t *testing.T) {
	h, count, reached := newHookServer(t), tally{}, reach{}
	for seed := range uint64(150) {
		r := seeded(5<<32 + seed)
		w := validatingHooks(t, h, r, nil)
		for range 16 {
			reached.add(w.compareHooked(t, r, seed, &count))
		}
	}
	count.atLeast(t, 0, 1000, 300)
	reached.atLeast(t, hookFloors)
}

// The same for mutating webhooks, which are asked one after the other, and some again.
//
// SPEC: AUTH-3, DRY-2
func TestMutatingAdmissionWebhook(t *testing.T) {
	h, count, reached := newHookServer(t), tally{}, reach{}
	for seed := range uint64(200) {
		r := seeded(6<<32 + seed)
		w := mutatingHooks(t, h, r, nil)
		for range 16 {
			reached.add(w.compareHooked(t, r, seed, &count))
		}
	}
	count.atLeast(t, 150, 500, 500)
	reached.atLeast(t, hookFloors)
	reached.atLeast(t, mutatingHookFloors)
}

// hookFloors are how often outcomes have to occur.
var hookFloors = map[string]int{
	"asked: ": 500, "denied the request": 30, "does not support dry run": 3, "failed-open": 20, "known AdmissionReview": 8,
	"invalid webhook response": 15, "failed to call webhook": 20, "no such key": 20, "autoscaling/v": 30,
}

var mutatingHookFloors = map[string]int{"round_1": 10, "undecodable patch": 5, "attempted to modify the object": 5}

var bundles = regexp.MustCompile(`"caBundle":"[^"]*",?`)

// hookAttempts are requests of all kinds, among them those about which webhooks are never asked.
func hookAttempts() []attempt {
	all := policyAttempts()
	jane := all[0].user
	of := func(operation admission.Operation, gv, kind, resource string) attempt {
		group, version, grouped := strings.Cut(gv, "/")
		if !grouped {
			group, version = "", gv
		}
		a := attempt{operation: operation, group: group, version: version, resource: resource, name: "x",
			object: doc(gv, kind, "", "x", []string{"labels", "{app: web}"}), user: jane, options: optionsOf(operation)}
		switch operation {
		case admission.Delete:
			a.object, a.old = "", a.object
		case admission.Update:
			a.old = a.object
		}
		return a
	}
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		all = append(all, of(operation, "v1", "Namespace", "namespaces"))
	}
	const group = "admissionregistration.k8s.io/v1"
	all = append(all,
		of(admission.Create, group, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
		of(admission.Update, group, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
		of(admission.Delete, group, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
		of(admission.Create, group, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
		of(admission.Create, "authentication.k8s.io/v1", "TokenReview", "tokenreviews"),
		of(admission.Create, "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews"))
	return all
}

// compareHooked compares a random attempt.
func (w *world) compareHooked(t *testing.T, r random, seed uint64, count *tally) outcome {
	t.Helper()
	attempts, before := hookAttempts(), t.Failed()
	result := w.compare(t, attempts[r.IntN(len(attempts))], count)
	if t.Failed() && !before {
		t.Fatalf("seed %d:\n%s", seed, bundles.ReplaceAllString(strings.Join(w.objects[len(policyObjects()):], "\n"), ""))
	}
	return result
}

// Webhooks run with other plugins: in the order of the reference, whatever that of the flags, and the others run again
// after a change by a webhook.
//
// SPEC: AUTH-3
func TestChainsOfPlugins(t *testing.T) {
	h, count := newHookServer(t), tally{}
	plugins := []string{"ValidatingAdmissionWebhook", "AlwaysPullImages", "DefaultTolerationSeconds", "NamespaceExists",
		"ExtendedResourceToleration", "AlwaysDeny", "LimitPodHardAntiAffinityTopology", "AlwaysAdmit"}
	for seed := range uint64(60) {
		r := seeded(7<<32 + seed)
		// One that validates, so that the order of what is asked is certain.
		objects := r.hookConfigurations(h, "Mutating", append(keys(hookPatches), "deny"), keys(hookPatches))
		objects = append(objects, doc("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "v", nil,
			"webhooks", "["+r.hook(h, "v.example.com", "", false, append(keys(hookRefusals), "warn", "warn", "warn"))+"]"))
		others := r.some(plugins...)
		if r.IntN(4) > 0 {
			others = slices.DeleteFunc(others, func(name string) bool { return name == "AlwaysDeny" })
		}
		r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		w := (&world{
			plugin: "MutatingAdmissionWebhook", others: others, objects: append(policyObjects(), objects...), hooks: h,
			allow: func(verb, _, _, _, _, _ string) bool { return verb != "list" && verb != "get" }, reason: "because",
		}).build(t)
		for range 16 {
			w.compareHooked(t, r, seed, &count)
		}
	}
	count.atLeast(t, 60, 60, 200)
}

// The types about which webhooks and policies are not asked, in each of their versions, are those of the reference.
//
// SPEC: AUTH-3
func TestExemptTypes(t *testing.T) {
	registry, counted := engine.NewRegistry(builtin.Resources(builtin.Config{})), map[string]int{}
	for r := range registry.Now().All() {
		other := *r
		other.Group = foreign
		for _, of := range []*engine.Resource{r, &other} {
			gvk := schema.GroupVersionKind{Group: of.Group, Version: of.Version, Kind: of.Kind}
			gvr := schema.GroupVersionResource{Group: of.Group, Version: of.Version, Resource: of.Name}
			review := slices.Contains(exclusion.Excluded(), gvr.GroupResource())
			configures := rules.IsExemptAdmissionConfigurationResource(admission.NewAttributesRecord(nil, nil, gvk, "", "",
				gvr, "", admission.Create, nil, false, nil))
			policy := configures && strings.Contains(of.Kind, "Policy")
			have := []bool{hooks.IsReview(of), hooks.IsConfiguration(of), hooks.IsPolicy(of)}
			if want := []bool{review, configures, policy}; !slices.Equal(have, want) {
				t.Errorf("%v is a review, configures admission, and is a policy: %v, want %v", gvr, have, want)
			}
			counted[fmt.Sprint(review, configures, policy)]++
		}
	}
	if counted["true false false"] != len(exclusion.Excluded()) || counted["false true false"] < 2 ||
		counted["false true true"] < 4 {
		t.Errorf("%v", counted)
	}
}

// The metrics of webhooks count the same.
//
// SPEC: AUTH-3
func TestMetricsOfWebhooks(t *testing.T) {
	h, count, counted := newHookServer(t), tally{}, &figures{}
	before := gatherHooks(t)
	for seed := range uint64(6) {
		r := seeded(8<<32 + seed)
		for _, w := range []*world{validatingHooks(t, h, r, counted), mutatingHooks(t, h, r, counted)} {
			for range 16 {
				w.compareHooked(t, r, seed, &count)
			}
		}
	}
	for _, kind := range []string{"Validating", "Mutating"} {
		w, names := answering(t, h, kind, counted)
		w.compareAnswers(t, names, &count)
		w, names = conditional(t, h, kind, counted)
		w.compareConditions(t, names, &count)
	}
	compareMetrics(t, before, gatherHooks(t), counted, 100)
}

// hookMetrics are the metrics that are compared, and their labels in the order of a series. Durations are counted.
var hookMetrics = map[string][]string{
	"webhook_admission_duration_seconds":      {"name", "type", "operation", "rejected"},
	"webhook_rejection_count":                 {"name", "type", "operation", "error_type", "rejection_code"},
	"webhook_fail_open_count":                 {"name", "type"},
	"webhook_request_total":                   {"name", "type", "operation", "code", "rejected"},
	"match_condition_evaluation_errors_total": {"name", "type", "operation"},
	"match_condition_exclusions_total":        {"name", "type", "operation"},
	"match_condition_evaluation_seconds":      {"name", "type", "operation"},
}

// gatherHooks reads the reference's metrics.
func gatherHooks(t *testing.T) map[string]int {
	t.Helper()
	return gather(t, func(metric string, labels map[string]string) string {
		name := strings.TrimPrefix(metric, "apiserver_admission_")
		if hookMetrics[name] == nil {
			return ""
		}
		return seriesOf(name, labels, hookMetrics[name])
	})
}

// countHooks are metrics of ours that count.
func countHooks(f *figures) ours.Metrics {
	excluded := map[bool]string{true: "admit", false: "validate"}
	of := map[bool]string{true: "admit", false: "validating"}
	return ours.Metrics{
		Webhooks: webhooks.Metrics{
			Called: func(name string, mutating bool, operation engine.Operation, rejected bool, code int, _ time.Duration) {
				f.add(1, "webhook_request_total", name, of[mutating], operation, code, rejected)
				f.add(1, "webhook_admission_duration_seconds", name, of[mutating], operation, rejected)
			},
			Rejected: func(name string, mutating bool, operation engine.Operation, kind string, code int) {
				f.add(1, "webhook_rejection_count", name, of[mutating], operation, kind, code)
			},
			FailedOpen: func(name string, mutating bool) { f.add(1, "webhook_fail_open_count", name, of[mutating]) },
			ConditionsRun: func(name string, mutating bool, operation engine.Operation, failed int, _ time.Duration) {
				f.add(1, "match_condition_evaluation_seconds", name, of[mutating], operation)
				f.add(failed, "match_condition_evaluation_errors_total", name, of[mutating], operation)
			},
			ConditionsExcluded: func(name string, mutating bool, operation engine.Operation) {
				f.add(1, "match_condition_exclusions_total", name, excluded[mutating], operation)
			},
		},
	}
}
