package proto_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/gotypes"
	"plinth/internal/proto"
	"plinth/object"
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
			// What has changed since then, the reference's own codec writes in another way today.
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
			t.Errorf("%s: only %d vectors were there", release, found)
		}
	}
}

// Bytes that were stored by who knew another type are an error, and no panic.
func TestMessagesOfOtherTypes(t *testing.T) {
	for _, text := range []string{
		`{"data":[]}`, `{"data":"x"}`, `{"data":{"k":1}}`, `{"binaryData":{"k":"?"}}`, `{"immutable":"yes"}`,
		`{"metadata":[]}`,
		`{"metadata":{"name":1}}`, `{"metadata":{"generation":"1"}}`, `{"metadata":{"creationTimestamp":"now"}}`, `[]`, `1`,
		``, `{`, `{"data"`, `{"data":{"k`,
		`{"metadata":{"finalizers":{}}}`, `{"metadata":{"generation":99999999999999999999}}`,
	} {
		if b, err := proto.AppendObject(nil, gotypes.Of[corev1.ConfigMap](), []byte(text)); err == nil {
			t.Errorf("%s became %x", text, b)
		}
	}
}

// Size says how long the object becomes, for every kind, and costs no allocation.
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
		t.Errorf("only %d vectors were there", found)
	}
	if _, err := proto.Size(kinds()["core.v1.Pod"].Schema(), []byte("[]")); err == nil {
		t.Error("what is no object has a size")
	}
	typ, data := gotypes.Of[corev1.ConfigMap](),
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)
	if n := testing.AllocsPerRun(1000, func() { _, _ = proto.Size(typ, data) }); n > 2 { // the texts of the envelope
		t.Errorf("%v allocations", n)
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
