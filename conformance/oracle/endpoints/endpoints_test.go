package endpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"net"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"

	"plinth/internal/endpoints"
	"plinth/object"
)

// list is the list of servers that the reference reads in etcd.
type list []string

func (l list) ListLeases() ([]string, error) { return l, nil }
func (l list) UpdateLease(ip string) error   { return nil }
func (l list) RemoveLease(ip string) error   { return nil }
func (l list) Destroy()                      {}

var pool = []string{"10.0.0.1", "10.0.0.2", "10.0.0.10", "192.168.0.1", "fd00::1", "fd00::2"}

// cluster is the reference's reconcilers on a client that keeps objects in memory.
type cluster struct {
	t *testing.T
	*fake.Clientset
	random *rand.Rand
}

func (c *cluster) adapter() reconcilers.EndpointsAdapter {
	return reconcilers.NewEndpointsAdapter(c.CoreV1(), c.DiscoveryV1())
}

func (c *cluster) addresses(n int, objects bool) (all []corev1.EndpointAddress) {
	for _, i := range c.random.Perm(len(pool))[:n] {
		a := corev1.EndpointAddress{IP: pool[i]}
		if objects && c.random.Intn(4) == 0 {
			a.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p", UID: types.UID(fmt.Sprint("u", c.random.Intn(2)))}
		}
		all = append(all, a)
	}
	return all
}

func (c *cluster) ports(n int32) []corev1.EndpointPort {
	return []corev1.EndpointPort{{Name: "https", Port: 6443 + n, Protocol: corev1.ProtocolTCP}}
}

// begin makes random Endpoints, and a random EndpointSlice.
func (c *cluster) begin(subsets int) {
	if c.random.Intn(8) == 0 {
		return
	}
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"}}
	if c.random.Intn(3) > 0 {
		mirrored := []string{"true", "false"}[c.random.Intn(2)]
		e.Labels = map[string]string{"endpointslice.kubernetes.io/skip-mirror": mirrored, "a": "b"}
	}
	for range c.random.Intn(subsets + 1) {
		s := corev1.EndpointSubset{Addresses: c.addresses(1+c.random.Intn(3), true)}
		if c.random.Intn(4) == 0 {
			s.NotReadyAddresses = c.addresses(c.random.Intn(3), false)
		}
		if c.random.Intn(4) > 0 {
			s.Ports = c.ports(int32(c.random.Intn(2)))
		}
		e.Subsets = append(e.Subsets, s)
	}
	ctx := context.Background()
	if _, err := c.CoreV1().Endpoints("default").Create(ctx, e, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if c.random.Intn(4) == 0 {
		return
	}
	ready := true
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default",
		Labels: map[string]string{"kubernetes.io/service-name": "kubernetes"}},
		AddressType: []discoveryv1.AddressType{"IPv4", "IPv6"}[c.random.Intn(2)]}
	for _, a := range c.addresses(c.random.Intn(3), false) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.IP},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	if _, err := c.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// both are the Endpoints and the EndpointSlice as they are now; null if there are none.
func (c *cluster) both() (ends, slice object.Value) {
	ctx := context.Background()
	if e, err := c.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err == nil {
		ends = value(c.t, e)
	}
	if s, err := c.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err == nil {
		slice = value(c.t, s)
	}
	return ends, slice
}

func value(t *testing.T, o runtime.Object) object.Value {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Value
}

// typed is a value as an object of Go, without what differs between nothing and an empty list.
func typed[T any](t *testing.T, v object.Value, into *T) *T {
	t.Helper()
	if v.IsNull() {
		return into
	}
	if err := json.Unmarshal(object.AppendObject(nil, v), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// compare requires that ours is what the reference has made.
func (c *cluster) compare(what string, ends, slice object.Value) {
	c.t.Helper()
	theirEnds, theirSlice := c.both()
	a, b := typed(c.t, ends, &corev1.Endpoints{}), typed(c.t, theirEnds, &corev1.Endpoints{})
	a.ObjectMeta = metav1.ObjectMeta{Labels: a.Labels}
	b.ObjectMeta = metav1.ObjectMeta{Labels: b.Labels}
	a.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
	if len(a.Subsets)+len(b.Subsets) == 0 {
		a.Subsets, b.Subsets = nil, nil
	}
	if !reflect.DeepEqual(a, b) {
		c.t.Errorf("%s: the Endpoints are\n%+v\nthe reference makes them\n%+v", what, a, b)
	}
	x, y := typed(c.t, slice, &discoveryv1.EndpointSlice{}), typed(c.t, theirSlice, &discoveryv1.EndpointSlice{})
	if x.AddressType != y.AddressType || !reflect.DeepEqual(x.Labels, y.Labels) || len(x.Endpoints) != len(y.Endpoints) ||
		len(x.Endpoints) > 0 && !reflect.DeepEqual(x.Endpoints, y.Endpoints) ||
		len(x.Ports) != len(y.Ports) || len(x.Ports) > 0 && !reflect.DeepEqual(x.Ports, y.Ports) {
		c.t.Errorf("%s: the EndpointSlice is\n%+v\nthe reference makes it\n%+v", what, x, y)
	}
}

// slice is the EndpointSlice that follows from the Endpoints.
func sliceFor(live, ends object.Value) object.Value {
	if !live.IsNull() && live.At("addressType").Str() != endpoints.Family(ends) {
		live = object.Nil
	}
	return endpoints.Slice(live, ends)
}

// SPEC: STORE-3
func TestAsTheReference(t *testing.T) {
	for seed := range int64(500) {
		random := rand.New(rand.NewSource(seed))
		c := &cluster{t: t, Clientset: fake.NewClientset(), random: random}
		kind := random.Intn(4)
		c.begin([]int{2, 2, 2, 1}[kind])
		ends, slice := c.both()
		own := pool[random.Intn(len(pool))]
		ports := c.ports(0)
		servers := list{}
		for _, i := range random.Perm(len(pool))[:1+random.Intn(3)] {
			servers = append(servers, pool[i])
		}
		var r reconcilers.EndpointReconciler
		var next object.Value
		var err error
		what := fmt.Sprintf("seed %d, %v, server %s, Endpoints %s", seed, servers, own,
			object.AppendJSON(nil, ends.At("subsets")))
		switch kind {
		case 0, 1:
			fix := kind == 1
			r = reconcilers.NewLeaseEndpointReconciler(c.adapter(), servers)
			err = r.ReconcileEndpoints("kubernetes", net.ParseIP(own), ports, fix)
			next = endpoints.Serving(ends, servers, endpoints.Ports(6443), fix)
		case 2:
			count := 1 + random.Intn(3)
			// If more than one address is too many, the reference may remove its own one: the position from which it removes
			// does not move with the list.
			if subsets := ends.At("subsets").Items(); len(subsets) == 1 && subsets[0].At("addresses").Len() > count {
				continue
			}
			r = reconcilers.NewMasterCountEndpointReconciler(count, c.adapter())
			err = r.ReconcileEndpoints("kubernetes", net.ParseIP(own), ports, false)
			next = endpoints.Counted(ends, own, count, endpoints.Ports(6443))
		case 3:
			if ends.At("subsets").Len() == 0 {
				continue // the reference writes nothing
			}
			r = reconcilers.NewMasterCountEndpointReconciler(1, c.adapter())
			err = r.RemoveEndpoints("kubernetes", net.ParseIP(own), ports)
			next = endpoints.Without(ends, own)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		c.compare(what, next, sliceFor(slice, next))
		if t.Failed() {
			return
		}
	}
}

// The last server that stops leaves no address.
func TestNoServerIsLeft(t *testing.T) {
	for seed := range int64(200) {
		c := &cluster{t: t, Clientset: fake.NewClientset(), random: rand.New(rand.NewSource(seed))}
		c.begin(1)
		ends, slice := c.both()
		if ends.IsNull() {
			continue
		}
		r := reconcilers.NewLeaseEndpointReconciler(c.adapter(), list{})
		r.StopReconciling()
		if err := r.RemoveEndpoints("kubernetes", net.ParseIP(pool[0]), c.ports(0)); err != nil {
			t.Fatal(err)
		}
		next := endpoints.Serving(ends, nil, endpoints.Ports(6443), true)
		c.compare(fmt.Sprint("seed ", seed), next, sliceFor(slice, next))
		if t.Failed() {
			return
		}
	}
}
