package product

import (
	"regexp"
	"runtime/debug"
	"testing"
)

// A program says what it was built from: what the linker was told in a release, else what the go command recorded. Only
// a release has a version without a suffix.
func TestBuilt(t *testing.T) {
	recorded := func(main, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "c0"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: modified},
		}}
	}
	for name, c := range map[string]struct {
		commit, date string
		info         *debug.BuildInfo
		want         Build
		from         string
	}{
		"a release": {"c1", "2026-01-01T00:00:00Z", recorded("(devel)", "true"),
			Build{"1.2.3", "c1", "2026-01-01T00:00:00Z", false}, "c1 of 2026-01-01T00:00:00Z"},
		"a checkout": {"", "", recorded("(devel)", "false"),
			Build{"1.2.3-dev", "c0", "2026-01-02T03:04:05Z", false}, "c0 of 2026-01-02T03:04:05Z"},
		"a changed checkout": {"", "", recorded("v1.2.3+dirty", "true"),
			Build{"1.2.3-dev", "c0", "2026-01-02T03:04:05Z", true}, "c0 (modified)"},
		"the tag": {"", "", recorded("v1.2.3", "false"),
			Build{"1.2.3", "c0", "2026-01-02T03:04:05Z", false}, "c0 of 2026-01-02T03:04:05Z"},
		"go install of the tag": {"", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}},
			Build{Version: "1.2.3"}, "unknown"},
		"go run": {"", "", &debug.BuildInfo{}, Build{Version: "1.2.3-dev"}, "unknown"},
	} {
		if got := built("1.2.3", c.commit, c.date, c.info); got != c.want || got.From() != c.from {
			t.Errorf("%s: %+v from %s, not %+v from %s", name, got, got.From(), c.want, c.from)
		}
	}
}

func TestVersionIsSemantic(t *testing.T) {
	if v := Built().Version; !regexp.MustCompile(`^\d+\.\d+\.\d+(-[a-z0-9.]+)?$`).MatchString(v) {
		t.Errorf("the version is %q", v)
	}
}
