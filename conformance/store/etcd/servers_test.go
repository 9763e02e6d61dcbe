package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

var (
	endpoints = resource("", "v1", "endpoints")
	slicesOf  = resource("discovery.k8s.io", "v1", "endpointslices")
	leases    = resource("coordination.k8s.io", "v1", "leases")
)

// atOnce starts several servers on an etcd at the same moment. Each has an address of its own.
func atOnce(t *testing.T, etcd string, kinds ...harness.Kind) []*server {
	t.Helper()
	return atOnceWith(t, etcd, nil, kinds...)
}

// atOnceWith is atOnce with further flags.
func atOnceWith(t *testing.T, etcd string, flags []string, kinds ...harness.Kind) []*server {
	t.Helper()
	all, errs := make([]*server, len(kinds)), make([]error, len(kinds))
	var wait sync.WaitGroup
	for i, kind := range kinds {
		dir := t.TempDir()
		wait.Go(func() {
			s, err := harness.Start(harness.Options{Kind: kind, Etcd: etcd, Dir: dir,
				Flags: append([]string{"--advertise-address=" + addressOf(i), "--service-cluster-ip-range=10.0.0.0/16"},
					flags...)})
			all[i], errs[i] = &server{Server: s, address: addressOf(i)}, err
		})
	}
	wait.Wait()
	for _, s := range all {
		t.Cleanup(s.Kill)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.connect(t)
	}
	return all
}

func addressOf(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// keysUnder are the keys of a folder with their values.
func keysUnder(t *testing.T, client *clientv3.Client, folder string) map[string][]byte {
	t.Helper()
	prefix := "/registry/" + folder + "/"
	answer, err := client.Get(context.Background(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, kv := range answer.Kvs {
		all[strings.TrimPrefix(string(kv.Key), prefix)] = kv.Value
	}
	return all
}

func etcdClient(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// endpointsAre returns nil if the Endpoints and the EndpointSlice default/kubernetes have these addresses.
func (s *server) endpointsAre(want ...string) error {
	ctx := context.Background()
	one, err := s.Resource(endpoints).Namespace("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	var got []string
	subsets, _, _ := unstructured.NestedSlice(one.Object, "subsets")
	for _, subset := range subsets {
		addresses, _, _ := unstructured.NestedSlice(subset.(map[string]any), "addresses")
		for _, a := range addresses {
			got = append(got, a.(map[string]any)["ip"].(string))
		}
	}
	slice, err := s.Resource(slicesOf).Namespace("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	var sliced []string
	ends, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
	for _, end := range ends {
		addresses, _, _ := unstructured.NestedStringSlice(end.(map[string]any), "addresses")
		sliced = append(sliced, addresses...)
	}
	if !slices.Equal(got, want) || !slices.Equal(sliced, want) {
		return fmt.Errorf("Endpoints have %v, EndpointSlice %v, want %v", got, sliced, want)
	}
	return nil
}

// holder is the server that runs the controllers: one of all, with its Lease's holder.
func holder(t *testing.T, all []*server) (s *server, identity string) {
	t.Helper()
	eventually(t, "no server runs the controllers", func() error {
		for _, one := range all {
			lease, err := one.Resource(leases).Namespace("kube-system").Get(context.Background(), "plinth-controllers",
				metav1.GetOptions{})
			if err != nil {
				return err
			}
			if identity, _, _ = unstructured.NestedString(lease.Object, "spec", "holderIdentity"); identity == "" {
				return errors.New("nobody holds the Lease")
			}
			name, _, _ := strings.Cut(identity, "_")
			own, err := one.Resource(leases).Namespace("kube-system").Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			s = nil
			for _, one := range all {
				if strings.HasPrefix(own.GetAnnotations()["kubernetes.io/peer-advertise-address"], one.address+":") {
					s = one
				}
			}
		}
		if s == nil {
			return fmt.Errorf("%s is no server", identity)
		}
		return nil
	})
	return s, identity
}

func others(all []*server, s *server) []*server {
	return slices.DeleteFunc(slices.Clone(all), func(one *server) bool { return one == s })
}

// identityLeases are the names of the identity Leases.
func (s *server) identityLeases(t *testing.T) (names []string) {
	t.Helper()
	list, err := s.Resource(leases).Namespace("kube-system").List(context.Background(),
		metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names
}

// complaints are the lines of a server's log that are no information.
func (s *server) complaints(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			lines = append(lines, line)
		}
	}
	return lines
}

// contents are all objects that a server has, without what differs between two starts, and without what depends on the
// number of servers.
func contents(t *testing.T, s *server) map[string]any {
	t.Helper()
	all := map[string]any{}
	for of := range served(t, s) {
		if of == leases || of.Resource == "events" || of.Resource == "endpoints" || of.Resource == "endpointslices" ||
			of.Resource == "componentstatuses" {
			continue
		}
		list, err := s.Resource(of).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(of, err)
		}
		for _, o := range list.Items {
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
			all[of.String()+" "+o.GetNamespace()+"/"+o.GetName()] = withoutTimes(o.Object)
		}
	}
	return all
}

// withoutTimes removes times and what depends on a server's own keys and port.
func withoutTimes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			switch key {
			// Two managers own a time if they have written it in the same second.
			case "time", "lastTransitionTime", "f:lastTransitionTime", "targetPort", "since", "client-ca-file",
				"requestheader-client-ca-file":
				delete(v, key)
			default:
				v[key] = withoutTimes(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutTimes(v[i])
		}
	}
	return v
}

// Two servers that start at the same moment on an empty etcd make the objects that one makes, and know of each other.
// One that stops takes its address, keys and Lease away, and the other one runs the controllers at once.
//
// SPEC: STORE-2, STORE-3
func TestServers(t *testing.T) {
	alone := startEtcd(t, reference.EtcdOptions{})
	one := atOnce(t, alone.URL, harness.Plinth)[0]
	p := startEtcd(t, reference.EtcdOptions{})
	client := etcdClient(t, p.URL)
	all := atOnce(t, p.URL, harness.Plinth, harness.Plinth)
	for _, s := range all {
		eventually(t, "the endpoints lack a server", func() error { return s.endpointsAre(addressOf(0), addressOf(1)) })
		if lines := s.complaints(t); len(lines) > 0 {
			t.Errorf("a server complains:\n%s", strings.Join(lines, ""))
		}
	}
	want, got := contents(t, one), contents(t, all[1])
	for name := range want {
		if !reflect.DeepEqual(want[name], got[name]) {
			t.Errorf("%s is\n%s\nand with one server\n%s", name, text(got[name]), text(want[name]))
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("there is %s", name)
	}
	if len(want) < 100 {
		t.Errorf("only %d objects were compared", len(want))
	}
	if names := all[0].identityLeases(t); len(names) != 2 {
		t.Errorf("the identity Leases are %v", names)
	}

	first, identity := holder(t, all)
	next := others(all, first)[0]
	began := time.Now()
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	left := next.address
	if err := next.endpointsAre(left); err != nil {
		t.Error(err)
	}
	if names := next.identityLeases(t); len(names) != 1 {
		t.Errorf("the identity Leases are %v", names)
	}
	for _, folder := range []string{"masterleases", "peerserverleases"} {
		if keys := keysUnder(t, client, folder); len(keys) != 1 {
			t.Errorf("%s has %d keys", folder, len(keys))
		}
	}
	if _, now := holder(t, []*server{next}); now == identity {
		t.Errorf("%s still holds the controllers' Lease", now)
	}
	// Sooner than a Lease expires that nobody has given back.
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("it took %s", took)
	}
	deletesNamespaces(t, next)

	// The last one leaves no address behind.
	if err := next.Stop(); err != nil {
		t.Fatal(err)
	}
	again := atOnce(t, p.URL, harness.Plinth)[0]
	eventually(t, "a new server has no endpoint", func() error { return again.endpointsAre(addressOf(0)) })
	deletesNamespaces(t, again)
}

func text(v any) string {
	out, _ := json.Marshal(v)
	return string(out)
}

// deletesNamespaces requires that some server empties deleted namespaces.
func deletesNamespaces(t *testing.T, s *server) {
	t.Helper()
	ctx := context.Background()
	s.makeNamespace(t, "passing")
	if err := s.Resource(namespaces).Delete(ctx, "passing", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a namespace is not emptied", s.gone("passing"))
}

func (s *server) makeNamespace(t *testing.T, name string) {
	t.Helper()
	if _, err := s.Resource(namespaces).Create(context.Background(),
		object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// gone returns nil if there is no such namespace.
func (s *server) gone(name string) func() error {
	return func() error {
		_, err := s.Resource(namespaces).Get(context.Background(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New(name+" is still there"), err)
	}
}

// Keys are changed on the condition that nobody has changed them meanwhile, and end when they are not put again.
//
// SPEC: STORE-2
func TestKeys(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	ctx := context.Background()
	var wait sync.WaitGroup
	for range 4 {
		keys := connect(t, p.URL).Keys("folder")
		wait.Go(func() {
			for range 25 {
				if err := keys.Put(ctx, "a", time.Hour, func(live []byte) ([]byte, error) {
					return append(live, 'x'), nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	keys := connect(t, p.URL).Keys("folder")
	if err := keys.Put(ctx, "b", time.Second, func(live []byte) ([]byte, error) {
		if live != nil {
			t.Errorf("there was %q", live)
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := keys.Put(ctx, "c", time.Hour, func([]byte) ([]byte, error) { return nil, refused }); err != refused {
		t.Errorf("%v", err)
	}
	if _, err := etcdClient(t, p.URL).Put(ctx, "/registry/folders/other", "x"); err != nil {
		t.Fatal(err)
	}
	list, err := keys.List(ctx)
	if err != nil || len(list) != 2 || list[0].Name != "a" || len(list[0].Value) != 100 || list[1].Name != "b" {
		t.Fatalf("the keys are %v, %v", list, err)
	}
	eventually(t, "a key does not end", func() error {
		if list, err = keys.List(ctx); err != nil || len(list) != 1 {
			return fmt.Errorf("the keys are %v, %v", list, err)
		}
		return nil
	})
	for _, want := range []bool{true, false} {
		if existed, err := keys.Delete(ctx, "a"); err != nil || existed != want {
			t.Errorf("deleted: %v, %v", existed, err)
		}
	}
}

// A server that is asked to stop takes its address away before it waits for --shutdown-delay-duration: for that time it
// still serves those that have not noticed.
//
// SPEC: STORE-2
func TestShutdownDelay(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	all := atOnceWith(t, p.URL, []string{"--shutdown-delay-duration=1h"}, harness.Plinth, harness.Plinth)
	first, identity := holder(t, all)
	next := others(all, first)[0]
	process, err := os.FindProcess(first.Pids()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	left := next.address
	eventually(t, "the address stays", func() error { return next.endpointsAre(left) })
	eventually(t, "the server does not give the controllers away", func() error {
		if _, now := holder(t, []*server{next}); now == identity {
			return errors.New(now)
		}
		return nil
	})
	eventually(t, "the identity Lease stays", func() error {
		if names := next.identityLeases(t); len(names) != 1 {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	first.makeNamespace(t, "late")
}

// The reconcilers of --endpoint-reconciler-type.
//
// SPEC: STORE-2
func TestReconcilerTypes(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		p := startEtcd(t, reference.EtcdOptions{})
		s := atOnceWith(t, p.URL, []string{"--endpoint-reconciler-type=none"}, harness.Plinth)[0]
		eventually(t, "there is no Service", func() error { // it is written when the server has become ready
			_, err := s.Resource(services).Namespace("default").Get(context.Background(), "kubernetes", metav1.GetOptions{})
			return err
		})
		if err := s.endpointsAre(); !apierrors.IsNotFound(err) {
			t.Errorf("there are endpoints: %v", err)
		}
		if keys := keysUnder(t, etcdClient(t, p.URL), "masterleases"); len(keys) != 0 {
			t.Errorf("there are keys: %v", keys)
		}
	})
	t.Run("master-count", func(t *testing.T) {
		p := startEtcd(t, reference.EtcdOptions{})
		all := atOnceWith(t, p.URL, []string{"--endpoint-reconciler-type=master-count", "--apiserver-count=2"},
			harness.Plinth, harness.Plinth)
		for _, s := range all {
			eventually(t, "an address is missing", func() error { return s.endpointsAre(addressOf(0), addressOf(1)) })
		}
		if keys := keysUnder(t, etcdClient(t, p.URL), "masterleases"); len(keys) != 0 {
			t.Errorf("there are keys: %v", keys)
		}
		if err := all[0].Stop(); err != nil {
			t.Fatal(err)
		}
		if err := all[1].endpointsAre(addressOf(1)); err != nil {
			t.Error(err)
		}
	})
}

// A definition that waits for a name gets it although the server that gave it up has done no more than that, and one
// whose status was half written is finished.
//
// SPEC: STORE-2, EXT-1
func TestHalfDoneDefinitions(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	client := etcdClient(t, p.URL)
	s := atOnce(t, p.URL, harness.Plinth, harness.Plinth)[0]
	ctx := context.Background()
	define := func(plural, kind string) string {
		t.Helper()
		if _, err := s.Resource(definitions).Create(ctx, object(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.a.b}
spec:
  group: a.b
  scope: Namespaced
  names: {plural: %[1]s, singular: %[1]s1, kind: %s, listKind: %[2]sList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, plural, kind), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return "/registry/apiextensions.k8s.io/customresourcedefinitions/" + plural + ".a.b"
	}
	first := define("firsts", "Thing")
	define("seconds", "Thing")
	third := define("thirds", "Other")
	accepted := func(name string) func() error {
		return func() error {
			o, err := s.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			good := 0
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["status"] == "True" && (c["type"] == "NamesAccepted" || c["type"] == "Established") {
					good++
				}
			}
			if good != 2 {
				return fmt.Errorf("%s is not accepted: %v", name, conditions)
			}
			return nil
		}
	}
	eventually(t, "the first definition", accepted("firsts.a.b"))
	eventually(t, "the third definition", accepted("thirds.a.b"))
	if accepted("seconds.a.b")() == nil {
		t.Fatal("two definitions have one kind")
	}
	// As a kube-apiserver does that ends after this write.
	if _, err := client.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second definition", accepted("seconds.a.b"))
	value, err := client.Get(ctx, third)
	if err != nil {
		t.Fatal(err)
	}
	var half map[string]any
	if err := json.Unmarshal(value.Kvs[0].Value, &half); err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(half, "status", "conditions")
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Established" })
	if err := unstructured.SetNestedSlice(half, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, third, text(half)+"\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third definition is not finished", accepted("thirds.a.b"))
}

// A server that is killed says nothing: its address is removed when its key has ended, and another one runs the
// controllers when its Lease has expired. A kube-apiserver beside them keeps its own keys.
//
// SPEC: STORE-2, STORE-3
func TestServersBesideReference(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	p := startEtcd(t, reference.EtcdOptions{})
	client := etcdClient(t, p.URL)
	all := atOnce(t, p.URL, harness.Plinth, harness.Plinth, harness.Reference)
	for _, s := range all {
		eventually(t, "the endpoints lack a server", func() error {
			return s.endpointsAre(addressOf(0), addressOf(1), addressOf(2))
		})
	}
	if names := all[2].identityLeases(t); len(names) != 3 {
		t.Errorf("the identity Leases are %v", names)
	}
	compareKeys(t, client)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	puts := client.Watch(ctx, "/registry/masterleases/"+addressOf(2), clientv3.WithRev(1), clientv3.WithPrevKV())

	// A namespace is being deleted while the server that does it is killed.
	plinths := all[:2]
	first, identity := holder(t, plinths)
	next := others(plinths, first)[0]
	stuck := object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: stuck, finalizers: [a.b/c]}}`)
	next.makeNamespace(t, "slow")
	if _, err := next.Resource(configMaps).Namespace("slow").Create(ctx, stuck, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := next.Resource(namespaces).Delete(ctx, "slow", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is not being emptied", func() error {
		o, err := next.Resource(configMaps).Namespace("slow").Get(ctx, "stuck", metav1.GetOptions{})
		if err == nil && o.GetDeletionTimestamp() == nil {
			err = errors.New("it is not being deleted")
		}
		return err
	})
	killed := time.Now()
	first.Kill()
	if _, err := next.Resource(configMaps).Namespace("slow").Patch(ctx, "stuck", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other server does not go on with the namespace", next.gone("slow"))
	// The Lease was renewed two seconds before at most, and is good for fifteen.
	took := time.Since(killed)
	if took < 12*time.Second {
		t.Errorf("the other server went on after %s", took)
	}
	t.Logf("the other server went on with the controllers after %s", took)
	if _, now := holder(t, []*server{next}); now == identity {
		t.Errorf("%s still holds the controllers' Lease", now)
	}
	left := []string{next.address, addressOf(2)}
	for _, s := range []*server{next, all[2]} {
		eventually(t, "the address of the killed server stays", func() error { return s.endpointsAre(left...) })
	}
	t.Logf("the address went within %s", time.Since(killed))

	// One that is asked to stop is gone at once.
	if err := next.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := all[2].endpointsAre(addressOf(2)); err != nil {
		t.Error(err)
	}
	if keys := keysUnder(t, client, "masterleases"); len(keys) != 1 || keys[addressOf(2)] == nil {
		t.Errorf("the keys are %v", keys)
	}
	neverTouched(t, puts)
}

// generationAt is where the generation is in the value of a key: behind the resourceVersion, which is empty. It is one
// byte up to 127.
func generationAt(value []byte) int { return bytes.Index(value, []byte("\x32\x00\x38")) + 3 }

// key is the content of a key without what is the server's own: own, its generation, and its port. The reference would
// write the same bytes for it.
func key(t *testing.T, value []byte, own string) string {
	t.Helper()
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var obj corev1.Endpoints
	if _, _, err := codec.Decode(value, nil, &obj); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	obj.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
	if err := codec.Encode(&obj, &again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(value, again.Bytes()) {
		t.Errorf("the value is\n%q, the reference would write\n%q", value, again.Bytes())
	}
	if obj.Generation < 1 {
		t.Errorf("the generation is %d", obj.Generation)
	}
	obj.Generation = 0
	for i := range obj.Subsets {
		for j := range obj.Subsets[i].Ports {
			obj.Subsets[i].Ports[j].Port = 0
		}
	}
	return strings.ReplaceAll(text(obj), own, "OWN")
}

// compareKeys requires that the keys of all servers have the same values, but for what is the server's own.
func compareKeys(t *testing.T, client *clientv3.Client) {
	t.Helper()
	theirs, peers := keysUnder(t, client, "masterleases"), keysUnder(t, client, "peerserverleases")
	if len(theirs) != 3 || len(peers) != 3 {
		t.Fatalf("there are %d and %d keys", len(theirs), len(peers))
	}
	for i := range 2 {
		if got, want := key(t, theirs[addressOf(i)], addressOf(i)), key(t, theirs[addressOf(2)], addressOf(2)); got != want {
			t.Errorf("the key of a server is\n%s, that of the reference\n%s", got, want)
		}
	}
	forms := map[string]bool{}
	for name, value := range peers {
		if !bytes.Contains(value, []byte(name)) {
			t.Errorf("the key %s is %q", name, value)
		}
		form := key(t, value, name)
		for i := range 3 {
			form = strings.ReplaceAll(form, addressOf(i), "ADDRESS")
		}
		forms[form] = true
	}
	if len(forms) != 1 {
		t.Errorf("the keys of servers by their identities differ: %v", forms)
	}
	granted := []int64{}
	for _, folder := range []string{"masterleases", "peerserverleases"} {
		answer, err := client.Get(context.Background(), "/registry/"+folder+"/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range answer.Kvs {
			ttl, err := client.TimeToLive(context.Background(), clientv3.LeaseID(kv.Lease), clientv3.WithAttachedKeys())
			if err != nil {
				t.Fatal(err)
			}
			if granted = append(granted, ttl.GrantedTTL); ttl.GrantedTTL != 15 || len(ttl.Keys) != 1 {
				t.Errorf("%s has a lease of %d s for %d keys", kv.Key, ttl.GrantedTTL, len(ttl.Keys))
			}
		}
	}
	if len(granted) != 6 {
		t.Errorf("%d leases", len(granted))
	}
}

// neverTouched requires that a key was changed by its own server alone: each value has one generation more.
func neverTouched(t *testing.T, puts clientv3.WatchChan) {
	t.Helper()
	n := 0
	var last byte
	for end := time.After(time.Second); ; {
		select {
		case answer := <-puts:
			for _, e := range answer.Events {
				if e.Type == clientv3.EventTypeDelete {
					t.Fatal("the reference's key was deleted")
				}
				if generation := e.Kv.Value[generationAt(e.Kv.Value)]; generation != last+1 {
					t.Errorf("generation %d follows %d", generation, last)
				} else {
					last = generation
				}
				n++
			}
			continue
		case <-end:
		}
		break
	}
	if n < 2 {
		t.Errorf("the reference has renewed its key %d times", n)
	}
}
