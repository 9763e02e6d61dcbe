package etcdform

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/stubs"
)

var update = flag.Bool("update", false, "write testdata/recorded.json.gz again, with CONFORMANCE_REFERENCE=1")

func TestMain(m *testing.M) { harness.Main(m) }

// namespace is that of the objects that are recorded.
const namespace = "etcdform"

// record is one key of etcd, and the object in it as its server shows it in each version that it serves.
type record struct {
	Key     string            `json:"key"`
	Value   []byte            `json:"value"`
	Objects []json.RawMessage `json:"objects,omitempty"`
}

const recordedFile = "testdata/recorded.json.gz"

// recorded reads what was recorded, or records it.
func recorded(t testing.TB) []record {
	t.Helper()
	var all []record
	if *update {
		if !harness.WantReference() {
			t.Fatal("recording needs CONFORMANCE_REFERENCE=1")
		}
		all = recordReference(t)
		file, err := os.Create(recordedFile)
		if err != nil {
			t.Fatal(err)
		}
		compressed := gzip.NewWriter(file)
		if err := json.NewEncoder(compressed).Encode(all); err != nil {
			t.Fatal(err)
		}
		if err := compressed.Close(); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	file, err := os.Open(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// server is a running reference.
type server struct {
	client    dynamic.Interface
	resources map[schema.GroupVersionResource]metav1.APIResource
	discovery discovery.DiscoveryInterface
}

// recordReference starts the reference, creates objects, and reads all of its etcd.
func recordReference(t testing.TB) []record {
	t.Helper()
	run := harness.Run(t, harness.Options{Kind: harness.Reference})
	config, err := run.Config()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client: dynamic.NewForConfigOrDie(config), discovery: discovery.NewDiscoveryClientForConfigOrDie(config)}
	s.discover(t)
	s.create(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)
	for _, definition := range documents(t, "definitions.yaml") {
		s.create(t, schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"}, "", definition)
	}
	for !s.serves("stable.example.com", "v1") {
		time.Sleep(100 * time.Millisecond)
	}
	s.discover(t)
	for _, stub := range stubs.All(t, namespace) {
		resource, served := s.resources[stub.Resource]
		if !served {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(stub.JSON), &object); err != nil {
			t.Fatal(err)
		}
		object["apiVersion"], object["kind"] = stub.Resource.GroupVersion().String(), resource.Kind
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		s.create(t, stub.Resource, namespace, string(text))
		if stub.Status != "" {
			s.patchStatus(t, stub.Resource, (&unstructured.Unstructured{Object: object}).GetName(), stub.Status)
		}
	}
	for _, object := range documents(t, "objects.yaml") {
		s.apply(t, object)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{run.Etcd}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	return s.read(t, etcd)
}

// discover learns the resources that are served.
func (s *server) discover(t testing.TB) {
	_, lists, err := s.discovery.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	s.resources = map[schema.GroupVersionResource]metav1.APIResource{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			s.resources[version.WithResource(r.Name)] = r
		}
	}
}

func (s *server) serves(group, version string) bool {
	list, err := s.discovery.ServerResourcesForGroupVersion(group + "/" + version)
	return err == nil && len(list.APIResources) > 0
}

// in is the client of a resource.
func (s *server) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if s.resources[resource].Namespaced {
		return s.client.Resource(resource).Namespace(namespace)
	}
	return s.client.Resource(resource)
}

func (s *server) create(t testing.TB, resource schema.GroupVersionResource, namespace, text string) {
	t.Helper()
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.in(resource, namespace).Create(context.Background(), &object, metav1.CreateOptions{}); err != nil {
		t.Fatalf("%v: %v", resource, err)
	}
}

func (s *server) patchStatus(t testing.TB, resource schema.GroupVersionResource, name, status string) {
	t.Helper()
	_, err := s.in(resource, namespace).Patch(context.Background(), name, "application/merge-patch+json", []byte(status),
		metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("%v: %v", resource, err)
	}
}

// apply applies an object as two managers, so that its managedFields have several sets.
func (s *server) apply(t testing.TB, text string) {
	t.Helper()
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	kind := object.GroupVersionKind()
	for resource, r := range s.resources {
		if resource.GroupVersion() != kind.GroupVersion() || r.Kind != kind.Kind || strings.Contains(r.Name, "/") {
			continue
		}
		for _, manager := range []string{"one", "two"} {
			_, err := s.in(resource, object.GetNamespace()).Apply(context.Background(), object.GetName(), &object,
				metav1.ApplyOptions{FieldManager: manager, Force: true})
			if err != nil {
				t.Fatalf("%s %s: %v", kind.Kind, object.GetName(), err)
			}
		}
		return
	}
	t.Fatalf("%v is not served", kind)
}

// read reads etcd, and all objects by the API. Of an object that changes meanwhile, only the value is kept.
func (s *server) read(t testing.TB, etcd *clientv3.Client) []record {
	ctx := context.Background()
	answer, err := etcd.Get(ctx, "", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	byRevision := map[string][]json.RawMessage{}
	for resource, r := range s.resources {
		if strings.Contains(r.Name, "/") || !strings.Contains(r.Verbs.String(), "list") || r.Name == "componentstatuses" {
			continue
		}
		list, err := s.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%v: %v", resource, err)
		}
		for _, item := range list.Items {
			text, err := item.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			byRevision[item.GetResourceVersion()] = append(byRevision[item.GetResourceVersion()], text)
		}
	}
	var all []record
	for _, kv := range answer.Kvs {
		all = append(all, record{Key: string(kv.Key), Value: kv.Value,
			Objects: byRevision[strconv.FormatInt(kv.ModRevision, 10)]})
	}
	return all
}

// documents reads a file of testdata as JSON documents.
func documents(t testing.TB, name string) []string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []string
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case err == io.EOF:
			return all
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		case len(raw) > 0 && string(raw) != "null":
			all = append(all, string(raw))
		}
	}
}
