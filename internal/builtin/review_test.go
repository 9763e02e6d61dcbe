package builtin

import (
	"context"
	"errors"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/engine"
)

// SPEC: URI-1, AUTH-2
func TestReviews(t *testing.T) {
	alice := access.User{Name: "alice", UID: "1", Groups: []string{"system:masters"},
		Extra: map[string][]string{"b": {"x"}, "a": {"y"}}}
	bob := access.User{Name: "bob"}
	all := map[string]*engine.Resource{}
	for _, r := range New(Config{Now: func() time.Time { return now }}).For(Parts{
		Authenticate: func(_ context.Context, token string, audiences []string) (access.Identity, bool, error) {
			if token != "bobs" || len(audiences) > 0 {
				return access.Identity{}, false, errors.New("invalid bearer token")
			}
			return access.Identity{User: bob, Audiences: []string{"here"}}, true, nil
		},
	}) {
		all[r.Name] = r
	}
	for _, c := range []struct {
		typ        string
		user       access.User
		sent, want string
	}{
		{
			"selfsubjectreviews", alice, `{}`,
			`{"metadata":{"creationTimestamp":"2026-02-03T04:05:06Z"},"status":{"userInfo":{"extra":{"a":["y"],"b":["x"]},"groups":["system:masters"],"uid":"1","username":"alice"}}}`,
		},
		{
			"selfsubjectaccessreviews", alice, `{"metadata":{},"spec":{"resourceAttributes":{"verb":"get"}}}`,
			`{"metadata":{},"spec":{"resourceAttributes":{"verb":"get"}},"status":{"allowed":true}}`,
		},
		{
			"selfsubjectaccessreviews", bob, `{"spec":{"nonResourceAttributes":{"path":"/"}}}`,
			`{"spec":{"nonResourceAttributes":{"path":"/"}},"status":{"allowed":false}}`,
		},
		{
			"selfsubjectaccessreviews", bob, `{"spec":{}}`,
			`.authorization.k8s.io "" is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified`,
		},
		{
			"subjectaccessreviews", alice, `{"spec":{"resourceAttributes":{},"user":"x"}}`,
			`{"spec":{"resourceAttributes":{},"user":"x"},"status":{"allowed":false}}`,
		},
		{
			"subjectaccessreviews", bob, `{"spec":{"groups":["system:masters"],"resourceAttributes":{}}}`,
			`{"spec":{"groups":["system:masters"],"resourceAttributes":{}},"status":{"allowed":true}}`,
		},
		{
			"subjectaccessreviews", bob, `{"spec":{"resourceAttributes":{}}}`,
			`.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified`,
		},
		{
			"localsubjectaccessreviews", bob,
			`{"metadata":{"namespace":"a"},"spec":{"resourceAttributes":{"namespace":"b"},"user":"x"}}`,
			`.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace`,
		},
		{
			"localsubjectaccessreviews", bob,
			`{"metadata":{"namespace":"a"},"spec":{"resourceAttributes":{"namespace":"a"},"user":"x"}}`,
			`{"metadata":{"namespace":"a"},"spec":{"resourceAttributes":{"namespace":"a"},"user":"x"},"status":{"allowed":false}}`,
		},
		{"selfsubjectrulesreviews", bob, `{"spec":{}}`, "no namespace on request"},
		{
			"selfsubjectrulesreviews", alice, `{"spec":{"namespace":"a"}}`,
			`{"metadata":{},"spec":{},"status":{"incomplete":false,"nonResourceRules":[],"resourceRules":[]}}`,
		},
		{
			"selfsubjectrulesreviews", bob, `{"spec":{"namespace":"a"}}`,
			`{"metadata":{},"spec":{},"status":{"incomplete":false,"nonResourceRules":[],"resourceRules":[]}}`,
		},
		{
			"tokenreviews", alice, `{"spec":{"token":"bobs"}}`,
			`{"spec":{"token":"bobs"},"status":{"audiences":["here"],"authenticated":true,"user":{"username":"bob"}}}`,
		},
		{
			"tokenreviews", alice, `{"spec":{"token":"nobodys"}}`,
			`{"spec":{"token":"nobodys"},"status":{"error":"invalid bearer token","user":{}}}`,
		},
		{
			"tokenreviews", alice, `{"spec":{"audiences":["there"],"token":"bobs"}}`,
			`{"spec":{"audiences":["there"],"token":"bobs"},"status":{"error":"invalid bearer token","user":{}}}`,
		},
		{"tokenreviews", alice, `{"spec":{}}`, "token is required for TokenReview in authentication"},
	} {
		answer, err := all[c.typ].Answer(t.Context(), &engine.Request{Resource: all[c.typ], User: c.user},
			parse(t, c.sent))
		got := show(answer)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s\nhave %s\nwant %s", c.typ, c.sent, got, c.want)
		}
	}
}
