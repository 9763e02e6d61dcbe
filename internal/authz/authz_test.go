package authz

import (
	"testing"

	"plinth/internal/access"
)

// The first mode whose decision is not NoOpinion decides. If there is none, the reason contains those of all modes.
//
// SPEC: AUTH-2
func TestModes(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct {
		modes   []Mode
		request string
		want    access.Decision
		reason  string
	}{
		{[]Mode{AlwaysAllow}, "alice get a.io/things ns1 x", access.Allow, ""},
		{[]Mode{AlwaysDeny}, "alice get a.io/things ns1 x", access.NoOpinion, "alwaysdeny: Everything is forbidden."},
		{[]Mode{AlwaysDeny, RBAC}, "alice get a.io/things ns1 x", access.NoOpinion, "alwaysdeny: Everything is forbidden."},
		{[]Mode{AlwaysDeny, AlwaysAllow}, "alice get a.io/things ns1 x", access.Allow, ""},
		{[]Mode{RBAC}, "alice,system:masters get a.io/things ns1 x", access.Allow, ""},
		{[]Mode{RBAC}, "alice get /healthz", access.NoOpinion, ""},
	} {
		decision, reason, err := s.authority(c.modes...).Authorize(t.Context(), asked(c.request))
		if decision != c.want || reason != c.reason || err != nil {
			t.Errorf("%v: %s: have %v %q, %v, want %v %q", c.modes, c.request, decision, reason, err, c.want, c.reason)
		}
	}
}
