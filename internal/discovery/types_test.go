package discovery

import (
	"testing"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/schema"
)

// referenceResources are the types of the reference, including those that this server does not serve yet, as recorded,
// with the schemas of the built-in types.
func referenceResources(t testing.TB) []*engine.Resource {
	type kind struct{ group, version, kind string }
	schemas := map[kind]func() *schema.Type{
		{"", "v1", "Binding"}:                           gotypes.Of[core.Binding],
		{"policy", "v1", "Eviction"}:                    gotypes.Of[policy.Eviction],
		{"authentication.k8s.io", "v1", "TokenRequest"}: gotypes.Of[authentication.TokenRequest],
	}
	served := map[kind]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		served[kind{r.Group, r.Version, r.Kind}] = r
		schemas[kind{r.Group, r.Version, r.Kind}] = r.Schema
		for _, s := range r.Subresources {
			if s.Schema != nil {
				schemas[kind{s.Group, s.Version, s.Kind}] = s.Schema
			}
		}
	}
	all := recordedResources(t)
	for _, r := range all {
		r.Schema = schemas[kind{r.Group, r.Version, r.Kind}]
		if r.Schema == nil {
			t.Fatalf("no schema for %s", r.Kind)
		}
		if ours := served[kind{r.Group, r.Version, r.Kind}]; ours != nil {
			r.DeleteReturnsObject, r.DeleteDocumentedAsStatus = ours.DeleteReturnsObject, ours.DeleteDocumentedAsStatus
		}
		r.Model = r.Schema().Name
		for _, s := range r.Subresources {
			if s.Kind != r.Kind {
				if s.Schema = schemas[kind{s.Group, s.Version, s.Kind}]; s.Schema != nil {
					s.Model = s.Schema().Name
				}
			}
		}
	}
	return all
}
