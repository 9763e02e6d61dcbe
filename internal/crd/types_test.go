package crd

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/builtin/gotypes"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// lazyTypeOf is the schema of a definition with a text of about this size.
func lazyTypeOf(of *types, i, size int) *lazyType {
	text := fmt.Sprintf(
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","description":"%s","properties":{"f%d":{"type":"string"}}}}}]}}`,
		strings.Repeat("x", size), i)
	return &lazyType{of: of, version: &store.Version{Key: store.Key{Resource: Path, Name: fmt.Sprint(i)},
		Data: []byte(text)}, apiVersion: "a/v1"}
}

// Compiled schemas are bounded by the size of their source text; those in use stay, and dropped ones are compiled
// again.
// SPEC: BEY-8
func TestTypesAreLetGo(t *testing.T) {
	of := &types{metadata: gotypes.Of[metav1.ObjectMeta]}
	const n, size = 100, keptText / 20
	all := make([]*lazyType, n)
	busy := lazyTypeOf(of, n, size)
	kept := busy.get()
	for i := range all {
		all[i] = lazyTypeOf(of, i, size)
		if typ := all[i].get(); typ.Field(fmt.Sprintf("f%d", i)) == nil {
			t.Fatalf("type %d is another one", i)
		}
		if busy.get() != kept {
			t.Fatalf("the type that is in use was let go beside %d others", i)
		}
	}
	compiled, text := 0, 0
	for _, l := range append(all, busy) {
		if l.compiled.Load() != nil {
			compiled, text = compiled+1, text+l.size()
		}
	}
	if compiled < 15 || text > keptText || text != of.text || compiled != len(of.kept) {
		t.Errorf("%d types of %d bytes are kept (%d, %d), %d are allowed", compiled, text, len(of.kept), of.text,
			keptText)
	}
	runtime.GC()
	runtime.GC()
	if all[0].found() != nil {
		t.Error("a type that was let go is still there")
	}
	if all[0].get().Field("f0") == nil {
		t.Error("made again, it is another one")
	}
}

// A schema that was dropped and is still referenced elsewhere is found again instead of being compiled twice.
func TestTypesAreFoundAgain(t *testing.T) {
	of := &types{metadata: gotypes.Of[metav1.ObjectMeta]}
	first := lazyTypeOf(of, 0, keptText/2)
	held := first.get()
	for i := range 5 {
		lazyTypeOf(of, i+1, keptText/2).get()
	}
	if first.compiled.Load() != nil {
		t.Fatal("it was not let go")
	}
	runtime.GC()
	if first.get() != held {
		t.Error("it was made a second time")
	}
	var large sync.WaitGroup // one that exceeds the limit is kept alone
	for range 4 {
		large.Go(func() {
			var typ *schema.Type
			if typ = lazyTypeOf(of, 9, 2*keptText).get(); typ == nil {
				t.Error("nothing")
			}
		})
	}
	large.Wait()
	if len(of.kept) != 1 {
		t.Errorf("%d types are kept", len(of.kept))
	}
}

// Objects can be read even if the schema cannot be compiled, although validation would refuse such a schema.
func TestTypesThatCannotBe(t *testing.T) {
	of := &types{metadata: gotypes.Of[metav1.ObjectMeta]}
	l := lazyTypeOf(of, 0, 1)
	l.version.Data = []byte(
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"strange"}}}}}]}}`)
	parsed, err := object.ParseJSON([]byte(`{"apiVersion":"a/v1","kind":"A","metadata":{"name":"a"},"a":{"b":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := l.get().Decode(parsed.Value); err != nil || !object.Equal(decoded.Value, parsed.Value) {
		t.Errorf("%v, %v", decoded, err)
	}
}
