package clientgo

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// spoken counts the responses by media type.
type spoken struct {
	mu    sync.Mutex
	types map[string]int
}

func (s *spoken) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil {
			s.mu.Lock()
			s.types[response.Header.Get("Content-Type")]++
			s.mu.Unlock()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// protobufConfig speaks protobuf, as controllers and the nodes do.
func protobufConfig(t *testing.T, s *harness.Server) (*rest.Config, *spoken) {
	config := jsonConfig(t, s)
	config.ContentConfig = rest.ContentConfig{AcceptContentTypes: protobufType + ",application/json",
		ContentType: protobufType}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	heard := &spoken{types: map[string]int{}}
	config.Wrap(heard.wrap)
	return config, heard
}

// restClient returns a client of one group version.
func restClient(t *testing.T, config *rest.Config, group schema.GroupVersion) *rest.RESTClient {
	t.Helper()
	own := rest.CopyConfig(config)
	own.GroupVersion, own.NegotiatedSerializer, own.APIPath = &group, scheme.Codecs.WithoutConversion(), "/apis"
	if group.Group == "" {
		own.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(own)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// served returns the resources that can be listed and watched, by kind.
func served(t *testing.T, config *rest.Config) map[schema.GroupVersionKind]metav1.APIResource {
	t.Helper()
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[schema.GroupVersionKind]metav1.APIResource{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "watch") && !strings.Contains(r.Name, "/") {
				r.Group, r.Version = group.Group, group.Version
				all[group.WithKind(r.Kind)] = r
			}
		}
	}
	return all
}

// documents returns valid objects of every built-in kind.
func documents(t *testing.T) []runtime.Object {
	t.Helper()
	files, err := filepath.Glob("../../../internal/builtin/validation/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	var all []runtime.Object
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split("\n"+string(text), "\n---\n") {
			text, err := yaml.YAMLToJSON([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			all = append(all, obj)
		}
	}
	return all
}

// fixture holds the created objects, a client that speaks JSON and one that speaks protobuf.
type fixture struct {
	resources      map[schema.GroupVersionKind]metav1.APIResource
	json, protobuf *rest.Config
	created        []runtime.Object // as returned in protobuf
}

func (f *fixture) request(t *testing.T, config *rest.Config, verb string, kind schema.GroupVersionKind,
	namespace string) *rest.Request {
	r := f.resources[kind]
	return restClient(t, config, kind.GroupVersion()).Verb(verb).NamespaceIfScoped(namespace,
		r.Namespaced).Resource(r.Name)
}

// create writes every document in protobuf, and reads it again in both formats.
func (f *fixture) create(t *testing.T) {
	t.Helper()
	kinds := map[schema.GroupVersionKind]bool{}
	for _, document := range documents(t) {
		kind := document.GetObjectKind().GroupVersionKind()
		given, err := meta.Accessor(document)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := f.resources[kind]
		if !ok {
			continue // its version is not served
		}
		if r.Namespaced && given.GetNamespace() == "" {
			given.SetNamespace("default")
		}
		created, err := f.request(t, f.protobuf, "POST", kind, given.GetNamespace()).Body(document).Do(t.Context()).Get()
		if apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) && strings.Contains(err.Error(), "already allocated") {
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", kind.Kind, given.GetName(), err)
			continue
		}
		var read [2]runtime.Object
		for i, config := range []*rest.Config{f.protobuf, f.json} {
			if read[i], err = f.request(t, config, "GET", kind,
				given.GetNamespace()).Name(given.GetName()).Do(t.Context()).Get(); err != nil {
				t.Fatalf("%s %s: %v", kind.Kind, given.GetName(), err)
			}
			if !apiequality.Semantic.DeepEqual(bare(created), bare(read[i])) {
				t.Errorf("%s %s: created as\n%+v\nand read as\n%+v", kind.Kind, given.GetName(), created, read[i])
			}
		}
		kinds[kind] = true
		f.created = append(f.created, created)
	}
	if len(kinds) < 50 {
		t.Errorf("only %d kinds were created", len(kinds))
	}
}

// bare returns an object without what protobuf does not encode: apiVersion and kind of embedded objects.
func bare(obj runtime.Object) runtime.Object {
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return obj
	}
	set = set.DeepCopy()
	for i := range set.Spec.VolumeClaimTemplates {
		set.Spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{}
	}
	return set
}

// SPEC: MED-3 WATCH-1 WATCH-5: typed informers that speak protobuf follow every built-in type, and hold what a client
// that speaks JSON reads.
func TestProtobufInformers(t *testing.T) {
	// The owners of the objects do not exist, so the garbage collector must not run; one Service needs addresses of both
	// families. Among the objects are webhooks that nobody serves, limits and a quota, so admission must not apply them.
	// Priority and fairness would write the status of a FlowSchema between its creation and its read.
	server := harness.RunTarget(t, "--controllers=-garbage-collector-controller", "--admission-control=NamespaceLifecycle",
		"--enable-priority-and-fairness=false", "--service-cluster-ip-range=10.0.0.0/16,fd00::/112")
	config, heard := protobufConfig(t, server)
	plain := jsonConfig(t, server)
	plain.QPS, plain.WarningHandler = -1, rest.NoWarnings{}
	f := &fixture{resources: served(t, plain), json: plain, protobuf: config}
	f.create(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	partial := metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(config), 0)
	stores, partials := map[schema.GroupVersionKind]cache.Store{}, map[schema.GroupVersionKind]cache.Store{}
	var failed atomic.Int64
	for kind, r := range f.resources {
		// their informers are in other modules; internal/proto has a test of their messages
		if kind.Group == "apiextensions.k8s.io" || kind.Group == "apiregistration.k8s.io" {
			continue
		}
		resource := kind.GroupVersion().WithResource(r.Name)
		informer, err := factory.ForResource(resource)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		for store, i := range map[*map[schema.GroupVersionKind]cache.Store]cache.SharedIndexInformer{
			&stores: informer.Informer(), &partials: partial.ForResource(resource).Informer()} {
			(*store)[kind] = i.GetStore()
			if err := i.SetWatchErrorHandler(func(_ *cache.Reflector,
				err error) {
				failed.Add(1)
				t.Logf("%s: %v", kind, err)
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(stores) < 60 {
		t.Errorf("only %d types are followed", len(stores))
	}
	factory.Start(ctx.Done())
	partial.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Errorf("%s does not sync", kind)
		}
	}
	for kind, ok := range partial.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Errorf("the metadata of %s does not sync", kind)
		}
	}
	f.agree(t, stores, partials)

	for _, obj := range f.created {
		kind := kindOf(t, obj)
		m, _ := meta.Accessor(obj)
		patch := []byte(`{"metadata":{"annotations":{"told":"in JSON"}}}`)
		if err := f.request(t, config, "PATCH", kind, m.GetNamespace()).Name(m.GetName()).SetHeader("Content-Type",
			"application/merge-patch+json").
			Body(patch).Do(ctx).Error(); err != nil {
			t.Errorf("patch of %s %s: %v", kind.Kind, m.GetName(), err)
		}
		live, err := f.request(t, config, "GET", kind, m.GetNamespace()).Name(m.GetName()).Do(ctx).Get()
		if err != nil {
			t.Fatal(err)
		}
		changed, _ := meta.Accessor(live)
		changed.SetLabels(map[string]string{"told": "in-protobuf"})
		if err := f.request(t, config, "PUT", kind,
			m.GetNamespace()).Name(m.GetName()).Body(live).Do(ctx).Error(); err != nil {
			t.Errorf("update of %s %s: %v", kind.Kind, m.GetName(), err)
		}
	}
	f.agree(t, stores, partials)

	for _, obj := range f.created {
		kind := kindOf(t, obj)
		m, _ := meta.Accessor(obj)
		now := int64(0)
		if kind.Kind == "Namespace" {
			continue
		}
		if err := f.request(t, config, "DELETE", kind,
			m.GetNamespace()).Name(m.GetName()).Body(&metav1.DeleteOptions{GracePeriodSeconds: &now}).
			Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete of %s %s: %v", kind.Kind, m.GetName(), err)
		}
	}
	f.agree(t, stores, partials)
	if n := failed.Load(); n > 0 {
		t.Errorf("%d lists or watches failed", n)
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	t.Logf("answers by media type: %v", heard.types)
	for name := range heard.types {
		if !strings.HasPrefix(name, protobufType) {
			t.Errorf("some answers were sent as %s", name)
		}
	}
}

func kindOf(t *testing.T, obj runtime.Object) schema.GroupVersionKind {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	return kinds[0]
}

// agree waits until the informers hold the objects of a list in JSON.
func (f *fixture) agree(t *testing.T, stores, partials map[schema.GroupVersionKind]cache.Store) {
	t.Helper()
	for kind, store := range stores {
		var fault string
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			if fault = f.differs(t, kind, store, partials[kind]); fault == "" {
				break
			}
		}
		if fault != "" {
			t.Errorf("%s: %s", kind, fault)
		}
	}
}

func (f *fixture) differs(t *testing.T, kind schema.GroupVersionKind, store, partial cache.Store) string {
	t.Helper()
	list, err := f.request(t, f.json, "GET", kind, "").Do(t.Context()).Get()
	if err != nil {
		t.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	if have := store.ListKeys(); len(have) != len(items) {
		return "the informer holds " + strings.Join(have, ", ")
	}
	for _, item := range items {
		key, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, _ := store.GetByKey(key)
		if !ok || !apiequality.Semantic.DeepEqual(bare(got.(runtime.Object)), bare(item)) {
			return key + " is not the same"
		}
		m, _ := meta.Accessor(item)
		part, ok, _ := partial.GetByKey(key)
		if !ok || part.(*metav1.PartialObjectMetadata).ResourceVersion != m.GetResourceVersion() ||
			!apiequality.Semantic.DeepEqual(part.(*metav1.PartialObjectMetadata).Labels, m.GetLabels()) {
			return "the metadata of " + key + " is not the same"
		}
	}
	return ""
}

// SPEC: MED-3: errors, subresources, operations and collections by a client that speaks protobuf.
func TestProtobufTyped(t *testing.T) {
	server := harness.RunTarget(t)
	config, heard := protobufConfig(t, server)
	client := kubernetes.NewForConfigOrDie(config)
	ns := namespace(t, client, "messages")
	ctx := t.Context()
	if _, err := client.CoreV1().Pods(ns).Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of none: %v", err)
	}
	bad := pod("bad")
	bad.Spec.Containers = nil
	_, err := client.CoreV1().Pods(ns).Create(ctx, bad, metav1.CreateOptions{})
	if status, ok := err.(apierrors.APIStatus); !ok || !apierrors.IsInvalid(err) ||
		len(status.Status().Details.Causes) == 0 {
		t.Errorf("a Pod without containers: %v", err)
	}
	if _, err := client.CoreV1().Pods(ns).Create(ctx, pod("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().Pods(ns).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("bind: %v", err)
	}
	for range 4 {
		if _, err := client.CoreV1().ConfigMaps(ns).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"},
				BinaryData: map[string][]byte{"b": {0, 255}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{Limit: 3})
	if err != nil || len(list.Items) != 3 || list.Continue == "" || list.RemainingItemCount == nil ||
		*list.RemainingItemCount != 1 {
		t.Errorf("a chunk: %+v, %v", list.ListMeta, err)
	}
	rest, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{Limit: 3, Continue: list.Continue})
	if err != nil || len(rest.Items) != 1 || rest.ResourceVersion != list.ResourceVersion {
		t.Errorf("the rest: %+v, %v", rest.ListMeta, err)
	}
	if err := client.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		t.Errorf("deletecollection: %v", err)
	}
	watch, err := client.CoreV1().ConfigMaps(ns).Watch(ctx,
		metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: new(int64)})
	if err != nil {
		t.Errorf("watch: %v", err)
	} else {
		watch.Stop()
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	for name := range heard.types {
		if !strings.HasPrefix(name, protobufType) {
			t.Errorf("some answers were sent as %s", name)
		}
	}
}
