package validation_test

import (
	"slices"
	"testing"

	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/features"
	"plinth/object"
)

// ClusterIPs returns the errors of the addresses alone, before the allocation adds addresses. Those that the old
// service has are valid.
func TestClusterIPs(t *testing.T) {
	const addresses = `{"spec": {"clusterIP": "010.0.0.1", "clusterIPs": ["010.0.0.1"], "type": "none"}}`
	service, err := object.ParseJSON([]byte(addresses))
	if err != nil {
		t.Fatal(err)
	}
	wrong := []string{`FieldValueInvalid spec.clusterIPs[0]: Invalid value: "010.0.0.1": must not have leading 0s`}
	for _, test := range []struct {
		name    string
		options validation.Options
		old     object.Value
		want    []string
	}{
		{"new", validation.Options{}, object.Nil, wrong},
		{"changed", validation.Options{}, object.MapOf(), wrong},
		{"unchanged", validation.Options{}, service.Value, nil},
		{"sloppy", validation.Options{Features: features.Set{}.With(features.StrictIPCIDRValidation, false)}, object.Nil,
			nil},
	} {
		if got := validationtest.Lines(test.options.ClusterIPs(service.Value, test.old)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}
