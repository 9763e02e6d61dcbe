package encryption

import (
	"testing"

	"plinth/internal/encryption/plugintest"
)

// BenchmarkSeal encrypts a value of 1 kB as the log does; BenchmarkOpen decrypts it.
func BenchmarkSeal(b *testing.B) {
	each(b, func(b *testing.B, r *Resource, plain, stored []byte) {
		for b.Loop() {
			s, err := r.Seal(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			stored = s.Append(stored[:0], "/registry/secrets/ns/a", plain)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	each(b, func(b *testing.B, r *Resource, _, stored []byte) {
		for b.Loop() {
			if _, err := r.Open(b.Context(), "/registry/secrets/ns/a", stored); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func each(b *testing.B, run func(b *testing.B, r *Resource, plain, stored []byte)) {
	p := plugintest.New(b)
	p.Start(b)
	for name, provider := range map[string]string{"aescbc": static("aescbc", "one"), "aesgcm": static("aesgcm", "one"),
		"secretbox": static("secretbox", "one"), "kms": byPlugin(p)} {
		b.Run(name, func(b *testing.B) {
			r := open(b, config(b, "secrets: "+provider), false, Options{}).For("", "secrets")
			plain := make([]byte, 1<<10)
			stored, err := r.To(b.Context(), "/registry/secrets/ns/a", plain)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(plain)))
			run(b, r, plain, stored)
		})
	}
}
