package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/version"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/scheme"
	"plinth/internal/access"
	ours "plinth/internal/admission"
	"plinth/internal/admission/quota"
	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// world is what a plugin depends on besides the request.
type world struct {
	plugin string
	// registered is the name of the reference's plugin in register; "": the same.
	registered string
	// others are plugins that are on, too, in any order; hooks answers the webhooks. Only worlds with webhooks have them.
	others []string
	hooks  *hookServer
	// objects are what is stored, each a document (YAML or JSON) with apiVersion and kind.
	objects []string
	// gates are feature gates that are not at their defaults.
	gates map[string]bool
	// configuration is that of the plugin in --admission-control-config-file; "": none.
	configuration string
	// allow decides for the authorizers of both; nil: everything is allowed.
	allow func(verb, group, resource, subresource, namespace, name string) bool
	// reason and failure are what the authorizers of both say in addition if they do not allow.
	reason  string
	failure error
	// mapper is for plugins that want a RESTMapper; nil: none.
	mapper meta.RESTMapper
	// createNamespace replaces the hook of ours for that; nil: the namespace is created.
	createNamespace func(ctx context.Context, name string) error
	// client is the client of the reference's plugin, and stored the store of ours.
	client *fake.Clientset
	stored *store.Store
	// validateOnly skips mutating admission, so that validating admission sees what that would have changed.
	validateOnly bool
	// unordered says that the order of several errors in a message is by chance in the reference.
	unordered bool
	// refusals says that only refusals are compared: both sides leave the object, which is none that is stored.
	refusals bool
	// metrics are those of ours, and figures what they count; nil: they count nothing.
	metrics ours.Metrics
	figures *figures
	// ofGo says that messages name what only Go has: internal errors are compared without theirs, and wrong types
	// without the value, which the reference prints as Go does.
	ofGo bool
	// until is a text behind which the messages of the two are not the same.
	until string
	// reference is the plugin of the reference, initialized.
	reference admission.Interface
	registry  *engine.Registry
	engine    *engine.Engine
	chain     engine.Admission
	// remake makes our side anew.
	remake func() error
	// asked are the questions that the reference's plugin has asked its authorizer, without names: ours has no others.
	asked map[question]bool
	// compared is the number of attempts that were compared.
	compared int
}

// question is what an authorizer is asked about, but for names.
type question struct {
	verb, group, version, resource, subresource string
	ofResource                                  bool
}

// attempt is a request as admission sees it. Object and old are documents, "" for none; their kinds are those of the
// documents. namespace and name are those of the URL.
type attempt struct {
	operation             admission.Operation
	group, version        string // of the URL
	resource, subresource string
	namespace, name       string
	object, old           string
	user                  user.DefaultInfo
	dry                   bool
	// foreign says that the type is not that of this URL, but one of another group that has the same names.
	foreign bool
	options runtime.Object // of the reference; ours has them by the request
}

// outcome is what a plugin does with an attempt. Object is null if the attempt has none, or is refused.
type outcome struct {
	object      object.Value
	warnings    []string
	annotations map[string]string
	asked       []string // of webhooks
	refusal     *refusal
}

// refusal is an error as clients see it.
type refusal struct {
	code            int
	reason, message string
	causes          string
	retry           int
}

// register has the Register functions of the reference's plugins: TestMain in main_test.go calls all.
var register = admission.NewPlugins()

// build makes both sides of a world.
func (w *world) build(t testing.TB) *world {
	t.Helper()
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := gates.SetFromMap(w.gates); err != nil {
		t.Fatal(err)
	}
	var stored []runtime.Object
	for i, text := range w.objects {
		text = identified(t, text)
		w.objects[i] = text
		stored = append(stored, versioned(t, text))
	}
	client := fake.NewClientset(stored...)
	w.client = client
	factory := informers.NewSharedInformerFactory(client, 0)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	if strings.HasSuffix(w.plugin, "AdmissionPolicy") {
		w.reference = w.policies(stored, client, factory)
		w.buildOurs(t, gates)
		return w
	}
	if w.hooks != nil {
		w.reference = w.hooked(t, w.initializer(client, factory, gates, stop))
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		w.buildOurs(t, gates)
		return w
	}
	var configuration io.Reader // nil: none
	if w.configuration != "" {
		configuration = strings.NewReader(w.configuration)
	}
	if w.registered == "" {
		w.registered = w.plugin
	}
	made, err := register.InitPlugin(w.registered, configuration, w.initializer(client, factory, gates, stop))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	w.reference = made
	w.buildOurs(t, gates)
	return w
}

// initializer gives plugins of the reference what they need.
func (w *world) initializer(client *fake.Clientset, factory informers.SharedInformerFactory,
	gates featuregate.FeatureGate, stop chan struct{}) admission.PluginInitializer {
	return initializer.New(client, nil, factory, authorizer.AuthorizerFunc(w.authorizeReference), gates,
		compatibility.DefaultBuildEffectiveVersion(), stop, w.mapper)
}

func (w *world) buildOurs(t testing.TB, gates featuregate.FeatureGate) {
	var set features.Set
	for name := range w.gates {
		g, ok := features.Find(name)
		if !ok {
			t.Fatalf("there is no gate %s", name)
		}
		set = set.With(g, gates.Enabled(featuregate.Feature(name)))
	}
	w.registry = engine.NewRegistry(builtin.Resources(builtin.Config{Features: set,
		Serves: func(group, _, _ string, byDefault bool) bool {
			return byDefault || group == "scheduling.k8s.io" || group == "resource.k8s.io"
		}}))
	if w.createNamespace == nil {
		w.createNamespace = w.makeNamespace
	}
	var changes []store.Change
	for _, text := range w.objects {
		obj := parse(t, text)
		gv, err := schema.ParseGroupVersion(obj.At("apiVersion").Str())
		if err != nil {
			t.Fatal(err)
		}
		r := w.registry.Now().OfKind(gv.String(), obj.At("kind").Str())
		if r == nil {
			t.Fatalf("no type for %s", text)
		}
		data := object.AppendObject(nil, r.Schema().Settle(w.complete(t, r, obj)))
		key := r.Key(obj.At("metadata", "namespace").Str(), obj.At("metadata", "name").Str())
		changes = append(changes, store.Change{Key: key, Data: data})
	}
	w.remake = func() error { return w.makeOurs(t.Context(), set, changes) }
	if err := w.remake(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.stored.Close() })
}

// makeOurs makes a store with these objects, and the chain on it.
func (w *world) makeOurs(ctx context.Context, set features.Set, objects []store.Change) error {
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(w.registry),
		Charge: (&quota.Charges{}).Of, Rules: quota.Quotas})
	if err != nil {
		return err
	}
	if w.stored != nil {
		_ = w.stored.Close()
	}
	w.stored = opened
	for _, change := range objects {
		if _, err := opened.Commit(ctx, nil, []store.Change{change}); err != nil {
			return err
		}
	}
	configuration := map[string][]byte{}
	if w.configuration != "" {
		configuration[w.plugin] = []byte(w.configuration)
	}
	plugins, err := ours.New(ours.Config{
		Selection: ours.Selection{Only: append([]string{w.plugin}, w.others...)}, Store: opened, Registry: w.registry,
		Features: set,
		Now:      time.Now, Version: version.Get().String(), Configurations: configuration,
		CreateNamespace:           w.createNamespace,
		NotReadyTolerationSeconds: 300, UnreachableTolerationSeconds: 300, Metrics: w.metrics, InProcess: w.here(),
	})
	w.chain = plugins.Admission
	w.engine = engine.New(engine.Config{Store: opened, Registry: w.registry, Admission: w.chain})
	return err
}

// makeNamespace creates a namespace in our store.
func (w *world) makeNamespace(ctx context.Context, name string) error {
	rq := &engine.Request{Resource: w.registry.Now().Find("", "v1", "namespaces")}
	body := object.Fields("metadata", object.Fields("name", object.StringOf(name)))
	_, err := w.engine.Create(ctx, rq, object.Parsed{Value: body})
	return err
}

// complete decodes an object and fills in its defaults.
func (w *world) complete(t testing.TB, r *engine.Resource, obj object.Value) object.Value {
	decoded, err := r.Schema().Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	if r.Default != nil {
		return r.Default(decoded.Value)
	}
	return decoded.Value
}

func (w *world) allowed(verb, group, resource, subresource, namespace, name string) bool {
	return w.allow == nil || w.allow(verb, group, resource, subresource, namespace, name)
}

func (w *world) authorizeReference(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if w.asked == nil {
		w.asked = map[question]bool{}
	}
	w.asked[question{a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(),
		a.IsResourceRequest()}] = true
	if w.allowed(a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, w.reason, w.failure
}

func (w *world) authorizeOurs(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
	if q := (question{a.Verb, a.Group, a.Version, a.Resource, a.Subresource, a.IsResource}); !w.asked[q] {
		return access.Deny, fmt.Sprintf("the reference has not asked about %+v", q), nil
	}
	if w.allowed(a.Verb, a.Group, a.Resource, a.Subresource, a.Namespace, a.Name) {
		return access.Allow, "", nil
	}
	return access.NoOpinion, w.reason, w.failure
}

// parse reads a document.
func parse(t testing.TB, text string) object.Value {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	parsed, err := object.ParseJSON(asJSON)
	if err != nil {
		t.Fatalf("%v in %s", err, asJSON)
	}
	return parsed.Value
}

// identified is a stored object with the UID and the time that every one has.
func identified(t testing.TB, text string) string {
	obj := parse(t, text)
	meta := obj.At("metadata")
	set := []object.Member{{Key: "uid", Value: object.StringOf("uid-" + meta.At("name").Str())}}
	if meta.At("creationTimestamp").IsNull() {
		set = append(set, object.Member{Key: "creationTimestamp", Value: object.StringOf("2020-01-01T00:00:00Z")})
	}
	return string(object.AppendJSON(nil, obj.With("metadata", meta.Edit(set))))
}

// versioned reads a document as the reference's type, with defaults.
func versioned(t testing.TB, text string) runtime.Object {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var of metav1.TypeMeta
	if err := json.Unmarshal(asJSON, &of); err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.Decode(of.GroupVersionKind(), asJSON)
	if err != nil {
		t.Fatalf("%v in %s", err, asJSON)
	}
	scheme.Scheme.Default(typed)
	return typed
}

// internal is a document as the reference's plugins see it, and its kind; nil for "".
func internal(t testing.TB, text string) (runtime.Object, schema.GroupVersionKind) {
	t.Helper()
	if text == "" {
		return nil, schema.GroupVersionKind{}
	}
	typed := versioned(t, text)
	gvk := typed.GetObjectKind().GroupVersionKind()
	converted, err := scheme.Scheme.ConvertToVersion(typed,
		schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		t.Fatal(err)
	}
	return converted, gvk
}

// warner takes the warnings of the reference, which calls validating webhooks at the same time.
type warner struct {
	mu    sync.Mutex
	texts []string
}

func (w *warner) AddWarning(_, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// versions knows the kinds that are served in several versions, as the reference's server does.
type versions struct{ admission.ObjectInterfaces }

var equivalents = sync.OnceValue(func() runtime.EquivalentResourceMapper {
	all := runtime.NewEquivalentResourceRegistry()
	for _, version := range []string{"v1", "v2"} {
		gv := schema.GroupVersion{Group: "autoscaling", Version: version}
		all.RegisterKindFor(gv.WithResource("horizontalpodautoscalers"), "", gv.WithKind("HorizontalPodAutoscaler"))
	}
	return all
})

func (versions) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return equivalents() }

// runReference runs the reference's plugin.
func (w *world) runReference(t testing.TB, a attempt) outcome {
	t.Helper()
	obj, gvk := internal(t, a.object)
	old, oldKind := internal(t, a.old)
	if gvk.Empty() {
		gvk = oldKind
	}
	namespace := a.namespace
	if a.group == "" && !a.foreign && a.resource == "namespaces" { // as the reference's handlers have it
		namespace = a.name
	}
	group, kind := a.group, gvk
	if a.foreign {
		group, kind.Group = foreign, foreign
	}
	attributes := admission.NewAttributesRecord(obj, old, kind, namespace, a.name,
		schema.GroupVersionResource{Group: group, Version: a.version, Resource: a.resource}, a.subresource,
		a.operation,
		a.options, a.dry, &a.user)
	recorded := &warner{}
	ctx := warning.WithWarningRecorder(audit.WithAuditContext(t.Context()), recorded)
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: w.auditLevel()},
		nil); err != nil {
		t.Fatal(err)
	}
	objects := versions{admission.NewObjectInterfacesFromScheme(scheme.Scheme)}
	var err error
	withAudit := admission.WithAudit(w.reference)
	if m, ok := withAudit.(admission.MutationInterface); ok && !w.validateOnly && w.reference.Handles(a.operation) {
		err = m.Admit(ctx, attributes, objects)
	}
	if v, ok := withAudit.(admission.ValidationInterface); ok && err == nil && w.reference.Handles(a.operation) {
		err = v.Validate(ctx, attributes, objects)
	}
	result := outcome{warnings: recorded.texts, annotations: map[string]string{}}
	maps.Copy(result.annotations, audit.AuditContextFrom(ctx).GetEventAnnotations())
	w.ask(&result)
	if err != nil {
		result.refusal = refusalOf(t, *responsewriters.ErrorToAPIStatus(err))
		return result
	}
	if obj != nil {
		if result.object, err = scheme.Value(gvk, obj); err != nil {
			t.Fatal(err)
		}
	}
	return result
}

// auditLevel is that of the requests of a world: patches of webhooks are noted only above the level of most.
func (w *world) auditLevel() auditapi.Level {
	if w.hooks != nil {
		return auditapi.LevelRequest
	}
	return auditapi.LevelMetadata
}

// ask notes what webhooks were asked. Validating ones are asked, and warn, in an order by chance.
func (w *world) ask(result *outcome) {
	if w.hooks == nil {
		return
	}
	ordered := w.plugin == "MutatingAdmissionWebhook"
	result.asked = w.hooks.take(ordered)
	if !ordered {
		slices.Sort(result.warnings)
	}
}

// annotations takes the annotations of ours.
type annotations map[string]string

func (a annotations) Annotate(key, value string)        { a[key] = value }
func (a annotations) AnnotateRequest(key, value string) { a[key] = value }

var operations = map[admission.Operation]engine.Operation{
	admission.Create: engine.OperationCreate, admission.Update: engine.OperationUpdate,
	admission.Delete: engine.OperationDelete, admission.Connect: engine.OperationConnect,
}

// runOurs runs our plugin.
func (w *world) runOurs(t testing.TB, a attempt) outcome {
	t.Helper()
	return w.ours(t, a)()
}

// ours returns a function that runs our plugin. It may be called again and again.
func (w *world) ours(t testing.TB, a attempt) func() outcome {
	t.Helper()
	r := w.registry.Now().Find(a.group, a.version, a.resource)
	if r == nil {
		t.Fatalf("no type %s %s %s", a.group, a.version, a.resource)
	}
	if a.foreign {
		other := *r
		r, other.Group, other.Answer = &other, foreign, nil
	}
	var sub *engine.Subresource
	if a.subresource != "" {
		if sub = r.Subresource(a.subresource); sub == nil {
			t.Fatalf("%s has no subresource %s", a.resource, a.subresource)
		}
	}
	decode := func(text string) object.Value {
		if text == "" {
			return object.Nil
		}
		obj := parse(t, text)
		gv, err := schema.ParseGroupVersion(obj.At("apiVersion").Str())
		if err != nil {
			t.Fatal(err)
		}
		if kind := w.registry.Now().OfKind(gv.String(), obj.At("kind").Str()); kind != nil {
			return w.complete(t, kind, obj)
		}
		return obj // the body of a subresource
	}
	obj, old := decode(a.object), decode(a.old)
	return func() outcome {
		notes := annotations{}
		attributes := w.engine.Attributes(&engine.Request{
			Resource: r, Subresource: sub, Namespace: a.namespace, Name: a.name, DryRun: a.dry, Annotations: notes,
			User:       access.User{Name: a.user.Name, UID: a.user.UID, Groups: a.user.Groups, Extra: a.user.Extra},
			Authorizer: access.AuthorizerFunc(w.authorizeOurs),
		}, operations[a.operation], obj, old)
		return w.admit(t, attributes, notes)
	}
}

// admit runs our chain.
func (w *world) admit(t testing.TB, attributes *engine.Attributes, notes annotations) outcome {
	var err error
	if w.chain.Admit != nil && !w.validateOnly {
		err = w.chain.Admit(t.Context(), attributes)
	}
	if err == nil && w.chain.Validate != nil {
		err = w.chain.Validate(t.Context(), attributes)
	}
	result := outcome{warnings: attributes.Warned(), annotations: notes}
	w.ask(&result)
	if err != nil {
		var status metav1.Status
		if err := json.Unmarshal(object.AppendJSON(nil, apierr.From(err).Status()), &status); err != nil {
			t.Fatal(err)
		}
		result.refusal = refusalOf(t, status)
		return result
	}
	result.object = attributes.Object
	return result
}

func refusalOf(t testing.TB, s metav1.Status) *refusal {
	t.Helper()
	found := &refusal{code: int(s.Code), reason: string(s.Reason), message: s.Message}
	if s.Details != nil {
		found.retry = int(s.Details.RetryAfterSeconds)
		text, err := json.Marshal(s.Details.Causes)
		if err != nil {
			t.Fatal(err)
		}
		found.causes = string(text)
	}
	return found
}

// tokenVolume is the name of the volume of a token, which has a random end.
var tokenVolume = regexp.MustCompile(`"kube-api-access-[a-z0-9]{5}"`)

// sort brings the parts of a message into an order.
func (r *refusal) sort() {
	if r != nil {
		parts := strings.FieldsFunc(r.message, func(c rune) bool { return strings.ContainsRune("[],", c) })
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		slices.Sort(parts)
		r.message = strings.Join(parts, ", ")
	}
}

// withoutGo drops what the messages have of Go (world.ofGo).
func (r *refusal) withoutGo() {
	switch {
	case r == nil:
	case r.code == http.StatusInternalServerError:
		r.message, r.causes = "", ""
	default:
		r.message = wrongType.ReplaceAllString(r.message, "$1")
		var causes []metav1.StatusCause
		if json.Unmarshal([]byte(r.causes), &causes) == nil {
			r.causes = ""
			for _, c := range causes {
				r.causes += wrongType.ReplaceAllString(c.Message, "$1") + "\n"
			}
		}
	}
}

var wrongType = regexp.MustCompile(`(?s)(expected [^,]+, got |unable to convert unstructured object to [^:]+: ).*`)

// cut drops what follows a text in the message.
func (r *refusal) cut(until string) {
	if r == nil {
		return
	}
	if before, _, found := strings.Cut(r.message, until); found {
		r.message = before + until
	}
}

// String is an outcome as text; equal outcomes have equal texts.
func (o outcome) String() string {
	var b strings.Builder
	if o.refusal != nil {
		fmt.Fprintf(&b, "refused: %+v\n", *o.refusal)
	} else {
		fmt.Fprintf(&b, "object: %s\n", tokenVolume.ReplaceAll(object.AppendJSON(nil, o.object),
			[]byte(`"kube-api-access-x"`)))
	}
	fmt.Fprintf(&b, "warnings: %q\n", o.warnings)
	for _, key := range slices.Sorted(maps.Keys(o.annotations)) {
		fmt.Fprintf(&b, "annotation: %s=%q\n", key, o.annotations[key])
	}
	for _, asked := range o.asked {
		fmt.Fprintf(&b, "asked: %s\n", asked)
	}
	return b.String()
}

// settled is an outcome with its object in stored form, in which both sides agree on what is absent.
func (w *world) settled(o outcome) outcome {
	if !o.object.IsNull() {
		gv, err := schema.ParseGroupVersion(o.object.At("apiVersion").Str())
		if err != nil {
			return o
		}
		if r := w.registry.Now().OfKind(gv.String(), o.object.At("kind").Str()); r != nil {
			o.object = r.Schema().Settle(o.object)
		}
	}
	return o
}

// tally counts what the attempts of a test came to, so that a test can demand a number of each.
type tally struct{ changed, unchanged, refused int }

// comparable is an outcome without what the two sides need not agree on.
func (w *world) comparable(o outcome) outcome {
	o = w.settled(o)
	if w.unordered {
		o.refusal.sort()
	}
	if w.refusals {
		o.object = object.Nil
	}
	if w.ofGo {
		o.refusal.withoutGo()
	}
	if w.until != "" {
		o.refusal.cut(w.until)
	}
	if w.hooks != nil && o.refusal != nil {
		o.refusal.message, o.refusal.causes = withoutChance(o.refusal.message), withoutChance(o.refusal.causes)
	}
	return o
}

// tryMutants, if not nil, runs our plugin on an attempt without a mutant, for the result, and then with mutants
// (TestMutants). want is what the result is to be as text; "": another one than that of the reference.
var tryMutants func(t testing.TB, w *world, want string, run func() outcome) outcome

// comparableOurs runs our plugin. want is as for tryMutants.
func (w *world) comparableOurs(t testing.TB, a attempt, want string) outcome {
	t.Helper()
	ours := w.ours(t, a)
	run := func() outcome { return w.comparable(ours()) }
	if tryMutants != nil {
		return tryMutants(t, w, want, run)
	}
	return run()
}

// compare runs an attempt on both sides, and reports a difference as an error. Some attempts are run elsewhere, too.
func (w *world) compare(t testing.TB, a attempt, count *tally) outcome {
	t.Helper()
	if w.compared++; w.compared%8 == 1 {
		w.elsewhere(t, a)
	}
	return w.compareOne(t, a, count)
}

// foreign is a group of types that a definition could define.
const foreign = "foreign.example.com"

// elsewhere compares an attempt as if it were about a type of another group, and as one to connect: a plugin that is
// not about that leaves it alone, whatever the object is.
func (w *world) elsewhere(t testing.TB, a attempt) {
	t.Helper()
	switch w.plugin {
	case "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "MutatingAdmissionPolicy",
		"ValidatingAdmissionPolicy", "ResourceQuota": // they look at all types
		return
	case "EventRateLimit": // it remembers attempts
		return
	}
	if a.object != "" && a.operation != admission.Connect {
		connect := a
		connect.operation = admission.Connect
		w.compareOne(t, connect, &tally{})
	}
	a.foreign = true
	if a.resource == "namespaces" { // whose namespace is itself
		a.namespace = ""
	}
	w.compareOne(t, a, &tally{})
}

// compareOne is compare for one attempt.
func (w *world) compareOne(t testing.TB, a attempt, count *tally) outcome {
	t.Helper()
	theirs := w.comparable(w.runReference(t, a))
	mine := w.comparableOurs(t, a, theirs.String())
	if mine.String() != theirs.String() {
		t.Errorf("%s %s/%s %s\nobject %s\nold %s\n--- reference\n%s--- ours\n%s", a.operation, a.resource,
			a.subresource,
			a.name, compact(a.object), compact(a.old), theirs, mine)
	}
	switch {
	case theirs.refusal != nil:
		count.refused++
	case a.object != "" && !bytes.Equal(object.AppendJSON(nil, theirs.object),
		object.AppendJSON(nil, w.settled(outcome{object: w.given(t, a)}).object)):
		count.changed++
	default:
		count.unchanged++
	}
	return theirs
}

// differs demands that the reference refuses an attempt with this message and ours does not: an intended difference,
// whose reason stands where it is called.
func (w *world) differs(t testing.TB, a attempt, message string) {
	t.Helper()
	theirs, mine := w.runReference(t, a), w.comparableOurs(t, a, "")
	if theirs.refusal == nil || !strings.HasSuffix(theirs.refusal.message, message) || mine.refusal != nil {
		t.Errorf("the difference is not there any more:\n--- reference\n%s--- ours\n%s", theirs, mine)
	}
}

// given is the object of an attempt before admission, as the reference has it.
func (w *world) given(t testing.TB, a attempt) object.Value {
	obj, gvk := internal(t, a.object)
	v, err := scheme.Value(gvk, obj)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// atLeast demands numbers of outcomes: a test whose cases all pass by a plugin that does nothing compares nothing.
func (c *tally) atLeast(t testing.TB, changed, unchanged, refused int) {
	t.Helper()
	if c.changed < changed || c.unchanged < unchanged || c.refused < refused {
		t.Errorf("the attempts came to %+v, want at least {changed:%d unchanged:%d refused:%d}", *c, changed, unchanged,
			refused)
	}
}

func compact(text string) string {
	if text == "" {
		return "none"
	}
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return text
	}
	return string(asJSON)
}
