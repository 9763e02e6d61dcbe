package builtin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"plinth/internal/builtin"
	"plinth/internal/features"
	"plinth/merge"
	"plinth/object"
)

// place is where an object is written: "" is its main URL.
type place struct {
	schema.GroupVersionResource
	subresource string
}

func (p place) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s/%s", p.GroupVersion(), p.Resource, p.subresource), "/")
}

// filters are, by API version, the fields that a write to an endpoint may own.
type filters = map[fieldpath.APIVersion]fieldpath.Filter

// kindGates are the gates of upstream without which it does not serve some kinds.
const kindGates = "CompositePodGroup,EvictionRequestAPI,GenericWorkload,TopologyAwareWorkloadScheduling"

// setKindGates turns them on or off.
func setKindGates(t *testing.T, on bool) {
	t.Helper()
	text := strings.ReplaceAll(kindGates, ",", fmt.Sprintf("=%t,", on)) + fmt.Sprintf("=%t", on)
	if err := utilfeature.DefaultMutableFeatureGate.Set(text); err != nil {
		t.Fatal(err)
	}
}

// SPEC: SSA-14
func TestResets(t *testing.T) {
	served, kinds := map[place]bool{}, map[schema.GroupResource][]schema.GroupVersionKind{}
	resets := map[place]map[string]merge.Set{}
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		if slices.Contains(elsewhere, r.Group) {
			continue
		}
		gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
		kinds[gvr.GroupResource()] = append(kinds[gvr.GroupResource()], gvr.GroupVersion().WithKind(r.Kind))
		served[place{gvr, ""}], resets[place{gvr, ""}] = true, r.Resets
		for _, s := range r.Subresources {
			served[place{gvr, s.Name}], resets[place{gvr, s.Name}] = true, s.Resets
		}
	}
	ever := map[schema.GroupResource][]schema.GroupVersion{} // versions that this release serves, or an earlier one
	for minor := features.Oldest.Minor; minor <= features.Current.Emulated.Minor; minor++ {
		release := features.Versions{Emulated: features.Release{Major: 1, Minor: minor}}
		for _, r := range builtin.Resources(builtin.Config{Versions: release}.Every()) {
			of := schema.GroupResource{Group: r.Group, Resource: r.Name}
			ever[of] = append(ever[of], schema.GroupVersion{Group: r.Group, Version: r.Version})
		}
	}
	vectors, upstream := vectorsByKind(t), resetsOf(t)
	for e := range served {
		_, known := upstream[e]
		if e.Resource == "serviceaccounts" && e.subresource == "token" {
			known = !known // the reference has it only with a signing key, which it does not have here
		}
		if !known {
			t.Errorf("%v: not an endpoint of the reference", e)
		}
	}
	compared := 0
	for e, theirs := range upstream {
		if !served[e] {
			t.Errorf("%v: not served", e)
			continue
		}
		ours := resets[e]
		for _, gvk := range kinds[e.GroupResource()] {
			apiVersion := gvk.GroupVersion().String()
			our, filtered := ours[apiVersion]
			if their := theirs[fieldpath.APIVersion(apiVersion)]; filtered != (their != nil) {
				t.Errorf("%v, in %s: filtered here: %v; upstream: %v", e, apiVersion, filtered, their != nil)
			} else if filtered {
				compared++
				compareFilters(t, e.String(), gvk, vectors[gvk], our, their)
			}
		}
		for apiVersion := range ours {
			version, err := schema.ParseGroupVersion(apiVersion)
			if err != nil || !slices.Contains(ever[e.GroupResource()], version) {
				t.Errorf("%v: nothing is served in %s", e, apiVersion)
			}
		}
	}
	t.Logf("%d endpoints, %d filters", len(upstream), compared)
	if len(upstream) < 100 || compared < 60 {
		t.Errorf("only %d endpoints and %d filters were compared", len(upstream), compared)
	}
}

// compareFilters runs both filters on the set of all of a vector's fields, and on parts of it.
func compareFilters(t *testing.T, name string, gvk schema.GroupVersionKind, vector document, ours merge.Set,
	theirs fieldpath.Filter) {
	t.Helper()
	if vector == nil {
		t.Errorf("no vector of %v", gvk)
		return
	}
	for round := range 1 + *objects/10 { // no filter looks deep into an object
		h := fnv.New64a()
		fmt.Fprint(h, name, gvk, round)
		m := &mutator{rand.New(rand.NewPCG(h.Sum64(), *seed)), 0.1}
		doc, hidden := vector, 0.3
		if round == 0 {
			hidden = 0
		} else {
			doc = m.mapping(vector)
		}
		text, err := json.Marshal(fieldsOf(doc, m.rng, hidden))
		if err != nil {
			t.Fatal(err)
		}
		before := &fieldpath.Set{}
		if err := before.FromJSON(bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		filtered, err := theirs.Filter(before).ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		got, want := setOf(t, text).MinusAll(ours), setOf(t, filtered)
		if !got.Equal(want) {
			t.Errorf("%s, in %v, round %d: owned here alone:\n%v\nupstream alone:\n%v", name, gvk, round, got.Minus(want),
				want.Minus(got))
			return
		}
	}
}

// fieldsOf returns a set of paths of a value, in the form of managedFields. A path with others below it is left out
// with the probability hidden; those below it stay.
func fieldsOf(value any, rng *rand.Rand, hidden float64) document {
	out := document{}
	add := func(element string, value any) {
		below := fieldsOf(value, rng, hidden)
		// A path with nothing below it is in the set in either form, {} and {".":{}}.
		if len(below) > 0 && rng.Float64() >= hidden {
			below["."] = document{}
		}
		out[element] = below
	}
	switch v := value.(type) {
	case document:
		for _, name := range sorted(v) {
			add("f:"+name, v[name])
		}
	case []any:
		for i, item := range v {
			if fields, is := item.(document); is && fields["name"] != nil {
				keys, _ := json.Marshal(document{"name": fields["name"]})
				add("k:"+string(keys), item)
			} else {
				add(fmt.Sprintf("i:%d", i), item)
			}
		}
	}
	return out
}

func setOf(t *testing.T, text []byte) merge.Set {
	t.Helper()
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	set, err := merge.ParseFieldsV1(parsed.Value)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return set
}

// The reference has filters for two subresources of Pods that its storage does not pass on. When it does, this test
// fails, and the table has to be adapted.
//
// SPEC: SSA-14
func TestResetsNotHandedOn(t *testing.T) {
	upstream := resetsOf(t)
	for subresource, strategy := range map[string]rest.RESTUpdateStrategy{
		"ephemeralcontainers": pod.EphemeralContainersStrategy, "resize": pod.ResizeStrategy,
	} {
		if _, has := strategy.(rest.ResetFieldsFilterStrategy); !has {
			t.Errorf("the strategy of %s has no filter", subresource)
		}
		at := place{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, subresource}
		if got, known := upstream[at]; !known || len(got) > 0 {
			t.Errorf("%v: %d filters; served: %v", at, len(got), known)
		}
	}
}

// resetsOf gets the filters from the storage of each endpoint of upstream, as the installer of the API server does.
func resetsOf(t *testing.T) map[place]filters {
	t.Helper()
	config, client := apiServer(t)
	providers, err := config.Complete().StorageProviders(client)
	if err != nil {
		t.Fatal(err)
	}
	setKindGates(t, true)
	defer setKindGates(t, false)
	all := map[place]filters{}
	for _, p := range providers {
		group, err := p.NewRESTStorage(everyVersion(), withoutStorage{})
		if err != nil {
			t.Fatalf("%s: %v", p.GroupName(), err)
		}
		for version, storages := range group.VersionedResourcesStorageMap {
			for path, storage := range storages {
				t.Cleanup(storage.Destroy)
				if removed(t, p.GroupName(), version, storage) {
					continue
				}
				resource, subresource, _ := strings.Cut(path, "/")
				e := place{schema.GroupVersionResource{Group: p.GroupName(), Version: version, Resource: resource}, subresource}
				all[e] = filters{}
				switch s := storage.(type) {
				case rest.ResetFieldsStrategy:
					all[e] = fieldpath.NewExcludeFilterSetMap(s.GetResetFields())
				case rest.ResetFieldsFilterStrategy:
					all[e] = s.GetResetFieldsFilter()
				}
			}
		}
	}
	return all
}

// removed says whether the API server leaves an endpoint out because its version is gone in this release.
func removed(t *testing.T, group, version string, storage rest.Storage) bool {
	t.Helper()
	gv := schema.GroupVersion{Group: group, Version: version}
	if kind, of := storage.(rest.GroupVersionKindProvider); of {
		gv = kind.GroupVersionKind(gv).GroupVersion()
	}
	typed, err := legacyscheme.Scheme.ConvertToVersion(storage.New(), gv)
	if err != nil {
		t.Fatal(err)
	}
	of, known := typed.(interface{ APILifecycleRemoved() (major, minor int) })
	if !known {
		return false
	}
	major, minor := of.APILifecycleRemoved()
	return fmt.Sprintf("%d.%d", major, minor) <= builtin.Release // both have two digits after the point
}

// everyVersion turns on all versions that upstream can serve.
func everyVersion() *serverstorage.ResourceConfig {
	config := controlplane.DefaultAPIResourceConfigSource()
	for version := range config.GroupVersionConfigs {
		config.EnableVersions(version)
	}
	return config
}

// apiServer returns the configuration of an API server without a store. The storage of Services needs a client, but no
// responses.
func apiServer(t *testing.T) (*controlplane.Config, *kubernetes.Clientset) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, call grpc.ServerStream) error {
		<-call.Context().Done()
		return call.Context().Err()
	}))
	go silent.Serve(listener)
	t.Cleanup(silent.Stop)

	g := genericapiserver.NewConfig(legacyscheme.Codecs)
	g.EffectiveVersion = compatibility.DefaultKubeEffectiveVersionForTest()
	g.RESTOptionsGetter = withoutStorage{}
	g.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	g.LoopbackClientConfig = &restclient.Config{}
	g.PublicAddress = net.IPv4(192, 0, 2, 1)
	g.SecureServing = &genericapiserver.SecureServingInfo{Listener: listener}
	namer := openapinamer.NewDefinitionNamer(legacyscheme.Scheme)
	g.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)

	client, err := kubernetes.NewForConfig(g.LoopbackClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	encoding := kubeapiserver.NewStorageFactoryConfig()
	encoding.DefaultResourceEncoding.SetEffectiveVersion(g.EffectiveVersion)
	connected := storagebackend.Config{
		Transport: storagebackend.TransportConfig{ServerList: []string{listener.Addr().String()}},
	}
	c := &controlplane.Config{}
	c.ControlPlane.Generic = g
	c.ControlPlane.APIResourceConfigSource = controlplane.DefaultAPIResourceConfigSource()
	c.ControlPlane.StorageFactory = serverstorage.NewDefaultStorageFactory(connected, runtime.ContentTypeJSON,
		encoding.Serializer, encoding.DefaultResourceEncoding, c.ControlPlane.APIResourceConfigSource, nil)
	c.ControlPlane.VersionedInformers = informers.NewSharedInformerFactory(client, 0)
	c.EndpointReconcilerType = reconcilers.NoneEndpointReconcilerType
	return c, client
}

// withoutStorage makes it possible to create storage objects without a store.
type withoutStorage struct{}

// GetRESTOptions is called for each resource.
func (withoutStorage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{},
		ResourcePrefix: resource.String(),
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object,
			func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface,
			factory.DestroyFunc, error) {
			return nil, func() {}, nil
		},
	}, nil
}
