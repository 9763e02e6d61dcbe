package crd

import (
	"encoding/json"
	"flag"
	"testing"

	"plinth/conformance/internal/realcrds"
)

var realObjects = flag.Int("real", 3, "how many variants of each real definition are compared")

// The definitions of real projects are valid, as in upstream, and variants of them have the same errors as in upstream.
//
// SPEC: EXT-1, VAL-1
func TestRealDefinitions(t *testing.T) {
	for i, real := range realcrds.All(t) {
		t.Run(real.Project+"/"+real.Name, func(t *testing.T) {
			t.Parallel()
			good, ok := decode(t, real.JSON)
			if !ok {
				t.Fatal("upstream does not decode it")
			}
			v := create(good)
			if d := v.difference(); d != "" || len(v.theirs) > 0 {
				t.Errorf("%v%s", v.theirs, d)
			}
			var doc map[string]any
			if err := json.Unmarshal(real.JSON, &doc); err != nil {
				t.Fatal(err)
			}
			m := newMutator([]map[string]any{doc})
			for n := range *realObjects {
				variant := m.variant(*seed<<32+uint64(i*1_000_000+n), doc)
				d, ok := decode(t, text(t, variant))
				if !ok {
					continue
				}
				v := create(d)
				if d := v.difference(); d != "" {
					t.Errorf("variant %d:%s", n, d)
				}
				v = update(d, good)
				if d := v.difference(); d != "" {
					t.Errorf("variant %d as an update:%s", n, d)
				}
			}
		})
	}
}
