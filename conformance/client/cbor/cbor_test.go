// Package cbor runs client-go with CBOR against Plinth, which it uses if its gates ClientsAllowCBOR and
// ClientsPreferCBOR are on: typed and dynamic clients, informers, and server-side apply.
package cbor

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plinth/conformance/internal/harness"
)

func TestMain(m *testing.M) {
	// client-go reads its gates when the first client is made.
	for _, gate := range []string{"ClientsAllowCBOR", "ClientsPreferCBOR"} {
		if err := os.Setenv("KUBE_FEATURE_"+gate, "true"); err != nil {
			panic(err)
		}
	}
	harness.Main(m)
}

// run starts a server that speaks CBOR, as the reference does only with its gate on.
func run(t *testing.T) *harness.Server {
	t.Helper()
	return harness.Run(t, harness.Options{Kind: harness.Target(), Dir: t.TempDir(),
		Flags: []string{"--feature-gates=CBORServingAndStorage=true"}})
}

// counter counts requests and responses by content type.
type counter struct {
	http.RoundTripper
	mu   sync.Mutex
	seen map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.count("request " + r.Header.Get("Content-Type"))
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.count("answer " + response.Header.Get("Content-Type"))
	}
	return response, err
}

func (c *counter) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[what]++
}

func (c *counter) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[what]
}

// clients returns clients of a server that speak CBOR, with counters of what they send and receive.
func clients(t *testing.T, s *harness.Server) (kubernetes.Interface, dynamic.Interface, *counter) {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	count := &counter{seen: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		count.RoundTripper = next
		return count
	})
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeCBOR, runtime.ContentTypeCBOR
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	untyped, err := dynamic.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	return typed, untyped, count
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// SPEC: MED-4
func TestClients(t *testing.T) {
	s := run(t)
	typed, untyped, count := clients(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Data: map[string][]byte{"bytes": {0, 1, 0xff, '"'}, "none": {}}}
	made, err := typed.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := made.Data["bytes"]; !bytes.Equal(got, secret.Data["bytes"]) {
		t.Errorf("bytes became %x", got)
	}
	if got, err := untyped.Resource(configMaps.GroupVersion().WithResource("secrets")).Namespace("default").Get(ctx, "s",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if text, _, _ := unstructured.NestedString(got.Object, "data", "bytes"); text != "AAH/Ig==" {
		t.Errorf("bytes are shown as %q", text)
	}

	object := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"k": value},
		}}
	}
	ours := untyped.Resource(configMaps).Namespace("default")
	for _, value := range []string{"one", "two"} {
		applied, err := ours.Apply(ctx, "c", object(value), metav1.ApplyOptions{FieldManager: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedString(applied.Object, "data", "k"); got != value {
			t.Errorf("applied %q, got %q", value, got)
		}
	}
	if _, err := ours.Apply(ctx, "c", object("three"),
		metav1.ApplyOptions{FieldManager: "other"}); !apierrors.IsConflict(err) {
		t.Errorf("no conflict but %v", err)
	}
	if _, err := ours.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("not found is %v", err)
	}
	if n := count.of("request application/apply-patch+cbor"); n != 3 {
		t.Errorf("%d applies went in CBOR", n)
	}
	if n := count.of("request application/cbor"); n == 0 || count.of("answer application/cbor") < 6 {
		t.Errorf("seen: %v", count.seen)
	}
}

// SPEC: MED-4 WATCH-5
func TestInformers(t *testing.T) {
	s := run(t)
	typed, untyped, count := clients(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	write := func(from, to int, value string) {
		for i := from; i < to; i++ {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%02d", i)},
				Data: map[string]string{"k": value}}
			_, err := typed.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				_, err = typed.CoreV1().ConfigMaps("default").Update(ctx, object, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 30, "before")
	known := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace("default"))
	unknown := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, "default", nil)
	stores := []cache.SharedIndexInformer{known.Core().V1().ConfigMaps().Informer(),
		unknown.ForResource(configMaps).Informer()}
	known.Start(ctx.Done())
	unknown.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), stores[0].HasSynced, stores[1].HasSynced) {
		t.Fatal("the informers do not sync")
	}
	write(20, 40, "after")
	for i := range 5 {
		if err := typed.CoreV1().ConfigMaps("default").Delete(ctx, fmt.Sprintf("c%02d", i),
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := typed.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, item := range list.Items {
		want[item.Name] = item.ResourceVersion
	}
	for _, informer := range stores {
		for !agrees(informer.GetStore(), want) {
			select {
			case <-ctx.Done():
				t.Fatalf("an informer holds %v", informer.GetStore().ListKeys())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	if n := count.of("answer application/cbor-seq"); n < 2 {
		t.Errorf("seen: %v", count.seen)
	}
}

func agrees(store cache.Store, want map[string]string) bool {
	items := store.List()
	for _, item := range items {
		object := item.(metav1.Object)
		if want[object.GetName()] != object.GetResourceVersion() {
			return false
		}
	}
	return len(items) == len(want)
}

// A list that does not fit into one write is one document, and reads like the one in JSON.
//
// SPEC: MED-4 MED-5 LIST-8
func TestLargeList(t *testing.T) {
	s := run(t)
	typed, untyped, _ := clients(t, s)
	for i := range 300 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%03d", i)},
			Data: map[string]string{"k": strings.Repeat("ü\n", 1000)}}
		if _, err := typed.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := untyped.Resource(configMaps).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := list.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	text, err := typed.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").
		SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var plain unstructured.UnstructuredList
	if err := plain.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	if want, err := plain.MarshalJSON(); err != nil || !bytes.Equal(got, want) || len(list.Items) != 300 {
		t.Errorf("%v: %d items, %d bytes, of JSON %d", err, len(list.Items), len(got), len(want))
	}
}
