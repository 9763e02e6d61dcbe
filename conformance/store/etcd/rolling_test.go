package etcd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// balancer passes connections on to servers that are ready, in turn: what is in front of several servers, and knows
// nothing of HTTP. What it knows of a server may be as old as staleAfter; on a machine that is so slow that it is
// older, connections wait for the next look. So a server that serves for longer than that after /readyz has failed gets
// no connection when its port is closed, however slow the machine is.
type balancer struct {
	listener net.Listener
	began    time.Time
	servers  []*backend
	next     atomic.Int64
	refused  atomic.Int64 // connections for which no server was there
}

// staleAfter is how old the answer of /readyz may be by which a connection is passed on.
const staleAfter = 500 * time.Millisecond

// backend is a server behind a balancer. ready is when the last question was sent that it has answered with yes, in ns
// since the balancer began; 0: it has answered otherwise since, or never.
type backend struct {
	url    string
	client *http.Client
	ready  atomic.Int64
}

// newBalancer looks at /readyz of the servers until the test ends.
func newBalancer(t *testing.T, servers []*server) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, began: time.Now()}
	t.Cleanup(func() { listener.Close() })
	for _, s := range servers {
		one := &backend{url: s.URL, client: s.Client()}
		b.servers = append(b.servers, one)
		go func() {
			for ; t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
				b.look(one)
			}
		}()
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(near)
		}
	}()
	return b
}

// look finds out whether a server is ready.
func (b *balancer) look(one *backend) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	asked := time.Since(b.began)
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, one.url+"/readyz", nil)
	if err != nil {
		return
	}
	answer, err := one.client.Do(rq)
	if err == nil {
		answer.Body.Close()
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		asked = 0
	}
	one.ready.Store(int64(asked))
}

// choose returns a server that is ready; nil: there is none for a minute.
func (b *balancer) choose() *backend {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for range b.servers {
			one := b.servers[int(b.next.Add(1))%len(b.servers)]
			if at := one.ready.Load(); at > 0 && time.Since(b.began)-time.Duration(at) < staleAfter {
				return one
			}
		}
	}
	return nil
}

func (b *balancer) serve(near net.Conn) {
	defer near.Close()
	one := b.choose()
	if one == nil {
		b.refused.Add(1)
		return
	}
	far, err := net.Dial("tcp", strings.TrimPrefix(one.url, "https://"))
	if err != nil { // many balancers try no other one
		b.refused.Add(1)
		return
	}
	defer far.Close()
	go func() { _, _ = io.Copy(far, near); far.Close() }()
	_, _ = io.Copy(near, far)
}

func (b *balancer) URL() string { return "https://" + b.listener.Addr().String() }

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
			b := newBalancer(t, all)
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
			if n := b.refused.Load(); n > 0 {
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
