package etcd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/conformance/internal/stubs"
)

// TestEmptyUpdates: every type of object that a kube-apiserver serves can be made through either server, and an update
// through the other one that changes nothing writes nothing. A kube-apiserver compares bytes for that, so each value
// that Plinth writes has the bytes that it would write.
//
// SPEC: STORE-3
func TestEmptyUpdates(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	for _, kind := range []harness.Kind{harness.Plinth, harness.Reference} {
		t.Run("made through "+string(kind), func(t *testing.T) {
			p := startEtcd(t, reference.EtcdOptions{})
			from, to := on(t, harness.Plinth, p.URL), on(t, harness.Reference, p.URL)
			here, there := served(t, from), served(t, to)
			if kind == harness.Reference {
				from, to = to, from
			}
			const namespace = "made"
			ns := object(t, `{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, namespace)
			if _, err := from.Resource(namespaces).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			checked := 0
			for _, stub := range stubs.All(t, namespace) {
				if !here[stub.Resource] || !there[stub.Resource] || stub.Resource.Group == "apiregistration.k8s.io" {
					continue
				}
				if why := unlike(t, from, to, &stub, namespace); why != "" {
					t.Errorf("%s: %s", stub.Resource, why)
				}
				checked++
			}
			if checked < 60 {
				t.Errorf("only %d objects were made", checked)
			}
			t.Logf("%d objects", checked)
		})
	}
}

// unlike makes an object through one server and updates it through another one; "" if that changes nothing.
func unlike(t *testing.T, from, to *server, stub *stubs.Stub, namespace string) string {
	t.Helper()
	u := object(t, "%s", withKind(t, from, stub))
	of := func(s *server) dynamic.ResourceInterface {
		if namespaced(t, from, stub) {
			return s.Resource(stub.Resource).Namespace(namespace)
		}
		return s.Resource(stub.Resource)
	}
	_, err := of(from).Create(t.Context(), u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // the object of the other turn, or of the same kind in another group
		if err = of(from).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) {
			eventually(t, "it is gone", func() error {
				_, err = of(from).Create(t.Context(), u, metav1.CreateOptions{})
				return err
			})
		}
	}
	if err != nil {
		return "it cannot be made: " + err.Error()
	}
	if stub.Status != "" {
		_, err := of(from).Patch(t.Context(), u.GetName(), types.MergePatchType, []byte(stub.Status), metav1.PatchOptions{},
			"status")
		if err != nil {
			return "its status cannot be set: " + err.Error()
		}
	}
	for range 20 { // a controller of either server may write it meanwhile
		before, err := of(to).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		updated, err := of(to).Patch(t.Context(), u.GetName(), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		if err != nil {
			return "it cannot be updated: " + err.Error()
		}
		if updated.GetResourceVersion() == before.GetResourceVersion() {
			return ""
		}
		updated.SetResourceVersion(before.GetResourceVersion())
		if equality.Semantic.DeepEqual(before.Object, updated.Object) {
			text, _ := json.Marshal(before.Object)
			return fmt.Sprintf("an empty update writes it: %s", text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "it is written all the time"
}

// withKind is the JSON of a stub with apiVersion and kind.
func withKind(t *testing.T, s *server, stub *stubs.Stub) string {
	t.Helper()
	list, err := s.discovery.ServerResourcesForGroupVersion(stub.Resource.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := yaml.Unmarshal([]byte(stub.JSON), &m); err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		if r.Name == stub.Resource.Resource {
			m["kind"], m["apiVersion"] = r.Kind, stub.Resource.GroupVersion().String()
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func namespaced(t *testing.T, s *server, stub *stubs.Stub) bool {
	t.Helper()
	list, err := s.discovery.ServerResourcesForGroupVersion(stub.Resource.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		if r.Name == stub.Resource.Resource {
			return r.Namespaced
		}
	}
	t.Fatalf("%s is not served", stub.Resource)
	return false
}

// A value that cannot be read harms no other object, at the start and while the server runs: one that is cut, one of
// another kind, one of another name, one that is encrypted. It can be deleted, as an object that cannot be read.
//
// SPEC: DEL-6, DEL-7, STORE-3
func TestDamagedValues(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	s := on(t, harness.Plinth, p.URL)
	d := direct(t, p.URL)
	for _, name := range []string{"good", "cut", "other", "renamed"} {
		if _, err := s.Resource(configMaps).Namespace("default").Create(t.Context(), object(t,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {a: b}}`, name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	value := func(key string) string {
		t.Helper()
		answer, err := d.Get(t.Context(), key)
		if err != nil || len(answer.Kvs) != 1 {
			t.Fatal(key, err)
		}
		return string(answer.Kvs[0].Value)
	}
	good := value("/registry/configmaps/default/good")
	damaged := map[string]string{
		"cut":       good[:len(good)/2],
		"other":     value("/registry/namespaces/default"),
		"renamed":   good,
		"garbage":   "\x00\xff",
		"empty":     "",
		"encrypted": "k8s:enc:aescbc:v1:key1:0123456789abcdef0123456789abcdef",
	}
	for name, text := range damaged {
		if _, err := d.Put(t.Context(), "/registry/configmaps/default/"+name, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"/registry/unknown/x", "/registry/pods", "/registry/ranges/y"} {
		if _, err := d.Put(t.Context(), key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		maps := s.Resource(configMaps).Namespace("default")
		if got, err := maps.Get(t.Context(), "good", metav1.GetOptions{}); err != nil || got.GetName() != "good" {
			t.Errorf("%s: the good object: %v", when, err)
		}
		for name := range damaged {
			_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: GET of %s: %v", when, name, err)
			}
		}
		_, err := maps.List(t.Context(), metav1.ListOptions{})
		if err == nil || !strings.Contains(err.Error(), "failed to read one or more configmaps") {
			t.Errorf("%s: a list with objects that cannot be read: %v", when, err)
		}
		for _, other := range []string{"secrets", "pods", "namespaces"} {
			if _, err := s.Resource(resource("", "v1", other)).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("%s: %s: %v", when, other, err)
			}
		}
		if _, err := maps.Patch(t.Context(), "good", types.MergePatchType, fmt.Appendf(nil, `{"data":{"when":%q}}`, when),
			metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: a write: %v", when, err)
		}
	}
	check("while it runs")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	check("after a start")
	for name := range damaged {
		yes := true
		if err := s.Resource(configMaps).Namespace("default").Delete(t.Context(), name,
			metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &yes}); err != nil {
			t.Errorf("%s cannot be deleted: %v", name, err)
		}
	}
	if list, err := s.Resource(configMaps).Namespace("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a list after that: %v", err)
	} else if len(list.Items) == 0 {
		t.Error("the list is empty")
	}
}

// One server takes over what another one has written, alone: of each kind, through each verb.
//
// SPEC: STORE-3
func TestTakeOver(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	p := startEtcd(t, reference.EtcdOptions{})
	var before map[string]*unstructured.Unstructured
	for turn, kind := range []harness.Kind{harness.Plinth, harness.Reference, harness.Plinth, harness.Reference} {
		s := on(t, kind, p.URL)
		maps := s.Resource(configMaps).Namespace("default")
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now := map[string]*unstructured.Unstructured{}
		for i := range list.Items {
			now[list.Items[i].GetName()] = &list.Items[i]
		}
		for name, was := range before {
			is := now[name]
			a, _ := json.Marshal(was)
			b, _ := json.Marshal(is)
			if string(a) != string(b) {
				t.Errorf("turn %d, %s: %s was\n%s\nand is\n%s", turn, kind, name, a, b)
			}
		}
		for i := range 10 {
			if _, err := maps.Apply(t.Context(), fmt.Sprint("m", i), object(t,
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: m%d}, data: {turn%d: x}}`, i, turn),
				metav1.ApplyOptions{FieldManager: fmt.Sprint("turn", turn)}); err != nil {
				t.Errorf("turn %d, %s: %v", turn, kind, err)
			}
		}
		if list, err = maps.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		before = map[string]*unstructured.Unstructured{}
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].GetName(), "m") {
				before[list.Items[i].GetName()] = &list.Items[i]
			}
		}
		if len(before) != 10 {
			t.Fatalf("turn %d: %d objects", turn, len(before))
		}
		if err := s.Stop(); err != nil && kind == harness.Plinth {
			t.Errorf("turn %d: %v", turn, err)
		}
	}
}
