package etcdform_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/proto"
	"plinth/internal/store"
	"plinth/object"
)

// apiModule is the folder of k8s.io/api, which has an example of each kind.
var apiModule = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	return strings.TrimSpace(string(out)), err
})

// example reads an example: "core.v1.Pod.pb".
func example(tb testing.TB, name string) []byte {
	tb.Helper()
	dir, err := apiModule()
	if err != nil {
		tb.Fatal(err)
	}
	value, err := os.ReadFile(filepath.Join(dir, "testdata", "HEAD", name))
	if err != nil {
		tb.Fatal(err)
	}
	return value
}

// exampleKey is the key of the examples of a resource: all have the same names, even those of cluster-scoped kinds.
func exampleKey(resource string) store.Key {
	return store.Key{Resource: resource, Name: "namespaceValue/nameValue"}
}

// Decoding and encoding return the same, for every built-in kind and both media types. The examples have a selfLink,
// which is not written. SPEC: STORE-3
func TestExamples(t *testing.T) {
	for _, mediaType := range []string{"", etcdform.JSON} {
		registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
		f, found := etcdform.New(registry, mediaType), 0
		for _, r := range registry.Builtin().Builtin() {
			if r.Stored == nil || r.Served != r.Stored.Storage || r.Group == "apiextensions.k8s.io" ||
				r.Group == "apiregistration.k8s.io" { // k8s.io/api has no examples of them
				continue
			}
			group := r.Group
			if group == "" {
				group = "core"
			}
			found++
			value, k := example(t, group+"."+r.Version+"."+r.Kind+".pb"), exampleKey(r.Stored.Path)
			first, sidecar, exact, err := f.Decode(k, value)
			if err != nil || exact || sidecar.Form != r.Stored.Stamp || !bytes.Contains(first, []byte(`"selfLink":`)) {
				t.Errorf("%s: %v, exact %v, sidecar %+v: %s", r.Kind, err, exact, sidecar, first)
				continue
			}
			checkSidecar(t, registry, k, first, sidecar)
			written, err := f.Encode(k, first)
			if err != nil {
				t.Errorf("%s: %v", r.Kind, err)
				continue
			}
			again, sidecar, exact, err := f.Decode(k, written)
			if err != nil || !exact || sidecar.Form != r.Stored.Stamp ||
				!bytes.Equal(again, bytes.Replace(first, []byte(`"selfLink":"selfLinkValue",`), nil, 1)) {
				t.Errorf("%s: %v, exact %v, sidecar %+v: %s", r.Kind, err, exact, sidecar, again)
				continue
			}
			checkSidecar(t, registry, k, again, sidecar)
			if proto.Enveloped(written) != (mediaType == "") {
				t.Errorf("%s: written as %q", r.Kind, written)
			}
		}
		if found < 55 {
			t.Errorf("only %d kinds", found)
		}
	}
}

// checkSidecar checks that what a value is read as is described as the store would describe the bytes.
func checkSidecar(t *testing.T, registry *engine.Registry, k store.Key, data []byte, have *store.Sidecar) {
	t.Helper()
	want := engine.Describe(registry)(k, data)
	if want.Form = have.Form; !reflect.DeepEqual(have, want) {
		t.Errorf("%s is described by %+v, its bytes by %+v", data, have, want)
	}
}

// A value may be JSON with white space and unknown members, YAML, protobuf without the fields that are always empty, or
// base64 of any of them. SPEC: STORE-3
func TestEncodingsThatAreRead(t *testing.T) {
	f, k := newForm(""), store.Key{Resource: "/configmaps", Name: "a/b"}
	const want = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"a","uid":"u"},"data":{"k":"v"}}`
	text := `{"kind": "ConfigMap", "apiVersion": "v1", "unknown": {}, "data": {"k": "v"},` + "\n\t" +
		`"metadata": {"name": "b", "namespace": "a", "uid": "u", "resourceVersion": "5", "colour": 1}}` + "\n"
	yaml := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: a, uid: u}\ndata: {k: v}\n"
	message, err := f.Encode(k, []byte(want))
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }
	for _, value := range []string{text, yaml, " \n" + text, strings.TrimSuffix(string(message), proto.EnvelopeTail),
		encoded(text), encoded(string(message)), encoded(yaml)} {
		data, sidecar, exact, err := f.Decode(k, []byte(value))
		if string(data) != want || sidecar.Form == 0 || exact || err != nil {
			t.Errorf("%q is read as %s, sidecar %+v, exact %v, %v", value, data, sidecar, exact, err)
		}
	}
	data, sidecar, exact, err := f.Decode(k, message)
	if string(data) != want || sidecar.Form == 0 || !exact || err != nil {
		t.Errorf("%q is read as %s, sidecar %+v, exact %v, %v", message, data, sidecar, exact, err)
	}
}

// An object in another version than the one in which its kind is stored is left to the engine, unless only the name of
// the version differs. SPEC: STORE-3
func TestVersionsThatAreRead(t *testing.T) {
	f := newForm("")
	for _, c := range []struct{ resource, value, want string }{
		{"autoscaling/horizontalpodautoscalers",
			`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"b","namespace":"a","uid":"u"},` +
				`"spec":{"scaleTargetRef":{"kind":"D","name":"d"},"maxReplicas":3},"status":{"currentReplicas":0,"desiredReplicas":0}}`,
			"autoscaling/v1"},
		{"/events", `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"b","namespace":"a","uid":"u"},` +
			`"eventTime":null,"regarding":{},"deprecatedSource":{}}`, "events.k8s.io/v1"},
		{"coordination.k8s.io/leases",
			`{"apiVersion":"coordination.k8s.io/v1beta1","kind":"Lease","metadata":{"name":"b","namespace":"a","uid":"u"},"spec":{}}`, ""},
	} {
		k := store.Key{Resource: c.resource, Name: "a/b"}
		data, sidecar, _, err := f.Decode(k, []byte(c.value))
		if version := proto.EnvelopeOf(data).APIVersion; err != nil || (sidecar.Form == 0) != (c.want != "") ||
			c.want != "" && version != c.want || c.want == "" && version != "coordination.k8s.io/v1" {
			t.Errorf("%s: %s, sidecar %+v, %v", c.value, data, sidecar, err)
		}
		if _, err := f.Encode(k, data); err != nil { // by a write that does not convert it
			t.Errorf("%s: %v", data, err)
		}
	}
}

// What is no object of the kind and key is an error. SPEC: STORE-3
func TestValuesThatAreRefused(t *testing.T) {
	f := newForm("")
	k := store.Key{Resource: "/configmaps", Name: "a/b"}
	value, err := f.Encode(k,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"a","uid":"u"},"data":{"k":"v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	envelope := func(apiVersion, kind, message string) string {
		return string(proto.Envelope{APIVersion: apiVersion, Kind: kind}.Append(nil, []byte(message)))
	}
	for _, c := range []struct{ resource, value string }{
		{"/configmaps", ""},
		{"/configmaps", "k8s"},
		{"/configmaps", "k8s\x00"},
		{"/configmaps", string(value[:len(value)/2])},
		{"/configmaps", "k8s\x00\x12\xff\xff\xff\xff\x0f"},
		{"/configmaps", "k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"},
		{"/configmaps", envelope("v1", "Secret", "")},
		{"/configmaps", envelope("v1", "", "")},
		{"/configmaps", envelope("", "ConfigMap", "")},
		{"/configmaps", envelope("v2", "ConfigMap", "")},
		{"/configmaps", envelope("v1", "ConfigMap", "")},
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"a"}}`}, // no UID
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"a","selfLink":"s"}}`},
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"a","uid":"u"}}`},
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"c","uid":"u"}}`},
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","uid":"u"}}`},
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"a","uid":5}}`},
		{"/configmaps", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"a","uid":"u"}}`},
		{"/configmaps", `{"kind":"ConfigMap","metadata":{"name":"b","namespace":"a","uid":"u"}}`},
		{"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap"`},
		{"/configmaps", "[]"},
		{"/configmaps", "5"},
		{"/configmaps", "apiVersion"},
		{"/configmaps", "\x00\x01\x02"},
		{"/configmaps", base64.StdEncoding.EncodeToString([]byte("k8s\x00"))},
		{"/configmaps", base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(value)))},
		{"apiextensions.k8s.io/customresourcedefinitions",
			`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"a/b","uid":"u"},"spec":5}`},
		{"apiregistration.k8s.io/apiservices",
			`{"apiVersion":"apiregistration.k8s.io/v2","kind":"APIService","metadata":{"name":"a/b","uid":"u"}}`},
		{"b.c/as", `{"apiVersion":"b.c/v1","metadata":{"name":"b","namespace":"a","uid":"u"}}`},
		{"b.c/as", `{"apiVersion":"c.d/v1","kind":"A","metadata":{"name":"b","namespace":"a","uid":"u"}}`},
		{"b.c/as", `{"apiVersion":"b.c","kind":"A","metadata":{"name":"b","namespace":"a","uid":"u"}}`},
		{"b.c/as", `{"apiVersion":"b.c/v1","kind":"A","metadata":{"name":"b","namespace":"a"}}`},
		{"b.c/as", `{"apiVersion":"b.c/v1","kind":"A","metadata":5}`},
		{"b.c/as", "apiVersion: b.c/v1\nkind: A\nmetadata: {name: b, namespace: a, uid: u}\n"},
		{"b.c/as", "\xd9\xd9\xf7\xff"},
		{"b.c/as", ""},
	} {
		data, _, _, err := f.Decode(store.Key{Resource: c.resource, Name: "a/b"}, []byte(c.value))
		if err == nil || data != nil {
			t.Errorf("%s: %q is read as %s", c.resource, c.value, data)
		}
	}
	if _, err := f.Encode(k, []byte(`{"apiVersion":"v9","kind":"ConfigMap"}`)); err == nil {
		t.Error("a version that does not exist is written")
	}
	for _, data := range []string{"", "[]", "{", `{"a`, `{"a":`, `{"a":1`} {
		if value, err := f.Encode(store.Key{Resource: "b.c/as", Name: "a"}, []byte(data)); err == nil {
			t.Errorf("%q is written as %q", data, value)
		}
	}
}

// Custom objects of an unknown definition are kept as they are, in JSON with sorted members. They may be CBOR.
// SPEC: STORE-3
func TestCustomObjects(t *testing.T) {
	f, k := newForm(""), store.Key{Resource: "b.c/as", Name: "a/b"}
	const data = `{"apiVersion":"b.c/v1","kind":"A","metadata":{"name":"b","namespace":"a","uid":"u"},` +
		`"\u003c":1,"a":[1.5,1e+30],"data":{"y":{},"z":null},"zz":"\u2028"}`
	const value = `{"\u003c":1,"a":[1.5,1e+30],"apiVersion":"b.c/v1","data":{"y":{},"z":null},"kind":"A",` +
		`"metadata":{"name":"b","namespace":"a","uid":"u"},"zz":"\u2028"}` + "\n"
	if have, err := f.Encode(k, []byte(data)); err != nil || string(have) != value {
		t.Errorf("written as %s, %v", have, err)
	}
	for _, c := range []struct {
		value string
		exact bool
	}{
		{value, true},
		{strings.TrimSpace(value), false},
		{data, false},
		{strings.Replace(value, "1e+30", "1000000000000000000000000000000", 1), false},
		{string(object.CBOR([]byte(data))), false},
	} {
		have, sidecar, exact, err := f.Decode(k, []byte(c.value))
		if string(have) != data || sidecar.Form != 0 || exact != c.exact || err != nil {
			t.Errorf("%q is read as %s, sidecar %+v, exact %v, %v", c.value, have, sidecar, exact, err)
		}
	}
	if have, err := f.Encode(k, []byte(`{}`)); err != nil || string(have) != "{}\n" {
		t.Errorf("an empty object is written as %q, %v", have, err)
	}
}

func FuzzDecode(f *testing.F) {
	resources := []string{"/pods", "apps/deployments", "autoscaling/horizontalpodautoscalers", "/secrets", "/events",
		"apiextensions.k8s.io/customresourcedefinitions", "apiregistration.k8s.io/apiservices", "b.c/as"}
	const metadata = `"metadata":{"name":"nameValue","namespace":"namespaceValue","uid":"u","managedFields":[{` +
		`"fieldsV1":{"f:a":{"k:{\"b\":1}":{},"v:2":{}}}}]}`
	f.Add(3, example(f, "core.v1.Secret.pb"))
	f.Add(2, example(f, "autoscaling.v1.HorizontalPodAutoscaler.pb"))
	f.Add(0, []byte(`{"apiVersion":"v1","kind":"Pod",`+metadata+
		`,"spec":{"containers":[{"name":"c","ports":[{"containerPort":1}],"resources":{"limits":{"cpu":"1.5"}}}]}}`))
	f.Add(1, []byte("apiVersion: apps/v1beta2\nkind: Deployment\n"+
		"metadata: {name: nameValue, namespace: namespaceValue, uid: u}"))
	secret := `{"apiVersion":"v1","kind":"Secret",` + metadata + `,"data":{"a":"AA=="}}`
	f.Add(3, []byte(base64.StdEncoding.EncodeToString([]byte(secret))))
	f.Add(4, []byte(`{"apiVersion":"events.k8s.io/v1","kind":"Event",`+metadata+
		`,"eventTime":"2026-01-02T03:04:05.000006Z"}`))
	f.Add(5, []byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":`+
		`{"name":"nameValue","namespace":"namespaceValue","uid":"u"},"spec":{"group":"b.c","version":"v1","names":{"kind":"A"},`+
		`"validation":{"openAPIV3Schema":{"type":"object"}},"additionalPrinterColumns":[{"name":"a","JSONPath":".a"}]}}`))
	f.Add(6, []byte(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":`+
		`{"name":"nameValue","namespace":"namespaceValue","uid":"u"},"spec":{"group":"b.c","version":"v1"}}`))
	f.Add(7, []byte(`{"apiVersion":"b.c/v1","kind":"A","metadata":{"name":"nameValue","namespace":"namespaceValue","uid":"u"}}`))
	f.Add(5, []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":`+
		`{"name":"nameValue","namespace":"namespaceValue","uid":"u"},"spec":{"group":"b.c"}}`))
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	form := etcdform.New(registry, "")
	f.Fuzz(func(t *testing.T, i int, value []byte) {
		k := exampleKey(resources[uint(i)%uint(len(resources))])
		data, first, exact, err := form.Decode(k, bytes.Clone(value))
		if err != nil {
			return
		}
		// It is written in v1beta1, where the default of an absent scope is Namespaced.
		if k.Resource == "apiextensions.k8s.io/customresourcedefinitions" && bytes.Contains(data, []byte(`"scope":""`)) {
			return
		}
		if at, ok := object.Locate(data); !ok || at.Splice == 0 {
			t.Fatalf("the stored form is not canonical: %s", data)
		}
		checkSidecar(t, registry, k, data, first)
		written, err := form.Encode(k, data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if exact != bytes.Equal(written, value) {
			t.Errorf("exact is %v: %q", exact, written)
		}
		again, second, exact, err := form.Decode(k, written)
		if err != nil || !exact || second.Form != first.Form {
			t.Errorf("%s is read again as %s, exact %v, sidecar %+v, %v", data, again, exact, second, err)
		}
	})
}
