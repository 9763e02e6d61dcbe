package store

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"plinth/internal/recent"
	"plinth/internal/store/delta"
)

// podText is the bytes of an object of a template: a part that all have, and a name.
func podText(template, name string) []byte {
	return []byte(strings.Repeat(template+" ", 1+800/len(template)) + name)
}

// Objects that are alike take little memory, and have the bytes that they were made with.
func TestPacker(t *testing.T) {
	p := packer{bases: recent.Cache[likeness, *base]{Limit: 4 << 10}}
	all, total := map[*Version]string{}, 0
	add := func(name string, text []byte, packed bool) {
		t.Helper()
		v := &Version{Key: Key{"/pods", name}}
		lent := bytes.Clone(text)
		p.set("", v, lent, true)
		clear(lent) // which the caller uses again
		if (v.base != nil) != packed {
			t.Errorf("%s is packed: %t", name, v.base != nil)
		}
		if v.base != nil && (len(v.data) > v.Len()/2 || len(v.base.bytes) > 2*v.Len()) {
			t.Errorf("%s takes %d bytes of %d, of a base of %d", name, len(v.data), v.Len(), len(v.base.bytes))
		}
		all[v] = string(text)
		total += len(v.data)
	}
	add("default/web-0", podText("web", "0"), false)
	for i := range 100 {
		name := fmt.Sprint("web-", i+1)
		add("default/"+name, podText("web", name), true)
	}
	if total > 1000+100*60 {
		t.Errorf("100 objects take %d bytes", total)
	}
	// What has little in common with the others is the base from then on.
	add("default/web-other", podText("a new template", "other"), false)
	add("default/web-another", podText("a new template", "another"), true)
	// Other names, and other resources, have a base of their own.
	add("default/db-0", podText("web", "0"), false)
	add("other/web-0", podText("web", "0"), false)
	// What is short, or long, or much shorter than the base, is not packed.
	add("short/web-0", []byte("short"), false)
	add("short/web-1", []byte("short"), false)
	long := bytes.Repeat([]byte("long"), delta.MaxLength)
	add("long/web-0", long, false)
	add("long/web-1", long, false)
	add("shorter/web-0", podText("web", "0"), false)
	add("shorter/web-1", podText("web", "0")[:300], false)
	// Bases are forgotten; what was made of them is not.
	for i := range 100 {
		add(fmt.Sprintf("n%d/web-0", i), podText(fmt.Sprint(i), "0"), false)
	}
	if n := p.bases.Len(); n > 12 {
		t.Errorf("%d bases are kept", n)
	}
	for v, text := range all {
		if string(v.Data()) != text || v.Len() != len(text) || string(v.Append(nil, 3, 5)) != text[3:5] ||
			string(v.DataIn(make([]byte, 0, 9))) != text || string(v.At(7).Data()) != text || !v.Equal(v.At(7)) {
			t.Errorf("%s is %q", v.Key, v.Data())
		}
		for other, has := range all {
			if v.Equal(other) != (text == has) {
				t.Errorf("%s is equal to %s: %t", v.Key, other.Key, v.Equal(other))
			}
		}
	}
}

// What a state has, and what is read from its log, does not depend on how it is packed.
func TestDeltasOfAState(t *testing.T) {
	versions := []*Version{}
	s, err := NewState(Config{Describe: func(Key, []byte) *Sidecar { return &Sidecar{} }},
		&Checkpoint{Versions: func(func(*Version, error) bool) {}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.End()
	for i := range 3 {
		k := Key{"/pods", fmt.Sprint("a/web-", i)}
		v := s.NewVersion(k, int64(i+1), podText("web", k.Name), &Sidecar{})
		if (v.base != nil) != (i > 0) {
			t.Errorf("%s is packed: %t", k, v.base != nil)
		}
		s.Apply(&Commit{Revision: v.Revision, Records: []*Record{{Key: k, Revision: v.Revision, New: v}}})
		versions = append(versions, v)
	}
	if s.live.bytes != int64(3*versions[0].Len()) {
		t.Errorf("%d bytes are counted of three versions of %d", s.live.bytes, versions[0].Len())
	}
	// A state that begins with these versions, as with a checkpoint.
	again, err := NewState(*s.config, &Checkpoint{Revision: 3, Versions: func(yield func(*Version, error) bool) {
		var lent Version
		for _, v := range versions {
			lent.Lend(v.Key, v.Revision, v.Data(), &Sidecar{})
			if !yield(&lent, nil) {
				return
			}
		}
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.End()
	packed := 0
	for _, v := range versions {
		loaded, ok := again.Get(v.Key)
		if !ok || !loaded.Equal(v) {
			t.Fatalf("%s is loaded as %v", v.Key, loaded)
		}
		if loaded.base != nil {
			packed++
		}
	}
	if packed != 2 {
		t.Errorf("%d of 3 versions are packed after they were loaded", packed)
	}
}
