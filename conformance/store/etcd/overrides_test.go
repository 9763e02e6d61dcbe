package etcd

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// Events can be in another etcd, beside a kube-apiserver for which they are, too. They have the revisions of that one;
// lists and watches through both servers agree; and they go with their namespace.
//
// SPEC: STORE-2, STORE-3
func TestEventsElsewhere(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	first, second := startEtcd(t, reference.EtcdOptions{}), startEtcd(t, reference.EtcdOptions{})
	override := "--etcd-servers-overrides=/events#" + second.URL
	ours := on(t, harness.Plinth, first.URL, override)
	theirs := on(t, harness.Reference, first.URL, override)
	ctx := t.Context()
	if _, err := theirs.Resource(namespaces).Create(ctx, object(t,
		`{apiVersion: v1, kind: Namespace, metadata: {name: apart}}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var follow []*follower
	for _, s := range []*server{ours, theirs} {
		eventually(t, "the namespace has come", func() error {
			_, err := s.Resource(namespaces).Get(ctx, "apart", metav1.GetOptions{})
			return err
		})
		follow = append(follow, newFollower(t, s, events))
	}
	for i := range 20 {
		s := []*server{ours, theirs}[i%2]
		made, err := s.Resource(events).Namespace("apart").Create(ctx, object(t, `{apiVersion: v1, kind: Event,
metadata: {name: e%d}, involvedObject: {kind: Pod, name: p, namespace: apart}, reason: R}`, i), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Object["message"] = "changed"
		other := []*server{theirs, ours}[i%2]
		if _, err := other.Resource(events).Namespace("apart").Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ours.Resource(events).Namespace("none").Create(ctx, object(t, `{apiVersion: v1, kind: Event,
metadata: {name: e}, involvedObject: {kind: Pod, name: p, namespace: none}}`), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an Event in a namespace that does not exist: %v", err)
	}
	compareFollowers(t, follow[0], follow[1])
	compared := 0
	if diff := differ(t, ours, theirs, events, &compared); diff != "" || compared < 20 {
		t.Errorf("%d Events: %s", compared, diff)
	}
	for of, want := range map[string]int{first.URL: 0, second.URL: 20} {
		answer, err := direct(t, of).Get(ctx, "/registry/events/apart/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || int(answer.Count) != want {
			t.Errorf("%d Events are in %s, want %d (%v)", answer.Count, of, want, err)
		}
	}
	answer, err := direct(t, second.URL).Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		if !strings.HasPrefix(string(kv.Key), "/registry/events/") {
			t.Errorf("%s is in the etcd of the Events", kv.Key)
		}
	}
	list, err := ours.Resource(events).List(ctx, metav1.ListOptions{})
	if err != nil || list.GetResourceVersion() != fmt.Sprint(answer.Header.Revision) {
		t.Errorf("a list of Events is of revision %s, etcd's is %d (%v)", list.GetResourceVersion(),
			answer.Header.Revision, err)
	}
	for _, check := range []string{"/healthz/etcd-override-0", "/readyz/etcd-override-readiness-0"} {
		for _, s := range []*server{ours, theirs} {
			if out, err := s.discovery.RESTClient().Get().AbsPath(check).DoRaw(ctx); err != nil || string(out) != "ok" {
				t.Errorf("%s of %s: %s %v", check, s.Kind, out, err)
			}
		}
	}
	// A server that is started again goes on from the same revision of the same etcd.
	since := list.GetResourceVersion()
	if err := ours.Restart(); err != nil {
		t.Fatal(err)
	}
	ours.connect(t)
	w, err := ours.Resource(events).Watch(ctx, metav1.ListOptions{ResourceVersion: since})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := theirs.Resource(events).Namespace("apart").Delete(ctx, "e0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("the watch has %v", e)
	}
	if err := theirs.Resource(namespaces).Delete(ctx, "apart", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server{ours, theirs} {
		eventually(t, "the namespace is gone, with its Events", func() error {
			left, err := s.Resource(events).Namespace("apart").List(ctx, metav1.ListOptions{})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%d Events are left", len(left.Items))
			}
			if err != nil {
				return err
			}
			if _, err := s.Resource(namespaces).Get(ctx, "apart", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the namespace: %v", err)
			}
			return nil
		})
	}
}
