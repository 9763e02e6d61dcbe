package builtin

import (
	"strings"
	"sync"
	"sync/atomic"

	"plinth/internal/features"
	"plinth/object"
)

// feature is the fields of one feature, as paths: "volumes[].emptyDir.mode". A step [] stands for each item of a list,
// {} for each member of a map. The value of a step that ends in ? is dropped, too, if it is then empty. A last step
// "restartPolicy!Always" is no field of the feature if it has the value Always, and "procMount=Default" gets the value
// Default instead of being dropped.
type feature struct {
	gate   features.Gate
	fields []string
}

// behind returns the feature behind a gate.
func behind(gate features.Gate, fields ...string) feature { return feature{gate, fields} }

// gated are the features below one place in an object. While the gate of a feature is off, its fields are dropped,
// except on the update of an object that has one of them from the time when the gate was on.
type gated struct {
	at   []string // the path to the place
	tree func() *tree
	// more drops what is no field of its own; nil: there is nothing else.
	more func(v, old object.Value, set features.Set) object.Value
}

// below returns the features of a place. Their tree is built on first use.
func below(place string, features ...feature) gated {
	return grown(place, sync.OnceValue(func() *tree { return grow(features...) }))
}

// grown returns the features of a place whose tree other places share.
func grown(place string, tree func() *tree) gated {
	if place == "" {
		return gated{tree: tree}
	}
	return gated{at: strings.Split(place, "."), tree: tree}
}

// tree is the fields of some features.
type tree struct {
	root  *branch
	gates []features.Gate // of the features, in the order of the bits of branch.leaf
	last  atomic.Pointer[cutting]
}

// cutting is what is left of a tree if only the fields of features are looked at that are off: few, as most are on. A
// server asks for one Set only, so the last one is kept.
type cutting struct {
	set  features.Set
	root *branch // nil: all features are on
}

// off returns the branches of the features whose gates are off; nil: there are none.
func (t *tree) off(set features.Set) *branch {
	if c := t.last.Load(); c != nil && c.set == set {
		return c.root
	}
	var off uint64
	for i, gate := range t.gates {
		if !set.On(gate) {
			off |= 1 << i
		}
	}
	c := &cutting{set: set, root: t.root.only(off)}
	t.last.Store(c)
	return c.root
}

// only returns the branches that have fields of some features; nil: there are none.
func (b *branch) only(features uint64) *branch {
	kept := *b
	kept.leaf, kept.next = b.leaf&features, nil
	for _, n := range b.next {
		if n := n.only(features); n != nil {
			kept.next = append(kept.next, n)
		}
	}
	if kept.leaf == 0 && kept.next == nil {
		return nil
	}
	return &kept
}

// branch is all paths that begin with the same steps, so that one walk over an object tries them all.
type branch struct {
	step  string // "[]", "{}" or a key
	frail bool   // dropped when it is left empty
	leaf  uint64 // the features that have a field here, one bit each
	// allowed is a value with which the field belongs to no feature; "": there is none. reset: the field gets it.
	allowed string
	reset   bool
	next    []*branch
}

const (
	everyItem   = "[]"
	everyMember = "{}"
)

// grow builds the tree of the paths of some features, at most 64.
func grow(features ...feature) *tree {
	t := &tree{root: &branch{}}
	for i, f := range features {
		t.gates = append(t.gates, f.gate)
		for _, path := range f.fields {
			path = strings.NewReplacer(everyItem, "."+everyItem, everyMember, "."+everyMember).Replace(path)
			b := t.root
			for step := range strings.SplitSeq(path, ".") {
				b = b.child(step)
			}
			b.leaf |= 1 << i
		}
	}
	return t
}

func (b *branch) child(step string) *branch {
	step, frail := strings.CutSuffix(step, "?")
	step, allowed, reset := strings.Cut(step, "=")
	if !reset {
		step, allowed, _ = strings.Cut(step, "!")
	}
	for _, n := range b.next {
		if n.step == step {
			n.frail = n.frail || frail
			return n
		}
	}
	n := &branch{step: step, frail: frail, allowed: allowed, reset: reset}
	b.next = append(b.next, n)
	return n
}

// uses returns the features that have a field in a value.
func (b *branch) uses(v object.Value) (found uint64) {
	if v.IsNull() || b.allowed != "" && v.Str() == b.allowed {
		return 0
	}
	found = b.leaf
	for _, n := range b.next {
		switch n.step {
		case everyItem:
			for _, item := range v.Items() {
				found |= n.uses(item)
			}
		case everyMember:
			for _, m := range v.Members() {
				found |= n.uses(m.Value)
			}
		default:
			if member, ok := v.Get(n.step); ok {
				found |= n.uses(member)
			}
		}
	}
	return found
}

// cut drops the fields of these features from a value.
func (b *branch) cut(v object.Value, features uint64) object.Value {
	for _, n := range b.next {
		switch n.step {
		case everyItem:
			for i, item := range v.Items() {
				if n.uses(item)&features != 0 {
					v = v.WithItem(i, n.cut(item, features))
				}
			}
		case everyMember:
			for _, m := range v.Members() {
				if n.uses(m.Value)&features != 0 {
					v = v.With(m.Key, n.cut(m.Value, features))
				}
			}
		default:
			member, ok := v.Get(n.step)
			switch {
			case !ok || n.uses(member)&features == 0:
			case n.leaf&features != 0 && n.reset:
				v = v.With(n.step, object.StringOf(n.allowed))
			case n.leaf&features != 0:
				v = v.Without(n.step)
			default:
				if member = n.cut(member, features); n.frail && member.Len() == 0 {
					v = v.Without(n.step)
				} else {
					v = v.With(n.step, member)
				}
			}
		}
	}
	return v
}

// drop drops the fields of features that are off and that old does not use.
func (g gated) drop(obj, old object.Value, set features.Set) object.Value {
	if part := obj.At(g.at...); g.more != nil && !part.IsNull() {
		if rest := g.more(part, old.At(g.at...), set); !object.Equal(rest, part) {
			obj = obj.WithAt(rest, g.at...) // no place of these is the object itself
		}
	}
	root := g.tree().off(set)
	if root == nil {
		return obj
	}
	part := obj.At(g.at...)
	off := root.uses(part)
	if off != 0 {
		off &^= root.uses(old.At(g.at...))
	}
	if off == 0 {
		return obj
	}
	if len(g.at) == 0 {
		return root.cut(obj, off)
	}
	return obj.WithAt(root.cut(part, off), g.at...)
}

// dropGated drops the fields of features that are off from all these places.
func dropGated(obj, old object.Value, places []gated, set features.Set) object.Value {
	for _, g := range places {
		obj = g.drop(obj, old, set)
	}
	return obj
}
