package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"plinth/internal/features"
	"plinth/object"
)

// cborOf converts JSON to CBOR as client-go does.
func cborOf(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	data, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fromCBOR decodes CBOR as client-go does.
func fromCBOR(t *testing.T, data string) (v any) {
	t.Helper()
	if !strings.HasPrefix(data, "\xd9\xd9\xf7") {
		t.Errorf("the tag that marks CBOR is missing: %q", data)
	}
	if err := direct.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	return v
}

// fromJSON decodes JSON to the values that fromCBOR returns, where integers are not floats.
func fromJSON(t *testing.T, data string) any {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(data))
	if err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	return fromCBOR(t, string(object.CBOR(object.AppendJSON(nil, parsed.Value))))
}

// SPEC: MED-4
func TestCBORSaysWhatJSONSays(t *testing.T) {
	s := newServer(t, nil)
	for i := range 200 { // more than one flush of a list
		body := fmt.Sprintf(`{"metadata":{"name":"c%03d","labels":{"é":"<x>"}},"data":{"k":"%s"}}`, i,
			strings.Repeat("v", 1000))
		if got := s.do("POST", configMaps, cborOf(t, body), "Content-Type", "application/cbor", "Accept",
			"application/cbor"); got.code != 422 && i == 0 {
			t.Fatalf("%d %s", got.code, got.body) // é is not allowed in the key of a label
		} else if i == 0 {
			if reason := fromCBOR(t, got.body).(map[string]any)["reason"]; reason != "Invalid" {
				t.Errorf("the reason is %v", reason)
			}
		}
		body = strings.Replace(body, "é", "e", 1)
		body = strings.Replace(body, "<x>", "x", 1)
		if got := s.do("POST", configMaps, cborOf(t, body), "Content-Type", "application/cbor", "Accept",
			"application/cbor"); got.code != 201 {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	const partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for _, c := range []struct{ path, params string }{
		{configMaps + "/c007", ""},
		{configMaps + "/none", ""},
		{configMaps + "/c007", partial},
		{configMaps, ""},
		{configMaps + "?limit=3", ""},
		{configMaps, ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		{configMaps + "?labelSelector=e=none", ""},
	} {
		in := s.do("GET", c.path, "", "Accept", "application/cbor"+c.params)
		text := s.do("GET", c.path, "", "Accept", "application/json"+c.params)
		if in.code != text.code || in.header.Get("Content-Type") != "application/cbor" {
			t.Errorf("%s: %d %s", c.path, in.code, in.header.Get("Content-Type"))
		}
		if got, want := fromCBOR(t, in.body), fromJSON(t, text.body); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, in JSON %v", c.path, got, want)
		}
	}
	if got := s.do("GET", configMaps, "", "Accept", "application/cbor;as=Table;g=meta.k8s.io;v=v1"); got.code != 406 {
		t.Errorf("a Table in CBOR: %d", got.code)
	}
}

// SPEC: MED-4 WATCH-1 WATCH-4
func TestWatchInCBOR(t *testing.T) { inBubble(t, nil, testWatchInCBOR) }

func testWatchInCBOR(t *testing.T, s *server) {
	s.do("POST", configMaps, `{"metadata":{"name":"a"}}`)
	got := s.do("GET", configMaps+
		"?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "",
		"Accept", "application/cbor")
	if got.header.Get("Content-Type") != "application/cbor-seq" {
		t.Errorf("the type is %s", got.header.Get("Content-Type"))
	}
	if n := strings.Count(got.body, "\xd9\xd9\xf7"); n != 2 {
		t.Errorf("%d items with the tag that marks CBOR", n)
	}
	var types []string
	decoder := cbor.NewDecoder(strings.NewReader(got.body))
	for decoder.NumBytesRead() < len(got.body) {
		var item cbor.RawMessage
		if err := decoder.Decode(&item); err != nil {
			t.Fatal(err)
		}
		event := fromCBOR(t, "\xd9\xd9\xf7"+string(item)).(map[string]any) // the decoder takes the tag off
		kind := event["object"].(map[string]any)["kind"]
		types = append(types, fmt.Sprint(event["type"], " ", kind))
	}
	if want := []string{"ADDED ConfigMap", "BOOKMARK ConfigMap"}; !reflect.DeepEqual(types, want) {
		t.Errorf("events %q, want %q", types, want)
	}
}

// SPEC: MED-4 SSA-2
func TestApplyInCBOR(t *testing.T) {
	s := newServer(t, nil)
	intent := cborOf(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)
	got := s.do("PATCH", configMaps+"/a?fieldManager=m", intent, "Content-Type", "application/apply-patch+cbor")
	if got.code != 201 || !strings.Contains(got.body, `"f:data":{"f:k":{}}`) {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// SPEC: MED-4
func TestWithoutCBOR(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Features = c.Features.With(features.CBORServingAndStorage, false) })
	for _, c := range []struct {
		method, path, header, value, body string
		code                              int
		begins                            string
	}{
		{"GET", configMaps, "Accept", "application/cbor", "", http.StatusNotAcceptable, "406: Not Acceptable"},
		{"POST", configMaps, "Content-Type", "application/cbor", "\xa0", http.StatusUnsupportedMediaType,
			"the body of the request was in an unknown format"},
		{"PATCH", configMaps + "/a?fieldManager=m", "Content-Type", "application/apply-patch+cbor", "\xa0",
			http.StatusUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"},
	} {
		got := s.do(c.method, c.path, c.body, c.header, c.value)
		if got.code != c.code || !strings.HasPrefix(got.message(), c.begins) || strings.Contains(got.message(), "cbor") {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.code, got.message())
		}
	}
}
