package reading

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"plinth/conformance/internal/harness"
)

// informer is a client-go informer with default settings and a separate network.
type informer struct {
	store   cache.Store
	network *network
}

// follow starts informers on a namespace and waits until they have synced.
func follow(t *testing.T, s *harness.Server, namespace, contentType string, count int) []*informer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var list []*informer
	var synced []cache.InformerSynced
	for range count {
		c, n := client(t, s, contentType)
		factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace))
		maps := factory.Core().V1().ConfigMaps().Informer()
		list, synced = append(list, &informer{maps.GetStore(), n}), append(synced, maps.HasSynced)
		factory.Start(ctx.Done())
	}
	deadline, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if !cache.WaitForCacheSync(deadline.Done(), synced...) {
		t.Fatal("the informers do not sync")
	}
	return list
}

// agree waits until every informer holds exactly the server's objects.
func (w *world) agree(t *testing.T, list []*informer) {
	t.Helper()
	there, err := w.client.CoreV1().ConfigMaps(w.name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*corev1.ConfigMap{}
	for i := range there.Items {
		want[w.name+"/"+there.Items[i].Name] = &there.Items[i]
	}
	for i, inf := range list {
		difference := ""
		// After a long time without a server, client-go may wait for a minute before it retries.
		for until := time.Now().Add(scale(time.Minute,
			5*time.Minute)); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			if difference = differ(inf.store, want); difference == "" {
				break
			}
		}
		if difference != "" {
			t.Fatalf("informer %d: %s", i, difference)
		}
	}
}

// differ describes the first difference between a cache and the objects that it should hold.
func differ(store cache.Store, want map[string]*corev1.ConfigMap) string {
	keys := store.ListKeys()
	if len(keys) != len(want) {
		return fmt.Sprintf("it holds %d objects, and there are %d", len(keys), len(want))
	}
	for _, key := range keys {
		held, _, err := store.GetByKey(key)
		if err != nil {
			return err.Error()
		}
		got := held.(*corev1.ConfigMap).DeepCopy()
		got.TypeMeta = metav1.TypeMeta{} // items of a list have none
		if !equality.Semantic.DeepEqual(got, want[key]) {
			return fmt.Sprintf("%s is %+v, should be %+v", key, got, want[key])
		}
	}
	return ""
}

// SPEC: WATCH-1, WATCH-3, WATCH-5, WATCH-7, LIST-4: informers with default settings follow thousands of objects through
// lost connections, restarts of the server and times in which the history is forgotten, and are exact each time.
func TestInformers(t *testing.T) {
	objects, count, rounds := scale(400, 10000), scale(4, 20), scale(1, 2)
	changes := objects / scale(4, 10)
	for _, encoding := range encodings {
		t.Run(encoding.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for client-go's retries
			// The changes while an informer is disconnected do not fit into this history.
			server := harness.RunTarget(t, "--watch-history-bytes", fmt.Sprint(scale(100<<10, 1<<20)))
			writer, _ := client(t, server, encoding.contentType)
			w := &world{client: writer, name: "informed"}
			namespace(t, writer, w.name)
			w.fill(t, objects)
			list := follow(t, server, w.name, encoding.contentType, count)
			w.agree(t, list)
			for range rounds {
				for i, inf := range list { // connections are cut while objects change
					if i%2 == 0 {
						inf.network.cut()
					}
				}
				w.change(t, changes/4, objects)
				w.agree(t, list)

				if server.Kind == harness.Plinth { // the reference restarts on another port
					w.change(t, changes/4, objects)
					if err := server.Restart(); err != nil {
						t.Fatal(err)
					}
					w.change(t, changes/4, objects)
					w.agree(t, list)
				}

				before := make([]int64, len(list))
				for i, inf := range list {
					before[i] = inf.network.lists.Load()
					inf.network.set(false)
				}
				w.change(t, 2*changes, objects) // the history drops their versions
				for _, inf := range list {
					inf.network.set(true)
				}
				w.agree(t, list)
				for i, inf := range list {
					if server.Kind == harness.Plinth && inf.network.lists.Load() == before[i] {
						t.Errorf("informer %d has not listed again: the history has not forgotten anything", i)
					}
				}
			}
		})
	}
}

// SPEC: BEY-6, WATCH-7: informers continue after kill -9 without a relist, and lose no events.
func TestInformersGoOnWithoutARelist(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // it restarts on another port, and its watch cache begins anew
	}
	for _, encoding := range encodings {
		t.Run(encoding.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for client-go's retries
			server := harness.RunTarget(t)
			writer, _ := client(t, server, encoding.contentType)
			w := &world{client: writer, name: "resumed"}
			namespace(t, writer, w.name)
			const objects = 200
			w.fill(t, objects)
			list := follow(t, server, w.name, encoding.contentType, scale(4, 20))
			w.agree(t, list)
			for range scale(1, 10) {
				w.change(t, 20, objects) // a watch that ends without an event makes client-go list again
				w.agree(t, list)
				before, resumed := make([]int64, len(list)), make([]int64, len(list))
				for i, inf := range list {
					before[i], resumed[i] = inf.network.lists.Load(), inf.network.resumes.Load()
					inf.network.set(false)
				}
				w.change(t, 20, objects)
				if err := server.Restart(); err != nil {
					t.Fatal(err)
				}
				for _, inf := range list {
					inf.network.set(true)
				}
				w.change(t, 20, objects)
				w.agree(t, list)
				for i, inf := range list {
					if n := inf.network.lists.Load() - before[i]; n != 0 {
						t.Errorf("informer %d has listed %d times", i, n)
					}
					if inf.network.resumes.Load() == resumed[i] {
						t.Errorf("informer %d has not been away", i)
					}
				}
			}
		})
	}
}
