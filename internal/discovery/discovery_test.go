package discovery

import (
	"testing"

	"plinth/internal/engine"
	"plinth/object"
)

var testVersion = Version{
	Major: "1", Minor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: "v1.37.1+plinth",
	GitCommit: "unknown", BuildDate: "1970-01-01T00:00:00Z",
}

func newDocuments(resources []*engine.Resource) *Documents {
	return New(Config{Registry: engine.NewRegistry(resources), Version: testVersion, ServerAddress: "192.0.2.2:6443"})
}

// SPEC: URI-8
func TestDiscoveryIsTheReferences(t *testing.T) {
	d := newDocuments(recordedResources(t))
	for _, want := range recordedDiscovery(t) {
		if isAbsent(want.path) || want.path == "/version" {
			continue
		}
		doc, ok, err := d.Get(want.path, want.accept)
		if !ok || err != nil {
			t.Errorf("%s: %v %v", want.path, ok, err)
			continue
		}
		if doc.MediaType != want.accept {
			t.Errorf("%s: %s, want %s", want.path, doc.MediaType, want.accept)
		}
		body, err := doc.Plain()
		if err != nil {
			t.Fatal(err)
		}
		expected := parse(t, []byte(want.body))
		switch expected.At("kind").Str() {
		case "APIGroupList":
			expected = without(expected, "groups")
		case "APIGroupDiscoveryList":
			expected = without(expected, "items")
		case "APIVersions":
			expected = expected.With("serverAddressByClientCIDRs", parse(t, body).At("serverAddressByClientCIDRs"))
		}
		if got := parse(t, body); !object.Equal(got, expected) {
			t.Errorf("%s (%s)\ngot  %s\nwant %s", want.path, want.accept, indent(got), indent(expected))
		}
	}
}
