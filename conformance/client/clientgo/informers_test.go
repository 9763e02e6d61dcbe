package clientgo

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"plinth/conformance/internal/harness"
)

const (
	informerCount = 20
	objectCount   = 60
)

// crowd is a number of informers on one namespace, each in its own factory: with a separate connection and cache.
type crowd struct {
	stores []cache.Store
	events atomic.Int64
}

func newCrowd(t *testing.T, ctx context.Context, s *harness.Server, ns string) *crowd {
	t.Helper()
	c := &crowd{}
	var synced []cache.InformerSynced
	for range informerCount {
		factory := informers.NewSharedInformerFactoryWithOptions(typed(t, s), 0, informers.WithNamespace(ns))
		informer := factory.Core().V1().ConfigMaps().Informer()
		count := func() { c.events.Add(1) }
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { count() }, UpdateFunc: func(any, any) { count() }, DeleteFunc: func(any) { count() }})
		if err != nil {
			t.Fatal(err)
		}
		c.stores, synced = append(c.stores, informer.GetStore()), append(synced, informer.HasSynced)
		factory.Start(ctx.Done())
	}
	deadline, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(deadline.Done(), synced...) {
		t.Fatal("the informers do not sync")
	}
	return c
}

// agree waits until every informer holds exactly the server's objects.
func (c *crowd) agree(t *testing.T, client kubernetes.Interface, ns string) {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range list.Items {
		want[m.Name] = m.ResourceVersion + " " + string(m.UID) + " " + m.Data["n"]
	}
	var got map[string]string
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		differ := -1
		for i, store := range c.stores {
			got = map[string]string{}
			for _, o := range store.List() {
				m := o.(*corev1.ConfigMap)
				got[m.Name] = m.ResourceVersion + " " + string(m.UID) + " " + m.Data["n"]
			}
			if !maps.Equal(got, want) {
				differ = i
				break
			}
		}
		if differ < 0 {
			return
		}
	}
	t.Errorf("an informer holds\n%v\nand the server\n%v", sorted(got), sorted(want))
}

func sorted(m map[string]string) []string {
	var lines []string
	for name, value := range m {
		lines = append(lines, name+": "+value)
	}
	slices.Sort(lines)
	return lines
}

// churn makes random changes to ConfigMaps; changes that fail while the server is down are retried.
func churn(t *testing.T, client kubernetes.Interface, ns string, changes int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	objects := client.CoreV1().ConfigMaps(ns)
	for i := range changes {
		name := fmt.Sprint("m-", random.IntN(objectCount))
		data := map[string]string{"n": fmt.Sprint(i)}
		for attempt := 0; ; attempt++ {
			var err error
			if random.IntN(4) == 0 {
				err = objects.Delete(t.Context(), name, metav1.DeleteOptions{})
			} else {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
				_, err = objects.Update(t.Context(), m, metav1.UpdateOptions{})
				if apierrors.IsNotFound(err) {
					_, err = objects.Create(t.Context(), m, metav1.CreateOptions{})
				}
			}
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
				break
			}
			if attempt > 200 {
				t.Errorf("the server does not come back: %v", err)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// SPEC: WATCH-1 WATCH-4 WATCH-5: twenty informers with default settings follow a namespace that changes, and finally
// hold exactly its objects.
func TestInformers(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	ns := namespace(t, client, "informed")
	churn(t, client, ns, 100, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newCrowd(t, ctx, server, ns)
	done := make(chan struct{})
	for writer := range uint64(4) {
		go func() {
			churn(t, client, ns, 300, 2+writer)
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	c.agree(t, client, ns)
	if c.events.Load() < informerCount*300 {
		t.Errorf("the informers have seen %d events only", c.events.Load())
	}
}

// SPEC: WATCH-7 STORE-1: the server is killed again and again while informers follow and writers write; afterwards all
// of them agree.
func TestInformersSurviveKills(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	ns := namespace(t, client, "killed")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newCrowd(t, ctx, server, ns)
	done, killed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for seed := uint64(7); ; seed++ { // until the last kill, so that each of them happens under load
			churn(t, client, ns, 50, seed)
			select {
			case <-killed:
				if seed >= 7+8 {
					return
				}
			default:
			}
		}
	}()
	if server.Kind == harness.Plinth { // the reference restarts on another port
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			t.Logf("restarted in %s", server.Ready)
		}
	}
	close(killed)
	<-done
	c.agree(t, client, ns)
}

// SPEC: WATCH-5: informers of most built-in types sync, with streaming lists first.
func TestInformersOfManyTypes(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Core().V1().Namespaces().Informer()
	factory.Core().V1().Services().Informer()
	factory.Core().V1().Secrets().Informer()
	factory.Core().V1().Events().Informer()
	factory.Core().V1().Endpoints().Informer()
	factory.Core().V1().ServiceAccounts().Informer()
	factory.Core().V1().PersistentVolumes().Informer()
	factory.Core().V1().PersistentVolumeClaims().Informer()
	factory.Core().V1().ReplicationControllers().Informer()
	factory.Core().V1().ResourceQuotas().Informer()
	factory.Core().V1().LimitRanges().Informer()
	factory.Apps().V1().Deployments().Informer()
	factory.Apps().V1().ReplicaSets().Informer()
	factory.Apps().V1().StatefulSets().Informer()
	factory.Apps().V1().DaemonSets().Informer()
	factory.Apps().V1().ControllerRevisions().Informer()
	factory.Batch().V1().Jobs().Informer()
	factory.Batch().V1().CronJobs().Informer()
	factory.Coordination().V1().Leases().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	factory.Networking().V1().Ingresses().Informer()
	factory.Networking().V1().NetworkPolicies().Informer()
	factory.Policy().V1().PodDisruptionBudgets().Informer()
	factory.Rbac().V1().Roles().Informer()
	factory.Rbac().V1().ClusterRoles().Informer()
	factory.Rbac().V1().RoleBindings().Informer()
	factory.Rbac().V1().ClusterRoleBindings().Informer()
	factory.Scheduling().V1().PriorityClasses().Informer()
	factory.Storage().V1().StorageClasses().Informer()
	factory.Storage().V1().CSINodes().Informer()
	factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer()
	factory.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer()
	factory.Flowcontrol().V1().FlowSchemas().Informer()
	factory.Resource().V1().ResourceClaims().Informer()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	factory.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Errorf("%s does not sync", kind)
		}
	}
}

// SPEC: URI-4 WRITE-1: three candidates for one Lease: one of them leads, never two, and another takes over when the
// leader stops.
func TestLeaderElection(t *testing.T) {
	server := harness.RunTarget(t)
	client := typed(t, server)
	ns := namespace(t, client, "elections")
	var leading atomic.Bool
	elected := make(chan string, 10)
	type candidate struct {
		cancel context.CancelFunc
		done   chan struct{}
	}
	candidates := map[string]candidate{}
	for i := range 3 {
		id := fmt.Sprint("candidate-", i)
		ctx, cancel := context.WithCancel(t.Context())
		c := candidate{cancel, make(chan struct{})}
		candidates[id] = c
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: "leader", Namespace: ns},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: id}},
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					if !leading.CompareAndSwap(false, true) {
						t.Error("two candidates lead at the same time")
					}
					elected <- id
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(c.done)
			elector.Run(ctx)
		}()
	}
	for range 3 {
		select {
		case id := <-elected:
			lease, err := client.CoordinationV1().Leases(ns).Get(t.Context(), "leader", metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != id {
				t.Errorf("%s leads, and the lease says %+v, %v", id, lease.Spec, err)
			}
			leading.Store(false) // before the lease is released and the next one may acquire it
			candidates[id].cancel()
			<-candidates[id].done
		case <-time.After(20 * time.Second):
			t.Fatal("no candidate is elected")
		}
	}
}
