package builtin

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"plinth/conformance/internal/scheme"
	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// told collects warnings.
type told []string

func (l *told) AddWarning(_, text string) { *l = append(*l, text) }

// upstreamWarns returns the warnings of one of upstream's strategies for a kind: "create", "update" or a subresource.
// The input of an update is a list of the new object and the old one. ok is false if the input cannot be decoded, and
// if upstream panics.
func (k kindUnderTest) upstreamWarns(verb string, in []byte) (warnings []string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	var objects []json.RawMessage
	if verb == "create" {
		objects = append(objects, in)
	} else if err := json.Unmarshal(in, &objects); err != nil || len(objects) != 2 {
		return nil, false
	}
	internal := make([]runtime.Object, len(objects))
	for i, text := range objects {
		typed, err := scheme.Decode(k.gvk, text)
		if err != nil {
			return nil, false
		}
		if internal[i], err = scheme.Scheme.ConvertToVersion(typed, runtime.InternalGroupVersioner); err != nil {
			return nil, false
		}
	}
	var recorded told
	ctx := warning.WithWarningRecorder(k.context(), &recorded)
	switch verb {
	case "create":
		k.upstream.Main.PrepareForCreate(ctx, internal[0])
		return append(recorded, k.upstream.Main.WarningsOnCreate(ctx, internal[0])...), true
	case "update":
		k.upstream.Main.PrepareForUpdate(ctx, internal[0], internal[1])
		return append(recorded, k.upstream.Main.WarningsOnUpdate(ctx, internal[0], internal[1])...), true
	}
	k.upstream.Subresources[verb].PrepareForUpdate(ctx, internal[0], internal[1])
	return append(recorded, k.upstream.Subresources[verb].WarningsOnUpdate(ctx, internal[0], internal[1])...), true
}

// weWarn returns our warnings.
func weWarn(r *engine.Resource, verb string, in []byte) ([]string, error) {
	parsed, err := object.ParseJSON(in)
	if err != nil {
		return nil, err
	}
	if verb == "create" {
		if r.WarnCreate == nil {
			return nil, nil
		}
		return r.WarnCreate(r.PrepareCreate(parsed.Value, access.User{Name: "writer"}), parsed.Value), nil
	}
	obj, old := parsed.Value.Items()[0], parsed.Value.Items()[1]
	if verb == "update" {
		if r.WarnUpdate == nil {
			return nil, nil
		}
		return r.WarnUpdate(generation(r, r.PrepareUpdate(obj, old), old), old), nil
	}
	sub := r.Subresource(verb)
	if sub.Warn == nil {
		return nil, nil
	}
	if obj, err = sub.Write(old, obj); err != nil {
		return nil, err
	}
	return sub.Warn(obj, old), nil
}

// generation gives an object the generation that the engine gives it.
func generation(r *engine.Resource, obj, old object.Value) object.Value {
	is := old.At("metadata", "generation").Int()
	if g := r.Generation; g != nil && !object.Equal(g(r.Schema().Settle(obj)), g(r.Schema().Settle(old))) {
		is++
	}
	return obj.WithAt(object.IntOf(is), "metadata", "generation")
}

// warnedVerbs returns the verbs that write an object of a kind.
func (k kindUnderTest) warnedVerbs() []string {
	verbs := []string{"create", "update"}
	for _, name := range slices.Sorted(maps.Keys(k.upstream.Subresources)) {
		if k.resource.Subresource(name) != nil {
			verbs = append(verbs, name)
		}
	}
	return verbs
}

// warned makes the i-th random input of a verb; nil for none.
func (k kindUnderTest) warned(t *testing.T, verb string, i int) []byte {
	m := k.mutator(i)
	one := func(doc document) (document, []byte) {
		doc = m.favour(warnedOf, doc).(document)
		m.name(doc)
		p, ok := k.make(t, doc)
		if !ok {
			return doc, nil
		}
		_, value, ok := stored(t, k.gvk, p.theirs)
		if !ok {
			return doc, nil
		}
		return doc, object.AppendObject(nil, value)
	}
	first, text := one(m.variant(k.vector))
	if verb == "create" || text == nil {
		return text
	}
	m.rate = []float64{0, 0.003, 0.01, 0.05}[m.rng.IntN(4)]
	_, second := one(m.variant(first))
	if second == nil {
		return nil
	}
	return slices.Concat([]byte("["), second, []byte(","), text, []byte("]"))
}

// SPEC: VAL-2
func TestWarnings(t *testing.T) {
	klog.LogToStderr(false) // invalid addresses
	klog.SetOutput(io.Discard)
	each(t, func(t *testing.T, k kindUnderTest) {
		for _, verb := range k.warnedVerbs() {
			compared, warned := 0, 0
			hand := byHand(k.resource, verb)
			for i := range len(hand) + *objects {
				var in []byte
				if i < len(hand) {
					in = hand[i]
				} else {
					in = k.warned(t, verb, i-len(hand))
				}
				if in == nil {
					continue
				}
				want, ok := k.upstreamWarns(verb, in)
				if !ok && i < len(hand) {
					t.Errorf("%s of %s: upstream has no answer", verb, in)
				}
				if !ok {
					continue
				}
				compared++
				if len(want) > 0 {
					warned++
				}
				have, err := weWarn(k.resource, verb, in)
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(have) // upstream iterates over maps
				slices.Sort(want)
				if !slices.Equal(have, want) {
					t.Fatalf("%s of %s\nhave %q\nwant %q", verb, in, have, want)
				}
			}
			t.Logf("%s: %d compared, %d with warnings", verb, compared, warned)
			if compared < *objects/8 {
				t.Errorf("%s: only %d of %d were compared", verb, compared, *objects)
			}
		}
	})
}
