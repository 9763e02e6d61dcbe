package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
	"plinth/schema"
)

// SPEC: URI-8
func TestRepresentationsSayTheSame(t *testing.T) {
	d := newDocuments(recordedResources(t))
	type message interface {
		Unmarshal([]byte) error
	}
	for _, c := range []struct {
		path, params string
		into         func() message
	}{
		{"/api", "", func() message { return &meta.APIVersions{} }},
		{"/apis", "", func() message { return &meta.APIGroupList{} }},
		{"/apis/apps", "", func() message { return &meta.APIGroup{} }},
		{"/apis/autoscaling/v1", "", func() message { return &meta.APIResourceList{} }},
		{"/api/v1", "", func() message { return &meta.APIResourceList{} }},
		{"/api", aggregatedParams, func() message { return &apidiscovery.APIGroupDiscoveryList{} }},
		{"/apis", aggregatedParams, func() message { return &apidiscovery.APIGroupDiscoveryList{} }},
	} {
		text := plain(t, d, c.path, mediaJSON+c.params)
		yaml, err := object.ParseYAML(plain(t, d, c.path, mediaYAML+c.params))
		if err != nil || !object.Equal(yaml.Value, parse(t, text)) {
			t.Errorf("%s%s: the YAML is another document (%v)", c.path, c.params, err)
		}
		raw, found := bytes.CutPrefix(plain(t, d, c.path, mediaProtobuf+c.params), []byte("k8s\x00"))
		var unknown kruntime.Unknown
		if err := unknown.Unmarshal(raw); err != nil || !found {
			t.Fatal(c.path, err)
		}
		if kind := parse(t, text).At("kind").Str(); unknown.Kind != kind ||
			unknown.APIVersion != parse(t, text).At("apiVersion").Str() {
			t.Errorf("%s%s: %+v, want %s", c.path, c.params, unknown.TypeMeta, kind)
		}
		fromProtobuf, fromJSON := c.into(), c.into()
		if err := fromProtobuf.Unmarshal(unknown.Raw); err != nil {
			t.Fatal(c.path, err)
		}
		if err := json.Unmarshal(text, fromJSON); err != nil {
			t.Fatal(c.path, err)
		}
		// apiVersion and kind are in the envelope, not in the message.
		a, b := asJSON(t, fromProtobuf).Without("kind").Without("apiVersion"),
			asJSON(t, fromJSON).Without("kind").Without("apiVersion")
		diff(t, c.path+c.params, b, a)
	}
}

func plain(t testing.TB, d *Documents, path, accept string) []byte {
	t.Helper()
	doc, ok, err := d.Get(path, accept)
	if !ok || err != nil {
		t.Fatalf("%s %s: %v %v", path, accept, ok, err)
	}
	body, err := doc.Plain()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func asJSON(t *testing.T, v any) object.Value {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, data)
}

// SPEC: URI-8
func TestVersionDocument(t *testing.T) {
	got := parse(t, plain(t, newDocuments(nil), "/version", ""))
	for _, want := range recordedDiscovery(t) {
		if want.path != "/version" {
			continue
		}
		reference := parse(t, []byte(want.body))
		for _, m := range reference.Members() {
			if _, ok := got.Get(m.Key); !ok {
				t.Errorf("no %s", m.Key)
			}
		}
		for _, key := range []string{"major", "minor", "emulationMajor", "emulationMinor", "minCompatibilityMajor",
			"minCompatibilityMinor"} {
			if !object.Equal(got.At(key), reference.At(key)) {
				t.Errorf("%s: %s, want %s", key, got.At(key).Str(), reference.At(key).Str())
			}
		}
		if v := got.At("gitVersion").Str(); !strings.HasPrefix(v, reference.At("gitVersion").Str()) {
			t.Errorf("gitVersion %s", v)
		}
	}
	if got.At("platform").Str() != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("platform %s", got.At("platform").Str())
	}
}

// SPEC: URI-8
func TestDocumentsAreKeptUntilTheirTypesChange(t *testing.T) {
	all := referenceResources(t)
	defined := newDefined(t)
	d := New(Config{Registry: defined.registry(all), Version: testVersion, Models: builtin.Models})
	paths := []string{"/apis", "/apis/apps/v1", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/batch/v1",
		"/openapi/v2"}
	get := func() map[string]*Document {
		docs := map[string]*Document{}
		for _, path := range paths {
			doc, ok, err := d.Get(path, mediaJSON)
			if !ok || err != nil {
				t.Fatal(path, ok, err)
			}
			docs[path] = doc
		}
		return docs
	}
	first, again := get(), get()
	for path, doc := range first {
		if again[path] != doc {
			t.Errorf("%s was made twice", path)
		}
	}

	// Another type in batch/v1: documents about apps/v1 alone do not change, all others do.
	extra := *all[0]
	extra.Group, extra.Version, extra.Name, extra.Kind = "batch", "v1", "extras", "Extra"
	defined.set("extra", extra.StoredAlone("batch/extras"))
	second := get()
	for path, kept := range map[string]bool{
		"/apis/apps/v1": true, "/openapi/v3/apis/apps/v1": true, "/openapi/v3/apis/batch/v1": false, "/openapi/v3": false,
		"/openapi/v2": false,
	} {
		if (second[path] == first[path]) != kept {
			t.Errorf("%s: kept: %v, want %v", path, !kept, kept)
		}
	}
	for _, path := range paths[2:] {
		if path != "/openapi/v3/apis/apps/v1" && first[path].ETag == second[path].ETag {
			t.Errorf("%s has the same ETag with other types", path)
		}
	}

	// The same types again, here or in a new process: the same hashes.
	defined.set("extra")
	fresh := New(Config{Registry: engine.NewRegistry(all), Version: testVersion, Models: builtin.Models})
	for _, path := range paths[2:] {
		for _, d := range []*Documents{d, fresh} {
			doc, _, _ := d.Get(path, mediaJSON)
			if doc.ETag != first[path].ETag {
				t.Errorf("%s: the hash is not the same", path)
			}
			a, _ := doc.Plain()
			if b, _ := first[path].Plain(); !bytes.Equal(a, b) {
				t.Errorf("%s: the bytes are not the same", path)
			}
		}
	}
}

// A hash depends on the document alone: it is equal for equal documents, and differs if a description or a field does.
//
// SPEC: URI-8
func TestHashIsOfTheContent(t *testing.T) {
	thing := &schema.Type{Kind: schema.Struct, Name: "com.example.v1.Thing", Fields: []schema.Field{
		{Name: "size", Type: &schema.Type{Kind: schema.Int, Bits: 32}},
	}}
	of := func(typ *schema.Type, version Version) (hash, location string) {
		r := &engine.Resource{
			Naming: engine.Naming{
				Group: "example.com", Version: "v1", Name: "things", Kind: "Thing", ListKind: "ThingList",
				Verbs: []string{"get"},
			},
			Schema: func() *schema.Type { return typ },
			Model:  typ.Name,
		}
		d := New(Config{Registry: engine.NewRegistry([]*engine.Resource{r.StoredAlone("example.com/things")}),
			Version: version, Models: builtin.Models})
		index := parse(t, plain(t, d, "/openapi/v3", ""))
		doc, _, _ := d.Get("/openapi/v3/apis/example.com/v1", "")
		text := plain(t, d, "/openapi/v3/apis/example.com/v1", "")
		if want := fmt.Sprintf("%X", sha256.Sum256(text)); doc.ETag != want {
			t.Errorf("ETag %s, the bytes have %s", doc.ETag, want)
		}
		return doc.ETag, index.At("paths", "apis/example.com/v1", "serverRelativeURL").Str()
	}
	hash, location := of(thing, testVersion)
	newer := testVersion
	newer.GitVersion, newer.BuildDate = "v1.37.2+plinth", "2026-01-01T00:00:00Z"
	if again, at := of(thing, newer); again != hash || at != location {
		t.Error("a document with the same bytes has another hash in another build of the server")
	}
	larger := *thing
	larger.Fields = []schema.Field{{Name: "size", Type: &schema.Type{Kind: schema.Int, Bits: 64}}}
	if other, at := of(&larger, testVersion); other == hash || at == location {
		t.Error("a document with another schema has the same hash")
	}
}

// SPEC: URI-8
func TestIndexLeadsToTheDocuments(t *testing.T) {
	d := newDocuments(recordedResources(t))
	index := parse(t, plain(t, d, "/openapi/v3", ""))
	want := map[string]bool{}
	for _, p := range d.v3Documents(d.catalog()) {
		want[p.name] = true
	}
	for _, m := range index.At("paths").Members() {
		location := m.Value.At("serverRelativeURL").Str()
		path, hash, _ := strings.Cut(location, "?hash=")
		doc, ok, err := d.Get(path, mediaJSON)
		if !ok || err != nil {
			t.Errorf("%s leads to %s, which is not served (%v)", m.Key, path, err)
			continue
		}
		if doc.ETag != hash || doc.URL != location {
			t.Errorf("%s: ETag %s at %s, want %s", location, doc.ETag, doc.URL, hash)
		}
		delete(want, m.Key)
	}
	if len(want) > 0 {
		t.Errorf("not in the index: %v", want)
	}
}

// SPEC: URI-8
func TestLargeDocumentsAreKeptCompressedOnly(t *testing.T) {
	d := New(Config{Registry: engine.NewRegistry(referenceResources(t)), Version: testVersion, Models: builtin.Models})
	kept := 0
	for _, path := range []string{"/openapi/v2", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/apis/apps/v1",
		"/openapi/v3"} {
		doc, _, _ := d.Get(path, mediaJSON)
		if len(doc.Body) > plainLimit {
			t.Errorf("%s: %d bytes are kept plain", path, len(doc.Body))
		}
		text, err := doc.Plain()
		if err != nil {
			t.Fatal(err)
		}
		var streamed bytes.Buffer
		if n, err := doc.WriteTo(&streamed); err != nil || n != int64(len(text)) || !bytes.Equal(streamed.Bytes(), text) {
			t.Errorf("%s: WriteTo and Plain differ (%v)", path, err)
		}
		kept += len(doc.Body) + len(doc.Gzip)
	}
	if kept > 800<<10 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// SPEC: URI-8
func TestManyReadersWhileTypesChange(t *testing.T) {
	all := referenceResources(t)
	defined := newDefined(t)
	d := New(Config{Registry: defined.registry(all), Version: testVersion, Models: builtin.Models})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				path := []string{"/apis", "/apis/apps/v1", "/openapi/v3", "/openapi/v3/apis/policy/v1"}[(i+n)%4]
				doc, ok, err := d.Get(path, mediaJSON)
				if !ok || err != nil {
					t.Errorf("%s: %v %v", path, ok, err)
					return
				}
				if _, err := doc.Plain(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for i := range 50 {
		extra := *all[0]
		extra.Group, extra.Version, extra.Name = "example.com", "v1", "extras"
		extra.StoredAlone("example.com/extras")
		if i%2 == 0 {
			defined.set("extra", &extra)
		} else {
			defined.set("extra")
		}
		if _, ok, _ := d.Get("/apis/example.com/v1", ""); ok != (i%2 == 0) {
			t.Errorf("change %d: a type that is served is not told of, or the other way around", i)
		}
	}
	close(done)
	wg.Wait()
}

// To print documents, no type is compiled for requests: what a document needs is garbage once it is printed.
//
// SPEC: URI-8
func TestDocumentsCompileNoTypesForRequests(t *testing.T) {
	resources := builtin.Resources(builtin.Config{})
	for _, r := range resources {
		r.Schema = func() *schema.Type { t.Errorf("%s is compiled", r.Model); return nil }
		for _, s := range r.Subresources {
			if s.Schema != nil {
				s.Schema = func() *schema.Type { t.Errorf("%s is compiled", s.Model); return nil }
			}
		}
	}
	d := New(Config{Registry: engine.NewRegistry(resources), Version: testVersion, Models: builtin.Models})
	paths := []string{"/openapi/v2", "/api", "/apis", "/apis/apps/v1"}
	for _, m := range parse(t, plain(t, d, "/openapi/v3", "")).At("paths").Members() {
		paths = append(paths, "/openapi/v3/"+m.Key)
	}
	for _, path := range paths {
		plain(t, d, path, mediaJSON)
	}
	if len(paths) < 50 {
		t.Errorf("only %d documents", len(paths))
	}
}

// Documents that were dropped are garbage, and are the same when they are requested again; the index needs only the
// hashes, which stay.
//
// SPEC: URI-8
func TestDrop(t *testing.T) {
	d := openAPIDocuments(t)
	d.Drop() // nothing has been printed
	paths := []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis",
		"/openapi/v3/apis/apps", "/apis", "/apis/apps/v1"}
	get := func(path string) *Document {
		doc, ok, err := d.Get(path, mediaJSON)
		if !ok || err != nil {
			t.Fatalf("%s: %v, %v", path, ok, err)
		}
		return doc
	}
	texts, kept := map[string][]byte{}, map[string]weak.Pointer[Document]{}
	for _, path := range paths {
		texts[path], kept[path] = plain(t, d, path, mediaJSON), weak.Make(get(path))
	}
	runtime.GC()
	for path, doc := range kept {
		if doc.Value() == nil {
			t.Fatalf("%s is not kept", path)
		}
	}
	d.Drop()
	runtime.GC()
	for path, doc := range kept {
		if doc.Value() != nil {
			t.Errorf("%s is still there", path)
		}
	}
	printed := d.counters.openAPI.Load()
	for _, path := range paths[1:] {
		if !bytes.Equal(plain(t, d, path, mediaJSON), texts[path]) {
			t.Errorf("%s differs", path)
		}
	}
	if got := d.counters.openAPI.Load() - printed; got != 3 {
		t.Errorf("%d OpenAPI documents were printed again, not three: not what the index has the hashes of", got)
	}
	if !bytes.Equal(plain(t, d, paths[0], mediaJSON), texts[paths[0]]) {
		t.Errorf("%s differs", paths[0])
	}
}
