package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// beside is how long the writers of TestSideBySide write.
var beside = flag.Duration("beside", 15*time.Second, "how long Plinth and kube-apiserver write side by side")

// server is one of the servers on an etcd, with clients.
type server struct {
	*harness.Server
	dynamic.Interface
	discovery *discovery.DiscoveryClient
	address   string // that it advertises; "": the default
}

// on starts a server on a running etcd.
func on(t *testing.T, kind harness.Kind, etcd string, flags ...string) *server {
	t.Helper()
	s := &server{Server: harness.Run(t, harness.Options{Kind: kind, Etcd: etcd, Flags: flags})}
	s.connect(t)
	return s
}

// connect makes the clients of a server.
func (s *server) connect(t *testing.T) {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	if s.Interface, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		t.Fatal(err)
	}
}

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

var (
	configMaps  = resource("", "v1", "configmaps")
	namespaces  = resource("", "v1", "namespaces")
	services    = resource("", "v1", "services")
	events      = resource("", "v1", "events")
	pods        = resource("", "v1", "pods")
	quotas      = resource("", "v1", "resourcequotas")
	deployments = resource("apps", "v1", "deployments")
	definitions = resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	widgets     = resource("stable.example.com", "v1", "widgets")
)

// widgetDefinition has two versions, of which the second one has a default.
const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: string, default: small}
              replicas: {type: integer}
              parts: {type: array, items: {type: object, required: [name], properties: {name: {type: string}, n: {type: integer}}},
                x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name]}
          status: {type: object, properties: {replicas: {type: integer}}}
`

// object reads an object from YAML.
func object(t testing.TB, format string, args ...any) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return &u
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	var last error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = holds(); last == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, last)
}

// TestSideBySide has many clients write through Plinth and through a kube-apiserver on one etcd, with every verb, while
// Events expire, a quota counts, namespaces and owners are deleted, and a definition changes. At the end each object is
// equal through both, managedFields and resourceVersions included; no address is given twice; and a watch through
// either has seen the same changes in the same order. Then each works alone on what the other one has written.
//
// SPEC: STORE-3
func TestSideBySide(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	p := startEtcd(t, reference.EtcdOptions{})
	ours := on(t, harness.Plinth, p.URL, "--service-cluster-ip-range=10.0.0.0/16", "--event-ttl=20s")
	theirs := on(t, harness.Reference, p.URL, "--event-ttl=20s")
	both := []*server{ours, theirs}
	ctx := t.Context()

	for i, s := range both {
		ns := object(t, `{apiVersion: v1, kind: Namespace, metadata: {name: n%d}}`, i)
		if _, err := s.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := theirs.Resource(definitions).Create(ctx, object(t, "%s", widgetDefinition),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	prepare(t, ours)
	for _, of := range []schema.GroupVersionResource{widgets, gadgetKind} {
		for _, s := range both {
			eventually(t, of.Resource+" are served", func() error {
				_, err := s.Resource(of).Namespace("n0").List(ctx, metav1.ListOptions{})
				return err
			})
		}
	}
	settled(t, theirs)

	watched := []schema.GroupVersionResource{configMaps, deployments, widgets, services, pods, events, namespaces, quotas}
	follow := make([]*follower, 0, len(watched)*len(both))
	for _, of := range watched {
		for _, s := range both {
			follow = append(follow, newFollower(t, s, of))
		}
	}
	writeBeside(t, both)
	settled(t, theirs)
	compareAll(t, ours, theirs)
	noAddressTwice(t, theirs)
	for i := 0; i < len(follow); i += 2 {
		compareFollowers(t, follow[i], follow[i+1])
		follow[i].end()
		follow[i+1].end()
	}

	stopped := func(s *server) {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	stopped(theirs)
	alone(t, ours, "ours")
	stopped(ours)
	theirs = on(t, harness.Reference, p.URL)
	alone(t, theirs, "theirs")
	compareAll(t, on(t, harness.Plinth, p.URL, "--service-cluster-ip-range=10.0.0.0/16"), theirs)
}

// writeBeside has workers write through both servers for as long as the flag says.
func writeBeside(t *testing.T, both []*server) {
	t.Helper()
	ctx := t.Context()
	done, stop := context.WithTimeout(ctx, *beside)
	defer stop()
	var wait sync.WaitGroup
	var written atomic.Int64
	working := func() bool { return done.Err() == nil && !t.Failed() }
	for n := range 8 {
		w := &worker{t: t, servers: both, random: rand.New(rand.NewSource(int64(n))), written: &written}
		wait.Go(func() {
			for working() {
				w.step(ctx)
			}
		})
	}
	for i, name := range slices.Sorted(maps.Keys(chores)) {
		w := &worker{t: t, servers: both, random: rand.New(rand.NewSource(int64(100 + i))), written: &written}
		wait.Go(func() {
			round := 0
			for ; working(); round++ {
				if err := chores[name](w, ctx, round); err != nil {
					t.Errorf("%s, round %d: %v", name, round, err)
				}
			}
			t.Logf("%d rounds of %s", round, name)
			if round < 2 {
				t.Errorf("only %d rounds of %s", round, name)
			}
		})
	}
	wait.Wait()
	t.Logf("%d writes", written.Load())
	if written.Load() < 100 {
		t.Errorf("only %d writes have succeeded", written.Load())
	}
}

// worker is a client that makes random writes through both servers.
type worker struct {
	t       *testing.T
	servers []*server
	random  *rand.Rand
	written *atomic.Int64
}

func (w *worker) one(of ...string) string { return of[w.random.Intn(len(of))] }

// step makes one write. It may fail as writes of concurrent clients do.
func (w *worker) step(ctx context.Context) {
	s := w.servers[w.random.Intn(len(w.servers))]
	ns := w.one("n0", "n1")
	name := fmt.Sprint("o", w.random.Intn(12))
	manager := w.one("alpha", "beta", "gamma")
	err := w.write(ctx, s, ns, name, manager)
	switch {
	case err == nil:
		w.written.Add(1)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
	default:
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			w.t.Errorf("through %s: %v", s.Kind, err)
		} else if code := status.Status().Code; code != 422 {
			w.t.Errorf("through %s: %d %v", s.Kind, code, err)
		}
	}
}

func (w *worker) write(ctx context.Context, s *server, ns, name, manager string) error {
	apply := metav1.ApplyOptions{FieldManager: manager, Force: w.random.Intn(2) == 0}
	text := w.one("x1", "y1", "z1", "π")
	switch w.random.Intn(16) {
	case 0:
		_, err := s.Resource(configMaps).Namespace(ns).Create(ctx, object(w.t,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {l: %s}}, data: {a: %q}}`, name, text, text),
			metav1.CreateOptions{FieldManager: manager})
		return err
	case 1:
		live, err := s.Resource(configMaps).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		live.Object["data"] = map[string]any{"a": text, "b": text + text}
		_, err = s.Resource(configMaps).Namespace(ns).Update(ctx, live, metav1.UpdateOptions{FieldManager: manager})
		return err
	case 2:
		_, err := s.Resource(configMaps).Namespace(ns).Patch(ctx, name, types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"c":%q},"metadata":{"annotations":{"n":%q}}}`, text, manager),
			metav1.PatchOptions{FieldManager: manager})
		return err
	case 3:
		_, err := s.Resource(configMaps).Namespace(ns).Patch(ctx, name, types.JSONPatchType,
			fmt.Appendf(nil, `[{"op":"add","path":"/data/d","value":%q}]`, text), metav1.PatchOptions{})
		return err
	case 4:
		_, err := s.Resource(configMaps).Namespace(ns).Apply(ctx, name, object(w.t,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {e: %q, %s: x}}`, name, text, manager), apply)
		return err
	case 5:
		return s.Resource(configMaps).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{})
	case 6, 7:
		_, err := s.Resource(deployments).Namespace(ns).Apply(ctx, name, object(w.t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: %s, image: "i:%s", ports: [{containerPort: %d}]}]}`, name, w.random.Intn(3), manager, manager,
			80+w.random.Intn(2)), apply)
		return err
	case 8:
		_, err := s.Resource(deployments).Namespace(ns).Patch(ctx, name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"observedGeneration":%d,"replicas":1}}`, w.random.Intn(5)), metav1.PatchOptions{},
			"status")
		return err
	case 9:
		return s.Resource(deployments).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{})
	case 10, 11:
		_, err := s.Resource(widgets).Namespace(ns).Apply(ctx, name, object(w.t,
			`{apiVersion: stable.example.com/v1, kind: Widget, metadata: {name: %s}, spec: {replicas: %d, parts: [{name: %s, n: 1}]}}`,
			name, w.random.Intn(4), manager), apply)
		return err
	case 12:
		_, err := s.Resource(widgets).Namespace(ns).Patch(ctx, name, types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"replicas":%d}}`, w.random.Intn(5)), metav1.PatchOptions{}, "status")
		return err
	case 13:
		return s.Resource(widgets).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{})
	case 14:
		_, err := s.Resource(events).Namespace(ns).Create(ctx, object(w.t, `
apiVersion: v1
kind: Event
metadata: {generateName: e}
involvedObject: {kind: ConfigMap, name: %s, namespace: %s}
reason: R`, name, ns), metav1.CreateOptions{})
		return err
	default:
		name = "svc-" + name
		if w.random.Intn(3) == 0 {
			return s.Resource(services).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{})
		}
		_, err := s.Resource(services).Namespace(ns).Create(ctx, object(w.t,
			`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {type: %s, ports: [{port: 80}]}}`, name,
			w.one("ClusterIP", "NodePort", "LoadBalancer")), metav1.CreateOptions{})
		return err
	}
}

// served lists what both servers serve and can list.
func served(t *testing.T, s *server) map[schema.GroupVersionResource]bool {
	t.Helper()
	all := map[schema.GroupVersionResource]bool{}
	_, lists, err := s.discovery.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if slices.Contains(r.Verbs, "list") {
				all[gv.WithResource(r.Name)] = true
			}
		}
	}
	return all
}

// compareAll compares every object of every type that both servers serve.
func compareAll(t *testing.T, ours, theirs *server) {
	t.Helper()
	compared := 0
	here, there := served(t, ours), served(t, theirs)
	for of := range there {
		if !here[of] {
			if of.Group != "apiregistration.k8s.io" {
				t.Errorf("%s is served by the reference alone", of)
			}
			continue
		}
		if of.Resource == "componentstatuses" { // nothing is stored: each server asks the components
			continue
		}
		var diff string
		for range 100 { // the servers' own objects are still written: Leases are renewed
			if diff = differ(t, ours, theirs, of, &compared); diff == "" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if diff != "" {
			t.Errorf("%s: %s", of, diff)
		}
	}
	if compared < 150 {
		t.Errorf("only %d objects were compared", compared)
	}
	t.Logf("%d objects are equal through both", compared)
}

// differ compares the objects of a type; "" if they are equal.
func differ(t *testing.T, ours, theirs *server, of schema.GroupVersionResource, compared *int) string {
	t.Helper()
	texts := make([]map[string]string, 2)
	for i, s := range []*server{ours, theirs} {
		list, err := s.Resource(of).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%s through %s: %v", of, s.Kind, err)
		}
		texts[i] = map[string]string{}
		for _, item := range list.Items {
			text, err := json.Marshal(item.Object)
			if err != nil {
				t.Fatal(err)
			}
			texts[i][item.GetNamespace()+"/"+item.GetName()] = string(text)
		}
	}
	for name, text := range texts[0] {
		if texts[1][name] != text {
			return fmt.Sprintf("%s\nours   %s\ntheirs %s", name, text, texts[1][name])
		}
	}
	for name, text := range texts[1] {
		if _, has := texts[0][name]; !has {
			return fmt.Sprintf("%s\nours has none\ntheirs %s", name, text)
		}
	}
	*compared += len(texts[0])
	return ""
}

// follower records what a watch through a server sees.
type follower struct {
	server *server
	of     schema.GroupVersionResource
	cancel context.CancelFunc
	mu     sync.Mutex
	seen   []string
	last   string
}

// end ends the watch.
func (f *follower) end() { f.cancel() }

func newFollower(t *testing.T, s *server, of schema.GroupVersionResource) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{server: s, of: of, cancel: cancel}
	list, err := s.Resource(of).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Resource(of).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for e := range w.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if e.Type == watch.Error && ctx.Err() != nil {
				return
			}
			if e.Type == watch.Error || !ok {
				t.Errorf("a watch of %s through %s has ended: %v", of.Resource, s.Kind, e.Object)
				return
			}
			text, _ := json.Marshal(u.Object)
			f.mu.Lock()
			f.seen = append(f.seen, fmt.Sprintf("%s %s", e.Type, text))
			f.last = u.GetResourceVersion()
			f.mu.Unlock()
		}
	}()
	return f
}

// events are the changes that were seen so far.
func (f *follower) events() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// compareFollowers compares what watches through two servers have seen.
func compareFollowers(t *testing.T, a, b *follower) {
	t.Helper()
	var here, there []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if here, there = a.events(), b.events(); slices.Equal(here, there) && len(here) > 0 {
			t.Logf("%d changes of %s are equal", len(here), a.of.Resource)
			return
		}
	}
	for i := range min(len(here), len(there)) {
		if here[i] != there[i] {
			t.Errorf("change %d of %s:\nthrough %s %s\nthrough %s %s", i, a.of.Resource, a.server.Kind, here[i], b.server.Kind,
				there[i])
			return
		}
	}
	t.Errorf("watches of %s: %d changes through %s, %d through %s", a.of.Resource, len(here), a.server.Kind, len(there),
		b.server.Kind)
}
