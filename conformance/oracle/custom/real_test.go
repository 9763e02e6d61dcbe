package custom

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"plinth/conformance/internal/realcrds"
)

// The schemas of real definitions, with objects made to fit them as far as a generator can, and damaged ones.
// SPEC: EXT-1 SSA-8
func TestRealSchemas(t *testing.T) {
	count := newTally()
	compared := map[string]int{}
	for i, real := range realcrds.All(t) {
		var crd struct {
			Spec struct {
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema json.RawMessage
					}
				}
			}
		}
		if err := json.Unmarshal(real.JSON, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			var s node
			if err := json.Unmarshal(version.Schema.OpenAPIV3Schema, &s); err != nil {
				t.Fatal(err)
			}
			g := newGenerator(*seed, uint64(i))
			g.density = 100 * 1000 / (1000 + len(version.Schema.OpenAPIV3Schema)/20)
			if d := run(t, g, s, count); d != "" {
				t.Errorf("%s %s %s: %.5000s", real.Project, real.Name, version.Name, d)
			}
			var external apiextensionsv1.JSONSchemaProps
			if err := json.Unmarshal(version.Schema.OpenAPIV3Schema, &external); err != nil {
				t.Fatal(err)
			}
			if differences := compareTypes(t, s, &external, compared); differences != nil {
				t.Errorf("%s %s %s: %.5000v", real.Project, real.Name, version.Name, differences)
			}
		}
	}
	t.Logf("%+v %v", *count, compared)
	for what, n := range map[string][2]int{
		"schemas": {count.schemas, 60}, "valid objects": {count.valid, 60}, "invalid objects": {count.invalid,
			200}, "ratchets": {count.ratchets, 50},
		"types compared": {compared["struct"], 2000}, "associative lists": {compared["associative list"], 50},
	} {
		if n[0] < n[1] {
			t.Errorf("%s: only %d, and not %d", what, n[0], n[1])
		}
	}
}
