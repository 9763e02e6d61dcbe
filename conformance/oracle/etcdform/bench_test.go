package etcdform

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/store"
)

// BenchmarkPod reads and writes the value of a Pod with the codec of the reference, and with ours.
func BenchmarkPod(b *testing.B) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	codec := kinds(b, registry, runtime.ContentTypeProtobuf)[schema.GroupKind{Kind: "Pod"}].codec
	form := etcdform.New(registry, runtime.ContentTypeProtobuf)
	var value []byte
	key := store.Key{Resource: "/pods", Name: namespace + "/web"}
	for _, r := range recorded(b) {
		if r.Key == prefix+"pods/"+key.Name {
			value = r.Value
		}
	}
	obj, err := runtime.Decode(codec, value)
	if err != nil {
		b.Fatal(err)
	}
	data, _, _, err := form.Decode(key, value)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"Decode/reference", func() error { _, err := runtime.Decode(codec, value); return err }},
		{"Decode/plinth", func() error { _, _, _, err := form.Decode(key, value); return err }},
		{"Encode/reference", func() error { _, err := runtime.Encode(codec, obj); return err }},
		{"Encode/plinth", func() error { _, err := form.Encode(key, data); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
