package merge

import (
	"slices"
	"strconv"
	"strings"

	"plinth/object"
)

// minimised returns a shorter history on which the engines differ, too.
func (h *history) minimised(e engine, whole *difference) *history {
	trials := 0
	shows := func(h *history) bool {
		if trials++; trials > 1500 {
			return false
		}
		d := h.difference(e, nil)
		return d != nil && !d.moody && d.kind() == whole.kind()
	}
	h = &history{h.kind, slices.Clone(h.steps[:whole.at+1])}
	for changed := true; changed; {
		changed = false
		for i := len(h.steps) - 1; i >= 0; i-- {
			if i >= len(h.steps) {
				continue
			}
			less := &history{h.kind, slices.Delete(slices.Clone(h.steps), i, i+1)}
			if shows(less) {
				h, changed = less, true
				continue
			}
			for _, simpler := range h.steps[i].simpler() {
				try := &history{h.kind, slices.Clone(h.steps)}
				try.steps[i] = simpler
				if shows(try) {
					h, changed = try, true
				}
			}
			for again := true; again; {
				again = false
				for _, body := range smaller(h.steps[i].body) {
					try := &history{h.kind, slices.Clone(h.steps)}
					try.steps[i].body = body
					if shows(try) {
						h, changed, again = try, true, true
						break
					}
				}
			}
		}
	}
	return h.withoutUnusedFields(shows)
}

// kind classifies a difference, so that a minimised history keeps the difference for which it is minimised.
func (d *difference) kind() string {
	of := func(o outcome) string {
		if r, ok := o.err.(*refusal); ok {
			return r.kind
		}
		if o.lost != nil {
			return untracked
		}
		return ""
	}
	bare := func(o outcome) string {
		o.live = o.live.WithoutAt("metadata", "managedFields")
		return o.String()
	}
	undeclared := strings.Contains(d.want.why(), "not declared in schema")
	return strconv.FormatBool(undeclared) + "|" + of(d.want) + "|" + of(d.got) + "|" +
		strconv.FormatBool(bare(d.want) == bare(d.got))
}

// simpler returns the step with one of its details left out, for each of them.
func (op step) simpler() []step {
	var all []step
	try := func(change func(*step)) {
		other := op
		change(&other)
		all = append(all, other)
	}
	if op.echo {
		try(func(s *step) { s.echo = false })
	}
	if op.force {
		try(func(s *step) { s.force = false })
	}
	if op.wait != 0 {
		try(func(s *step) { s.wait = 0 })
	}
	if op.subresource != "" {
		try(func(s *step) { s.subresource = "" })
	}
	if op.version != "v1" && op.verb != reschema {
		try(func(s *step) { s.version = "v1" })
	}
	for _, name := range []string{"a", "b"} {
		if op.manager > name && op.manager != "kubectl" {
			try(func(s *step) { s.manager = name })
		}
	}
	return all
}

// smaller lists the values that lack one member or item of a value, outer ones first.
func smaller(v object.Value) []object.Value {
	var all []object.Value
	switch v.Kind() {
	case object.Map:
		for _, m := range v.Members() {
			all = append(all, v.Without(m.Key))
		}
		for _, m := range v.Members() {
			for _, less := range smaller(m.Value) {
				all = append(all, v.With(m.Key, less))
			}
		}
	case object.List:
		items := v.Items()
		for i := range items {
			all = append(all, object.ListOf(slices.Delete(slices.Clone(items), i, i+1)...))
		}
		for i := range items {
			for _, less := range smaller(items[i]) {
				all = append(all, v.WithItem(i, less))
			}
		}
	}
	return all
}

// withoutUnusedFields drops properties, versions and subresources of a random kind.
func (h *history) withoutUnusedFields(shows func(*history) bool) *history {
	if h.kind.builtin {
		return h
	}
	try := func(change func(k *kind)) bool {
		less := &history{h.kind.clone(), slices.Clone(h.steps)}
		change(less.kind)
		less.kind.finish()
		for i, op := range less.steps {
			if op.verb == reschema {
				less.steps[i].kind = op.kind.clone()
				change(less.steps[i].kind)
				less.steps[i].kind.finish()
			} else if less.kind.version(less.kind.apiVersion(op.version)) == nil {
				return false
			}
		}
		if !shows(less) {
			return false
		}
		h = less
		return true
	}
	if len(h.kind.versions) > 1 {
		try(func(k *kind) { k.versions = k.versions[:1] })
	}
	if h.kind.status {
		try(func(k *kind) { k.status = false })
	}
	if h.kind.scale != nil {
		try(func(k *kind) { k.scale = nil })
	}
	for _, v := range h.kind.versions {
		for _, path := range v.root.paths(nil) {
			if last := path[len(path)-1]; last == "metadata" || last == "apiVersion" || last == "kind" {
				continue
			}
			try(func(k *kind) {
				if v := k.version(k.apiVersion(v.name)); v != nil {
					v.root.drop(path)
				}
			})
		}
	}
	return h
}

// clone returns a copy that shares no schema with the kind.
func (k *kind) clone() *kind {
	c := &kind{group: k.group, name: k.name, builtin: k.builtin, forgetful: k.forgetful, fragile: k.fragile,
		status: k.status, scale: k.scale}
	for _, v := range k.versions {
		c.versions = append(c.versions, &version{name: v.name, root: v.root.clone(), renames: v.renames, typ: v.typ})
	}
	return c
}

// paths lists the paths of all properties; "*" stands for items and members.
func (n *node) paths(before []string) [][]string {
	if n == nil {
		return nil
	}
	var all [][]string
	for _, name := range n.names() {
		path := append(slices.Clone(before), name)
		all = append(append(all, path), n.Properties[name].paths(path)...)
	}
	below := append(slices.Clone(before), "*")
	return append(append(all, n.Items.paths(below)...), n.Additional.paths(below)...)
}

func (n *node) drop(path []string) {
	for _, name := range path[:len(path)-1] {
		switch {
		case n == nil:
			return
		case name != "*":
			n = n.Properties[name]
		case n.Items != nil:
			n = n.Items
		default:
			n = n.Additional
		}
	}
	if n != nil && !slices.Contains(strings.Fields("key name port"), path[len(path)-1]) {
		delete(n.Properties, path[len(path)-1])
	}
}
