package etcd

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// Servers that share an etcd keep to a quota together: of many Pods that are created through both at once, as many
// succeed as the quota allows, and its status says so at the end. A second quota of the namespace, which cannot be
// written in the same transaction, does not change that.
//
// SPEC: AUTH-5, STORE-2
func TestQuotas(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	both := []*server{on(t, harness.Plinth, p.URL), on(t, harness.Plinth, p.URL)}
	const most, tries, writers = 20, 8, 8
	for _, name := range []string{"first", "second"} {
		if _, err := both[0].Resource(quotas).Namespace("default").Create(t.Context(), object(t,
			`{apiVersion: v1, kind: ResourceQuota, metadata: {name: %s}, spec: {hard: {pods: "%d"}}}`, name, most),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other server knows of the quota", func() error {
			_, err := both[1].Resource(quotas).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
	}
	var made, refused atomic.Int64
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range tries {
				_, err := both[(w+i)%2].Resource(pods).Namespace("default").Create(t.Context(), object(t,
					`{apiVersion: v1, kind: Pod, metadata: {name: p%d-%d}, spec: {containers: [{name: c, image: i}]}}`, w, i),
					metav1.CreateOptions{})
				switch {
				case err == nil:
					made.Add(1)
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	list, err := both[0].Resource(pods).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != int(made.Load()) || made.Load() > most ||
		made.Load()+refused.Load() != tries*writers {
		t.Fatalf("%d made, %d refused, %d there, %v", made.Load(), refused.Load(), len(list.Items), err)
	}
	// What was recorded for a Pod that then was not made is counted anew, so that the rest can be made.
	for i := 0; made.Load() < most; i++ {
		eventually(t, "there is room", func() error {
			_, err := both[i%2].Resource(pods).Namespace("default").Create(t.Context(), object(t,
				`{apiVersion: v1, kind: Pod, metadata: {name: later-%d}, spec: {containers: [{name: c, image: i}]}}`, i),
				metav1.CreateOptions{})
			return err
		})
		made.Add(1)
	}
	for _, name := range []string{"first", "second"} {
		eventually(t, "the status of "+name+" is right", func() error {
			q, err := both[1].Resource(quotas).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			status, _ := q.Object["status"].(map[string]any)
			if used, _ := status["used"].(map[string]any); used["pods"] != fmt.Sprint(most) {
				return fmt.Errorf("the status is %v", status)
			}
			return nil
		})
	}
}

// What a kube-apiserver has written into the status of a quota, for an object that it is about to write, is not taken
// back at once, though no object uses it yet.
//
// SPEC: AUTH-5, STORE-3
func TestQuotaIsLoweredLate(t *testing.T) {
	s := on(t, harness.Plinth, startEtcd(t, reference.EtcdOptions{}).URL)
	in := s.Resource(quotas).Namespace("default")
	if _, err := in.Create(t.Context(), object(t,
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: "9"}}}`),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func() string {
		q, err := in.Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		value, _, _ := unstructured.NestedString(q.Object, "status", "used", "pods")
		return value
	}
	await := func(want string) {
		eventually(t, "the status says "+want, func() error {
			if got := used(); got != want {
				return fmt.Errorf("%s Pods are used", got)
			}
			return nil
		})
	}
	await("0")
	began := time.Now()
	if _, err := in.Patch(t.Context(), "q", types.MergePatchType, []byte(`{"status":{"used":{"pods":"5"}}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	await("0")
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("what another server has recorded is taken back after %v", took)
	}
}

// A server that stands still between the two transactions of a create, that of a quota and that of the object, does not
// exceed the quota: what it has recorded there is taken back meanwhile, and used for another object, which no other
// quota counts.
//
// SPEC: AUTH-5, STORE-2
func TestQuotaOfAFrozenServer(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	r := newRelay(t, strings.TrimPrefix(p.URL, "http://"))
	next := on(t, harness.Plinth, p.URL) // it runs the controllers
	frozen := on(t, harness.Plinth, r.url)
	in := next.Resource(quotas).Namespace("default")
	for _, text := range []string{
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {pods: "9"}, scopes: [BestEffort]}}`,
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: b}, spec: {hard: {pods: "1"}}}`,
	} {
		if _, err := in.Create(t.Context(), object(t, "%s", text), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(name, want string) {
		t.Helper()
		eventually(t, "the status of "+name+" says "+want, func() error {
			q, err := frozen.Resource(quotas).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedString(q.Object, "status", "used", "pods"); got != want {
				return fmt.Errorf("%q Pods are used", got)
			}
			return nil
		})
	}
	says("a", "0") // else the first write of its status would refuse what is late, too
	says("b", "0")
	create := func(s *server, text string) error {
		_, err := s.Resource(pods).Namespace("default").Create(t.Context(), object(t, "%s", text), metav1.CreateOptions{})
		return err
	}
	late := r.hold("/registry/pods/default/late")
	made := outcome(func() error {
		return create(frozen, `{apiVersion: v1, kind: Pod, metadata: {name: late}, spec: {containers: [{name: c, image: i}]}}`)
	})
	select {
	case <-late.held:
	case <-time.After(time.Minute):
		t.Fatal("the Pod is not on its way to etcd")
	}
	frozen.signal(t, syscall.SIGSTOP)
	thaw := sync.OnceFunc(func() { frozen.signal(t, syscall.SIGCONT) })
	defer thaw()
	// What was recorded is taken back: at first it is refused.
	eventually(t, "there is room", func() error {
		return create(next, `{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers:
			[{name: c, image: i, resources: {requests: {cpu: "1"}}}]}}`)
	})
	close(late.released)
	var answer etcdserverpb.TxnResponse
	if err := proto.Unmarshal(<-late.answer, &answer); err != nil || answer.Header == nil || answer.Succeeded {
		t.Errorf("the late transaction was carried out, or not answered: %v, %v", &answer, err)
	}
	thaw()
	if err := ends(t, "the late create", made); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "exceeded quota: b, requested: pods=1, used: pods=1, limited: pods=1") {
		t.Errorf("the late create has %v", err)
	}
	list, err := next.Resource(pods).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "other" {
		t.Errorf("there are %v, %v", list, err)
	}
	says("b", "1")
}
