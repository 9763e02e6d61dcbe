package etcdform

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"plinth/conformance/internal/realcrds"
	"plinth/conformance/internal/valuediff"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/store"
	"plinth/object"
)

const definitions = "apiextensions.k8s.io/customresourcedefinitions"

// definitionCodecs are the reference's codec for definitions in etcd, and one that shows them as v1.
func definitionCodecs() (storage, shown runtime.Codec) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	return codecs.LegacyCodec(apiextensionsv1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion),
		codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
}

// Definitions of real projects, and variants of them with several versions and with parts left out, are stored in
// v1beta1 with the bytes of the reference, and read in v1 and v1beta1 as it reads them. SPEC: STORE-3, EXT-1
func TestDefinitions(t *testing.T) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	c := &definitionComparison{form: etcdform.New(registry, runtime.ContentTypeProtobuf),
		kind: registry.Now().Kind(definitions)}
	c.storage, c.shown = definitionCodecs()
	random := rand.New(rand.NewPCG(1, 2))
	for _, d := range realcrds.All(t) {
		parsed, err := object.ParseJSON(d.JSON)
		if err != nil {
			t.Fatal(err)
		}
		obj := parsed.Value.WithAt(object.StringOf("u"), "metadata", "uid")
		c.key = store.Key{Resource: definitions, Name: obj.At("metadata", "name").Str()}
		c.compare(t, obj)
		variants := 12
		if len(d.JSON) > 30_000 {
			variants = 1 // most of its bytes are descriptions
		}
		for range variants {
			variant := obj
			if random.IntN(3) > 0 {
				variant = withMoreVersions(obj, random)
			}
			for range random.IntN(3) {
				if all := reducible(variant.At("spec", "versions"), []string{"spec", "versions"}); len(all) > 0 {
					variant = without(variant, all[random.IntN(len(all))])
				}
			}
			if random.IntN(3) == 0 {
				variant = variant.WithAt(conversions[random.IntN(len(conversions))], "spec", "conversion")
			}
			c.compare(t, variant)
		}
	}
	if c.v1 < 300 || c.v1beta1 < 300 {
		t.Errorf("only %d and %d definitions were compared", c.v1, c.v1beta1)
	}
}

// conversions are valid values of spec.conversion.
var conversions = []object.Value{
	object.Fields("strategy", object.StringOf("None")),
	object.Fields("strategy", object.StringOf("Webhook"), "webhook", object.Fields(
		"conversionReviewVersions", object.Strings("v1"), "clientConfig",
		object.Fields("url", object.StringOf("https://a")))),
	object.Fields("strategy", object.StringOf("Webhook"), "webhook", object.Fields(
		"conversionReviewVersions", object.Strings("v1"), "clientConfig", object.Fields("service",
			object.Fields("namespace", object.StringOf("a"), "name", object.StringOf("b"))))),
}

// withMoreVersions repeats a version under another name, with or without a part.
func withMoreVersions(obj object.Value, random *rand.Rand) object.Value {
	versions := obj.At("spec", "versions").Items()
	if len(versions) == 0 {
		return obj
	}
	again := versions[random.IntN(len(versions))].Edit([]object.Member{
		{Key: "name", Value: object.StringOf("v99")}, {Key: "storage", Value: object.BoolOf(false)}})
	if all := reducible(again, nil); random.IntN(2) == 0 {
		again = without(again, all[random.IntN(len(all))])
	}
	if random.IntN(2) == 0 {
		versions = versions[:1]
	}
	return obj.WithAt(object.ListOf(append([]object.Value{again}, versions...)...), "spec", "versions")
}

type definitionComparison struct {
	form           *etcdform.Form
	kind           *engine.Kind
	storage, shown runtime.Codec
	key            store.Key
	v1, v1beta1    int // how many were compared
}

// compare stores a definition in v1, and reads what the reference has stored, with and without some of its fields.
func (c *definitionComparison) compare(t *testing.T, obj object.Value) {
	t.Helper()
	text := object.AppendObject(nil, obj)
	internal, err := runtime.Decode(c.storage, text)
	if err != nil {
		return
	}
	want, err := runtime.Encode(c.storage, internal)
	if err != nil {
		t.Fatal(err)
	}
	data := c.stored(t, obj)
	have, err := c.form.Encode(c.key, data)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Fatalf("%s: %s\nhave %s\nwant %s\nof %s", c.key.Name, firstOf(t, want, have), have, want, text)
	}
	c.v1++
	back, sidecar, exact, err := c.form.Decode(c.key, want)
	if err != nil || !bytes.Equal(back, data) || sidecar.Form != c.kind.Stamp || !exact {
		t.Fatalf("%s: %v, %v, %+v: %s\nof %s", c.key.Name, err, exact, sidecar, firstOf(t, data, back), text)
	}
	if len(want) > 30_000 {
		return
	}
	parsed, err := object.ParseJSON(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{{"spec", "preserveUnknownFields"}, {"spec", "version"}, {"spec", "versions"},
		{"spec", "scope"}, {"spec", "names", "listKind"}, {"spec", "conversion"}, {"status", "storedVersions"},
		{"spec", "conversion", "conversionReviewVersions"}, {"spec", "validation"}, {"spec", "versions", "#", "schema"},
		{"status"}, {"spec", "conversion", "strategy"}, {"spec", "conversion", "webhookClientConfig"}} {
		c.read(t, without(parsed.Value, path))
	}
}

// stored is the stored form of a definition in v1, as a create would store it.
func (c *definitionComparison) stored(t *testing.T, obj object.Value) []byte {
	t.Helper()
	typ := c.kind.Storage.Schema()
	decoded, err := typ.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err = typ.Decode(c.kind.Storage.Default(decoded.Value))
	if err != nil {
		t.Fatal(err)
	}
	return object.AppendObject(nil, typ.Settle(decoded.Value))
}

// read reads a value in v1beta1 that another writer may have left.
func (c *definitionComparison) read(t *testing.T, obj object.Value) {
	t.Helper()
	value := object.AppendJSON(nil, obj)
	internal, err := runtime.Decode(c.storage, value)
	if err != nil {
		return
	}
	text, err := runtime.Encode(c.shown, internal)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	want := c.stored(t, parsed.Value)
	have, _, _, err := c.form.Decode(c.key, value)
	if err != nil || !bytes.Equal(have, want) {
		t.Fatalf("%s: %v: %s\nhave %s\nwant %s\nof %s", c.key.Name, err, firstOf(t, want, have), have, want, value)
	}
	c.v1beta1++
}

// firstOf is the first difference of two texts.
func firstOf(t *testing.T, want, have []byte) string {
	t.Helper()
	var all [2]object.Value
	for i, text := range [][]byte{want, have} {
		parsed, err := object.ParseJSON(bytes.Clone(text))
		if err != nil {
			return err.Error()
		}
		all[i] = parsed.Value
	}
	return valuediff.First(all[0], all[1])
}
