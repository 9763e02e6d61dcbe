//go:build !race

package proto_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/gotypes"
	"plinth/internal/proto"
)

// Size does not allocate. Under the race detector a sync.Pool drops some of what is put into it.
func TestSizeAllocatesNothing(t *testing.T) {
	typ, data := gotypes.Of[corev1.ConfigMap](),
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)
	if n := testing.AllocsPerRun(1000, func() { _, _ = proto.Size(typ, data) }); n > 2 { // the texts of the envelope
		t.Errorf("%v allocations", n)
	}
}
