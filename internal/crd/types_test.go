package crd

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// lazyTypeOf is the schema of a definition with a text of about this size.
func lazyTypeOf(of *types, i, size int) *lazyType {
	text := fmt.Sprintf(
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","description":"%s","properties":{"f%d":{"type":"string"}}}}}]}}`,
		strings.Repeat("x", size), i)
	return &lazyType{of: of, written: &written{version: store.NewVersion(
		store.Key{Resource: Path, Name: fmt.Sprint(i)}, 0, []byte(text), nil)}, apiVersion: "a/v1"}
}

// Compiled schemas are bounded by the size of their source text; those in use stay, and dropped ones are compiled
// again.
// SPEC: BEY-8
func TestTypesAreLetGo(t *testing.T) {
	of := &types{metadata: gotypes.Of[metav1.ObjectMeta]}
	const n, size = 100, keptText / 20
	all := make([]*lazyType, n)
	busy := lazyTypeOf(of, n, size)
	kept := busy.get()
	for i := range all {
		all[i] = lazyTypeOf(of, i, size)
		if typ := all[i].get(); typ.Field(fmt.Sprintf("f%d", i)) == nil {
			t.Fatalf("type %d is another one", i)
		}
		if busy.get() != kept {
			t.Fatalf("the type that is in use was let go beside %d others", i)
		}
	}
	compiled, text := 0, 0
	for _, l := range append(all, busy) {
		if l.compiled.Load() != nil {
			compiled, text = compiled+1, text+l.size()
		}
	}
	if compiled < 15 || text > keptText || text != of.text || compiled != len(of.kept) {
		t.Errorf("%d types of %d bytes are kept (%d, %d), %d are allowed", compiled, text, len(of.kept), of.text,
			keptText)
	}
	runtime.GC()
	runtime.GC()
	if all[0].found() != nil {
		t.Error("a type that was let go is still there")
	}
	if all[0].get().Field("f0") == nil {
		t.Error("made again, it is another one")
	}
}

// A schema that was dropped and is still referenced elsewhere is found again instead of being compiled twice.
func TestTypesAreFoundAgain(t *testing.T) {
	of := &types{metadata: gotypes.Of[metav1.ObjectMeta]}
	first := lazyTypeOf(of, 0, keptText/2)
	held := first.get()
	for i := range 5 {
		lazyTypeOf(of, i+1, keptText/2).get()
	}
	if first.compiled.Load() != nil {
		t.Fatal("it was not let go")
	}
	runtime.GC()
	if first.get() != held {
		t.Error("it was made a second time")
	}
	var large sync.WaitGroup // one that exceeds the limit is kept alone
	for range 4 {
		large.Go(func() {
			var typ *schema.Type
			if typ = lazyTypeOf(of, 9, 2*keptText).get(); typ == nil {
				t.Error("nothing")
			}
		})
	}
	large.Wait()
	if len(of.kept) != 1 {
		t.Errorf("%d types are kept", len(of.kept))
	}
}

// Objects can be read even if the schema cannot be compiled, although validation would refuse such a schema.
func TestTypesThatCannotBe(t *testing.T) {
	of := &types{metadata: gotypes.Of[metav1.ObjectMeta]}
	l := lazyTypeOf(of, 0, 1)
	l.written.version = store.NewVersion(l.written.version.Key, 0, []byte(
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"strange"}}}}}]}}`), nil)
	parsed, err := object.ParseJSON([]byte(`{"apiVersion":"a/v1","kind":"A","metadata":{"name":"a"},"a":{"b":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := l.get().Decode(parsed.Value); err != nil || !object.Equal(decoded.Value, parsed.Value) {
		t.Errorf("%v, %v", decoded, err)
	}
}

// A definition is cut into its versions once, whatever needs all of them: the comparison of two forms, or a document.
// Each version is parsed alone, so that a definition with thousands of versions does not delay others.
//
// SPEC: EXT-1
func TestManyVersions(t *testing.T) {
	const versions = 500
	definition := func(uid, typ, condition string) *store.Version {
		var all []string
		for i := range versions {
			all = append(all, fmt.Sprintf(`{"name":"v%d","schema":{"openAPIV3Schema":{"properties":{"a":{"type":"%s"}},`+
				`"type":"object"}},"served":true,"storage":%v,"subresources":{"scale":{"specReplicasPath":".spec.a",`+
				`"statusReplicasPath":".status.a"},"status":{}}}`, i+1, typ, i == 0))
		}
		text := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
			`"metadata":{"name":"as.b.c","uid":"%s"},"spec":{"group":"b.c","names":{"kind":"A","plural":"as"},`+
			`"scope":"Namespaced","versions":[%s]},"status":{"acceptedNames":{"kind":"A","plural":"as"},"conditions":[`+
			`{"status":"True","type":"Established"}%s]}}`, uid, strings.Join(all, ","), condition)
		return store.NewVersion(store.Key{Resource: Path, Name: "as.b.c"}, 0, []byte(text), &store.Sidecar{UID: uid})
	}
	d := New(gotypes.Of[metav1.ObjectMeta])
	first := definition("1", "string", "")
	const terminating = `,{"status":"True","type":"Terminating"}`
	for _, step := range []struct {
		name  string
		v     *store.Version
		ends  bool
		texts int // how often the text of the definition may be parsed
	}{
		{"made", first, false, 0},
		{"being deleted", definition("1", "string", terminating), false, 0},
		{"with another title", definition("1", `string","title":"x`, terminating), false, 2},
		{"with another schema", definition("1", "integer", terminating), true, 2},
		{"made again", definition("2", "integer", ""), true, 0},
	} {
		t.Run(step.name, func(t *testing.T) {
			var before []*engine.Resource
			if step.v != first {
				before = d.Define(first, nil)
			}
			textParsed.Store(0)
			after := d.Define(step.v, before)
			if got := int(textParsed.Load()); got > step.texts*step.v.Len() {
				t.Errorf("%d bytes of a definition of %d were parsed", got, step.v.Len())
			}
			if len(after) != versions || after[0].Stored.DefinitionUID != step.v.Sidecar.UID {
				t.Fatalf("%d versions of %q", len(after), after[0].Stored.DefinitionUID)
			}
			if before != nil && (before[0].Stored.Life.Err() != nil) != step.ends {
				t.Errorf("the life of the kind has ended: %v", before[0].Stored.Life.Err() != nil)
			}
			textParsed.Store(0)
			for i, r := range after {
				if name := r.Written().At("name").Str(); name != fmt.Sprintf("v%d", i+1) {
					t.Fatalf("version %d is %q", i, name)
				}
			}
			if got := int(textParsed.Load()); got > step.v.Len() || invariants.Enabled && got == 0 {
				t.Errorf("%d bytes of a definition of %d were parsed for all of its versions", got, step.v.Len())
			}
			first = step.v
		})
	}
}

// A life is one of the form of objects, to which the conversion between versions belongs: another webhook, or the same
// one by another authority, ends it, and nothing that the old one has made is kept. A change that does not concern the
// form leaves both.
//
// SPEC: EXT-1
func TestConversionBelongsToTheLife(t *testing.T) {
	definition := func(title, conversion string, versions ...string) *store.Version {
		var all []string
		for i, name := range versions {
			all = append(all, fmt.Sprintf(
				`{"name":%q,"schema":{"openAPIV3Schema":{"title":%q,"type":"object"}},"served":true,"storage":%t}`,
				name, title, i == 0))
		}
		return store.NewVersion(store.Key{Resource: Path, Name: "as.b.c"}, 0, fmt.Appendf(nil,
			`{"spec":{"conversion":%s,"group":"b.c","scope":"Cluster","versions":[%s]},"status":{"acceptedNames":{"kind":"A","plural":"as"},"conditions":[{"status":"True","type":"Established"}]}}`,
			conversion, strings.Join(all, ",")), &store.Sidecar{UID: "1"})
	}
	by := func(url, bundle string) string {
		return fmt.Sprintf(`{"strategy":"Webhook","webhook":{"clientConfig":{"caBundle":%q,"url":%q},"conversionReviewVersions":["v1"]}}`,
			bundle, url)
	}
	const none = `{"strategy":"None"}`
	first := by("https://a", "b")
	for name, c := range map[string]struct {
		before, after *store.Version
		ends          bool
	}{
		"another title":      {definition("x", first, "v1", "v2"), definition("y", first, "v1", "v2"), false},
		"another webhook":    {definition("x", first, "v1", "v2"), definition("x", by("https://z", "b"), "v1", "v2"), true},
		"another authority":  {definition("x", first, "v1", "v2"), definition("x", by("https://a", "z"), "v1", "v2"), true},
		"a webhook":          {definition("x", none, "v1", "v2"), definition("x", first, "v1", "v2"), true},
		"no webhook":         {definition("x", first, "v1", "v2"), definition("x", none, "v1", "v2"), true},
		"nothing to convert": {definition("x", first, "v1"), definition("x", none, "v1"), false},
	} {
		d := New(gotypes.Of[metav1.ObjectMeta])
		before := d.Define(c.before, nil)
		after := d.Define(c.after, before)
		if ended := before[0].Stored.Life.Err() != nil; ended != c.ends || after[0].Stored == before[0].Stored {
			t.Errorf("%s: the life of the kind has ended: %v", name, ended)
		}
		if kept := after[0].Stored.Converted != nil; kept != (len(after) > 1 && name != "no webhook") {
			t.Errorf("%s: what is converted is kept: %v", name, kept)
		}
	}
}

// A definition that was made again with the same text defines another kind (EXT-3).
//
// SPEC: EXT-3
func TestDefinedAgain(t *testing.T) {
	d := New(gotypes.Of[metav1.ObjectMeta])
	definition := func(uid string) *store.Version {
		return store.NewVersion(store.Key{Resource: Path, Name: "as.b.c"}, 0, []byte(
			`{"spec":{"group":"b.c","scope":"Cluster","versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}},`+
				`"served":true,"storage":true}]},"status":{"acceptedNames":{"kind":"A","plural":"as"},`+
				`"conditions":[{"status":"True","type":"Established"}]}}`), &store.Sidecar{UID: uid})
	}
	first := d.Define(definition("1"), nil)
	if same := d.Define(definition("1"), first); same[0] != first[0] {
		t.Error("the same definition defines another type")
	}
	again := d.Define(definition("2"), first)
	if again[0].Stored == first[0].Stored || again[0].Stored.DefinitionUID != "2" || first[0].Stored.Life.Err() == nil {
		t.Errorf("another definition defines the same kind: %q", again[0].Stored.DefinitionUID)
	}
}
