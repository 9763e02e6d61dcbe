package discovery

import (
	"slices"
	"strings"
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
	compareDiscovery(t, recordedResources(t), func(group, name string) bool { return false })
}

// SPEC: URI-8
func TestDiscoveryOfBuiltinTypes(t *testing.T) {
	compareDiscovery(t, builtin.Resources(builtin.Config{}), func(group, name string) bool {
		return slices.ContainsFunc(builtin.Missing, func(a builtin.Absent) bool {
			return a.Group == group && name == strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
		})
	})
}

// compareDiscovery compares all discovery documents of these types with the reference's, except for the types in
// missing: resources by name, subresources as "pods/log".
func compareDiscovery(t *testing.T, resources []*engine.Resource, missing func(group, name string) bool) {
	d := newDocuments(resources)
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
			expected = withoutMissing(expected, missing)
		case "APIResourceList":
			group, _, _ := strings.Cut(expected.At("groupVersion").Str(), "/")
			if group == "v1" {
				group = ""
			}
			expected = filter(expected, "resources", func(r object.Value) bool { return !missing(group, r.At("name").Str()) })
		case "APIVersions":
			expected = expected.With("serverAddressByClientCIDRs", parse(t, body).At("serverAddressByClientCIDRs"))
		}
		diff(t, want.path, expected, parse(t, body))
	}
}

// withoutMissing drops the missing types from aggregated discovery.
func withoutMissing(v object.Value, missing func(group, name string) bool) object.Value {
	return edit(v, "items", func(g object.Value) object.Value {
		group := g.At("metadata", "name").Str()
		return edit(g, "versions", func(version object.Value) object.Value {
			version = filter(version, "resources", func(r object.Value) bool { return !missing(group, r.At("resource").Str()) })
			return edit(version, "resources", func(r object.Value) object.Value {
				r = filter(r, "subresources", func(s object.Value) bool {
					return !missing(group, r.At("resource").Str()+"/"+s.At("subresource").Str())
				})
				if r.At("subresources").Len() == 0 {
					r = r.Without("subresources")
				}
				return r
			})
		})
	})
}

func edit(v object.Value, list string, change func(object.Value) object.Value) object.Value {
	var items []object.Value
	for _, item := range v.At(list).Items() {
		items = append(items, change(item))
	}
	return v.With(list, object.ListOf(items...))
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
