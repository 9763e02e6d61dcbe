package services

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/harness"
)

// put writes an object to etcd as the reference encodes it.
func (p *pair) put(ctx context.Context, key string, obj runtime.Object) {
	p.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		p.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &value); err != nil {
		p.Fatal(err)
	}
	if _, err := p.etcd.Put(ctx, key, value.String()); err != nil {
		p.Fatal(err)
	}
}

// remove removes a key from etcd.
func (p *pair) remove(ctx context.Context, key string) {
	p.Helper()
	if _, err := p.etcd.Delete(ctx, key); err != nil {
		p.Fatal(err)
	}
}

// dualStack is a Service with two addresses and a node port.
func dualStack(name string, port int32) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: policy(corev1.IPFamilyPolicyRequireDualStack)[0],
		Ports: []corev1.ServicePort{{Port: 80, NodePort: port}}}}
}

func (p *pair) create(ctx context.Context, s *corev1.Service) *corev1.Service {
	p.Helper()
	s, err := p.clients[0].CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// What a process leaves behind that ends between two transactions is repaired: while the server runs, and when it
// starts. The reference, which starts after it, finds only the port that may be on its way to a Service.
//
// SPEC: STORE-2
func TestLeftBehind(t *testing.T) {
	p := newPair(t, harness.Plinth)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s := p.create(ctx, dualStack("s", 30005))
	const ips = "/registry/ipaddresses/"
	// While it runs, a missing IPAddress is replaced.
	before := p.stored(ctx, ips+s.Spec.ClusterIPs[0]).(*networkingv1.IPAddress)
	p.remove(ctx, ips+s.Spec.ClusterIPs[0])
	for {
		now, err := p.clients[0].NetworkingV1().IPAddresses().Get(ctx, s.Spec.ClusterIPs[0], metav1.GetOptions{})
		if err == nil && now.UID != before.UID {
			break
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.servers[0].Kill()
	p.remove(ctx, ips+s.Spec.ClusterIPs[1])
	orphan := before.DeepCopy()
	orphan.Name, orphan.UID, orphan.Spec.ParentRef.Name = "10.0.9.9", types.UID("orphan"), "gone"
	orphan.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Minute).Truncate(time.Second))
	p.put(ctx, ips+orphan.Name, orphan)
	bitmap := p.stored(ctx, bitmapKey).(*corev1.RangeAllocation)
	bitmap.Data = new(big.Int).SetBit(new(big.Int), 7, 1).Bytes()
	p.put(ctx, bitmapKey, bitmap)
	if err := p.servers[0].Restart(); err != nil {
		t.Fatal(err)
	}
	p.connect(0)
	if _, _, has, named := p.reserved(ctx); !slices.Equal(has, named) {
		t.Errorf("there are the IPAddresses %q, and Services have %q", named, has)
	}
	if got, want := p.bitmap(ctx), []string{"port 30005", "port 30007"}; !slices.Equal(got, want) {
		t.Errorf("in the bitmap are %q, want %q", got, want)
	}
	events, err := p.clients[0].EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range events.Items {
		found = append(found, e.ReportingController+" "+e.Reason+" "+e.Regarding.Name)
	}
	for _, want := range []string{"portallocator-repair-controller PortNotAllocated s",
		"ipallocator-repair-controller ClusterIPNotAllocated s",
		"ipallocator-repair-controller IPAddressNotAllocated 10.0.9.9"} {
		if !slices.Contains(found, want) {
			t.Errorf("there is no Event %q among %q", want, found)
		}
	}
	if harness.WantReference() {
		complained, _ := p.logged(p.start(harness.Reference, fmt.Sprintf("%d-%d", firstPort, lastPort)), 0, complaints)
		if len(complained) != 1 || !strings.Contains(complained[0], "the node port 30007 may have leaked: flagging") {
			t.Errorf("the reference complains %q", complained)
		}
	}
}

// Whenever the server is killed while it writes Services with two addresses, nothing is lost: each Service has what it
// has, each port in the bitmap is that of a Service, and IPAddresses that are left over are removed when it starts.
//
// SPEC: STORE-2
func TestKilledBetweenTransactions(t *testing.T) {
	p := newPair(t, harness.Plinth)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	leftOver := 0
	for kill := range 6 {
		var work sync.WaitGroup
		client := p.clients[0].CoreV1().Services("default")
		for w := range 4 {
			work.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("s%d-%d-%d", kill, w, i)
					if _, err := client.Create(ctx, dualStack(name, 0), metav1.CreateOptions{}); err != nil {
						return // it was killed
					}
					if i%3 == 0 {
						continue
					}
					if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		p.servers[0].Kill()
		work.Wait()
		leftOver += p.age(ctx)
		if err := p.servers[0].Restart(); err != nil {
			t.Fatal(err)
		}
		p.connect(0)
		n, ports, ips, named := p.reserved(ctx)
		if got := p.bitmap(ctx); !slices.Equal(got, ports) {
			t.Errorf("in the bitmap are %q, and %d Services have %q", got, n, ports)
		}
		if !slices.Equal(ips, named) {
			t.Errorf("there are the IPAddresses %q, and %d Services have %q", named, n, ips)
		}
		p.empty(ctx)
	}
	t.Logf("%d IPAddresses were left over", leftOver)
}

// age makes all IPAddresses two minutes older, and returns how many have no Service with their address.
func (p *pair) age(ctx context.Context) (leftOver int) {
	p.Helper()
	had := map[string]bool{}
	answer, err := p.etcd.Get(ctx, "/registry/services/specs/", clientv3.WithPrefix())
	if err != nil {
		p.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		for _, value := range values(p.stored(ctx, string(kv.Key)).(*corev1.Service)) {
			had[value] = true
		}
	}
	if answer, err = p.etcd.Get(ctx, "/registry/ipaddresses/", clientv3.WithPrefix()); err != nil {
		p.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		ip := p.stored(ctx, string(kv.Key)).(*networkingv1.IPAddress)
		ip.CreationTimestamp = metav1.NewTime(ip.CreationTimestamp.Add(-2 * time.Minute))
		if p.put(ctx, string(kv.Key), ip); !had[ip.Name] {
			leftOver++
		}
	}
	return leftOver
}

// The bitmap may have another range than the configured one, or be none at all: no port is given, in the reference's
// words, and all that needs none goes on. The next start makes it what it should be.
//
// SPEC: STORE-2, STORE-3
func TestOtherBitmaps(t *testing.T) {
	p := newPair(t, harness.Plinth)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for i, name := range []string{"a", "b", "c", "d"} {
		p.create(ctx, dualStack(name, firstPort+int32(i)))
	}
	services := p.clients[0].CoreV1().Services("default")
	other := p.stored(ctx, bitmapKey).(*corev1.RangeAllocation)
	other.Range = "20000-20100"
	for name, c := range map[string]struct {
		words  string
		change func()
	}{
		"a": {"cannot allocate resources of type servicenodeportallocations at this time",
			func() { p.remove(ctx, bitmapKey) }},
		"b": {"the provided range does not match the current range", func() { p.put(ctx, bitmapKey, other) }},
		"c": {"yaml: ", func() {
			if _, err := p.etcd.Put(ctx, bitmapKey, "\xffnonsense"); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		c.change()
		// This read waits until the server has what etcd has.
		if _, err := services.Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		_, err := services.Create(ctx, dualStack("e", 0), metav1.CreateOptions{})
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed to allocate a nodePort: "+c.words) {
			t.Errorf("%s: a port is refused with %v", name, err)
		}
		_, err = services.Create(ctx, dualStack("e", 30020), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(),
			"spec.ports[0].nodePort: Invalid value: 30020: "+c.words) {
			t.Errorf("%s: a requested port is refused with %v", name, err)
		}
		if _, err := services.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.servers[0].Kill()
	p.remove(ctx, bitmapKey)
	p.start(harness.Plinth, "31000-31002")
	p.clients = p.clients[1:]
	services = p.clients[0].CoreV1().Services("default")
	if got := p.bitmap(ctx); len(got) > 0 {
		t.Errorf("in the bitmap are %q", got)
	}
	// d has a port that is not in the range.
	for _, patch := range []string{`{"metadata":{"labels":{"a":"b"}}}`,
		`{"spec":{"ports":[{"name":"a","port":80,"nodePort":30003},{"name":"b","port":81}]}}`} {
		if _, err := services.Patch(ctx, "d", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
	s := p.create(ctx, dualStack("f", 0))
	if got := p.bitmap(ctx); len(got) != 2 || s.Spec.Ports[0].NodePort < 31000 {
		t.Errorf("in the bitmap are %q, and the Service has %d", got, s.Spec.Ports[0].NodePort)
	}
	for _, name := range []string{"d", "f"} {
		if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if got := p.bitmap(ctx); len(got) > 0 {
		t.Errorf("in the bitmap are %q", got)
	}
}

// The bitmap is not encrypted at rest, even if all resources are, so that both servers give ports.
//
// SPEC: STORE-2, STORE-5
func TestBitmapBesideEncryption(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	p := newPair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	config := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(config, []byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration",
		"resources":[{"resources":["*.*"],"providers":[
			{"aesgcm":{"keys":[{"name":"k","secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}]}}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ports := fmt.Sprintf("%d-%d", firstPort, lastPort)
	p.start(harness.Plinth, ports, "--encryption-provider-config="+config)
	p.create(ctx, dualStack("a", 30001))
	answer, err := p.etcd.Get(ctx, "/registry/services/specs/default/a")
	if err != nil || len(answer.Kvs) != 1 || !bytes.HasPrefix(answer.Kvs[0].Value, []byte("k8s:enc:aesgcm:v1:k:")) {
		t.Errorf("the Service is stored as %q, %v", answer.Kvs, err)
	}
	complained, _ := p.logged(p.start(harness.Reference, ports, "--encryption-provider-config="+config), 0, complaints)
	if len(complained) > 0 {
		t.Errorf("the reference complains %q", complained)
	}
	for i, client := range p.clients {
		services := client.CoreV1().Services("default")
		_, err := services.Create(ctx, dualStack(fmt.Sprint("b", i), 30001), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided port is already allocated") {
			t.Errorf("%s gives a port again: %v", p.servers[i].Kind, err)
		}
		if _, err := services.Create(ctx, dualStack(fmt.Sprint("c", i), 30002+int32(i)), metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", p.servers[i].Kind, err)
		}
	}
	if got, want := p.bitmap(ctx), []string{"port 30001", "port 30002", "port 30003"}; !slices.Equal(got, want) {
		t.Errorf("in the bitmap are %q, want %q", got, want)
	}
}
