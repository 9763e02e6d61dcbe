package authz

import (
	"testing"

	"plinth/internal/access"
)

func TestPublicPaths(t *testing.T) {
	anonymous := access.Nobody()
	master := access.User{Name: "root", Groups: []string{access.Masters}}
	for _, c := range []struct {
		user       access.User
		verb, path string
		want       bool
	}{
		{anonymous, "get", "/healthz", true},
		{anonymous, "get", "/version", true},
		{anonymous, "post", "/version", false},
		{anonymous, "get", "/metrics", false},
		{anonymous, "get", "/api", false},
		{master, "get", "/metrics", true},
	} {
		got, _, err := Of([]Mode{RBAC}).Authorize(t.Context(), &access.Attributes{User: c.user, Verb: c.verb, Path: c.path})
		if (got == access.Allow) != c.want || err != nil {
			t.Errorf("%s %s as %s: %v, %v", c.verb, c.path, c.user.Name, got, err)
		}
	}
}
