package main

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
)

// What is sent in part is no object for SDKs, either, whose writers make one when they are closed, as Google's.
//
// SPEC: STORE-6
func TestCutOffForWriters(t *testing.T) {
	file, err := fileblob.OpenBucket(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	errSource := errors.New("the source has failed")
	for name, of := range map[string]*blob.Bucket{"memory": memblob.OpenBucket(nil), "file": file} {
		b := &bucket{Bucket: of}
		for _, size := range []int{0, 1, 5000, partBytes + 5} {
			content := io.MultiReader(bytes.NewReader(noise(size)), failing{errSource})
			if err := b.Put(t.Context(), "a", content, false); !errors.Is(err, errSource) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
		}
		if items, err := b.List(t.Context(), ""); err != nil || len(items) > 0 {
			t.Errorf("%s: there are %v, %v", name, items, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
