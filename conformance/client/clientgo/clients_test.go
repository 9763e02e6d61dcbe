package clientgo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"

	"plinth/conformance/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// jsonConfig speaks JSON: protobuf is not client-go's default, but generated clients may use it.
func jsonConfig(t *testing.T, s *harness.Server) *rest.Config {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func typed(t *testing.T, s *harness.Server) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(jsonConfig(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func namespace(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// SPEC: URI-4 WRITE-1 WRITE-2 WRITE-4 DEL-1 LIST-7
func TestTyped(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	ns := namespace(t, client, "typed")
	ctx := t.Context()
	pods := client.CoreV1().Pods(ns)

	created, err := pods.Create(ctx, pod("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.UID == "" || created.ResourceVersion == "" || created.CreationTimestamp.IsZero() ||
		created.Status.Phase != corev1.PodPending {
		t.Errorf("a created pod lacks something: %+v", created)
	}
	if _, err := pods.Create(ctx, pod("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second create: %v", err)
	}
	if _, err := pods.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of none: %v", err)
	}
	bad := pod("bad")
	bad.Spec.Containers = nil
	if _, err := pods.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a pod without containers: %v", err)
	}

	changed := created.DeepCopy()
	changed.Labels["b"] = "c"
	updated, err := pods.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil || updated.Labels["b"] != "c" || updated.ResourceVersion == created.ResourceVersion {
		t.Errorf("update: %v, %+v", err, updated)
	}
	if _, err := pods.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}
	updated.Status.Phase = corev1.PodRunning
	running, err := pods.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil || running.Status.Phase != corev1.PodRunning {
		t.Errorf("status: %v", err)
	}
	patched, err := pods.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}}}`),
		metav1.PatchOptions{})
	if err != nil || patched.Annotations["x"] != "y" || patched.Status.Phase != corev1.PodRunning {
		t.Errorf("patch: %v, %+v", err, patched)
	}
	for _, list := range []struct {
		options metav1.ListOptions
		want    int
	}{
		{metav1.ListOptions{LabelSelector: "app=x"}, 1},
		{metav1.ListOptions{LabelSelector: "app!=x"}, 0},
		{metav1.ListOptions{FieldSelector: "status.phase=Running"}, 1},
		{metav1.ListOptions{FieldSelector: "spec.nodeName=somewhere"}, 0},
		{metav1.ListOptions{ResourceVersion: "0"}, 1},
		{metav1.ListOptions{ResourceVersion: patched.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, 1},
	} {
		got, err := pods.List(ctx, list.options)
		if err != nil || len(got.Items) != list.want || got.ResourceVersion == "" {
			t.Errorf("list %+v: %v, %d pods", list.options, err, len(got.Items))
		}
	}
	uid := types.UID("another")
	if err := pods.Delete(ctx, "a",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v", err)
	}
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after delete: %v", err)
	}
	for i := range 5 {
		if _, err := pods.Create(ctx, pod(fmt.Sprint("many-", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=x"}); err != nil {
		t.Errorf("deletecollection: %v", err)
	}
	if left, err := pods.List(ctx, metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("%v, %d pods are left", err, len(left.Items))
	}
}

// SPEC: URI-8 MED-7
func TestDynamicDiscoveryAndMapping(t *testing.T) {
	server := harness.RunTarget(t)
	config := jsonConfig(t, server)
	ctx := t.Context()
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	version, err := disco.ServerVersion()
	if err != nil || version.Major != "1" || version.Minor != "37" {
		t.Errorf("version: %v, %+v", err, version)
	}
	if _, err := disco.OpenAPISchema(); err != nil {
		t.Errorf("openapi v2: %v", err)
	}
	if paths, err := disco.OpenAPIV3().Paths(); err != nil || paths["apis/apps/v1"] == nil {
		t.Errorf("openapi v3: %v", err)
	}
	groups, err := restmapper.GetAPIGroupResources(disco)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespace(t, typed(t, server), "dynamic")
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"k": "v"}},
		{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}},
		{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": map[string]any{"holderIdentity": "me"}},
		{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []any{}},
		{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/x"},
		{"apiVersion": "v1", "kind": "Node"},
	} {
		u := &unstructured.Unstructured{Object: object}
		u.SetName("dyn")
		mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			t.Errorf("%s: %v", u.GetKind(), err)
			continue
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			resource = client.Resource(mapping.Resource).Namespace("dynamic")
		}
		made, err := resource.Create(ctx, u, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", u.GetKind(), err)
			continue
		}
		made.SetLabels(map[string]string{"x": "y"})
		if _, err := resource.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: update: %v", u.GetKind(), err)
		}
		list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: "x=y"})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetKind() != u.GetKind() {
			t.Errorf("%s: list: %v, %v", u.GetKind(), err, list)
		}
		if err := resource.Delete(ctx, "dyn", metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: delete: %v", u.GetKind(), err)
		}
	}
	// A short name and a plural, as kubectl resolves them.
	expander := restmapper.NewShortcutExpander(mapper, disco, nil)
	for short, want := range map[string]string{"cm": "ConfigMap", "deploy": "Deployment", "sc": "StorageClass",
		"po": "Pod"} {
		kind, err := expander.KindFor(schema.GroupVersionResource{Resource: short})
		if err != nil || kind.Kind != want {
			t.Errorf("%s is %v, %v", short, kind, err)
		}
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	partial, err := meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{})
	if err != nil || len(partial.Items) < 4 || partial.Items[0].Name == "" {
		t.Errorf("metadata: %v, %v", err, partial)
	}
}

// SPEC: WRITE-1: ten writers count to a hundred together, each retrying its conflicts.
func TestRetryOnConflict(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	ns := namespace(t, client, "conflicts")
	maps := client.CoreV1().ConfigMaps(ns)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"},
		Data: map[string]string{"n": ""}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 10, 10
	patient := retry.DefaultBackoff
	patient.Steps, patient.Duration = 1000, time.Millisecond
	patient.Factor, patient.Jitter = 1, 1
	results := make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for range each {
				err = errors.Join(err, retry.RetryOnConflict(patient, func() error {
					m, err := maps.Get(t.Context(), "counter", metav1.GetOptions{})
					if err != nil {
						return err
					}
					m.Data["n"] += "x"
					_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
					return err
				}))
			}
			results <- err
		}()
	}
	for range writers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	m, err := maps.Get(t.Context(), "counter", metav1.GetOptions{})
	if err != nil || len(m.Data["n"]) != writers*each {
		t.Errorf("%v, they have counted to %d, not to %d", err, len(m.Data["n"]), writers*each)
	}
}

// SPEC: WATCH-1 WATCH-2 WATCH-6
func TestWatch(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	ns := namespace(t, client, "watched")
	maps := client.CoreV1().ConfigMaps(ns)
	ctx := t.Context()
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seconds := int64(2)
	began := time.Now()
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds})
	if err != nil {
		t.Fatal(err)
	}
	m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data = map[string]string{"k": "v"}
	if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []watch.EventType
	for event := range w.ResultChan() {
		got = append(got, event.Type)
	}
	if want := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}; !slices.Equal(got, want) {
		t.Errorf("events are %v, not %v", got, want)
	}
	if took := time.Since(began); took < 1500*time.Millisecond || took > 10*time.Second {
		t.Errorf("a watch of 2 seconds took %s", took)
	}
	// A watch that the client cancels ends at once.
	short, cancel := context.WithCancel(ctx)
	w, err = maps.Watch(short, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	ended := time.After(5 * time.Second)
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return
			}
		case <-ended:
			t.Fatal("a cancelled watch does not end")
		}
	}
}
