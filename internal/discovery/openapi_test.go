package discovery

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// differences are the known differences of the documents, with reasons, by the end of the path in the document.
var differences = []struct{ place, why string }{
	{"api.resource.Quantity/description", undescribed},
	{"meta.v1.Time/description", undescribed},
	{"meta.v1.MicroTime/description", undescribed},
	{"meta.v1.GroupResource/description", undescribed},
	{"pkg.runtime.RawExtension/description", undescribed},
	{"util.intstr.IntOrString/description", undescribed},
	{"meta.v1.WatchEvent/description", undescribed},
	{"meta.v1.WatchEvent/properties/object/description", undescribed},
	{"pkg.version.Info/description", undescribed},
	{"pkg.version.Info/properties/major/description", undescribed},
	{"pkg.version.Info/properties/minor/description", undescribed},
	{"pkg.version.Info/properties/emulationMajor/description", undescribed},
	{"pkg.version.Info/properties/emulationMinor/description", undescribed},
	{"pkg.version.Info/properties/minCompatibilityMajor/description", undescribed},
	{"pkg.version.Info/properties/minCompatibilityMinor/description", undescribed},

	{"core.v1.PodSecurityContext/properties/fsGroup/description", cutShort},
	{"core.v1.TopologySpreadConstraint/properties/maxSkew/description", cutShort},
	{"core.v1.TopologySpreadConstraint/properties/minDomains/description", cutShort},
	{"core.v1.TopologySpreadConstraint/properties/whenUnsatisfiable/description", cutShort},
	{"certificates.v1.CertificateSigningRequestStatus/properties/certificate/description", cutShort},
	{"core.v1.PodSpec/properties/setHostnameAsFQDN/description", backslashes},
	{"admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec/properties/validationActions/description",
		backslashes},
}

const (
	undescribed = "the Go type describes nothing at run time; the words are ours"
	cutShort    = "SwaggerDoc ends at a line of dashes in the comment"
	backslashes = "the comment's quotes and backslashes went through one generator or the other"
)

// enumValues begins the part of a description that lists the values of an enum. The reference describes each value
// there, in words that exist only in the comments of its sources.
const enumValues = "Possible enum values:"

func isKnown(place string) bool {
	for _, d := range differences {
		if strings.HasSuffix(place, d.place) {
			return true
		}
	}
	return false
}

// normal removes from a document the known differences, and the order of required members, which has no meaning. For
// the kinds of OpenAPI 2.0, which the reference lists with every version that it has, served names those that are
// compared.
func normal(place string, v object.Value, served func(group, version string) bool) object.Value {
	switch v.Kind() {
	case object.Map:
		var members []object.Member
		for _, m := range v.Members() {
			at := place + "/" + m.Key
			if isKnown(at) {
				continue
			}
			value := normal(at, m.Value, served)
			switch {
			case m.Key == "required" && value.Kind() == object.List:
				items := texts(value)
				sort.Strings(items)
				value = object.Strings(items...)
			case m.Key == "description" && value.Kind() == object.String:
				text, _, _ := strings.Cut(value.Str(), enumValues)
				value = object.StringOf(strings.TrimSpace(text))
			case m.Key == "x-kubernetes-group-version-kind" && value.Kind() == object.List:
				value = object.ListOf(slices.DeleteFunc(slices.Clone(value.Items()), func(kind object.Value) bool {
					return !served(kind.At("group").Str(), kind.At("version").Str())
				})...)
			}
			members = append(members, object.Member{Key: m.Key, Value: value})
		}
		return object.MapOf(members...)
	case object.List:
		items := make([]object.Value, v.Len())
		for i, item := range v.Items() {
			items[i] = normal(fmt.Sprintf("%s[%d]", place, i), item, served)
		}
		return object.ListOf(items...)
	}
	return v
}

// facts are the hashes of the parts of a document, small enough to be recorded.
func facts(name string, v object.Value) map[string]string {
	parts := map[string][]object.Member{}
	add := func(part string, m object.Member) { parts[part] = append(parts[part], m) }
	for _, m := range v.Members() {
		switch m.Key {
		case "paths":
			for _, p := range m.Value.Members() {
				parts := strings.SplitN(p.Key, "/", 5)
				add(name+" paths "+strings.Join(parts[:min(len(parts), 4)], "/"), p)
			}
		case "definitions", "components":
			models := m.Value
			if m.Key == "components" {
				models = m.Value.At("schemas")
				add(name+" rest", object.Member{Key: "components", Value: m.Value.Without("schemas")})
			}
			for _, model := range models.Members() {
				add(name+" models "+model.Key[:strings.LastIndexByte(model.Key, '.')], model)
			}
		default:
			add(name+" rest", m)
		}
	}
	hashes := map[string]string{}
	for part, members := range parts {
		sum := sha256.Sum256(object.AppendJSON(nil, object.MapOf(members...)))
		hashes[part] = fmt.Sprintf("%d %x", len(members), sum[:8])
	}
	return hashes
}

// SPEC: URI-8
func TestOpenAPIIsTheReferences(t *testing.T) {
	d := openAPIDocuments(t)
	c := d.catalog()
	served := func(group, version string) bool { return c.find(group, version) != nil }
	anyVersion := func(string, string) bool { return true }
	got, want := map[string]string{}, map[string]string{}
	compare := func(name, path string, served func(group, version string) bool) {
		doc, ok, err := d.Get(path, mediaJSON)
		if !ok || err != nil {
			t.Fatal(path, ok, err)
		}
		body, err := doc.Plain()
		if err != nil {
			t.Fatal(err)
		}
		ours := normal("", parse(t, body), served)
		maps.Copy(got, facts(name, ours))
		if *reference != "" {
			theirs := normal("", parse(t, ask(t, path, mediaJSON)), served)
			maps.Copy(want, facts(name, theirs))
			diff(t, name, theirs, ours)
		}
	}
	for _, p := range d.v3Documents(c) {
		compare("3 "+p.name, "/openapi/v3/"+p.name, anyVersion)
	}
	compare("2", "/openapi/v2", served)
	const file = "testdata/openapi.txt"
	if *rewrite {
		writeFacts(t, file, want)
	}
	if *reference == "" {
		want = readFacts(t, file)
	}
	for _, part := range slices.Sorted(maps.Keys(got)) {
		if want[part] != got[part] {
			t.Errorf("%s: %s, the reference has %s (run with -reference to see where)", part, got[part], want[part])
		}
	}
	for _, part := range slices.Sorted(maps.Keys(want)) {
		if got[part] == "" {
			t.Errorf("%s: missing", part)
		}
	}
}

// SPEC: URI-8, MED-4: without CBOR no document lists it, and the hashes differ, so that clients that keep documents by
// hash notice.
func TestOpenAPIWithoutCBOR(t *testing.T) {
	with := openAPIDocuments(t)
	without := New(Config{Registry: with.registry, Version: testVersion, Models: builtin.Models,
		Features: features.Set{}.With(features.CBORServingAndStorage, false)})
	for _, path := range []string{"/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v2"} {
		var docs [2]*Document
		for i, d := range []*Documents{with, without} {
			doc, ok, err := d.Get(path, mediaJSON)
			if err != nil || !ok {
				t.Fatalf("%s: %v, %v", path, ok, err)
			}
			text, err := doc.Plain()
			if err != nil {
				t.Fatal(err)
			}
			for _, media := range []string{"application/cbor", "application/cbor-seq", "application/apply-patch+cbor"} {
				if has := bytes.Contains(text, []byte(`"`+media+`"`)); has != (i == 0) {
					t.Errorf("%s, without CBOR %v: %s is there: %v", path, i == 1, media, has)
				}
			}
			docs[i] = doc
		}
		if docs[0].ETag == docs[1].ETag {
			t.Errorf("%s: both are %s", path, docs[0].ETag)
		}
	}
}

func openAPIDocuments(t testing.TB) *Documents {
	return New(Config{Registry: engine.NewRegistry(referenceResources(t)), Version: testVersion, Models: builtin.Models,
		AccountPages: true})
}

func writeFacts(t *testing.T, file string, facts map[string]string) {
	var out bytes.Buffer
	for _, part := range slices.Sorted(maps.Keys(facts)) {
		fmt.Fprintf(&out, "%s: %s\n", part, facts[part])
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFacts(t *testing.T, file string) map[string]string {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(data)) {
		part, fact, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		facts[part] = fact
	}
	return facts
}

// diff reports every place in which two values differ.
func diff(t *testing.T, place string, want, got object.Value) {
	t.Helper()
	if object.Equal(want, got) {
		return
	}
	text := func(v object.Value) []byte { return object.AppendJSON(nil, v) }
	switch {
	case want.Kind() == object.Map && got.Kind() == object.Map:
		for _, m := range want.Members() {
			v, ok := got.Get(m.Key)
			if !ok {
				t.Errorf("%s/%s: missing %.300s", place, m.Key, text(m.Value))
				continue
			}
			diff(t, place+"/"+m.Key, m.Value, v)
		}
		for _, m := range got.Members() {
			if _, ok := want.Get(m.Key); !ok {
				t.Errorf("%s/%s: too much %.300s", place, m.Key, text(m.Value))
			}
		}
	case want.Kind() == object.List && got.Kind() == object.List && want.Len() == got.Len():
		for i, item := range want.Items() {
			diff(t, fmt.Sprintf("%s[%d]", place, i), item, got.Items()[i])
		}
	default:
		t.Errorf("%s: %.300s, want %.300s", place, text(got), text(want))
	}
}
