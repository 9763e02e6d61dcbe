package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// SPEC: STORE-2
// A page has about pageBytes of the values that the page before had, but never a number of keys that is too small to
// come to an end, or so large that a few large values among many small ones exhaust memory.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		keys, bytes int // of the page before; bytes of one key with its value
		want        int64
	}{
		{1000, 1 << 10, 8 << 10}, {10, 1 << 10, 8 << 10}, {1000, 100, maxPage}, {1000, 8 << 10, 1 << 10},
		{100, 1 << 20, minPage}, {1, 1, maxPage},
	} {
		var kvs []*mvccpb.KeyValue
		for range c.keys {
			kvs = append(kvs, &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, c.bytes-1)})
		}
		if got := nextPage(kvs); got != c.want {
			t.Errorf("after %d keys of %d bytes %d keys are asked for, want %d", c.keys, c.bytes, got, c.want)
		}
	}
}
