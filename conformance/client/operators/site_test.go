package operators

import (
	"bytes"
	"crypto/tls"
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
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
)

// answer is what a server says to a request.
type answer struct {
	request, text string
	name          string // of the object
	managers      string // its managedFields
}

// site is one operator beside one server.
type site struct {
	testing.TB
	operator         *operator
	source           string
	server           *harness.Server
	config           *rest.Config
	client           dynamic.Interface
	mapper           *restmapper.DeferredDiscoveryRESTMapper
	port, health     string        // of the webhook server
	certificate, key string        // files
	ca               []byte        // that signed the certificate
	ended            chan struct{} // is closed when the webhook server has ended

	answers  []answer
	warnings *warnings
	made     []*unstructured.Unstructured
}

// warnings are those of one response.
type warnings struct {
	sync.Mutex
	texts []string
}

// HandleWarningHeader is called by the client.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() []string {
	w.Lock()
	defer w.Unlock()
	texts := w.texts
	w.texts = nil
	slices.Sort(texts)
	return texts
}

func newSite(t *testing.T, kind harness.Kind, o *operator, source, port, health string) *site {
	t.Helper()
	s := &site{TB: t, operator: o, source: source, port: port, health: health, warnings: &warnings{}}
	s.server = harness.Run(t, harness.Options{Kind: kind})
	config, err := s.server.Config()
	s.must(err)
	config = rest.AnonymousClientConfig(config) // an administrator by a token: webhooks see how one signed in
	config.BearerToken, config.WarningHandler, config.QPS = harness.AdminToken, s.warnings, -1
	s.config = config
	s.client, err = dynamic.NewForConfig(config)
	s.must(err)
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	s.must(err)
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovered))
	s.certify()
	return s
}

// must ends the test on an error.
func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// certify makes the certificate of the webhook server.
func (s *site) certify() {
	made, ca, err := authority.Serving()
	s.must(err)
	dir := s.TempDir()
	s.certificate, s.key, s.ca = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), ca
	s.must(authority.Write(dir, "tls", made))
}

// install creates what the operator's chart and manifests contain.
func (s *site) install() {
	var objects []*unstructured.Unstructured
	for _, pattern := range s.operator.manifests {
		objects = append(objects, s.read(pattern)...)
	}
	if chart := s.operator.chart; chart != nil {
		program, err := harness.Helm()
		s.must(err)
		cmd := exec.Command(program, append([]string{"template", s.operator.name}, chart()...)...)
		cmd.Dir = s.source
		home := s.TempDir()
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
		var messages bytes.Buffer
		cmd.Stderr = &messages
		out, err := cmd.Output()
		if err != nil {
			s.Fatalf("helm template: %v\n%s", err, &messages)
		}
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(s.operator.name)
		objects = append(append(objects, namespace), s.parse(out)...)
	}
	// Webhooks come last: nothing answers them yet.
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return phase(a) - phase(b) })
	for _, object := range objects {
		s.direct(object)
		if _, err := s.resource(object).Create(s.Context(), object, metav1.CreateOptions{}); err != nil {
			s.Fatalf("installing %s: %v", title(object), err)
		}
	}
	s.warnings.take()
}

// phase orders what is installed.
func phase(object *unstructured.Unstructured) int {
	switch kind := object.GetKind(); {
	case kind == "Namespace", kind == "CustomResourceDefinition":
		return 0
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		return 2
	}
	return 1
}

// direct makes webhooks call the server at its address, and wait longer than a busy machine takes: a call that is given
// up would be no difference of the servers.
func (s *site) direct(object *unstructured.Unstructured) {
	client := func(path string) map[string]any {
		return map[string]any{"url": "https://127.0.0.1:" + s.port + path, "caBundle": s.ca64()}
	}
	if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		s.must(err)
		for _, hook := range hooks {
			hook := hook.(map[string]any)
			path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
			s.must(err)
			hook["clientConfig"], hook["timeoutSeconds"], hook["failurePolicy"] = client(path), int64(30), "Fail"
		}
		s.must(unstructured.SetNestedSlice(object.Object, hooks, "webhooks"))
	}
	if path := s.operator.converts[object.GetName()]; path != "" && object.GetKind() == "CustomResourceDefinition" {
		s.must(unstructured.SetNestedMap(object.Object, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"clientConfig": client(path), "conversionReviewVersions": []any{"v1"}}}, "spec", "conversion"))
	}
}

func (s *site) ca64() string {
	text, err := json.Marshal(s.ca)
	s.must(err)
	return strings.Trim(string(text), `"`)
}

// start starts the webhook server; the function that it returns ends it, and shows its log if the test has failed.
func (s *site) start(program string) (end func()) {
	log, err := os.Create(filepath.Join(s.TempDir(), "webhook.log"))
	s.must(err)
	cmd := exec.Command(program, s.operator.args(s)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.server.Kubeconfig, "POD_NAME=webhook-0",
		"POD_NAMESPACE="+s.operator.name+"-system", "CONTAINER_NAME=manager")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.must(cmd.Start())
	s.ended = make(chan struct{})
	go func() {
		cmd.Wait() // error: it is killed
		close(s.ended)
	}()
	return func() {
		cmd.Process.Kill() // error: it may have ended already
		<-s.ended
		if s.Failed() {
			text, _ := os.ReadFile(log.Name())
			s.Logf("the end of the webhook server's log:\n%s", text[max(0, len(text)-3000):])
		}
	}
}

// ready waits until the webhook server answers.
func (s *site) ready() {
	s.eventually("the webhook server is ready", func() error {
		select {
		case <-s.ended:
			s.Fatal("the webhook server has ended")
		default:
		}
		return s.probe()
	})
}

// probe asks the webhook server whether it is ready.
func (s *site) probe() error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", "127.0.0.1:"+s.port,
		&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	conn.Close()
	if s.operator.ready == "" {
		return nil
	}
	response, err := http.Get("http://127.0.0.1:" + s.health + s.operator.ready)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// patience is much longer than an operator takes to see what was written.
const patience = 2 * time.Minute

// eventually repeats a check until it succeeds.
func (s *site) eventually(what string, check func() error) {
	s.Helper()
	until := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			s.Fatalf("%s: %s: %v", s.server.Kind, what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// read reads the objects of files, in their order. Those in testdata are ours.
func (s *site) read(pattern string) (objects []*unstructured.Unstructured) {
	s.Helper()
	path := pattern
	if !strings.HasPrefix(pattern, "testdata/") {
		path = filepath.Join(s.source, filepath.FromSlash(pattern))
	}
	files, err := filepath.Glob(path)
	s.must(err)
	if len(files) == 0 {
		s.Fatalf("there is no %s", pattern)
	}
	slices.Sort(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		s.must(err)
		objects = append(objects, s.parse(text)...)
	}
	return objects
}

func (s *site) parse(text []byte) (objects []*unstructured.Unstructured) {
	s.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 1<<16)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		s.must(err)
		if object.IsList() {
			s.must(object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			}))
		} else if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// resource returns the client of an object's type. A type that was defined a moment ago may not be there yet.
func (s *site) resource(object *unstructured.Unstructured) dynamic.ResourceInterface {
	s.Helper()
	var mapping *meta.RESTMapping
	gvk := object.GroupVersionKind()
	s.eventually("the type of "+title(object), func() (err error) {
		mapping, err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			s.mapper.Reset()
		}
		return err
	})
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(mapping.Resource)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	return s.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
}

// await waits until a stage can begin.
func (s *site) await(stage stage) {
	for _, sign := range stage.until {
		object := s.read(sign.file)[0]
		s.eventually(fmt.Sprintf("the answer to %s contains %s", title(object), sign.text), func() error {
			made, err := s.resource(object).Create(s.Context(), object, metav1.CreateOptions{DryRun: []string{"All"}})
			text := failure(err)
			if err == nil {
				text, _ = s.normal(made)
			}
			if !strings.Contains(text, sign.text) {
				return errors.New(text)
			}
			return nil
		})
	}
	s.warnings.take()
}

// exercise does with an object what users do.
func (s *site) exercise(object *unstructured.Unstructured) {
	s.Helper()
	resource, name := s.resource(object), title(object)
	s.note("create in a dry run "+name, func() (*unstructured.Unstructured, error) {
		return resource.Create(s.Context(), object, metav1.CreateOptions{DryRun: []string{"All"}, FieldManager: "maker"})
	})
	created := s.note("create "+name, func() (*unstructured.Unstructured, error) {
		return resource.Create(s.Context(), object, metav1.CreateOptions{FieldManager: "maker"})
	})
	if created == nil {
		return
	}
	s.made = append(s.made, created)
	s.note("update "+name, func() (*unstructured.Unstructured, error) {
		for {
			current, err := resource.Get(s.Context(), created.GetName(), metav1.GetOptions{})
			s.must(err)
			s.must(unstructured.SetNestedField(current.Object, "yes", "metadata", "labels", "updated"))
			updated, err := resource.Update(s.Context(), current, metav1.UpdateOptions{FieldManager: "updater"})
			if !apierrors.IsConflict(err) {
				return updated, err
			}
			s.warnings.take()
		}
	})
	applied := &unstructured.Unstructured{}
	applied.SetGroupVersionKind(created.GroupVersionKind())
	applied.SetName(created.GetName())
	applied.SetLabels(map[string]string{"applied": "yes"})
	s.note("apply "+name, func() (*unstructured.Unstructured, error) {
		return resource.Apply(s.Context(), applied.GetName(), applied, metav1.ApplyOptions{FieldManager: "applier"})
	})
	s.versions(created)
}

// versions reads an object in every version of its group.
func (s *site) versions(object *unstructured.Unstructured) {
	mappings, err := s.mapper.RESTMappings(object.GroupVersionKind().GroupKind())
	s.must(err)
	slices.SortFunc(mappings, func(a, b *meta.RESTMapping) int {
		return strings.Compare(a.Resource.Version, b.Resource.Version)
	})
	for _, m := range mappings {
		var resource dynamic.ResourceInterface = s.client.Resource(m.Resource)
		if object.GetNamespace() != "" {
			resource = s.client.Resource(m.Resource).Namespace(object.GetNamespace())
		}
		s.note("read "+m.GroupVersionKind.Version+" "+title(object), func() (*unstructured.Unstructured, error) {
			return resource.Get(s.Context(), object.GetName(), metav1.GetOptions{})
		})
	}
}

// remove deletes what was made.
func (s *site) remove() {
	for _, object := range slices.Backward(s.made) {
		err := s.resource(object).Delete(s.Context(), object.GetName(), metav1.DeleteOptions{})
		s.answers = append(s.answers, answer{request: "delete " + title(object), text: failure(err)})
	}
}

// note records the answer to a request. It returns the object, or nil if the request was refused.
func (s *site) note(request string, do func() (*unstructured.Unstructured, error)) *unstructured.Unstructured {
	s.Helper()
	object, err := do()
	a := answer{request: request}
	if warned := s.warnings.take(); len(warned) > 0 {
		a.text = fmt.Sprintf("warnings %q; ", warned)
	}
	if err != nil {
		a.text += failure(err)
		s.answers = append(s.answers, a)
		return nil
	}
	text, managers := s.normal(object)
	a.text, a.managers, a.name = a.text+text, managers, object.GetName()
	s.answers = append(s.answers, a)
	return object
}

// failure is the text of an error.
func failure(err error) string {
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		text, _ := json.Marshal(status.Status())
		return string(text)
	}
	return fmt.Sprint(err)
}

// normal is an object as text, and its managedFields, without what differs in every run.
func (s *site) normal(object *unstructured.Unstructured) (text, managers string) {
	object = object.DeepCopy()
	entries := slices.DeleteFunc(object.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return s.operator.controllers && !slices.Contains([]string{"maker", "updater", "applier"}, m.Manager)
	})
	for i := range entries {
		entries[i].Time = nil
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	if s.operator.controllers {
		unstructured.RemoveNestedField(object.Object, "status")
		unstructured.RemoveNestedField(object.Object, "metadata", "finalizers")
	}
	inJSON, err := object.MarshalJSON()
	s.must(err)
	asJSON, err := json.Marshal(entries)
	s.must(err)
	return address.ReplaceAllString(string(inJSON), "<address>"), string(asJSON)
}

// address matches the addresses of Services.
var address = regexp.MustCompile(`\b10\.0\.\d+\.\d+\b`)

func title(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}

// freePort returns a port that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
