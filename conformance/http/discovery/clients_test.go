package discovery

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi/cached"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kubectlopenapi "k8s.io/kubectl/pkg/util/openapi"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// clients holds the clients of one server.
type clients struct {
	server    *harness.Server
	config    *rest.Config
	discovery *discovery.DiscoveryClient
}

func start(t *testing.T) *clients {
	t.Helper()
	server := harness.RunTarget(t)
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	return &clients{server: server, config: config, discovery: discovery.NewDiscoveryClientForConfigOrDie(config)}
}

// define creates the custom types whose documents internal/discovery compares with the reference's, and waits until the
// index of the server's OpenAPI documents has them.
func (c *clients) define(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../../internal/discovery/testdata/definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definitions := dynamic.NewForConfigOrDie(c.config).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	var groupVersions []string
	for _, document := range strings.Split(string(text), "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatal(err)
		}
		made, err := definitions.Create(t.Context(), obj, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec := made.Object["spec"].(map[string]any)
		for _, v := range spec["versions"].([]any) {
			if version := v.(map[string]any); version["served"].(bool) {
				groupVersions = append(groupVersions, fmt.Sprintf("apis/%s/%s", spec["group"], version["name"]))
			}
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		paths, err := c.discovery.OpenAPIV3().Paths()
		if err != nil {
			t.Fatal(err)
		}
		missing := slices.DeleteFunc(slices.Clone(groupVersions), func(gv string) bool { return paths[gv] != nil })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the server does not list %v", missing)
		}
	}
}

// isCustom says whether define has made the kind.
func isCustom(gvk schema.GroupVersionKind) bool { return strings.HasSuffix(gvk.Group, ".example.com") }

// SPEC: URI-8, EXT-1
func TestClients(t *testing.T) {
	c := start(t)
	c.define(t)
	t.Run("discovery", c.testDiscovery)
	t.Run("mapper", c.testMapper)
	t.Run("version", c.testVersion)
	t.Run("OpenAPI 2", c.testOpenAPI2)
	t.Run("OpenAPI 3", c.testOpenAPI3)
	t.Run("query parameters", c.testQueryParameters)
	t.Run("server-side apply", c.testTypeConverter)
	t.Run("kubectl", c.testKubectl)
}

// testDiscovery uses aggregated discovery and the old one: the results have to agree.
func (c *clients) testDiscovery(t *testing.T) {
	legacy := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	legacy.UseLegacyDiscovery = true
	describe := func(d *discovery.DiscoveryClient) (groups []string, resources map[string]string) {
		list, byVersion, err := d.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range list {
			words := []string{g.Name, g.PreferredVersion.GroupVersion}
			for _, v := range g.Versions {
				words = append(words, v.GroupVersion)
			}
			groups = append(groups, strings.Join(words, " "))
		}
		resources = map[string]string{}
		for _, version := range byVersion {
			for _, r := range version.APIResources {
				words := slices.Concat([]string{r.Kind, r.Group, r.Version}, r.ShortNames, r.Categories, r.Verbs)
				if !strings.Contains(r.Name, "/") { // the client gives subresources the one of their resource
					words = append(words, r.SingularName)
				}
				if r.Namespaced {
					words = append(words, "namespaced")
				}
				resources[version.GroupVersion+" "+r.Name] = strings.Join(words, " ")
			}
		}
		return groups, resources
	}
	groups, resources := describe(c.discovery)
	legacyGroups, legacyResources := describe(legacy)
	// The aggregated document omits the group and version if they are those of the URL; the client fills them in.
	for name, words := range resources {
		group, version, _ := strings.Cut(strings.Fields(name)[0], "/")
		if version == "" {
			group, version = "", group
		}
		resources[name] = strings.Replace(words, " "+group+" "+version, "  ", 1)
	}
	if !slices.Equal(groups, legacyGroups) {
		t.Errorf("groups are %q, and the old way %q", groups, legacyGroups)
	}
	for _, in := range []map[string]string{resources, legacyResources} {
		for name := range in {
			if resources[name] != legacyResources[name] {
				t.Errorf("%s is %q, and the old way %q", name, resources[name], legacyResources[name])
			}
		}
	}
	if len(resources) < 100 || len(groups) < 20 {
		t.Errorf("only %d groups, %d resources", len(groups), len(resources))
	}
	preferred, err := c.discovery.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range preferred {
		if list.GroupVersion == "autoscaling/v1" && len(list.APIResources) > 0 {
			t.Errorf("of autoscaling/v1 the preferred ones are %v", list.APIResources)
		}
	}
}

// testMapper finds the resource of every served kind that client-go knows, and resources by the names that users type.
func (c *clients) testMapper(t *testing.T) {
	groups, err := restmapper.GetAPIGroupResources(c.discovery)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), c.discovery, nil)
	for typed, want := range map[string]string{
		"po": "pods", "deploy": "deployments.apps", "svc": "services", "hpa": "horizontalpodautoscalers.autoscaling",
		"ing": "ingresses.networking.k8s.io", "pdb": "poddisruptionbudgets.policy", "sc": "storageclasses.storage.k8s.io",
		"events": "events", "job": "jobs.batch", "cm": "configmaps", "endpointslice": "endpointslices.discovery.k8s.io",
		"lease": "leases.coordination.k8s.io", "ns": "namespaces", "csr": "certificatesigningrequests.certificates.k8s.io",
	} {
		gvr, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: typed})
		if err != nil || gvr.GroupResource().String() != want {
			t.Errorf("%s is %s (%v), want %s", typed, gvr.GroupResource(), err, want)
		}
	}
	mapped := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) || strings.HasSuffix(gvk.Kind, "List") {
			continue // a version that is not served, an option
		}
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		mapped++
		if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != isNamespaced(t, groups,
			mapping.Resource) {
			t.Errorf("%s: namespaced: %v", gvk, namespaced)
		}
	}
	if mapped < 65 {
		t.Errorf("only %d kinds of client-go are mapped", mapped)
	}
}

func isNamespaced(t *testing.T, groups []*restmapper.APIGroupResources, gvr schema.GroupVersionResource) bool {
	for _, g := range groups {
		if g.Group.Name != gvr.Group {
			continue
		}
		for _, r := range g.VersionedResources[gvr.Version] {
			if r.Name == gvr.Resource {
				return r.Namespaced
			}
		}
	}
	t.Errorf("no %s", gvr)
	return false
}

func (c *clients) testVersion(t *testing.T) {
	v, err := c.discovery.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if v.Major != "1" || v.Minor != "37" || !strings.HasPrefix(v.GitVersion, "v1.37.") {
		t.Errorf("version %+v", v)
	}
}

// served lists the kinds in discovery, without those of subresources.
func (c *clients) served(t *testing.T) map[schema.GroupVersionKind]metav1.APIResource {
	t.Helper()
	_, lists, err := c.discovery.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[schema.GroupVersionKind]metav1.APIResource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				kinds[gv.WithKind(r.Kind)] = r
			}
		}
	}
	return kinds
}

// testOpenAPI2 reads the document as protobuf, which is the only form that client-go requests, and as JSON.
func (c *clients) testOpenAPI2(t *testing.T) {
	document, err := c.discovery.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.discovery.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept",
		"application/json").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := openapi_v2.ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := kubectlopenapi.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	for gvk, r := range c.served(t) {
		if resources.LookupResource(gvk) == nil {
			t.Errorf("kubectl finds no schema of %s", gvk)
		}
		patch := "application/strategic-merge-patch+json"
		if isCustom(gvk) {
			patch = "application/merge-patch+json"
		}
		if slices.Contains(r.Verbs, "patch") && !slices.Contains(resources.GetConsumes(gvk, "PATCH"), patch) {
			t.Errorf("kubectl does not know how to patch %s", gvk)
		}
	}
	compareDocuments(t, document, fromJSON)
}

// compareDocuments compares two forms of a document, and changes both. Extensions are YAML texts; those of the JSON
// form are gnostic's, which are compared as texts: clients read them as such.
func compareDocuments(t *testing.T, a, b *openapi_v2.Document) {
	t.Helper()
	paths := func(d *openapi_v2.Document) map[string]proto.Message {
		m := map[string]proto.Message{}
		for _, p := range d.GetPaths().GetPath() {
			m[p.Name] = p.Value
		}
		return m
	}
	models := func(d *openapi_v2.Document) map[string]proto.Message {
		m := map[string]proto.Message{}
		for _, p := range d.GetDefinitions().GetAdditionalProperties() {
			m[p.Name] = p.Value
		}
		return m
	}
	parameters := func(d *openapi_v2.Document) map[string]proto.Message {
		m := map[string]proto.Message{}
		for _, p := range d.GetParameters().GetAdditionalProperties() {
			m[p.Name] = p.Value
		}
		return m
	}
	for what, of := range map[string]func(*openapi_v2.Document) map[string]proto.Message{"path": paths, "model": models,
		"parameter": parameters} {
		inA, inB := of(a), of(b)
		if len(inA) == 0 || len(inA) != len(inB) {
			t.Errorf("%d and %d %ss", len(inA), len(inB), what)
		}
		for name, message := range inA {
			if other := inB[name]; other == nil {
				t.Errorf("%s %s is in one form only", what, name)
			} else if !proto.Equal(message, other) {
				t.Errorf("%s %s differs:\n%v\n%v", what, name, message, other)
			}
		}
	}
	for _, d := range []*openapi_v2.Document{a, b} {
		d.Paths, d.Definitions, d.Parameters = nil, nil, nil
	}
	if !proto.Equal(a, b) {
		t.Errorf("the rest differs:\n%v\n%v", a, b)
	}
}

// testOpenAPI3 reads every document that the index names.
func (c *clients) testOpenAPI3(t *testing.T) {
	root := openapi3.NewRoot(c.discovery.OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	kinds := c.served(t)
	described := map[schema.GroupVersionKind]bool{}
	for _, gv := range versions {
		document, err := root.GVSpec(gv)
		if err != nil {
			t.Errorf("%s: %v", gv, err)
			continue
		}
		for name, model := range document.Components.Schemas {
			for _, gvk := range kindsOf(model) {
				described[gvk] = true
			}
			each(model, func(s *spec.Schema) {
				target, isRef := strings.CutPrefix(s.Ref.String(), "#/components/schemas/")
				if isRef && document.Components.Schemas[target] == nil {
					t.Errorf("%s: %s refers to %s, which is not there", gv, name, target)
				}
			})
		}
	}
	for gvk := range kinds {
		if !described[gvk] {
			t.Errorf("no model of %s", gvk)
		}
	}
}

// testQueryParameters checks whether the server supports fieldValidation and dryRun, as kubectl does before it sends
// them.
func (c *clients) testQueryParameters(t *testing.T) {
	document, err := c.discovery.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	documents := cached.NewClient(c.discovery.OpenAPIV3())
	dynamicClient := dynamic.NewForConfigOrDie(c.config)
	for _, parameter := range []resource.VerifiableQueryParam{resource.QueryParamFieldValidation, "dryRun"} {
		for name, verifier := range map[string]resource.Verifier{
			"2": resource.NewQueryParamVerifier(dynamicClient, known{document}, parameter),
			"3": resource.NewQueryParamVerifierV3(dynamicClient, documents, parameter),
		} {
			asked := map[schema.GroupVersion]bool{}
			for gvk, r := range c.served(t) {
				if !slices.Contains(r.Verbs, "patch") || name == "3" && asked[gvk.GroupVersion()] {
					continue // version 3 is slow: it parses the whole document for every query
				}
				asked[gvk.GroupVersion()] = true
				if err := verifier.HasSupport(gvk); err != nil {
					t.Errorf("OpenAPI %s: %s of %s: %v", name, parameter, gvk, err)
				}
			}
		}
	}
}

// known is a document that has been fetched already.
type known struct{ document *openapi_v2.Document }

func (k known) OpenAPISchema() (*openapi_v2.Document, error) { return k.document, nil }

// testTypeConverter builds the types of server-side apply from the models, like controllers that use apply
// configurations.
func (c *clients) testTypeConverter(t *testing.T) {
	root := openapi3.NewRoot(c.discovery.OpenAPIV3())
	models := map[string]*spec.Schema{}
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range versions {
		document, err := root.GVSpec(gv)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(models, document.Components.Schemas)
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		t.Fatal(err)
	}
	converted := 0
	for gvk := range c.served(t) {
		obj, err := scheme.Scheme.New(gvk)
		if isCustom(gvk) {
			obj, err = &unstructured.Unstructured{}, nil
		}
		if err != nil {
			continue // a kind for which client-go has no types
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		if _, err := converter.ObjectToTyped(obj); err != nil {
			t.Errorf("%s: %v", gvk, err)
		}
		converted++
	}
	if converted < 65 {
		t.Errorf("only %d kinds were converted", converted)
	}
}
