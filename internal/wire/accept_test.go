package wire

import (
	"strings"
	"testing"
)

// SPEC: MED-1, MED-2, MED-6, MED-7
// offered is every media type that the server offers.
var offered = Offer{CBOR: true}

func TestNegotiate(t *testing.T) {
	const (
		table    = "application/json;as=Table;v=v1;g=meta.k8s.io"
		protobuf = "application/vnd.kubernetes.protobuf"
	)
	for _, c := range []struct {
		accept string
		want   Media
		ok     bool
	}{
		{"", Media{}, true},
		{"*/*", Media{}, true},
		{"application/json", Media{}, true},
		{"application/json;charset=utf-8", Media{}, true},
		{"application/yaml", Media{Encoding: YAML}, true},
		{protobuf, Media{Encoding: Protobuf}, true},
		{protobuf + ",application/json", Media{Encoding: Protobuf}, true},
		{protobuf + ", application/yaml", Media{Encoding: Protobuf}, true},
		{protobuf + ";q=0.5, application/yaml;q=0.9", Media{Encoding: YAML}, true},
		{protobuf + ";stream=watch", Media{Encoding: Protobuf}, true},
		{protobuf + ";as=Table;g=meta.k8s.io;v=v1", Media{}, false},
		{protobuf + ";as=Table;g=meta.k8s.io;v=v1," + protobuf, Media{Encoding: Protobuf}, true},
		{"application/cbor", Media{Encoding: CBOR}, true},
		{"application/cbor;as=Table;g=meta.k8s.io;v=v1", Media{}, false},
		{"application/cbor;stream=watch", Media{Encoding: CBOR}, true},
		{"application/cbor-seq", Media{}, false},
		{"image/png, application/yaml, application/json", Media{Encoding: YAML}, true},
		{"application/json;q=0.1, application/yaml;q=0.9", Media{Encoding: YAML}, true},
		{"application/json;q=x, application/yaml;q=0.9", Media{}, true},
		{"application/json;q=0", Media{}, true},
		{"*/*,application/yaml", Media{Encoding: YAML}, true},
		{"application/*", Media{}, true},
		{",,application/json,", Media{}, true},
		{"hello", Media{}, false},
		{"/", Media{}, false},
		{table, Media{Form: AsTable, Version: "v1"}, true},
		{strings.Replace(table, "v=v1", "v=v1beta1", 1), Media{Form: AsTable, Version: "v1beta1"}, true},
		{strings.Replace(table, "v=v1", "v=v2", 1), Media{}, false},
		{strings.Replace(table, "meta.k8s.io", "example.com", 1), Media{}, false},
		{"application/json;as=Table", Media{}, false},
		{"application/json;v=1", Media{}, false},
		{"application/json;as=Chair;g=meta.k8s.io;v=v1", Media{}, false},
		{"application/json;as=Chair;g=meta.k8s.io;v=v1,application/json", Media{}, true},
		{table + ",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
			Media{Form: AsTable, Version: "v1"}, true},
		{"application/yaml; as=Table; g=meta.k8s.io; v=v1", Media{Encoding: YAML, Form: AsTable, Version: "v1"}, true},
		{"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Media{Form: AsPartial, Version: "v1"}, true},
		{"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Media{Form: AsPartials, Version: "v1"}, true},
		{protobuf +
			";as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
			Media{Encoding: Protobuf, Form: AsPartial, Version: "v1"}, true},
		{"application/json;pretty=1", Media{Pretty: true}, true},
		{"application/json;stream=watch", Media{}, true},
		{"application/json;stream=other", Media{}, false},
		{"application/yaml;stream=watch", Media{}, false},
		{"application/json;sv=v1", Media{}, true},
		{"application/json;sv=v2", Media{}, false},
	} {
		got, ok := offered.Negotiate(c.accept)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("Negotiate(%q) = %+v, %v; want %+v, %v", c.accept, got, ok, c.want, c.ok)
		}
	}
}

// An error has one form only: a client that accepts nothing but Tables still receives errors as a JSON Status.
//
// SPEC: URI-9
// SPEC: MED-6
func TestNegotiateWithoutTables(t *testing.T) {
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	without := Offer{NoTables: true}
	if m, ok := without.Negotiate(table); ok {
		t.Errorf("a Table was negotiated for a type without Tables: %+v", m)
	}
	if m, ok := without.Negotiate(table + ",application/yaml"); !ok || m != (Media{Encoding: YAML}) {
		t.Errorf("falling back: %+v, %v", m, ok)
	}
}

func TestNegotiateError(t *testing.T) {
	if m, ok := offered.NegotiateError("application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml"); !ok ||
		m != (Media{Encoding: YAML}) {
		t.Errorf("got %+v, %v", m, ok)
	}
	if m, ok := offered.NegotiateError("application/json;as=Table;v=v1;g=meta.k8s.io"); ok {
		t.Errorf("got %+v", m)
	}
}

func TestLiteral(t *testing.T) {
	for accept, want := range map[string]bool{
		"": true, "*/*": true, "text/html, */*;q=0.8": true, " application/json ;q=1": true, "application/yaml": true,
		"application/*": false, "APPLICATION/JSON": false, "*": false, "text/yaml": false, "hello": false,
	} {
		if got := Literal(accept, offered.MediaTypes()...); got != want {
			t.Errorf("Literal(%q) = %v", accept, got)
		}
	}
}

// The negotiated type is always one that the header names, and the parser fails on no input.
func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.5")
	f.Add("a/b;q=1;q=2,*/*;;=,;")
	f.Fuzz(func(t *testing.T, accept string) {
		m, ok := offered.Negotiate(accept)
		if !ok {
			return
		}
		if m.Form != Plain && (m.Version != "v1" && m.Version != "v1beta1" || !strings.Contains(accept, "meta.k8s.io")) {
			t.Errorf("%q gives %+v", accept, m)
		}
		if m.Encoding == YAML && !strings.Contains(accept, "yaml") && !strings.Contains(accept, "*") {
			t.Errorf("%q gives YAML", accept)
		}
		if e, ok := offered.NegotiateError(accept); ok && e.Form != Plain {
			t.Errorf("%q gives an error as %+v", accept, e)
		}
	})
}

// Clauses are sorted by quality, for any header.
func FuzzParseAccept(f *testing.F) {
	for _, accept := range []string{"", "*", "*/*;q=0.1,a/b", "a/b;x=y;q=2,c", ",,;", "a/b;q=NaN"} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		clauses := ParseAccept(accept).Clauses()
		if len(clauses) > strings.Count(accept, ",")+1 {
			t.Fatalf("%d clauses in %q", len(clauses), accept)
		}
		for i, c := range clauses {
			if c.kind == "" || c.sub == "" || !(c.quality >= 0 && c.quality <= 1) {
				t.Fatalf("%q: %+v", accept, c)
			}
			if i > 0 && clauses[i-1].less(c) {
				t.Fatalf("%q is not sorted: %+v", accept, clauses)
			}
		}
	})
}

func BenchmarkNegotiate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		offered.Negotiate(
			"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	}
}
