package wire_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"plinth/internal/wire"
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
			got, err := wire.AppendProtobufJSON(nil, r.Schema(), stored)
			if err != nil {
				t.Errorf("%s %s: %v", release, name, err)
				continue
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s %s:\n got %q\nwant %q", release, name, got, want)
			}
			value, err := wire.ParseProtobuf(r.Schema(), got)
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
		if buf, err = wire.AppendProtobufJSON(buf[:0], r.Schema(), stored); err != nil {
			b.Fatal(err)
		}
	}
}
