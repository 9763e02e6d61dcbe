package clusterresourcesets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	errorhandlers "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourceset"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourcesetbinding"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"plinth/conformance/internal/modules"
	"plinth/plinthtest"
)

func init() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	// The second handler of errors sleeps until a millisecond has passed since the last error of the process, or since
	// its start, which is decades in the future of a bubble.
	errorhandlers.ErrorHandlers = errorhandlers.ErrorHandlers[:1]
}

// scheme has the types of the tests. Those of v1beta1 are served by the conversion webhooks.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme,
		clusterv1.AddToScheme, addonsv1.AddToScheme, clusterv1beta1.AddToScheme, addonsv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// files are what a management cluster has installed.
var files = sync.OnceValues(func() (installed struct {
	definitions string // a folder
	webhooks    []byte
}, err error) {
	source, err := modules.Folder("sigs.k8s.io/cluster-api")
	if err != nil {
		return installed, err
	}
	installed.definitions = filepath.Join(source, "core", "config", "crd", "bases")
	installed.webhooks, err = os.ReadFile(filepath.Join(source, "core", "config", "webhook", "manifests.yaml"))
	return installed, err
})

// The names in each scene. Nothing is shared between tests, so they are the same in all.
const (
	space     = "fleet"
	cluster   = "berlin"
	set       = "addons"
	secret    = "parcel-secret"
	configMap = "parcel-config"
)

// matching are the labels that the selector of each ClusterResourceSet asks for.
var matching = map[string]string{"addons": "yes"}

// scene is a management cluster with Cluster API's controllers for ClusterResourceSets, and a workload cluster.
type scene struct {
	*testing.T
	management, workload *plinthtest.Plane
	client               client.Client // of the test, in the management cluster
	remote               client.Client // of the test, in the workload cluster
	connections          clustercache.ClusterCache
}

// bubble runs f in virtual time, in a scene with a Cluster that is connected, and with a ConfigMap and a Secret whose
// data are two ConfigMaps for it: from-config and from-secret.
func bubble(t *testing.T, f func(*scene)) {
	t.Helper()
	t.Parallel()
	installed, err := files()
	if err != nil {
		t.Fatal(err)
	}
	hooks := http.NewServeMux()
	plinthtest.Bubble(t, func(t *testing.T, p *plinthtest.Plane) {
		s := &scene{T: t, management: p, workload: plinthtest.New(t)}
		s.client, s.remote = clientOf(t, s.management), clientOf(t, s.workload)
		s.manage(hooks)
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}})
		s.connect()
		s.create(s.parcelConfig(configMap, payload("from-config", nil)), s.parcelSecret(secret, payload("from-secret", nil)))
		f(s)
	}, plinthtest.CRDs(os.DirFS(installed.definitions)), plinthtest.Webhooks(hooks, installed.webhooks))
}

// clientOf is a client of the test itself: what it reads is not from a cache.
func clientOf(t *testing.T, p *plinthtest.Plane) client.Client {
	t.Helper()
	c, err := client.New(&rest.Config{Host: p.Host(), Transport: p.Driver(), QPS: -1}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// managers numbers the managers of the process: client-go allows each name of informers once.
var managers atomic.Int64

// manage starts a manager with the controllers and webhooks, which ends with the test.
func (s *scene) manage(hooks *http.ServeMux) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	name := fmt.Sprintf("capi-%d", managers.Add(1))
	mgr, err := ctrl.NewManager(&rest.Config{Host: s.management.Host(), Transport: s.management.Transport(), QPS: -1,
		UserAgent: "capi"}, manager.Options{
		Scheme:        scheme,
		Metrics:       metrics.Options{BindAddress: "0"},
		Cache:         setup.ManagerCacheOptions(scheme, name, "", 10*time.Minute),
		Client:        setup.ManagerClientOptions(),
		WebhookServer: inProcess{webhook.NewServer(webhook.Options{WebhookMux: hooks})},
		Controller:    config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.connections, err = controllers(ctx, mgr)
	if err != nil {
		s.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.Cleanup(func() {
		s.connections.(interface{ Shutdown() }).Shutdown()
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	// A manager that is told to stop while it starts asks again and again whether it has started, without a pause: in
	// virtual time forever.
	<-mgr.Elected()
}

// inProcess is a webhook server whose mux the plane calls: it listens nowhere.
type inProcess struct{ webhook.Server }

// Start implements manager.Runnable.
func (inProcess) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// controllers sets up what Cluster API's own main function sets up for ClusterResourceSets.
func controllers(ctx context.Context, mgr ctrl.Manager) (clustercache.ClusterCache, error) {
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return nil, err
	}
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		HTTPClient: mgr.GetHTTPClient(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, err
	}
	cached, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, err
	}
	options := controller.Options{MaxConcurrentReconciles: 10}
	connections, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: cached,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions("capi", 20, 30),
	}, options)
	if err != nil {
		return nil, err
	}
	return connections, errors.Join(
		mgr.Add(secrets),
		(&clusterresourceset.Reconciler{Client: mgr.GetClient(), ClusterCache: connections}).
			SetupWithManager(ctx, mgr, options, secrets),
		(&clusterresourcesetbinding.Reconciler{Client: mgr.GetClient()}).SetupWithManager(ctx, mgr, options),
		(&admission.Cluster{Client: mgr.GetClient()}).SetupWebhookWithManager(mgr),
		(&admission.ClusterResourceSet{}).SetupWebhookWithManager(mgr),
		(&admission.ClusterResourceSetBinding{}).SetupWebhookWithManager(mgr))
}

// planes are the workload clusters of all scenes, by the hosts of their URLs: plinth://HOST. A kubeconfig without
// certificates leads client-go to http.DefaultTransport.
var planes sync.Map

type byHost struct{}

func init() { http.DefaultTransport.(*http.Transport).RegisterProtocol("plinth", byHost{}) }

// RoundTrip implements http.RoundTripper.
func (byHost) RoundTrip(r *http.Request) (*http.Response, error) {
	p, ok := planes.Load(r.URL.Host)
	if !ok {
		return nil, fmt.Errorf("there is no plane %s", r.URL.Host)
	}
	return p.(http.RoundTripper).RoundTrip(r)
}

// connect creates the Cluster, with the kubeconfig of the workload cluster, and lets its infrastructure be ready.
func (s *scene) connect() {
	s.Helper()
	host := fmt.Sprintf("workload-%p", s.workload)
	planes.Store(host, s.workload.Transport())
	s.Cleanup(func() { planes.Delete(host) })
	c := &clusterv1.Cluster{ObjectMeta: in(space, cluster), Spec: clusterv1.ClusterSpec{
		ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "controlplane.cluster.x-k8s.io", Kind: "GenericControlPlane", Name: "cp"}}}
	s.create(c)
	s.create(kubeconfig.GenerateSecret(c, kubeconfig.FromEnvTestConfig(
		&rest.Config{Host: "plinth://" + host, Username: "admin"}, c)))
	before := c.DeepCopy()
	c.Status.Initialization.InfrastructureProvisioned = new(true)
	if err := s.client.Status().Patch(s.Context(), c, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
	s.settle()
	if _, err := s.connections.GetClient(s.Context(), client.ObjectKeyFromObject(c)); err != nil {
		s.Fatal(err)
	}
}

// pause is longer than what the code under test sleeps before it does the next thing that a test is about: client-go
// asks every 100 ms whether a cache has synced, Cluster API reconciles an object once in a second at most, and a write
// that lost a race is tried again after 100 ms.
const pause = 5 * time.Second

// settle waits until the controllers have nothing to do in either cluster.
func (s *scene) settle() {
	s.Helper()
	s.pass(pause)
}

// pass lets time pass, and waits until the controllers have nothing to do then.
func (s *scene) pass(d time.Duration) {
	s.Helper()
	time.Sleep(d)
	for _, p := range []*plinthtest.Plane{s.management, s.workload} {
		if err := p.Settle(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// payload is a ConfigMap for a workload cluster.
func payload(name string, data map[string]string) *corev1.ConfigMap {
	made := &corev1.ConfigMap{ObjectMeta: in("default", name), Data: data}
	made.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	return made
}

// text is an object as YAML, which JSON is, too.
func (s *scene) text(o client.Object) string {
	s.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// parcelConfig is a ConfigMap of the management cluster with objects for a workload cluster.
func (s *scene) parcelConfig(name string, objects ...client.Object) *corev1.ConfigMap {
	s.Helper()
	made := &corev1.ConfigMap{ObjectMeta: in(space, name), Data: map[string]string{}}
	for _, o := range objects {
		made.Data[o.GetName()] = s.text(o)
	}
	return made
}

// parcelSecret is a Secret with objects for a workload cluster.
func (s *scene) parcelSecret(name string, objects ...client.Object) *corev1.Secret {
	s.Helper()
	made := &corev1.Secret{ObjectMeta: in(space, name), Type: addonsv1.ClusterResourceSetSecretType,
		Data: map[string][]byte{}}
	for _, o := range objects {
		made.Data[o.GetName()] = []byte(s.text(o))
	}
	return made
}

// setOf is a ClusterResourceSet for the Clusters that match; each resource is its Kind/name.
func setOf(name string, strategy addonsv1.ClusterResourceSetStrategy,
	resources ...string) *addonsv1.ClusterResourceSet {
	made := &addonsv1.ClusterResourceSet{ObjectMeta: in(space, name), Spec: addonsv1.ClusterResourceSetSpec{
		Strategy: string(strategy), ClusterSelector: metav1.LabelSelector{MatchLabels: matching}}}
	for _, resource := range resources {
		kind, name, _ := strings.Cut(resource, "/")
		made.Spec.Resources = append(made.Spec.Resources, addonsv1.ResourceRef{Kind: kind, Name: name})
	}
	return made
}

// create creates objects in the management cluster.
func (s *scene) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.client.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// remove deletes objects of the management cluster.
func (s *scene) remove(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.client.Delete(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// read reads the object of this name, and returns false if there is none.
func (s *scene) read(from client.Client, o client.Object) bool {
	s.Helper()
	err := from.Get(s.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	return err == nil
}

// match gives the Cluster the labels that match.
func (s *scene) match() {
	s.Helper()
	c := &clusterv1.Cluster{ObjectMeta: in(space, cluster)}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"addons":"yes"}}}`))
	if err := s.client.Patch(s.Context(), c, patch); err != nil {
		s.Fatal(err)
	}
}

// binding is what has been applied to the Cluster; nil if there is no ClusterResourceSetBinding.
func (s *scene) binding() *addonsv1.ClusterResourceSetBinding {
	s.Helper()
	b := &addonsv1.ClusterResourceSetBinding{ObjectMeta: in(space, cluster)}
	if !s.read(s.client, b) {
		return nil
	}
	return b
}

// bound fails the test unless the binding is one of the Cluster with these sets, each with as many resources, all of
// them applied.
func (s *scene) bound(sets, resources int) {
	s.Helper()
	b := s.binding()
	if b == nil {
		s.Fatal("there is no binding")
	}
	if b.Spec.ClusterName != cluster || len(b.Spec.Bindings) != sets || len(b.OwnerReferences) != sets {
		s.Fatalf("the binding is of %q with %d sets and %d owners", b.Spec.ClusterName, len(b.Spec.Bindings),
			len(b.OwnerReferences))
	}
	for _, one := range b.Spec.Bindings {
		if len(one.Resources) != resources {
			s.Errorf("%s has %d resources, want %d", one.ClusterResourceSetName, len(one.Resources), resources)
		}
		for _, r := range one.Resources {
			if !ptr.Deref(r.Applied, false) {
				s.Errorf("%s of %s is not applied", r.Name, one.ClusterResourceSetName)
			}
		}
	}
}

// applied fails the test unless a ConfigMap of the workload cluster has these data.
func (s *scene) applied(namespace, name string, want map[string]string) {
	s.Helper()
	got := &corev1.ConfigMap{ObjectMeta: in(namespace, name)}
	if !s.read(s.remote, got) {
		s.Errorf("the workload cluster has no ConfigMap %s", name)
	} else if !maps.Equal(got.Data, want) {
		s.Errorf("ConfigMap %s of the workload cluster has %v, want %v", name, got.Data, want)
	}
}
