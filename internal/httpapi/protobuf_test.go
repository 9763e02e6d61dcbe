package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// protobufOf encodes an object as client-go does.
func protobufOf(t *testing.T, apiVersion, kind string, m interface{ Marshal() ([]byte, error) }) string {
	t.Helper()
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(b)
}

// In protobuf, fieldsV1 can have bytes that are not JSON. The whole managedFields are then ignored, as all that cannot
// be decoded: the object is written, and managedFields have only the manager of this write.
//
// SPEC: SSA-7, MED-3
func TestManagersThatAreNoJSON(t *testing.T) {
	s := newServer(t, nil)
	for name, fields := range map[string]string{
		"behind-set":  `{"f:metadata":{"f:annotations":{"f:a/b":{}}}}{"trailing":"data"}`,
		"behind-item": `{"f:metadata":{"f:finalizers":{"v:\"example.com/foo\" {\"trailing\":\"data\"}":{}}}}`,
		"behind-key":  `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"abc\"} {\"trailing\":\"data\"}":{}}}}`,
		"cut":         `{"f:metadata":`,
	} {
		raw := metav1.FieldsV1{}
		raw.SetRawBytes([]byte(fields))
		body := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "m", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &raw,
		}}}}
		send := func(method, path string, code int, data map[string]string, want string) {
			t.Helper()
			body.Data = data
			got := s.do(method, path, protobufOf(t, "v1", "ConfigMap", &body), "Content-Type", protobufType, "Accept",
				"application/json")
			var is corev1.ConfigMap
			if err := json.Unmarshal([]byte(got.body), &is); err != nil || got.code != code {
				t.Errorf("%s %s: %d %s", method, name, got.code, got.body)
				return
			}
			managers := ""
			for _, entry := range is.ManagedFields {
				managers += entry.Manager + " " + string(entry.FieldsV1.GetRawBytes())
			}
			if managers != want {
				t.Errorf("%s %s with %v: managers %s, want %s", method, name, data, managers, want)
			}
		}
		send("POST", configMaps+"?dryRun=All", 201, nil, "")
		send("POST", configMaps, 201, map[string]string{"a": "b"}, `test {"f:data":{".":{},"f:a":{}}}`)
		send("PUT", configMaps+"/"+name, 200, map[string]string{"a": "c", "d": "e"},
			`test {"f:data":{".":{},"f:a":{},"f:d":{}}}`)
	}
}

// A raw extension that is not JSON is refused. The reference panics and resets the stream.
//
// SPEC: MED-3, VAL-1
func TestRawExtensionsThatAreNoJSON(t *testing.T) {
	s := newServer(t, nil)
	const revisions = "/apis/apps/v1/namespaces/default/controllerrevisions"
	s.create(revisions, `{"metadata":{"name":"a"},"data":{},"revision":1}`)
	for _, raw := range []string{``, `"`, `{`, `[`, `1z`, `z`, `{} {}`} {
		body := appsv1.ControllerRevision{Revision: 1, Data: runtime.RawExtension{Raw: []byte(raw)}}
		for _, to := range [][2]string{{"POST", revisions}, {"PUT", revisions + "/a"}} {
			body.Name = map[string]string{"POST": "b", "PUT": "a"}[to[0]]
			got := s.do(to[0], to[1], protobufOf(t, "apps/v1", "ControllerRevision", &body), "Content-Type", protobufType,
				"Accept", "application/json")
			if got.code != 400 || !strings.Contains(got.message(), "cannot be handled as a ControllerRevision: ") {
				t.Errorf("%s of %q: %d %s", to[0], raw, got.code, got.message())
			}
		}
	}
	// Missing data are another error: the field is required.
	body := appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Revision: 1}
	got := s.do("POST", revisions, protobufOf(t, "apps/v1", "ControllerRevision", &body), "Content-Type", protobufType,
		"Accept", "application/json")
	if got.code != 422 || !strings.Contains(got.message(), "data: Required value") {
		t.Errorf("without data: %d %s", got.code, got.message())
	}
}
