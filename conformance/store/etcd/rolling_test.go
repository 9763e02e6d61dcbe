package etcd

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plinth/conformance/internal/balancer"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// Servers that are restarted one after another behind a balancer are one server to its clients: reads, writes, applies
// and informers see no error.
//
// SPEC: STORE-2, RUN-1
func TestRollingRestart(t *testing.T) {
	for name, flags := range map[string][]string{
		"closing the port": nil,
		"with Retry-After": {"--shutdown-send-retry-after=true", "--shutdown-watch-termination-grace-period=2s"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startEtcd(t, reference.EtcdOptions{})
			all := atOnceWith(t, p.URL, append([]string{"--shutdown-delay-duration=2s", "--goaway-chance=0.01"}, flags...),
				harness.Plinth, harness.Plinth, harness.Plinth)
			b := balancer.New(t, all[0].Server, all[1].Server, all[2].Server)
			config, err := all[0].Config()
			if err != nil {
				t.Fatal(err)
			}
			config.Host, config.QPS = b.URL(), -1
			l := startLoad(t, config)
			for _, s := range all {
				l.atLeast(t, 100)
				if err := s.Stop(); err != nil {
					t.Error("the server has not ended in order:", err)
				}
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			l.atLeast(t, 100)
			l.end(t)
			if n := b.Refused(); n > 0 {
				t.Errorf("no server was there for %d connections", n)
			}
		})
	}
}

// rollingLoad is what clients do while servers are restarted.
type rollingLoad struct {
	client *kubernetes.Clientset
	done   atomic.Int64
	ends   context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	seen   cache.SharedIndexInformer

	mu     sync.Mutex
	errors []string
}

func startLoad(t *testing.T, config *rest.Config) *rollingLoad {
	t.Helper()
	l := &rollingLoad{}
	var err error
	if l.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	l.ends, l.cancel = context.WithCancel(t.Context())
	t.Cleanup(l.cancel)
	factory := informers.NewSharedInformerFactory(l.client, 0)
	l.seen = factory.Core().V1().ConfigMaps().Informer()
	factory.Start(t.Context().Done())
	for n := range 6 {
		// A client of its own has a connection of its own.
		own := rest.CopyConfig(config)
		own.Dial = (&net.Dialer{}).DialContext
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			t.Fatal(err)
		}
		l.work.Go(func() {
			for round := 0; l.ends.Err() == nil; round++ {
				l.round(client, fmt.Sprintf("w%d-%d", n, round))
			}
		})
	}
	return l
}

// round is the life of an object.
func (l *rollingLoad) round(client *kubernetes.Clientset, name string) {
	ctx := context.Background()
	maps := client.CoreV1().ConfigMaps("default")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1"}}
	step := func(what string, do func() error) bool {
		if err := do(); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.errors = append(l.errors, fmt.Sprintf("%s %s: %v", what, name, err))
			return false
		}
		l.done.Add(1)
		return true
	}
	var live *corev1.ConfigMap
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"create", func() (err error) { _, err = maps.Create(ctx, object, metav1.CreateOptions{}); return err }},
		{"get", func() (err error) { live, err = maps.Get(ctx, name, metav1.GetOptions{}); return err }},
		{"update", func() (err error) {
			live.Data["a"] = "2"
			_, err = maps.Update(ctx, live, metav1.UpdateOptions{})
			return err
		}},
		{"patch", func() (err error) {
			_, err = maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"b":"1"}}`), metav1.PatchOptions{})
			return err
		}},
		{"apply", func() (err error) {
			_, err = maps.Apply(ctx, applycorev1.ConfigMap(name, "default").WithData(map[string]string{"c": "1"}),
				metav1.ApplyOptions{FieldManager: "rolling"})
			return err
		}},
		{"list", func() (err error) { _, err = maps.List(ctx, metav1.ListOptions{Limit: 10}); return err }},
		{"delete", func() error { return maps.Delete(ctx, name, metav1.DeleteOptions{}) }},
	} {
		if !step(s.what, s.do) {
			return
		}
	}
}

// atLeast waits until that many more requests have succeeded.
func (l *rollingLoad) atLeast(t *testing.T, n int64) {
	t.Helper()
	want := l.done.Load() + n
	eventually(t, "the clients do not get on", func() error {
		if done := l.done.Load(); done < want {
			return fmt.Errorf("%d of %d", done, want)
		}
		return nil
	})
}

// end ends the load and requires that nothing went wrong: no request failed, and the informer has what there is.
func (l *rollingLoad) end(t *testing.T) {
	t.Helper()
	l.cancel()
	l.work.Wait()
	last, err := l.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the informer lacks the last object", func() error {
		if _, ok, _ := l.seen.GetStore().GetByKey("default/last"); !ok {
			return fmt.Errorf("it has %d objects, and is at %s of %s", len(l.seen.GetStore().ListKeys()),
				l.seen.LastSyncResourceVersion(), last.ResourceVersion)
		}
		return nil
	})
	list, err := l.client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if have := len(l.seen.GetStore().ListKeys()); have != len(list.Items) {
		t.Errorf("the informer has %d objects of %d", have, len(list.Items))
	}
	t.Logf("%d requests", l.done.Load())
	for _, text := range l.errors {
		t.Error(text)
	}
}
