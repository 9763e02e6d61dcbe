package authz

import (
	"testing"

	"plinth/internal/access"
)

// The first mode that has an opinion decides, and where none has one, all of them are told.
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
			t.Errorf("%v: %s: %v %q, %v", c.modes, c.request, decision, reason, err)
		}
	}
}
