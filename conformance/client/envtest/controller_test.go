package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Site is the custom resource of a small controller, as kubebuilder would generate it: the controller makes a ConfigMap
// from it and the Secret that it names.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Title  string `json:"title"`
		Secret string `json:"secret"`
		Pages  int    `json:"pages,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status,omitempty"`
}

// DeepCopyObject makes Site an object.
func (s *Site) DeepCopyObject() runtime.Object { return deepCopy(s, new(Site)) }

// SiteList is a list of Sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

// DeepCopyObject makes SiteList an object.
func (l *SiteList) DeepCopyObject() runtime.Object { return deepCopy(l, new(SiteList)) }

func deepCopy[T runtime.Object](from, to T) T {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(err) // they are structs of strings
	}
	return to
}

var siteVersion = schema.GroupVersion{Group: "web.example.com", Version: "v1"}

// siteDefinition is what kubebuilder would generate.
func siteDefinition() *apiextensionsv1.CustomResourceDefinition {
	text := func() apiextensionsv1.JSONSchemaProps { return apiextensionsv1.JSONSchemaProps{Type: "string"} }
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	pages := apiextensionsv1.JSONSchemaProps{Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("1")}}
	root := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec":   object(map[string]apiextensionsv1.JSONSchemaProps{"title": text(), "secret": text(), "pages": pages}),
		"status": object(map[string]apiextensionsv1.JSONSchemaProps{"phase": text()}),
	})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "sites.web.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: siteVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "sites", Singular: "site", Kind: "Site",
				ListKind: "SiteList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: siteVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
			}},
		},
	}
}

const (
	siteFinalizer = "web.example.com/site"
	bySecret      = "spec.secret" // an index of the cache
)

// siteController is the controller.
type siteController struct {
	client.Client
	cleaned chan string // the names of sites that are cleaned up
}

// Reconcile makes the ConfigMap of a Site, and cleans up when one is deleted.
func (r *siteController) Reconcile(ctx context.Context, rq reconcile.Request) (reconcile.Result, error) {
	var site Site
	if err := r.Get(ctx, rq.NamespacedName, &site); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&site, siteFinalizer) {
			if err := r.Update(ctx, &site); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			r.cleaned <- site.Name
		}
		return reconcile.Result{}, nil
	}
	if controllerutil.AddFinalizer(&site, siteFinalizer) {
		if err := r.Update(ctx, &site); err != nil {
			return reconcile.Result{}, err
		}
	}
	var secret corev1.Secret
	if err := r.Get(ctx, types.NamespacedName{Namespace: site.Namespace, Name: site.Spec.Secret}, &secret); err != nil {
		return reconcile.Result{}, err
	}
	page := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name},
		Data: map[string]string{"text": fmt.Sprintf("%s, %d: %s", site.Spec.Title, site.Spec.Pages,
			secret.Data["text"])},
	}
	if err := controllerutil.SetControllerReference(&site, page, r.Scheme()); err != nil {
		return reconcile.Result{}, err
	}
	// nolint:staticcheck // as most controllers have it
	if err := r.Patch(ctx, page, client.Apply, client.FieldOwner("site-controller"), client.ForceOwnership); err != nil {
		return reconcile.Result{}, err
	}
	if site.Status.Phase != "Ready" {
		site.Status.Phase = "Ready"
		return reconcile.Result{}, r.Status().Update(ctx, &site)
	}
	return reconcile.Result{}, nil
}

// start runs the controller in a manager until the test ends.
func (r *siteController) start(t *testing.T, env *envtest.Environment) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypes(siteVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, siteVersion)
	manager, err := ctrl.NewManager(env.Config,
		ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	r.Client = manager.GetClient()
	ctx, stop := context.WithCancel(t.Context())
	err = manager.GetFieldIndexer().IndexField(ctx, &Site{}, bySecret,
		func(o client.Object) []string { return []string{o.(*Site).Spec.Secret} })
	if err != nil {
		t.Fatal(err)
	}
	named := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context,
		secret client.Object) (requests []reconcile.Request) {
		var sites SiteList
		if err := r.List(ctx, &sites, client.InNamespace(secret.GetNamespace()),
			client.MatchingFields{bySecret: secret.GetName()}); err != nil {
			t.Error(err)
		}
		for i := range sites.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sites.Items[i])})
		}
		return requests
	})
	if err := ctrl.NewControllerManagedBy(manager).For(&Site{}).Owns(&corev1.ConfigMap{}).Watches(&corev1.Secret{},
		named).Complete(r); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A typical controller runs on Plinth: with a cache and an index, a finalizer, a status, server-side apply, and watches
// of the objects that it owns and depends on.
//
// SPEC: EXT-1, RUN-2, SSA-1, WATCH-1
func TestController(t *testing.T) {
	env := environment(t)
	if _, err := envtest.InstallCRDs(env.Config,
		envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{siteDefinition()}}); err != nil {
		t.Fatal(err)
	}
	r := &siteController{cleaned: make(chan string, 1)}
	r.start(t, env)
	ctx := t.Context()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "words"},
		StringData: map[string]string{"text": "hello"}}
	if err := r.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
	site := &Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "home"}}
	site.Spec.Title, site.Spec.Secret = "Home", "words"
	if err := r.Create(ctx, site); err != nil {
		t.Fatal(err)
	}
	if site.Spec.Pages != 1 {
		t.Errorf("the default of pages is %d", site.Spec.Pages)
	}
	key := client.ObjectKeyFromObject(site)
	var page corev1.ConfigMap
	shows := func(want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("the page shows %q and not %q", want, page.Data["text"]), func() bool {
			return r.Get(ctx, key, &page) == nil && page.Data["text"] == want
		})
	}
	shows("Home, 1: hello")
	eventually(t, "the site is ready", func() bool { return r.Get(ctx, key, site) == nil && site.Status.Phase == "Ready" })
	if owner := metav1.GetControllerOf(&page); owner == nil || owner.UID != site.UID {
		t.Errorf("the page is owned by %v", owner)
	}
	before := page.UID
	if err := r.Delete(ctx, &page); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the page is made again", func() bool { return r.Get(ctx, key, &page) == nil && page.UID != before })
	secret.StringData = map[string]string{"text": "goodbye"}
	if err := r.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	shows("Home, 1: goodbye")
	if err := r.Delete(ctx, site); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-r.cleaned:
		if name != "home" {
			t.Errorf("%s was cleaned up", name)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing was cleaned up")
	}
	eventually(t, "the site is gone", func() bool {
		return client.IgnoreNotFound(r.Get(ctx, key, site)) == nil && r.Get(ctx, key, site) != nil
	})
}

// eventually waits until holds returns true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": it does not")
		}
	}
}
