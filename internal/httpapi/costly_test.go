package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

// The expansion of the aliases in a body counts against the body limit, wherever YAML is read.
//
// SPEC: WRITE-6
func TestExpandedAliasesCountAgainstTheBodyLimit(t *testing.T) {
	s := newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"one"}}`)
	text := func(name string, aliases int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\nx: &a %s\ndata: {a: *a, b: [%s]}\n", name,
			strings.Repeat("x", 100_000), strings.Repeat("*a,", aliases))
	}
	const yaml, apply = "application/yaml", "application/apply-patch+yaml"
	for _, c := range []struct{ method, path, name, mediaType string }{
		{"POST", configMaps, "two", yaml},
		{"PUT", configMaps + "/one", "one", yaml},
		{"PATCH", configMaps + "/one?fieldManager=me", "one", apply},
		{"DELETE", configMaps + "/one", "one", yaml},
	} {
		if a := s.do(c.method, c.path, text(c.name, 50), "Content-Type", c.mediaType); a.code != 413 ||
			a.message() != "Request entity too large: limit is 3145728" {
			t.Errorf("%s of 5 MB: %d %s", c.method, a.code, a.message())
		}
		if a := s.do(c.method, c.path, text(c.name, 20), "Content-Type", c.mediaType); a.code == 413 {
			t.Errorf("%s of 2 MB: %d %s", c.method, a.code, a.message())
		}
	}
}

// The largest objects have the size that the reference accepts on etcd (measured: 1,572,495 bytes of arguments on
// create, 1,572,456 on update), minus a byte that an etcd with another member ID needs. The size is that of the
// protobuf, even if the object was sent as JSON. An object that is too large is tried again without its managedFields,
// unless it is an apply.
//
// SPEC: STORE-4
func TestLargestObjects(t *testing.T) {
	s := newServer(t, nil)
	const templates = "/api/v1/namespaces/default/podtemplates"
	body := func(name, argument string, n int) string {
		return fmt.Sprintf(
			`{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":%q},"template":{"metadata":{"labels":{"a":"b"}},`+
				`"spec":{"containers":[{"name":"c","image":"i","args":["%s"]}]}}}`, name, strings.Repeat(argument, n))
	}
	const largest, largestUpdate = 1_572_494, 1_572_456
	for _, argument := range []string{"x", `\"`} {
		a := s.do("POST", templates, body("c", argument, largest+2))
		if a.code != 413 || a.message() != "Request entity too large: the object would take 1572866 bytes, limit is 1572864" {
			t.Errorf("create with too many %s: %d %.200s", argument, a.code, a.message())
		}
		if a := s.do("POST", templates, body("c", argument, largest+1)); a.code != 413 {
			t.Errorf("create with one too many %s: %d %.200s", argument, a.code, a.message())
		}
		a = s.do("POST", templates, body("c", argument, largest))
		if a.code != 201 || strings.Contains(a.body, "managedFields") {
			t.Errorf("create with the largest number of %s: %d %.200s", argument, a.code, a.body)
		}
		s.do("DELETE", templates+"/c", "")
		a = s.do("POST", templates, body("c", argument, largest-1000))
		if a.code != 201 || !strings.Contains(a.body, "managedFields") {
			t.Errorf("create with 1000 %s less: %d %.200s", argument, a.code, a.body)
		}
		s.do("DELETE", templates+"/c", "")
	}

	s.create(templates, body("u", "x", 1))
	if a := s.do("PUT", templates+"/u", body("u", "x", largestUpdate+1)); a.code != 413 {
		t.Errorf("update with one too many: %d %.200s", a.code, a.message())
	}
	if a := s.do("PATCH", templates+"/u?fieldManager=me&force=true", body("u", "x", largestUpdate), "Content-Type",
		"application/apply-patch+yaml"); a.code != 413 {
		t.Errorf("apply without room for managedFields: %d %.200s", a.code, a.message())
	}
	if a := s.do("GET", templates+"/u", ""); len(a.body) > 10_000 {
		t.Errorf("a refused write has changed the object, which has %d bytes", len(a.body))
	}
	if a := s.do("PUT", templates+"/u", body("u", "x", largestUpdate)); a.code != 200 ||
		strings.Contains(a.body, "managedFields") {
		t.Errorf("update with the largest number: %d %.200s", a.code, a.message())
	}
}
