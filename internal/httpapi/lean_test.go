package httpapi

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"plinth/internal/features"
	"plinth/object"
)

const dropManaged = ";drop=metadata.managedFields"

// withoutManaged returns a document without any managedFields.
func withoutManaged(v object.Value) object.Value {
	switch v.Kind() {
	case object.Map:
		var members []object.Member
		for _, m := range v.Members() {
			if m.Key != "managedFields" {
				members = append(members, object.Member{Key: m.Key, Value: withoutManaged(m.Value)})
			}
		}
		return object.MapOf(members...)
	case object.List:
		var items []object.Value
		for _, item := range v.Items() {
			items = append(items, withoutManaged(item))
		}
		return object.ListOf(items...)
	}
	return v
}

func valueOf(t *testing.T, mediaType, body string) object.Value {
	t.Helper()
	parse := object.ParseJSON
	switch {
	case strings.HasPrefix(mediaType, "application/yaml"):
		parse = object.ParseYAML
	case strings.HasPrefix(mediaType, "application/cbor"):
		parse = object.ParseCBOR
	}
	parsed, err := parse([]byte(body))
	if err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	return parsed.Value
}

// SPEC: MED-10
func TestWithoutManagedFields(t *testing.T) { inBubble(t, nil, testWithoutManagedFields) }

func testWithoutManagedFields(t *testing.T, s *server) {
	for i := range 200 {
		s.do("POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"c%03d","labels":{"a":"b"}},"data":{"k":"%s"}}`, i,
			strings.Repeat("v", 1000)))
	}
	const meta = ";g=meta.k8s.io;v=v1;as="
	for _, c := range []struct{ path, accept string }{
		{configMaps + "/c007", "application/json"},
		{configMaps + "/c007", "application/yaml"},
		{configMaps + "/c007", "application/cbor"},
		{configMaps + "/c007", "application/json" + meta + "PartialObjectMetadata"},
		{configMaps + "/c007", "application/cbor" + meta + "PartialObjectMetadata"},
		{configMaps + "/c007?includeObject=Object", "application/json" + meta + "Table"},
		{configMaps + "/c007", "application/json" + meta + "Table"},
		{configMaps, "application/json"},
		{configMaps, "application/yaml"},
		{configMaps, "application/cbor"},
		{configMaps, "application/json" + meta + "PartialObjectMetadataList"},
		{configMaps + "?includeObject=Object", "application/json" + meta + "Table"},
		{configMaps + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=c007", "application/json"},
		{configMaps + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=c007",
			"application/json" + meta + "PartialObjectMetadata"},
	} {
		whole := valueOf(t, c.accept, s.do("GET", c.path, "", "Accept", c.accept).body)
		lean := valueOf(t, c.accept, s.do("GET", c.path, "", "Accept", c.accept+dropManaged).body)
		if !object.Equal(lean, withoutManaged(whole)) || object.Equal(lean, whole) {
			t.Errorf("GET %s as %s: %.2000s", c.path, c.accept, object.AppendJSON(nil, lean))
		}
	}
	for _, accept := range []string{ // other parameters do not drop managedFields
		"application/json;drop=metadata.annotations", "application/json;drop=", "application/json;drop=managedFields",
		"text/plain;drop=metadata.managedFields,application/json",
	} {
		if got := s.do("GET", configMaps+"/c007", "", "Accept", accept); !strings.Contains(got.body, "managedFields") {
			t.Errorf("%s: %s", accept, got.body)
		}
	}
	for _, w := range []struct{ method, path, body, contentType string }{
		{"POST", configMaps, `{"metadata":{"name":"new"}}`, "application/json"},
		{"PUT", configMaps + "/new", `{"metadata":{"name":"new"},"data":{"a":"b"}}`, "application/json"},
		{"PATCH", configMaps + "/new", `{"data":{"a":"c"}}`, "application/merge-patch+json"},
		{"PATCH", configMaps + "/new?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"y"}}`,
			"application/apply-patch+yaml"},
	} {
		got := s.do(w.method, w.path, w.body, "Content-Type", w.contentType, "Accept",
			"application/json;drop=metadata.labels+metadata.managedFields")
		if got.code/100 != 2 || strings.Contains(got.body, "managedFields") {
			t.Errorf("%s: %d %s", w.method, got.code, got.body)
		}
	}
	if got := s.do("GET", configMaps+"/new", ""); strings.Count(got.body, `"manager":`) < 2 {
		t.Errorf("managedFields are lost: %s", got.body)
	}
}

// SPEC: MED-10 MED-3
func TestProtobufWithoutManagedFields(t *testing.T) {
	inBubble(t, nil, testProtobufWithoutManagedFields)
}

func testProtobufWithoutManagedFields(t *testing.T, s *server) {
	s.do("POST", configMaps, `{"metadata":{"name":"a","finalizers":["x/y"]},"data":{"k":"v"}}`)
	const protobuf = "application/vnd.kubernetes.protobuf"
	raw := func(body string) []byte {
		var u runtime.Unknown
		if err := u.Unmarshal([]byte(strings.TrimPrefix(body, "k8s\x00"))); err != nil {
			t.Fatal(err)
		}
		return u.Raw
	}
	check := func(what string, meta metav1.ObjectMeta) {
		t.Helper()
		if meta.Name != "a" || len(meta.Finalizers) != 1 || meta.ResourceVersion == "" || len(meta.ManagedFields) != 0 {
			t.Errorf("%s: %v", what, meta)
		}
	}
	for range 2 { // the second time, the messages come from the cache
		s.do("GET", configMaps, "", "Accept", protobuf)
		var one corev1.ConfigMap
		if err := one.Unmarshal(raw(s.do("GET", configMaps+"/a", "", "Accept", protobuf+dropManaged).body)); err != nil {
			t.Fatal(err)
		}
		check("get", one.ObjectMeta)
		if one.Data["k"] != "v" {
			t.Errorf("data %v", one.Data)
		}
		var list corev1.ConfigMapList
		if err := list.Unmarshal(raw(s.do("GET", configMaps, "", "Accept", protobuf+dropManaged).body)); err != nil {
			t.Fatal(err)
		}
		check("list", list.Items[0].ObjectMeta)
		var partial metav1.PartialObjectMetadata
		if err := partial.Unmarshal(raw(s.do("GET", configMaps+"/a", "", "Accept",
			protobuf+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"+dropManaged).body)); err != nil {
			t.Fatal(err)
		}
		check("partial", partial.ObjectMeta)
		body := s.do("GET", configMaps+"?watch=1&timeoutSeconds=1", "", "Accept", protobuf+dropManaged).body
		var event metav1.WatchEvent
		if err := event.Unmarshal([]byte(body[4 : 4+binary.BigEndian.Uint32([]byte(body))])); err != nil {
			t.Fatal(err)
		}
		var watched corev1.ConfigMap
		if err := watched.Unmarshal(raw(string(event.Object.Raw))); err != nil {
			t.Fatal(err)
		}
		check("watch", watched.ObjectMeta)
	}
}

// SPEC: MED-10
func TestManagedFieldsWithoutTheGate(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Features = c.Features.With(features.ManagedFieldsOptOut, false) })
	s.do("POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	if got := s.do("GET", configMaps+"/a", "", "Accept", "application/json"+dropManaged); !strings.Contains(got.body,
		"managedFields") {
		t.Error(got.body)
	}
}
