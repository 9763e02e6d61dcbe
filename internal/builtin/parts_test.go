package builtin

import (
	"context"
	"maps"
	"slices"
	"testing"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// actingTypes are the types of which each control plane has its own.
var actingTypes = []string{
	"clusterrolebindings", "clusterroles", "componentstatuses", "customresourcedefinitions", "ipaddresses",
	"localsubjectaccessreviews", "resourceclaims", "resourceclaimtemplates", "resourcequotas", "rolebindings", "roles",
	"selfsubjectaccessreviews", "selfsubjectrulesreviews", "serviceaccounts", "services", "subjectaccessreviews",
	"tokenreviews",
}

// Control planes share all types but those that act through their parts, and each of these acts through its own.
//
// SPEC: BEY-9 BEY-10
func TestTypesAreShared(t *testing.T) {
	types, asked := New(Config{}), ""
	authenticate := func(plane string) Authenticate {
		return func(context.Context, string, []string) (access.Identity, bool, error) {
			asked += plane
			return access.Identity{}, false, nil
		}
	}
	first := types.For(Parts{Authenticate: authenticate("a"), NoTokens: true})
	second := types.For(Parts{Authenticate: authenticate("b")})
	own := map[string]bool{}
	for i, a := range first {
		b := second[i]
		if a.Name != b.Name || a.Version != b.Version || a.Stored != b.Stored || a.Served != b.Served {
			t.Errorf("%s.%s and %s.%s are at one place", a.Name, a.Version, b.Name, b.Version)
		}
		if a != b {
			own[a.Name] = true
		}
		switch a.Name {
		case "tokenreviews":
			review := object.Fields("spec", object.Fields("token", object.StringOf("x")))
			for _, r := range []*engine.Resource{a, b} {
				if _, err := r.Answer(t.Context(), &engine.Request{}, review); err != nil {
					t.Error(err)
				}
			}
		case "serviceaccounts":
			if a.Subresource("token") != nil || b.Subresource("token") == nil {
				t.Error("tokens are served where they are not to be, or nowhere")
			}
		case "services":
			if a.Allocate == nil || b.Allocate == nil || types.served[i].Allocate != nil {
				t.Error("Services get no addresses, or all from one allocator")
			}
		}
	}
	if asked != "ab" {
		t.Errorf("tokens are asked about at %q", asked)
	}
	// The server itself writes Services that are not served.
	serves := func(_, _, resource string, _ bool) bool { return resource != "services" }
	for _, r := range Resources(Config{Serves: serves}) {
		if r.Name == "services" {
			t.Error("Services are served")
		}
	}
	if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, actingTypes) {
		t.Errorf("each has its own\n%q, want\n%q", got, actingTypes)
	}
}
