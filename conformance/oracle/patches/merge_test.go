package patches

import (
	"fmt"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/object"
	"plinth/patch"
)

// merge is one case of a JSON merge patch.
type merge struct{ live, patch object.Value }

// SPEC: WRITE-2
func TestMergeIsUpstreams(t *testing.T) {
	kinds := kindsOf(t)
	prepare := func(number uint64) family { return newGenerator(*seed+1<<32, number).family(kinds) }
	run(t, prepare, func(number uint64, f family, count *tally) string {
		g := newGenerator(*seed+2<<32, number)
		c := g.merge(f)
		want, got := c.upstream(), c.plinth()
		switch {
		case want == string(object.AppendJSON(nil, c.live)):
			count.add("applied without a change")
		case want != "":
			count.add("applied")
		}
		if want == got {
			return ""
		}
		c = c.minimised()
		return fmt.Sprintf("%s\nlive      %s\npatch     %s\nupstream  %s\nplinth    %s", f.kind.name,
			object.AppendJSON(nil, c.live), object.AppendJSON(nil, c.patch), c.upstream(), c.plinth())
	})
}

// merge makes a case: a patch from one object to another, or a random one.
func (g *generator) merge(f family) merge {
	var patch any
	switch live := f.current; {
	case g.chance(0.4):
		text, err := jsonpatch.CreateMergePatch(jsonOf(f.original), jsonOf(f.modified))
		patch = map[string]any(parsed(text, err))
		if g.chance(0.5) {
			patch = g.spoilt(patch)
		}
	case g.chance(g.wild / 4):
		patch = map[string]any{"a": g.anything(0), "metadata": g.anything(0)}
	default:
		patch = g.mapping(f.kind.typ, live, 0)
	}
	live := f.current
	if g.chance(g.wild) {
		live = g.spoilt(live).(map[string]any)
	}
	return merge{valueOf(live), valueOf(patch)}
}

// upstream returns the resulting object, or the error.
func (c merge) upstream() string {
	made, err := jsonpatch.MergePatch(object.AppendJSON(nil, c.live), object.AppendJSON(nil, c.patch))
	if err != nil {
		return err.Error()
	}
	parsed, err := object.ParseJSON(made)
	if err != nil {
		return err.Error()
	}
	return string(object.AppendJSON(nil, parsed.Value))
}

func (c merge) plinth() string { return string(object.AppendJSON(nil, patch.Merge(c.live, c.patch))) }

func (c merge) minimised() merge {
	shows := func(c merge) bool { return c.upstream() != c.plinth() }
	for changed := true; changed; {
		changed = false
		if less, ok := shrunk(c.patch, func(v object.Value) bool { return shows(merge{c.live, v}) }); ok {
			c.patch, changed = less, true
		}
		if less, ok := shrunk(c.live, func(v object.Value) bool { return shows(merge{v, c.patch}) }); ok {
			c.live, changed = less, true
		}
	}
	return c
}
