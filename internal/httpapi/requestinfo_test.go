package httpapi

import (
	"net/url"
	"strings"
	"testing"
)

// SPEC: URI-2, URI-6
func TestParseRequestInfo(t *testing.T) {
	for _, c := range []struct {
		method, url string
		want        requestInfo
	}{
		{"GET", "/", requestInfo{verb: "get"}},
		{"GET", "/healthz", requestInfo{verb: "get"}},
		{"GET", "/api", requestInfo{verb: "get"}},
		{"GET", "/api/v1", requestInfo{verb: "get"}},
		{"GET", "/api/v1/", requestInfo{verb: "get"}},
		{"POST", "/apis/apps/v1", requestInfo{verb: "post"}},
		{"GET", "/apix/v1/pods", requestInfo{verb: "get"}},
		{"GET", "/api/v1/pods", requestInfo{verb: "list", resource: "pods"}},
		{"GET", "/api/v1/pods/", requestInfo{verb: "list", resource: "pods"}},
		{"HEAD", "/api/v1/pods", requestInfo{verb: "list", resource: "pods"}},
		{"GET", "/api/v1/pods?watch", requestInfo{verb: "watch", resource: "pods"}},
		{"GET", "/api/v1/pods?watch=true", requestInfo{verb: "watch", resource: "pods"}},
		{"GET", "/api/v1/pods?watch=0", requestInfo{verb: "list", resource: "pods"}},
		{"GET", "/api/v1/pods?watch=False", requestInfo{verb: "list", resource: "pods"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", requestInfo{verb: "list", resource: "pods", name: "x"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx&watch=1",
			requestInfo{verb: "watch", resource: "pods", name: "x"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%21%3Dx", requestInfo{verb: "list", resource: "pods"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Da%2Fb", requestInfo{verb: "list", resource: "pods"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name", requestInfo{verb: "list", resource: "pods"}},
		{"DELETE", "/api/v1/pods?fieldSelector=metadata.name%3Dx", requestInfo{verb: "deletecollection", resource: "pods"}},
		{"POST", "/apis/apps/v1/namespaces/ns/deployments", requestInfo{verb: "create", group: "apps", namespace: "ns",
			scoped: true, resource: "deployments"}},
		{"GET", "/apis/apps/v1/namespaces/ns/deployments/d", requestInfo{verb: "get", group: "apps", namespace: "ns",
			scoped: true, resource: "deployments", name: "d"}},
		{"GET", "/apis/apps/v1/namespaces/ns/deployments/d?watch=1", requestInfo{verb: "get", group: "apps", namespace: "ns",
			scoped: true, resource: "deployments", name: "d"}},
		{"PUT", "/apis/apps/v1/namespaces/ns/deployments/d/scale", requestInfo{verb: "update", group: "apps", namespace: "ns",
			scoped: true, resource: "deployments", name: "d", subresource: "scale"}},
		{"GET", "/api/v1/namespaces", requestInfo{verb: "list", resource: "namespaces"}},
		{"GET", "/api/v1/namespaces/ns", requestInfo{verb: "get", namespace: "ns", resource: "namespaces", name: "ns"}},
		{"DELETE", "/api/v1/namespaces/ns", requestInfo{verb: "delete", namespace: "ns", resource: "namespaces", name: "ns"}},
		{"PUT", "/api/v1/namespaces/ns/finalize", requestInfo{verb: "update", namespace: "ns", resource: "namespaces",
			name: "ns", subresource: "finalize"}},
		{"PATCH", "/api/v1/namespaces/ns/status", requestInfo{verb: "patch", namespace: "ns", resource: "namespaces",
			name: "ns", subresource: "status"}},
		{"DELETE", "/api/v1/namespaces/ns/pods", requestInfo{verb: "deletecollection", namespace: "ns", scoped: true,
			resource: "pods"}},
		{"GET", "/api/v1/namespaces/ns/namespaces", requestInfo{verb: "list", namespace: "ns", scoped: true,
			resource: "namespaces"}},
		{"GET", "/api/v1/watch/pods", requestInfo{verb: "watch", watchPath: true, resource: "pods"}},
		{"GET", "/api/v1/watch/namespaces/ns", requestInfo{verb: "watch", watchPath: true, namespace: "ns",
			resource: "namespaces", name: "ns"}},
		{"GET", "/api/v1/watch/namespaces/ns/pods/p", requestInfo{verb: "watch", watchPath: true, namespace: "ns",
			scoped: true, resource: "pods", name: "p"}},
		{"GET", "/api/v1/watch", requestInfo{verb: "list", resource: "watch"}},
		{"GET", "/api/v1/proxy/namespaces/ns/services/s", requestInfo{verb: "proxy", namespace: "ns", scoped: true,
			resource: "services", name: "s"}},
		{"POST", "/api/v1/namespaces/ns/pods/p/proxy/a/b/c", requestInfo{verb: "create", namespace: "ns", scoped: true,
			resource: "pods", name: "p", subresource: "proxy", rest: "a/b/c"}},
		{"OPTIONS", "/api/v1/pods", requestInfo{verb: "", resource: "pods"}},
		{"GET", "/api/v1//namespaces/ns/pods", requestInfo{verb: "get", resource: "", name: "namespaces", subresource: "ns",
			rest: "pods"}},
		{"GET", "/api/v1/namespaces/ns/pods/../pods", requestInfo{verb: "get", namespace: "ns", scoped: true,
			resource: "pods", name: "..", subresource: "pods"}},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		c.want.path = u.Path
		if c.want.resource != "" || c.want.name != "" {
			c.want.isResource, c.want.version = true, "v1"
		}
		if got := parseRequestInfo(c.method, u.Path, u.Query); got != c.want {
			t.Errorf("%s %s:\n got %+v\nwant %+v", c.method, c.url, got, c.want)
		}
	}
}

func TestClass(t *testing.T) {
	for request, want := range map[string]Class{
		"GET /api/v1/pods": ReadOnly, "GET /api/v1/pods?watch=1": LongRunning, "POST /api/v1/namespaces/a/pods": Mutating,
		"GET /api/v1/namespaces/a/pods/b/log": LongRunning, "POST /api/v1/namespaces/a/pods/b/exec": LongRunning,
		"GET /healthz": ReadOnly, "POST /healthz": Mutating, "DELETE /api/v1/pods": Mutating, "GET /exec": ReadOnly,
	} {
		method, rest, _ := strings.Cut(request, " ")
		u, err := url.Parse(rest)
		if err != nil {
			t.Fatal(err)
		}
		info := parseRequestInfo(method, u.Path, u.Query)
		if got := info.class(); got != want {
			t.Errorf("%s has class %s", request, got)
		}
	}
}

// For every path, the fields are parts of it, in its order, and no input panics.
func FuzzParseRequestInfo(f *testing.F) {
	f.Add("GET", "/apis/apps/v1/namespaces/ns/deployments/d/scale", "watch=1")
	f.Add("GET", "/api/v1/watch/namespaces/ns/pods", "fieldSelector=metadata.name=x")
	f.Add("DELETE", "//api//v1//x///", "%zz")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		values := func() url.Values { return (&url.URL{RawQuery: query}).Query() }
		got := parseRequestInfo(method, path, values)
		if !got.isResource {
			if got.resource != "" || got.name != "" || got.namespace != "" {
				t.Errorf("%q is not a resource, but has %+v", path, got)
			}
			return
		}
		at := 0
		for _, part := range []string{got.group, got.version, got.resource, got.subresource, got.rest} {
			i := strings.Index(path[at:], part)
			if i < 0 {
				t.Fatalf("%q is not behind offset %d of %q: %+v", part, at, path, got)
			}
			at += i + len(part)
		}
		if strings.Contains(got.resource+got.subresource+got.group+got.version+got.namespace, "/") {
			t.Errorf("a part of %q spans segments: %+v", path, got)
		}
	})
}
