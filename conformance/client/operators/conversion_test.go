package operators

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
)

// paints is how many objects are converted.
const paints = 1000

// Each state of an object is converted once, whoever reads it, and what was converted can be read while the webhook is
// away: by lists, by selectors, by the watches of a controller. The reference does the same (CONFORMANCE_REFERENCE=1):
// it has a cache of each served version, and converts when an object is written what Plinth converts when it is first
// read. What it converts again, such as the last state of a deleted object, is not asked for here.
//
// The figures are logged.
//
// SPEC: EXT-1
func TestConversionWebhook(t *testing.T) {
	kinds := []harness.Kind{harness.Plinth}
	if harness.WantReference() {
		kinds = append(kinds, harness.Reference)
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { convertOnce(t, kind) })
	}
}

func convertOnce(t *testing.T, kind harness.Kind) {
	config, err := harness.Run(t, harness.Options{Kind: kind}).Config()
	if err != nil {
		t.Fatal(err)
	}
	s := &studio{T: t, hook: newConverter(t), client: dynamic.NewForConfigOrDie(config)}
	s.v1, s.v2 = s.resource("paints.example.com", "v1", "paints"), s.resource("paints.example.com", "v2", "paints")
	s.define()
	s.create(paints)

	// Whether a list by a field, as the first one of all, asks for one object at a time.
	began, reviews := time.Now(), s.hook.reviews.Load()
	s.count(paints, metav1.ListOptions{FieldSelector: "spec.paint=red"})
	t.Logf("%s: the first list by a field: %d reviews, %v", kind, s.hook.reviews.Load()-reviews, time.Since(began))
	began = time.Now()
	for range 5 {
		s.count(paints, metav1.ListOptions{})
	}
	t.Logf("%s: 5 lists: %v", kind, time.Since(began))
	s.converted(kind, "all objects, created and listed 5 times", paints)
	began = time.Now()
	s.count(paints, metav1.ListOptions{FieldSelector: "spec.paint=red"})
	t.Logf("%s: a list by a field: %v", kind, time.Since(began))
	s.converted(kind, "a list by a field", 0)

	s.watchers(10, 5)
	s.converted(kind, "10 watchers of 5 updates", 5)

	s.hook.stop()
	s.count(paints, metav1.ListOptions{})
	s.count(paints, metav1.ListOptions{ResourceVersion: "0"})
	s.count(1, metav1.ListOptions{FieldSelector: "spec.paint=blue-4", ResourceVersion: "0"})
	got, err := s.v2.Get(t.Context(), "p-7", metav1.GetOptions{ResourceVersion: "0"})
	if err != nil || paint(got) != "red" {
		t.Errorf("get from the cache: %v", err)
	}
	s.initial()
	_, err = s.v2.Get(t.Context(), "p-7", metav1.GetOptions{})
	t.Logf("%s: get of the newest state while the webhook is away: %v", kind, err)
	s.paint("p-9", "green")
	s.converted(kind, "while the webhook is away", 0)

	s.hook.start()
	s.eventually("what was written meanwhile is never read", func() bool {
		got, err := s.v2.Get(t.Context(), "p-9", metav1.GetOptions{ResourceVersion: "0"})
		return err == nil && paint(got) == "green"
	})
	s.eventually("the list never recovers", func() bool {
		all, err := s.v2.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(all.Items) == paints
	})
}

// studio has objects of a definition whose versions a webhook converts.
type studio struct {
	*testing.T
	hook   *converter
	client dynamic.Interface
	v1, v2 dynamic.ResourceInterface
	// counted is how many objects the webhook had converted when converted was last called.
	counted int64
}

func (s *studio) resource(group, version, name string) dynamic.ResourceInterface {
	return s.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: name}).
		Namespace("default")
}

func (s *studio) eventually(what string, met func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !met(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal(what)
		}
	}
}

// converted compares how many objects the webhook has converted since the last call. The reference converts in the
// background, and what it had to convert at least is awaited.
func (s *studio) converted(kind harness.Kind, what string, want int64) {
	s.Helper()
	s.eventually(what+": too few objects are converted", func() bool { return s.hook.objects.Load() >= s.counted+want })
	now := s.hook.objects.Load()
	s.Logf("%s: %s: %d objects converted", kind, what, now-s.counted)
	// It tries again and again what it cannot convert, and converts some things more than once while it starts.
	if now-s.counted != want && kind == harness.Plinth {
		s.Errorf("%s: %d objects are converted, want %d", what, now-s.counted, want)
	}
	s.counted = now
}

// define installs the definition, and waits until both versions are served.
func (s *studio) define() {
	version := func(name, field string, storage bool) apiextensions.CustomResourceDefinitionVersion {
		text := map[string]apiextensions.JSONSchemaProps{field: {Type: "string"}}
		return apiextensions.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
				Type:       "object",
				Properties: map[string]apiextensions.JSONSchemaProps{"spec": {Type: "object", Properties: text}},
			}},
			SelectableFields: []apiextensions.SelectableField{{JSONPath: ".spec." + field}},
		}
	}
	definition := &apiextensions.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "paints.paints.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "paints.example.com", Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "paints", Kind: "Paint"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{
				version("v1", "colour", true), version("v2", "paint", false),
			},
			Conversion: &apiextensions.CustomResourceConversion{
				Strategy: apiextensions.WebhookConverter,
				Webhook: &apiextensions.WebhookConversion{
					ConversionReviewVersions: []string{"v1"},
					ClientConfig:             &apiextensions.WebhookClientConfig{URL: &s.hook.url, CABundle: s.hook.ca},
				},
			},
		},
	}
	text, err := json.Marshal(definition)
	if err != nil {
		s.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).Create(s.Context(), obj, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	for _, r := range []dynamic.ResourceInterface{s.v1, s.v2} {
		s.eventually("the type is never served", func() bool {
			_, err := r.List(s.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
}

// create creates so many red objects of v1.
func (s *studio) create(n int) {
	numbers := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range numbers {
				_, err := s.v1.Create(s.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "paints.example.com/v1", "kind": "Paint",
					"metadata": map[string]any{"name": fmt.Sprintf("p-%d", i)}, "spec": map[string]any{"colour": "red"},
				}}, metav1.CreateOptions{})
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	all.Wait()
}

// paint changes the colour of an object, through v1.
func (s *studio) paint(name, colour string) {
	s.Helper()
	if _, err := s.v1.Patch(s.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"colour":%q}}`, colour), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// paint is the paint of an object of v2.
func paint(obj *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(obj.Object, "spec", "paint")
	return text
}

// count lists v2 and demands so many objects.
func (s *studio) count(n int, o metav1.ListOptions) {
	s.Helper()
	all, err := s.v2.List(s.Context(), o)
	if err != nil {
		s.Errorf("list %+v: %v", o, err)
		return
	}
	if len(all.Items) != n {
		s.Errorf("list %+v: %d objects, want %d", o, len(all.Items), n)
	}
	for i := range all.Items {
		if paint(&all.Items[i]) == "" {
			s.Errorf("list %+v: %v", o, all.Items[i].Object)
		}
	}
}

// watchers follows v2 with so many watches, changes so many objects, and waits until each watch has seen it.
func (s *studio) watchers(watches, updates int) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	now, err := s.v2.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		s.Fatal(err)
	}
	var all sync.WaitGroup
	for range watches {
		w, err := s.v2.Watch(ctx, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
		if err != nil {
			s.Fatal(err)
		}
		all.Go(func() {
			defer w.Stop()
			for seen := range updates {
				event, ok := <-w.ResultChan()
				obj, _ := event.Object.(*unstructured.Unstructured)
				if want := fmt.Sprintf("blue-%d", seen); !ok || event.Type != watch.Modified || paint(obj) != want {
					s.Errorf("the event is %v, want %s", event, want)
					return
				}
			}
		})
	}
	for i := range updates {
		s.paint(fmt.Sprintf("p-%d", i), fmt.Sprintf("blue-%d", i))
	}
	all.Wait()
}

// initial demands that a watch from the state at hand begins with all objects.
func (s *studio) initial() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	w, err := s.v2.Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		s.Error(err)
		return
	}
	defer w.Stop()
	for n := range paints {
		if event, ok := <-w.ResultChan(); !ok || event.Type != watch.Added {
			s.Errorf("event %d of a watch from the cache: %v", n, event)
			return
		}
	}
}

// converter is a conversion webhook that can be stopped and started: spec.colour of v1 is spec.paint of v2.
type converter struct {
	t           *testing.T
	url         string
	ca          []byte
	certificate *tls.Certificate
	address     string
	server      *http.Server
	relabels    bool // the label colour of v1 is the label paint of v2, too

	reviews, objects atomic.Int64 // that it has answered, and what was in them
}

func newConverter(t *testing.T) *converter {
	made, ca, err := authority.Serving()
	if err != nil {
		t.Fatal(err)
	}
	c := &converter{t: t, ca: ca, certificate: made, address: "127.0.0.1:0"}
	c.start()
	c.url = "https://" + c.address + "/convert"
	t.Cleanup(func() { _ = c.server.Close() })
	return c
}

// start listens at the same address each time.
func (c *converter) start() {
	c.t.Helper()
	listener, err := net.Listen("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.address = listener.Addr().String()
	c.server = &http.Server{Handler: c, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*c.certificate}}}
	server := c.server
	go func() { _ = server.ServeTLS(listener, "", "") }()
}

// stop closes the connections, too.
func (c *converter) stop() { _ = c.server.Close() }

// renamed gives the colour or the paint of a map the other name.
func renamed(members any) {
	m, _ := members.(map[string]any)
	for from, to := range map[string]string{"colour": "paint", "paint": "colour"} {
		if text, ok := m[from]; ok {
			delete(m, from)
			m[to] = text
			break
		}
	}
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID, DesiredAPIVersion string
			Objects                []map[string]any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.reviews.Add(1)
	c.objects.Add(int64(len(review.Request.Objects)))
	for _, obj := range review.Request.Objects {
		obj["apiVersion"] = review.Request.DesiredAPIVersion
		renamed(obj["spec"])
		if meta, _ := obj["metadata"].(map[string]any); c.relabels {
			renamed(meta["labels"])
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"response": map[string]any{"uid": review.Request.UID, "convertedObjects": review.Request.Objects,
			"result": map[string]any{"status": "Success"}},
	})
}
