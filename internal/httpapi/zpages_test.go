package httpapi

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func zpages(c *Config) {
	c.Statusz = &Statusz{Started: time.Now().Add(-3*time.Hour - 5*time.Second), GoVersion: "go1.26.0",
		BinaryVersion: "1.37.1", Emulation: "1.37"}
	c.Flagz = map[string]string{"secure-port": "6443", "bind-address": "127.0.0.1"}
}

// SPEC: RUN-3, MED-1
func TestZPages(t *testing.T) {
	const beta, alpha = ";v=v1beta1;g=config.k8s.io;as=", ";v=v1alpha1;g=config.k8s.io;as="
	s := newServer(t, zpages)
	for _, c := range []struct {
		path, accept string
		code         int
		mediaType    string
		body         string // a regular expression
	}{
		{"/statusz", "", 200, "text/plain; charset=utf-8",
			`^\napiserver statusz\nWarning: .*\n\nStarted[:= ]+\w.*\nUp[:= ]+3 hr 00 min 0[5-9] sec\nGo version[:= ]+go1.26.0\nBinary version[:= ]+1.37.1\nEmulation version[:= ]+1.37\nPaths[:= ]+/flagz /healthz /livez /readyz /statusz /version\n$`},
		{"/statusz", "*/*", 200, "text/plain; charset=utf-8", `statusz`},
		{"/statusz", "application/xml, text/*", 200, "text/plain; charset=utf-8", `statusz`},
		{"/statusz", "text/plain", 200, "text/plain; charset=utf-8", `statusz`},
		{"/statusz", "application/json" + beta + "Statusz", 200, "application/json;g=config.k8s.io;v=v1beta1;as=KIND",
			`^{"apiVersion":"config.k8s.io/v1beta1","kind":"Statusz","metadata":{"name":"apiserver"},"binaryVersion":"1.37.1","emulationVersion":"1.37","goVersion":"go1.26.0","paths":\["/flagz","/healthz","/livez","/readyz","/statusz","/version"\],"startTime":"20[^"]+Z","uptimeSeconds":1080[5-9]}\n$`},
		{"/statusz", "application/yaml" + alpha + "Statusz", 200, "application/yaml;g=config.k8s.io;v=v1alpha1;as=KIND",
			"(?m)^apiVersion: config.k8s.io/v1alpha1$"},
		{"/statusz", "application/cbor" + beta + "Statusz", 200, "application/cbor;g=config.k8s.io;v=v1beta1;as=KIND",
			"Statusz"},
		{"/statusz", "application/*" + beta + "Statusz", 200, "application/json;g=config.k8s.io;v=v1beta1;as=KIND",
			"Statusz"},
		{"/statusz", "application/json, text/plain;q=0.1", 200, "text/plain; charset=utf-8", `statusz`},
		{"/statusz", "application/json", 406, "application/json",
			"only the following media types are accepted: application/json, application/yaml, text/plain, application/cbor"},
		{"/statusz", "application/json" + beta + "Flagz", 406, "application/json", "only the following"},
		{"/statusz", "text/plain" + beta + "Statusz", 406, "application/json", "only the following"},
		{"/statusz", "application/vnd.kubernetes.protobuf" + beta + "Statusz", 406, "", "only the following"},
		{"/statusz", "application/json;v=v1;g=config.k8s.io;as=Statusz", 406, "application/json", "only the following"},
		{"/flagz", "", 200, "text/plain; charset=utf-8",
			`^\napiserver flagz\nWarning: .*\nbind-address[:= ]+127.0.0.1\nsecure-port[:= ]+6443\n$`},
		{"/flagz", "application/json" + beta + "Flagz", 200, "application/json;g=config.k8s.io;v=v1beta1;as=KIND",
			`^{"apiVersion":"config.k8s.io/v1beta1","kind":"Flagz","metadata":{"name":"apiserver"},"flags":{"bind-address":"127.0.0.1","secure-port":"6443"}}\n$`},
		{"/", "", 200, "application/json", `"/flagz",[^]]*"/statusz",`},
		{"/statusz/x", "", 404, "", "404"},
	} {
		got := s.do("GET", c.path, "", "Accept", c.accept)
		kind := map[string]string{"/statusz": "Statusz", "/flagz": "Flagz"}[c.path]
		c.mediaType = strings.ReplaceAll(c.mediaType, "KIND", kind)
		if is := got.header.Get("Content-Type"); got.code != c.code || c.mediaType != "" && is != c.mediaType {
			t.Errorf("%s as %q: %d %s %s", c.path, c.accept, got.code, is, got.body)
			continue
		}
		body := got.body
		if !regexp.MustCompile(c.body).MatchString(body) {
			t.Errorf("%s as %q: %q, want %s", c.path, c.accept, body, c.body)
		}
		if cbor := strings.HasPrefix(body, "\xd9\xd9\xf7"); cbor != strings.HasPrefix(c.mediaType, "application/cbor") {
			t.Errorf("%s as %q: %q", c.path, c.accept, body)
		}
		old := strings.Contains(c.accept, "v1alpha1")
		if warned := got.header.Get(
			"Warning") == `299 - "This version of the statusz endpoint is deprecated. Please use a newer version."`; warned != old {
			t.Errorf("%s as %q: Warning %q", c.path, c.accept, got.header.Get("Warning"))
		}
	}
	for _, path := range []string{"/statusz", "/flagz"} {
		if got := s.do("GET", path, "", "Authorization", "Bearer jane"); got.code != 403 {
			t.Errorf("%s for a user without rights: %d", path, got.code)
		}
	}
	s = newServer(t, nil)
	for _, path := range []string{"/statusz", "/flagz"} {
		if got := s.do("GET", path, ""); got.code != 404 {
			t.Errorf("%s without configuration: %d", path, got.code)
		}
	}
}
