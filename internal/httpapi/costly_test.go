package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

// What the aliases of a body expand to counts as if it had been sent, wherever YAML is read.
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
		if a := s.do(c.method, c.path, text(c.name, 50), "Content-Type", c.mediaType); a.code != 413 || a.message() != "Request entity too large: limit is 3145728" {
			t.Errorf("%s of 5 MB: %d %s", c.method, a.code, a.message())
		}
		if a := s.do(c.method, c.path, text(c.name, 20), "Content-Type", c.mediaType); a.code == 413 {
			t.Errorf("%s of 2 MB: %d %s", c.method, a.code, a.message())
		}
	}
}
