package discovery

import (
	"net/http"
	"strings"
	"testing"

	"plinth/internal/apierr"
)

const (
	refusedByName = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
	refused       = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
)

// The responses are those of the reference to the same header: the media type, or the message of its 406.
//
// SPEC: URI-8
func TestAccept(t *testing.T) {
	d := newDocuments(recordedResources(t))
	cases := []struct{ path, accept, want string }{
		{"/api", "", mediaJSON},
		{"/api", "*/*", mediaJSON},
		{"/api", "application/yaml", mediaYAML},
		{"/api", "application/vnd.kubernetes.protobuf", mediaProtobuf},
		{"/api", "application/json;charset=utf-8", mediaJSON},
		{"/api", "application/json;pretty=1", mediaJSON},
		{"/api", "application/json;q=0.5,text/html", mediaJSON},
		{"/api", "text/html", refusedByName},
		{"/api", "application/cbor", mediaCBOR},
		{"/api", "application/*", refusedByName},
		{"/api", "text/*", refusedByName},
		{"/api", "bla", refusedByName},
		{"/api", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", refused},
		{"/api", "application/json;as=Table;g=meta.k8s.io;v=v1", refused},
		{"/api", aggregatedJSON, aggregatedJSON},
		{"/api", "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io;profile=nopeer", aggregatedJSON},
		{"/api", mediaYAML + aggregatedParams, mediaYAML + aggregatedParams},
		{"/api", mediaProtobuf + aggregatedParams, mediaProtobuf + aggregatedParams},

		{"/apis", "", mediaJSON},
		{"/apis", "application/*", mediaJSON},
		{"/apis", "application/yaml", mediaYAML},
		{"/apis", "text/html", refused},
		{"/apis", "text/*", refused},
		{"/apis", "bla", refused},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList", refused},
		{"/apis", "text/html, application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json",
			mediaJSON},
		{"/apis", aggregatedJSON + "," + mediaJSON, aggregatedJSON},
		{"/apis", mediaJSON + "," + aggregatedJSON, mediaJSON},
		{"/apis", mediaJSON + ";q=0.5," + aggregatedJSON, aggregatedJSON},

		{"/api/v1", "text/html", refusedByName},
		{"/api/v1", "application/*", refusedByName},
		{"/api/v1", "application/json;q=0", mediaJSON},
		{"/api/v1", "application/json;stream=watch", mediaJSON},
		{"/api/v1", aggregatedJSON, refused},
		{"/apis/apps", "text/html", refused},
		{"/apis/apps", "application/*", mediaJSON},
		{"/apis/apps", aggregatedJSON, refused},
		{"/apis/apps/v1", "application/yaml", mediaYAML},
		{"/apis/apps/v1", "application/cbor", mediaCBOR},

		{"/version", "", mediaJSON},
		{"/version", "application/json;q=0", mediaJSON},
		{"/version", aggregatedJSON, mediaJSON},
		{"/version", "application/yaml", "406: Not Acceptable\n\nAvailable representations: application/json"},

		{"/openapi/v3", "text/html", mediaJSON},
		{"/openapi/v3/api", "application/*", mediaJSON},
		{"/openapi/v3/api", "application/json;q=0", mediaJSON},
		{"/openapi/v3/api", aggregatedJSON, mediaJSON},
		// The reference answers these two with 406 and no body.
		{"/openapi/v3/api", "text/html", "only the following media types are accepted: application/json"},
		{"/openapi/v2", "application/yaml", "only the following media types are accepted: application/json, " +
			mediaOpenAPI2},
	}
	for _, c := range cases {
		doc, ok, err := d.Get(c.path, c.accept)
		if !ok {
			t.Errorf("%s: not served", c.path)
			continue
		}
		var got string
		if err != nil {
			wire := apierr.From(err)
			if got = wire.Message; wire.Code != http.StatusNotAcceptable || wire.Reason != apierr.NotAcceptable {
				t.Errorf("%s %q: %d %s", c.path, c.accept, wire.Code, wire.Reason)
			}
			if hasDetails := wire.Details != nil; hasDetails != strings.HasPrefix(got, "406") {
				t.Errorf("%s %q: details: %v", c.path, c.accept, hasDetails)
			}
		} else {
			got = doc.MediaType
		}
		if got != c.want {
			t.Errorf("%s %q: %q, want %q", c.path, c.accept, got, c.want)
		}
	}
}

// SPEC: URI-8
func TestPathsThatAreNotServed(t *testing.T) {
	d := newDocuments(recordedResources(t))
	for path, want := range map[string]bool{
		"/api": true, "/api/": true, "/apis": true, "/apis/": true, "/apis/apps": true, "/apis/apps/": true,
		"/apis/apps/v1": true, "/apis/apps/v1/": true, "/api/v1": true, "/api/v1/": true, "/version": true, "/version/": true,
		"/openapi/v2": true, "/openapi/v3": true, "/openapi/v3/version": true, "/openapi/v3/apis/apps": true,

		"": false, "/": false, "//apis": false, "api": false, "/apix": false, "/api//": false, "/apis//": false,
		"/apis//v1":  false,
		"/apis/nope": false, "/apis/nope/v1": false, "/apis/apps/v9": false, "/api/v2": false, "/api/v1/pods": false,
		"/apis/apps/v1/deployments": false, "/version/x": false, "/openapi": false, "/openapi/": false, "/openapi/v2/": false,
		"/openapi/v3/": false, "/openapi/v3/apis/apps/v1/": false, "/openapi/v3/apis/nope/v1": false, "/openapi/v4": false,
	} {
		if _, ok, err := d.Get(path, ""); ok != want || err != nil {
			t.Errorf("%q: %v %v, want %v", path, ok, err, want)
		}
	}
}

// SPEC: URI-8
func FuzzGet(f *testing.F) {
	d := newDocuments(recordedResources(f))
	for _, path := range []string{"/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version", "/apis//",
		"/openapi/v3/apis/apps/v1"} {
		for _, accept := range []string{"", "*/*", aggregatedJSON, "a/b;q=1e9", ";;,=/",
			"application/json;q=0.1, */*;q=0.2"} {
			f.Add(path, accept)
		}
	}
	f.Fuzz(func(t *testing.T, path, accept string) {
		if strings.HasPrefix(path, "/openapi/v2") {
			return // the document is the same for all paths below, and too slow to be printed repeatedly
		}
		doc, ok, err := d.Get(path, accept)
		switch {
		case !ok && (doc != nil || err != nil):
			t.Fatalf("%q is not served, and yet %v %v", path, doc, err)
		case ok && err != nil:
			if wire := apierr.From(err); wire.Code != http.StatusNotAcceptable {
				t.Fatalf("%q %q: %v", path, accept, err)
			}
		case ok:
			if (doc.Body == nil) == (doc.Gzip == nil) {
				t.Fatalf("%q: not exactly one of Body and Gzip", path)
			}
			if doc.ETag != strings.Trim(doc.ETag, `"`) || doc.URL != "" && !strings.HasSuffix(doc.URL, doc.ETag) {
				t.Fatalf("%q: ETag %q at %q", path, doc.ETag, doc.URL)
			}
		}
	})
}
