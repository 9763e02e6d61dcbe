package admission

import (
	"testing"

	"k8s.io/pod-security-admission/api"

	"plinth/internal/builtin"
)

// The newest version of the standards is that of the built-in types, and the metrics show no later one.
//
// SPEC: AUTH-3
func TestVersionsInMetrics(t *testing.T) {
	if got := newestStandards.String(); got != "v"+builtin.Release {
		t.Errorf("the newest version is %s, the types are those of %s", got, builtin.Release)
	}
	shown := ""
	p := &podSecurity{metrics: PodSecurityMetrics{Evaluated: func(_ SecuredRequest, _, _, version string, _ bool) {
		shown = version
	}}}
	for _, c := range []struct {
		level   api.Level
		version string
		want    string
	}{
		{api.LevelBaseline, "v1.20", "v1.20"}, {api.LevelBaseline, "v" + builtin.Release, "v" + builtin.Release},
		{api.LevelBaseline, "v1.99", "future"}, {api.LevelRestricted, "latest", "latest"},
		{api.LevelPrivileged, "v1.20", "latest"},
	} {
		version, err := api.ParseVersion(c.version)
		if err != nil {
			t.Fatal(err)
		}
		p.evaluated(SecuredRequest{}, "enforce", api.LevelVersion{Level: c.level, Version: version}, true)
		if shown != c.want {
			t.Errorf("%s of %s is shown as %s, want %s", c.version, c.level, shown, c.want)
		}
	}
}
