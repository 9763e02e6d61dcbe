package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"plinth/internal/engine"
	"plinth/internal/store"
)

// whole is a text in parts as it is written.
func whole(t *testing.T, p *Parts) []byte {
	t.Helper()
	n := p.Len()
	var all []byte
	for b := p.Next(); len(b) > 0; b = p.Next() {
		if len(b) > max(pieceSize, cap(p.Buf)) {
			t.Errorf("a piece has %d bytes", len(b))
		}
		all = append(all, b...)
	}
	if len(all) != n {
		t.Errorf("the text has %d bytes, Len is %d", len(all), n)
	}
	return all
}

// Long objects in parts have the same bytes as in one piece, and no copy of the object.
//
// SPEC: WATCH-6, LIST-8, MED-10
func TestParts(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	object := func(annotation, managed, data string, revision int64) *engine.Object {
		return stored(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"a":%q},"managedFields":[{"manager":%q}],"name":"x","uid":"u"},"data":{"d":%q}}`,
			annotation, managed, data), revision)
	}
	objects := map[string]*engine.Object{
		"short": object("a", "m", "d", 7), "long data": object("a", "m", long, 7), "a dry run": object("a", "m", long, 0),
		"long annotations": object(long, "m", "d", 7), "long managedFields": object("a", long, "d", 7),
		"all long": object(long, long, long, 7),
	}
	for name, o := range objects {
		for _, media := range []Media{{}, {Lean: true}, {Encoding: Protobuf}, {Encoding: Protobuf, Lean: true},
			{Encoding: CBOR}, {Form: AsPartial, Version: "v1"}} {
			what := fmt.Sprintf("%s as %+v", name, media)
			plain := media.Form == Plain && media.Encoding != CBOR && !media.Lean
			private := func(p *Parts, text []byte) {
				t.Helper()
				if n := p.Private(); plain && Long(o) && n > len(text)/4 {
					t.Errorf("%s: %d of %d bytes are private", what, n, len(text))
				}
			}
			for _, e := range []engine.Event{{Type: engine.Added, Object: o, Revision: 7},
				{Type: engine.Modified, Object: o, Revision: 7, Record: &store.Record{New: o, Revision: 7}},
				{Type: engine.Deleted, Object: o, Revision: 9, Record: &store.Record{Old: o, Revision: 9}},
				{Type: engine.Bookmark, Revision: 9}} {
				f := NewEvents(configMaps(), media, nil)
				f.Cache = NewEncodedCache(1 << 20)
				want, err := f.Append([]byte("before"), &e)
				if err != nil {
					t.Fatal(err)
				}
				p := Parts{Buf: []byte("before")}
				for range 2 {
					if err := f.AppendParts(&p, &e); err != nil {
						t.Fatal(err)
					}
					if e.Type != engine.Bookmark {
						private(&p, want)
					}
					if got := whole(t, &p); !bytes.Equal(got, want) {
						t.Errorf("%s, %s: %d bytes in parts differ from %d in one piece", what, e.Type, len(got), len(want))
					}
					p.Reset()
					p.Buf = append(p.Buf, "before"...)
				}
			}
			if media.Form != Plain {
				continue
			}
			one, parts := NewList(configMaps(), media, nil), NewList(configMaps(), media, nil)
			one.Cache, parts.Cache = NewEncodedCache(1<<20), NewEncodedCache(1<<20)
			var p Parts
			var want []byte
			for range 2 {
				var err error
				if want, err = one.Item(want, o); err != nil {
					t.Fatal(err)
				}
				if err := parts.ItemParts(&p, o); err != nil {
					t.Fatal(err)
				}
			}
			private(&p, want)
			if got := whole(t, &p); !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of items in parts differ from %d in one piece", what, len(got), len(want))
			}
			p.Reset()
			p.Object(o, media.Lean)
			if got := whole(t, &p); !bytes.Equal(got, AppendObject(nil, o, media.Lean)) {
				t.Errorf("%s: %d bytes of the object in parts differ", what, len(got))
			}
		}
	}
}
