package discovery

import (
	"testing"

	"plinth/internal/builtin"
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
	compareDiscovery(t, recordedResources(t))
}

// SPEC: URI-8
func TestDiscoveryOfBuiltinTypes(t *testing.T) {
	compareDiscovery(t, builtin.Resources(builtin.Config{}))
}

// compareDiscovery compares all discovery documents of these types with the reference's.
func compareDiscovery(t *testing.T, resources []*engine.Resource) {
	d := newDocuments(resources)
	for _, want := range recordedDiscovery(t) {
		if want.path == "/version" {
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
		case "APIVersions":
			expected = expected.With("serverAddressByClientCIDRs", parse(t, body).At("serverAddressByClientCIDRs"))
		}
		diff(t, want.path, expected, parse(t, body))
	}
}

func filter(v object.Value, list string, keep func(object.Value) bool) object.Value {
	var items []object.Value
	for _, item := range v.At(list).Items() {
		if keep(item) {
			items = append(items, item)
		}
	}
	return v.With(list, object.ListOf(items...))
}
