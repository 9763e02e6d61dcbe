package authz

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// The rights that a write to the status of a ResourceClaim asks for, in order, of a user who has none of them or some.
//
// SPEC: AUTH-2
func TestPermitClaimStatus(t *testing.T) {
	const (
		node    = `"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}`
		binding = "update resourceclaims/binding  "
		anyA    = "arbitrary-node:update resourceclaims/driver default a.io"
		ownA    = "associated-node:update resourceclaims/driver default a.io"
		anyB    = "arbitrary-node:update resourceclaims/driver default b.io"
	)
	account := access.User{Name: "system:serviceaccount:default:s",
		Extra: map[string][]string{access.NodeName: {"n1"}}}
	other := account
	other.Extra = map[string][]string{access.NodeName: {"n2"}}
	named := account
	named.Name = "s" // not a ServiceAccount
	devices := func(texts ...string) string {
		text := `"allocation":{` + node + `}`
		for i, d := range texts {
			text += map[bool]string{true: `,"devices":[`, false: ","}[i == 0] + d
		}
		if len(texts) > 0 {
			text += "]"
		}
		return `{"status":{` + text + `}}`
	}
	const a, b = `{"driver":"a.io","pool":"p","device":"d"}`, `{"driver":"b.io","pool":"p","device":"d"}`
	const shared = `{"driver":"a.io","pool":"p","device":"d","shareID":"s"}`
	for _, c := range []struct {
		name     string
		user     access.User
		old, obj string
		has      []string
		asked    []string
		refused  int
	}{
		{"nothing changes", account, devices(a), devices(a), nil, nil, 0},
		{"allocation", account, `{}`, devices(), nil, []string{binding}, 1},
		{"allocation, permitted", account, `{}`, devices(), []string{binding}, []string{binding}, 0},
		{"reservedFor", account, `{}`, `{"status":{"reservedFor":[{"name":"p"}]}}`, nil, []string{binding}, 1},
		{"a new device", account, devices(), devices(a), nil, []string{ownA, anyA}, 1},
		{"a new device on the node", account, devices(), devices(a), []string{ownA}, []string{ownA}, 0},
		{"a new device anywhere", account, devices(), devices(a), []string{anyA}, []string{ownA, anyA}, 0},
		{"of another node", other, devices(), devices(a), []string{ownA}, []string{anyA}, 1},
		{"no ServiceAccount", named, devices(), devices(a), []string{ownA}, []string{anyA}, 1},
		{"a changed, a removed and an equal device", other, devices(a, b), devices(shared, a), nil,
			[]string{anyA, anyB}, 2},
		{"without allocation", account, `{}`, `{"status":{"devices":[` + a + `]}}`, nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			rq := &engine.Request{
				Resource: &engine.Resource{Naming: engine.Naming{
					Group: "resource.k8s.io", Version: "v1", Name: "resourceclaims"}},
				Namespace: "default", Name: "c", User: c.user, Verb: "update",
				Authorizer: access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (
					access.Decision, string, error) {
					text := fmt.Sprintf("%s %s/%s %s %s", a.Verb, a.Resource, a.Subresource, a.Namespace, a.Name)
					asked = append(asked, text)
					if slices.Contains(c.has, text) {
						return access.Allow, "", nil
					}
					return access.NoOpinion, "", nil
				}),
			}
			var values [2]object.Value
			for i, text := range []string{c.obj, c.old} {
				parsed, err := object.ParseJSON([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				values[i] = parsed.Value
			}
			errs := PermitClaimStatus(t.Context(), rq, values[0], values[1])
			if !slices.Equal(asked, c.asked) || len(errs) != c.refused {
				t.Errorf("asked for %q, want %q; refused: %v, want %d", asked, c.asked, errs, c.refused)
			}
		})
	}
}
