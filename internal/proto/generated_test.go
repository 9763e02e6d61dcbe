package proto_test

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/proto"
	"plinth/object"
)

// generated is an object of a Go type with generated code.
type generated interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// Missing members and null are written as the generated code writes the zero value.
// SPEC: MED-3
func TestZeroValues(t *testing.T) {
	inSchema := func(s apiextensions.JSONSchemaProps) *apiextensions.CustomResourceDefinition {
		d := &apiextensions.CustomResourceDefinition{}
		d.Spec.Versions = []apiextensions.CustomResourceDefinitionVersion{
			{Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &s}}}
		return d
	}
	schemaOf := func(text string) string { return `{"spec":{"versions":[{"schema":{"openAPIV3Schema":` + text + `}}]}}` }
	for _, c := range []struct {
		kind, text string
		want       generated
	}{
		{"core.v1.Pod", `{"spec":{"volumes":[null]}}`, &corev1.Pod{Spec: corev1.PodSpec{Volumes: make([]corev1.Volume, 1)}}},
		{"core.v1.Pod", `{"spec":{"containers":[{"livenessProbe":{"httpGet":{}}}]}}`, &corev1.Pod{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{}}}}}}}},
		{"authentication.k8s.io.v1.TokenReview", `{"status":{"user":{"extra":{"a":null}}}}`,
			&authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{User: authenticationv1.UserInfo{
				Extra: map[string]authenticationv1.ExtraValue{"a": nil}}}}},
		{"coordination.k8s.io.v1.Lease", `{"spec":{"acquireTime":null}}`,
			&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{AcquireTime: &metav1.MicroTime{}}}},
		{definitions, schemaOf(`{"dependencies":{"a":[null]}}`), inSchema(apiextensions.JSONSchemaProps{
			Dependencies: apiextensions.JSONSchemaDependencies{"a": {Property: []string{""}}}})},
		{definitions, schemaOf(`{"items":[null]}`), inSchema(apiextensions.JSONSchemaProps{
			Items: &apiextensions.JSONSchemaPropsOrArray{JSONSchemas: make([]apiextensions.JSONSchemaProps, 1)}})},
	} {
		want, err := c.want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		have, err := proto.AppendMessage(nil, kinds()[c.kind].Schema(), []byte(c.text), 0, 0)
		if err != nil || string(have) != string(want) {
			t.Errorf("%s: %q, %v\nwant %q", c.text, have, err, want)
		}
	}
}

// Without a revision no resourceVersion is inserted, and a Time has no fractions of a second. SPEC: MED-3
func TestWhatIsNotWritten(t *testing.T) {
	typ := kinds()["core.v1.ConfigMap"].Schema()
	const text = `{"metadata":{"uid":"u","creationTimestamp":"2024-01-02T03:04:05Z"}}`
	want, err := proto.AppendMessage(nil, typ, []byte(text), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	have, err := proto.AppendMessage(nil, typ, []byte(text), strings.Index(text, `"uid"`), 0)
	if err != nil || string(have) != string(want) {
		t.Errorf("without a revision: %q, %v; want %q", have, err, want)
	}
	have, err = proto.AppendMessage(nil, typ, []byte(strings.ReplaceAll(text, "05Z", "05.678Z")), 0, 0)
	if err != nil || string(have) != string(want) {
		t.Errorf("with a fraction: %q, %v; want %q", have, err, want)
	}
}

// Messages that no encoder writes, but which the generated code accepts or refuses: values in parts,
// numbers beyond 32 bits, nanoseconds, empty values. SPEC: MED-3
func TestUnusualMessages(t *testing.T) {
	varint := func(n int64) string { return string(binary.AppendUvarint(nil, uint64(n))) }
	lease := func(acquired string) string { return nested(acquired, 2, 3) }
	for _, c := range []struct {
		kind, message string
		into          generated
		refused       bool
	}{
		{"core.v1.Pod", nested(nested("\x08\x01", 2)+nested("\x1a\x01x", 2), 2, 2, 10, 1, 2), &corev1.Pod{}, false},
		{"core.v1.Pod", nested(nested("\x0a\x015", 2)+nested("", 2), 2, 1, 2, 2), &corev1.Pod{}, false},
		{"core.v1.Pod", nested("\x18"+varint(1<<32+80), 2, 2, 6), &corev1.Pod{}, false},
		{"core.v1.Pod", nested("\x18"+varint(-80), 2, 2, 6), &corev1.Pod{}, false},
		{"core.v1.ConfigMap", nested("\x38"+varint(1<<40), 1), &corev1.ConfigMap{}, false},
		{"core.v1.ConfigMap", nested("\x8a"+strings.Repeat("\x80", 9)+"\x00", 2), &corev1.ConfigMap{}, true},
		{"core.v1.ConfigMap", nested("\x0a\x00", 1, 17, 7), &corev1.ConfigMap{}, false},
		{"apps.v1.ControllerRevision", nested("{}", 2, 1) + nested("", 2), &appsv1.ControllerRevision{}, false},
		{"coordination.k8s.io.v1.Lease", lease("\x0c"), &coordinationv1.Lease{}, true},
		{"coordination.k8s.io.v1.Lease", lease("\x08\x05\x10" + varint(123456789)), &coordinationv1.Lease{}, false},
		{"coordination.k8s.io.v1.Lease", lease("\x08\x05\x10" + varint(-123456789)), &coordinationv1.Lease{}, false},
		{"core.v1.ConfigMap", nested("\x08\x05\x10"+varint(-123456789), 1, 8), &corev1.ConfigMap{}, false},
		{definitions, nested("\x0a\x00", 2, 7, 4, 1, 20), &apiextensions.CustomResourceDefinition{}, false},
	} {
		typ := kinds()[c.kind].Schema()
		theirs := c.into.Unmarshal([]byte(c.message))
		if refused := theirs != nil; refused != c.refused {
			t.Errorf("%q: the error of the generated code is %v", c.message, theirs)
		}
		value, err := proto.Parse(typ, enclosed(c.message))
		if c.refused {
			if err == nil || err.Error() != theirs.Error() {
				t.Errorf("%q: %v, want %v", c.message, err, theirs)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.message, err)
			continue
		}
		text, err := json.Marshal(c.into)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := object.ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		var printed [2]string
		for i, v := range []object.Value{value, parsed.Value} {
			decoded, err := typ.Decode(v)
			if err != nil {
				t.Fatalf("%q: %v", c.message, err)
			}
			printed[i] = string(object.AppendJSON(nil, decoded.Value))
		}
		if printed[0] != printed[1] {
			t.Errorf("%q\nhave %s\nwant %s", c.message, printed[0], printed[1])
		}
	}
}

// A value that could have one of two forms, and has neither, is null, or false if one of the forms is a boolean.
// SPEC: MED-3, EXT-1
func TestNeitherForm(t *testing.T) {
	const items, additionalProperties = 24, 30
	for number, want := range map[protowire.Number]string{items: `{"items":null}`,
		additionalProperties: `{"additionalProperties":false}`} {
		v, err := proto.Parse(kinds()[definitions].Schema(),
			enclosed(nested(nested("", number), 2, 7, 4, 1)))
		if err != nil {
			t.Fatal(err)
		}
		schema := v.At("spec", "versions").Items()[0].At("schema", "openAPIV3Schema")
		if have := string(object.AppendJSON(nil, schema)); have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
}
