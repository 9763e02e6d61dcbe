package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/schema"
)

const definitions = "test.example/definitions"

// widgets is the type that any object of the collection of definitions defines, served in the version that its data
// names.
func widgets(v *store.Version, _ []*engine.Resource) []*engine.Resource {
	if v == nil {
		return nil
	}
	version := string(v.Data())
	field := func(name string, typ *schema.Type) schema.Field { return schema.Field{Name: name, Type: typ} }
	text := &schema.Type{Kind: schema.String}
	metadata := &schema.Type{Kind: schema.Any}
	typ := &schema.Type{Kind: schema.Struct, Name: "com.example." + version + ".Widget", Fields: []schema.Field{
		field("apiVersion", text), field("kind", text), field("metadata", metadata), field("size", text),
	}}
	widget := &engine.Resource{
		Naming: engine.Naming{
			Group: "example.com", Version: version, Name: "widgets", Singular: "widget", Kind: "Widget",
			ListKind: "WidgetList", Namespaced: true, Verbs: []string{"create", "delete", "get", "list"},
		},
		Schema: func() *schema.Type { return typ },
		Model:  typ.Name,
	}
	return []*engine.Resource{widget.StoredAlone("example.com/widgets")}
}

// A type is served from the first request after the commit that defines it, and no longer from the first one after the
// commit that deletes it: in requests, in both forms of discovery, and in both versions of OpenAPI.
//
// SPEC: EXT-1, URI-8
func TestADefinedTypeIsServedFromItsCommitOn(t *testing.T) {
	s := newServer(t, nil)
	s.types.Define(s.store.Collection(definitions), widgets)
	commit := func(data string) {
		t.Helper()
		change := store.Change{Key: store.Key{Resource: definitions, Name: "widgets.example.com"}, Sidecar: &store.Sidecar{}}
		if data != "" {
			change.Data = []byte(data)
		}
		if _, err := s.store.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	expect := func(served string) {
		t.Helper()
		a := s.do("GET", "/apis", "", "Accept", aggregated)
		if text := `{"metadata":{"name":"example.com"}`; a.code != http.StatusOK ||
			strings.Contains(a.body, text) != (served != "") {
			t.Errorf("serving %q: aggregated discovery: %d; it lists the type: %v", served, a.code,
				strings.Contains(a.body, text))
		}
		for _, version := range []string{"v1", "v2"} {
			is := version == served
			status := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[is]
			for path, in := range map[string]string{
				"/apis":                        `"groupVersion":"example.com/` + version + `"`,
				"/openapi/v2":                  "/apis/example.com/" + version + "/namespaces/{namespace}/widgets",
				"/openapi/v3":                  "apis/example.com/" + version,
				"/":                            "/apis/example.com/" + version,
				"/apis/example.com/" + version: "widgets",
				"/openapi/v3/apis/example.com/" + version:   "com.example." + version + ".Widget",
				"/apis/example.com/" + version + "/widgets": "WidgetList",
			} {
				want := http.StatusOK
				if strings.Contains(path, "example.com") {
					want = status
				}
				if a := s.do("GET", path, ""); a.code != want || strings.Contains(a.body, in) != is {
					t.Errorf("serving %q: %s: %d, want %d; it has %s: %v", served, path, a.code, want, version,
						strings.Contains(a.body, in))
				}
			}
		}
	}
	for range 2 {
		expect("")
		commit("v1")
		expect("v1")
		s.create("/apis/example.com/v1/namespaces/default/widgets",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"size":"1"}`)
		if a := s.do("DELETE", "/apis/example.com/v1/namespaces/default/widgets/a", ""); a.code != http.StatusOK {
			t.Errorf("delete: %d %s", a.code, a.body)
		}
		commit("v2")
		expect("v2")
		commit("")
	}
	expect("")
}

// Requests for other types, and for discovery, succeed while types are defined and deleted.
func TestTypesComeAndGoUnderRequests(t *testing.T) {
	s := newServer(t, nil)
	s.types.Define(s.store.Collection(definitions), widgets)
	done := make(chan struct{})
	var wait sync.WaitGroup
	for _, path := range []string{"/api/v1/namespaces/default", "/apis", "/openapi/v3/apis/apps/v1",
		"/apis/example.com/v1/widgets"} {
		wait.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a := s.do("GET", path, "")
				if a.code != http.StatusOK && !strings.Contains(path, "widgets") || a.code >= 500 {
					t.Errorf("%s: %d %s", path, a.code, a.body)
					return
				}
			}
		})
	}
	for i := range 40 {
		change := store.Change{Key: store.Key{Resource: definitions, Name: "w"}, Sidecar: &store.Sidecar{}}
		if i%2 == 0 {
			change.Data = fmt.Appendf(nil, "v1")
		}
		if _, err := s.store.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
		a := s.do("GET", "/apis/example.com/v1/widgets", "")
		if want := []int{http.StatusOK, http.StatusNotFound}[i%2]; a.code != want {
			t.Errorf("change %d: %d, want %d", i, a.code, want)
		}
	}
	close(done)
	wait.Wait()
}
