package plinthtest

import (
	"strings"
	"testing"
)

// An object can be named without a version, and a name with a mistake is reported as such.
//
// SPEC: BEY-7
func TestRefWithoutVersion(t *testing.T) {
	p := New(t)
	newClient(t, p).apply(201, "mine", configMaps+"/a", configMap("a", "color", "red"))
	for _, version := range []string{"", "v1"} {
		o := Ref{Version: version, Resource: "configmaps", Namespace: "default", Name: "a"}
		p.Owns(t, o, "mine", "data.color")
		if n := len(p.History(o)); n != 1 {
			t.Errorf("%d revisions by the version %q", n, version)
		}
	}
	for o, want := range map[Ref]string{
		{Version: "v2", Resource: "configmaps", Namespace: "default", Name: "a"}: "there is no type of configmaps default/a",
		{Resource: "configmap", Namespace: "default", Name: "a"}:                 "there is no type of configmap default/a",
		{Resource: "configmaps", Namespace: "default", Name: "b"}:                "there is no configmaps default/b",
	} {
		got := &failures{TB: t}
		p.Owns(got, o, "mine", "data.color")
		if len(got.texts) != 1 || !strings.HasSuffix(got.texts[0], want) {
			t.Errorf("%+v: %q, want %q", o, got.texts, want)
		}
	}
}
