package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

func configMaps() *engine.Resource {
	return &engine.Resource{
		Naming: engine.Naming{
			Version: "v1", Name: "configmaps", Kind: "ConfigMap", ListKind: "ConfigMapList",
		},
		Schema: func() *schema.Type { return gotypes.Of[corev1.ConfigMap]() },
	}
}

// configMap is the same ConfigMap in its stored form and as a Go value.
func configMap(t *testing.T, name string, revision int64) (*engine.Object, corev1.ConfigMap) {
	t.Helper()
	data := fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"note":"a \"b\" \u003c\n"},`+
			`"creationTimestamp":"2024-01-02T03:04:05Z","name":%q,"namespace":"default","uid":"u-%s"},"binaryData":{"b":"AAE="},"data":{"k":"v"}}`, name, name)
	at, ok := object.Locate(data)
	if !ok {
		t.Fatal("the object is not canonical")
	}
	var typed corev1.ConfigMap
	plain := object.AppendVersioned(nil, data, at.Splice, revision)
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(plain); err != nil {
		t.Fatal(err)
	}
	if err := apiruntime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed); err != nil {
		t.Fatal(err)
	}
	k := store.Key{Resource: "/configmaps", Name: "default/" + name}
	return store.NewVersion(k, revision, data, engine.NewSidecar(at)), typed
}

// enclosed is the encoding of an object by the generated code, in its envelope.
func enclosed(t *testing.T, apiVersion, kind string, m interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := apiruntime.Unknown{TypeMeta: apiruntime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

// SPEC: MED-3, MED-7, MED-8, LIST-9
func TestProtobufList(t *testing.T) {
	cache := NewEncodedCache(1 << 20)
	remaining := int64(3)
	meta := ListMeta{Revision: 42, Continue: "token", Remaining: &remaining, Shard: "some"}
	var objects []*engine.Object
	want := corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "token",
		RemainingItemCount: &remaining, ShardInfo: &metav1.ShardInfo{Selector: "some"}}}
	partial := metav1.PartialObjectMetadataList{ListMeta: want.ListMeta}
	for i := range 200 {
		o, typed := configMap(t, fmt.Sprint("m", i), int64(i+1))
		objects, want.Items = append(objects, o), append(want.Items, typed)
		partial.Items = append(partial.Items, metav1.PartialObjectMetadata{ObjectMeta: typed.ObjectMeta})
	}
	for _, c := range []struct {
		media Media
		cache *EncodedCache
		want  []byte
	}{
		{Media{Encoding: Protobuf, Form: AsPartials, Version: "v1"}, nil,
			enclosed(t, "meta.k8s.io/v1", "PartialObjectMetadataList", &partial)},
		{Media{Encoding: Protobuf}, nil, enclosed(t, "v1", "ConfigMapList", &want)},
		{Media{Encoding: Protobuf}, NewEncodedCache(1000), enclosed(t, "v1", "ConfigMapList", &want)},
		{Media{Encoding: Protobuf}, cache, enclosed(t, "v1", "ConfigMapList", &want)},
		{Media{Encoding: Protobuf}, cache, enclosed(t, "v1", "ConfigMapList", &want)}, // what is kept is the same
		{Media{Encoding: Protobuf, Form: AsPartials, Version: "v1"}, cache,
			enclosed(t, "meta.k8s.io/v1", "PartialObjectMetadataList", &partial)},
	} {
		l := NewList(configMaps(), c.media, nil)
		l.Cache = c.cache
		if err := l.Measure(slices.Values(objects)); err != nil {
			t.Fatal(err)
		}
		got := l.Head(nil, meta)
		for _, o := range objects {
			var err error
			if got, err = l.Item(got, o); err != nil {
				t.Fatal(err)
			}
		}
		if got = l.Tail(got); !bytes.Equal(got, c.want) {
			t.Errorf("%+v:\n got %x\nwant %x", c.media, got, c.want)
		}
	}
}

// SPEC: MED-3, WATCH-1, WATCH-4, WATCH-5
func TestProtobufEvents(t *testing.T) {
	o, typed := configMap(t, "m", 7)
	gone := typed
	gone.ResourceVersion = "9"
	bookmark := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "12",
		Annotations: map[string]string{initialEventsEnd: "true"}}}
	record := &store.Record{Revision: 9, Old: o}
	f := NewEvents(configMaps(), Media{Encoding: Protobuf}, nil)
	p := NewEvents(configMaps(), Media{Encoding: Protobuf, Form: AsPartial, Version: "v1"}, nil)
	for _, c := range []struct {
		name   string
		events *Events
		event  engine.Event
		object []byte
	}{
		{"ADDED", f, engine.Event{Type: engine.Added, Object: o, Revision: 7}, enclosed(t, "v1", "ConfigMap", &typed)},
		{"DELETED", f, engine.Event{Type: engine.Deleted, Object: o, Revision: 9, Record: record},
			enclosed(t, "v1", "ConfigMap", &gone)},
		{"DELETED", f, engine.Event{Type: engine.Deleted, Object: o, Revision: 9, Record: record},
			enclosed(t, "v1", "ConfigMap", &gone)},
		{"DELETED", f, engine.Event{Type: engine.Deleted, Object: o, Revision: 9}, enclosed(t, "v1", "ConfigMap", &gone)},
		{"DELETED", p, engine.Event{Type: engine.Deleted, Object: o, Revision: 9, Record: record},
			enclosed(t, "meta.k8s.io/v1", "PartialObjectMetadata", &metav1.PartialObjectMetadata{ObjectMeta: gone.ObjectMeta})},
		{"BOOKMARK", f, engine.Event{Type: engine.Bookmark, Revision: 12, InitialEnd: true},
			enclosed(t, "v1", "ConfigMap", &bookmark)},
		{"BOOKMARK", p, engine.Event{Type: engine.Bookmark, Revision: 12, InitialEnd: true},
			enclosed(t, "meta.k8s.io/v1", "PartialObjectMetadata",
				&metav1.PartialObjectMetadata{ObjectMeta: bookmark.ObjectMeta})},
	} {
		got, err := c.events.Append(nil, &c.event)
		if err != nil {
			t.Fatal(err)
		}
		checkEvent(t, got, c.name, c.object)
	}
	status := metav1.Status{Status: "Failure", Code: 410}
	got, err := f.AppendError(nil, object.Fields("apiVersion", object.StringOf("v1"), "kind", object.StringOf("Status"),
		"code", object.IntOf(410), "status", object.StringOf("Failure")))
	if err != nil {
		t.Fatal(err)
	}
	checkEvent(t, got, "ERROR", enclosed(t, "v1", "Status", &status))
}

func checkEvent(t *testing.T, got []byte, name string, object []byte) {
	t.Helper()
	event := metav1.WatchEvent{Type: name, Object: apiruntime.RawExtension{Raw: object}}
	b, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if want := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...); !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", name, got, want)
	}
}

// The cache stays within its limit, and does not keep versions alive that are not referenced elsewhere.
func TestEncodedCacheIsBounded(t *testing.T) {
	const limit = 64 << 10
	cache := NewEncodedCache(limit)
	var held []*engine.Object
	for i := range 1000 {
		o, _ := configMap(t, fmt.Sprint("m", i), int64(i+1))
		if _, err := cache.message(gotypes.Of[corev1.ConfigMap](), o); err != nil {
			t.Fatal(err)
		}
		held = append(held, o)
		if cache.bytes > limit {
			t.Fatalf("%d bytes are kept", cache.bytes)
		}
	}
	there := 0
	for _, o := range held {
		if encoded(o, slotMessage) != nil {
			there++
		}
	}
	if there != len(cache.entries) || there == 0 || there > 500 {
		t.Errorf("%d slots are filled, %d entries are counted", there, len(cache.entries))
	}
	runtime.KeepAlive(held)
	clear(held)
	runtime.GC()
	cache.mu.Lock()
	cache.limit = 0
	cache.shrink()
	cache.mu.Unlock()
	if len(cache.entries) != 0 || cache.bytes != 0 {
		t.Errorf("%d forms of %d bytes are left", len(cache.entries), cache.bytes)
	}
}
