package object

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func podVector(tb testing.TB) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(vectorDir(tb), "core.v1.Pod.json"))
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// A filled-in Pod as k8s.io/api prints it, with white space.
func BenchmarkParseJSONIndented(b *testing.B) { benchmarkParse(b, podVector(b)) }

// The same Pod in canonical form, as the store returns it.
func BenchmarkParseJSON(b *testing.B) { benchmarkParse(b, canonical(b, podVector(b))) }

func benchmarkParse(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}

// encoding/json on the same text, for comparison.
func BenchmarkEncodingJSON(b *testing.B) {
	text := canonical(b, podVector(b))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendObject(b *testing.B) {
	text := canonical(b, podVector(b))
	p, err := ParseJSON(text)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var buffer []byte
	for b.Loop() {
		buffer = AppendObject(buffer[:0], p.Value)
	}
}

func BenchmarkLocate(b *testing.B) {
	text := canonical(b, podVector(b))
	for b.Loop() {
		if _, ok := Locate(text); !ok {
			b.Fatal("not located")
		}
	}
}

func canonical(tb testing.TB, text []byte) []byte {
	tb.Helper()
	p, err := ParseJSON(text)
	if err != nil {
		tb.Fatal(err)
	}
	return AppendObject(nil, p.Value.WithoutAt("metadata", "resourceVersion"))
}
