package proto_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/gotypes"
	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

// releases are the folders of vectors in k8s.io/api.
func releases(tb testing.TB) []string {
	tb.Helper()
	entries, err := os.ReadDir(vectors(tb, ""))
	if err != nil {
		tb.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}

// An object in JSON becomes the bytes that the generated code writes.
// SPEC: MED-3
func TestProtobufVectors(t *testing.T) {
	for _, release := range releases(t) {
		found := 0
		for name, r := range kinds() {
			want, err := os.ReadFile(filepath.Join(vectors(t, release), name+".pb"))
			if err != nil {
				continue // not in this release
			}
			found++
			// The current codec of the reference writes the fields that have changed since then differently.
			if now, err := os.ReadFile(filepath.Join(vectors(t, release), name+".after_roundtrip.pb")); err == nil {
				want = now
			}
			text, err := os.ReadFile(filepath.Join(vectors(t, release), name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := object.ParseJSON(text)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := r.Schema().Decode(parsed.Value)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			stored := object.AppendObject(nil, decoded.Value)
			got, err := proto.AppendObject(nil, r.Schema(), stored)
			if err != nil {
				t.Errorf("%s %s: %v", release, name, err)
				continue
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s %s:\n got %q\nwant %q", release, name, got, want)
			}
			value, err := proto.Parse(r.Schema(), got)
			if err != nil {
				t.Errorf("%s %s: read back: %v", release, name, err)
				continue
			}
			again, err := r.Schema().Decode(value)
			if err != nil {
				t.Errorf("%s %s: read back: %v", release, name, err)
				continue
			}
			if back := object.AppendObject(nil, again.Value); !bytes.Equal(back, stored) {
				t.Errorf("%s %s: read back\n got %s\nwant %s", release, name, back, stored)
			}
		}
		if found < 59 {
			t.Errorf("%s: only %d vectors", release, found)
		}
	}
}

// Bytes that were stored under another type cause an error and not a panic. The first error is returned, and the next
// object is not affected.
func TestMessagesOfOtherTypes(t *testing.T) {
	configMap, pod := gotypes.Of[corev1.ConfigMap](), gotypes.Of[corev1.Pod]()
	definition := kinds()["apiextensions.k8s.io.v1.CustomResourceDefinition"].Schema()
	for _, c := range []struct {
		typ        *schema.Type
		text, want string
	}{
		{configMap, `{"data":[]}`, "offset 8: string is in no map"},
		{configMap, `{"data":"x"}`, "offset 8: string is in no map"},
		{configMap, `{"data":{"k":1}}`, "offset 13: string is no string"},
		{configMap, `{"binaryData":{"k":"?"}}`, "offset 22: bytes illegal base64 data at input byte 0"},
		{configMap, `{"immutable":"yes"}`, "offset 13: bool is none"},
		{configMap, `{"immutable":"yes","metadata":[]}`, "offset 13: bool is none"},
		{configMap, `{"metadata":[]}`, "offset 12: struct ObjectMeta is no JSON object"},
		{configMap, `{"metadata":{"name":1}}`, "offset 20: string is no string"},
		{configMap, `{"metadata":{"generation":"1"}}`, `offset 26: int strconv.ParseInt: parsing "": invalid syntax`},
		{configMap, `{"metadata":{"generation":-}}`, `offset 27: int strconv.ParseInt: parsing "-": invalid syntax`},
		{configMap, `{"metadata":{"generation":99999999999999999999}}`,
			`offset 46: int strconv.ParseInt: parsing "99999999999999999999": value out of range`},
		{configMap, `{"metadata":{"creationTimestamp":"now"}}`,
			`offset 38: time parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"`},
		{configMap, `{"metadata":{"finalizers":{}}}`, "offset 26: string is in no list"},
		{configMap, `{"metadata":{"generation":9223372036854775808}}`,
			`offset 45: int strconv.ParseInt: parsing "9223372036854775808": value out of range`},
		{configMap, `{"metadata":{"generation":1`, "offset 27: struct ObjectMeta does not end"},
		{configMap, `{"metadata":{"finalizers":[1]}}`, "offset 27: string is no string"},
		{configMap, `{"metadata":{"finalizers":["a"`, "offset 31: struct ObjectMeta does not end"},
		{configMap, `[]`, "offset 0: struct ConfigMap is no JSON object"},
		{configMap, `1`, "offset 0: struct ConfigMap is no JSON object"},
		{configMap, ``, "offset 0: struct ConfigMap is no JSON object"},
		{configMap, `{`, "offset 1: struct ConfigMap does not end"},
		{configMap, `{"data"`, "offset 8: struct ConfigMap does not end"},
		{configMap, `{"data":`, "offset 8: struct ConfigMap does not end"},
		{configMap, `{"immutable":t`, "offset 17: struct ConfigMap does not end"},
		{configMap, `{"data":{"k`, "offset 9: string does not end"},
		{configMap, `{"data":{"k\`, "offset 9: string does not end"},
		{configMap, `{"data":{"k\"`, "offset 14: string is no string"},
		{pod, `{"spec":{"activeDeadlineSeconds":1,"activeDeadlineSeconds":1.5}}`, "offset 60: struct PodSpec does not end"},
		{definition, `{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"minimum":"x"}}}]}}`,
			`offset 64: float strconv.ParseFloat: parsing "\"x\"": invalid syntax`},
	} {
		b, err := proto.AppendObject([]byte("before"), c.typ, []byte(c.text))
		if err == nil || err.Error() != "protobuf: "+c.want || string(b) != "before" {
			t.Errorf("%s became %x: %v, want %s", c.text, b, err, c.want)
		}
		if b, err = proto.AppendMessage([]byte("before"), c.typ, []byte(c.text), 0, 0); err == nil || string(b) != "before" {
			t.Errorf("%s became %x: %v", c.text, b, err)
		}
		if size, err := proto.Size(c.typ, []byte(c.text)); err == nil || size != 0 {
			t.Errorf("%s has size %d", c.text, size)
		}
		const object, message = `{"immutable":true}`, "\x0a\x10\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x008\x00B\x00 \x01"
		b, err = proto.AppendMessage(nil, configMap, []byte(object), 0, 0)
		if err != nil || string(b) != message {
			t.Errorf("after %s: %q, %v", c.text, b, err)
		}
	}
}

// Numbers of 19 digits need not fit into 64 bits.
func TestLongNumbers(t *testing.T) {
	for text, number := range map[string]uint64{"9223372036854775807": 1<<63 - 1, "-9223372036854775808": 1 << 63,
		"999999999999999999": 999999999999999999, "-999999999999999999": 1<<64 - 999999999999999999} {
		b, err := proto.AppendMessage(nil, gotypes.Of[corev1.ConfigMap](),
			[]byte(`{"metadata":{"generation":`+text+`}}`), 0, 0)
		if _, after, _ := bytes.Cut(b, []byte("\x32\x00\x38")); err != nil ||
			!bytes.HasPrefix(after, binary.AppendUvarint(nil, number)) {
			t.Errorf("%s: %x, %v", text, b, err)
		}
	}
}

// Null is a pointer to the zero time: a nil pointer would not have been written.
func TestNullTimes(t *testing.T) {
	const text = `{"metadata":{"creationTimestamp":null,"deletionTimestamp":null,"generation":null}}`
	b, err := proto.AppendMessage(nil, gotypes.Of[corev1.ConfigMap](), []byte(text), 0, 0)
	if want := "\x0a\x12\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x008\x00B\x00J\x00"; err != nil || string(b) != want {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
}

// Size is the exact length of the encoded object, for every kind.
// SPEC: MED-3, STORE-4
func TestSize(t *testing.T) {
	found := 0
	for name, r := range kinds() {
		text, err := os.ReadFile(filepath.Join(vectors(t, "HEAD"), name+".json"))
		if err != nil {
			continue // TestProtobufVectors counts them
		}
		found++
		parsed, err := object.ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		stored := object.AppendObject(nil, parsed.Value)
		whole, err := proto.AppendObject(nil, r.Schema(), stored)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if size, err := proto.Size(r.Schema(), stored); err != nil || size != len(whole) {
			t.Errorf("%s: %d, %v; want %d", name, size, err, len(whole))
		}
	}
	if found < 65 {
		t.Errorf("only %d vectors", found)
	}
	if _, err := proto.Size(kinds()["core.v1.Pod"].Schema(), []byte("[]")); err == nil {
		t.Error("a list has a size")
	}
}

// BenchmarkProtobuf turns the Pod of the vectors, in which every field is set, into a message.
func BenchmarkProtobuf(b *testing.B) {
	r := kinds()["core.v1.Pod"]
	text, err := os.ReadFile(filepath.Join(vectors(b, "HEAD"), "core.v1.Pod.json"))
	if err != nil {
		b.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		b.Fatal(err)
	}
	decoded, err := r.Schema().Decode(parsed.Value)
	if err != nil {
		b.Fatal(err)
	}
	stored := object.AppendObject(nil, decoded.Value)
	b.SetBytes(int64(len(stored)))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		if buf, err = proto.AppendObject(buf[:0], r.Schema(), stored); err != nil {
			b.Fatal(err)
		}
	}
}
