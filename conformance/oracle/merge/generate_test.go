package merge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"plinth/object"
	"plinth/schema"
)

// generator makes random kinds, values and histories. The same seed gives the same results.
type generator struct {
	*rand.Rand
	wrong float64 // how often a value does not have its type
}

func newGenerator(seed, number uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, number))}
}

func (g *generator) chance(p float64) bool { return g.Float64() < p }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// kind makes a kind, built-in or random.
func (g *generator) kind() *kind {
	if g.chance(0.15) {
		return pick(g, builtinKinds()...)
	}
	k := &kind{group: "example.com", name: "Thing", versions: []*version{{name: "v1"}}, status: g.chance(0.4),
		forgetful: g.chance(0.2)}
	deduced := g.chance(0.08)
	if !deduced {
		k.versions[0].root = g.root(k.status)
	}
	if g.chance(0.3) {
		k.versions = append(k.versions, g.otherVersion(k.versions[0], "v2"))
		if g.chance(0.4) {
			k.versions = append(k.versions, g.otherVersion(k.versions[0], "v3"))
		}
	}
	if len(k.versions) > 1 && !deduced && g.chance(0.15) {
		k.fragile = pick(g, k.versions[0].root.Properties["spec"].names()...)
	}
	if g.chance(0.2) {
		k.scale = map[string]string{}
		for _, v := range k.versions {
			if g.chance(0.9) {
				k.scale[k.apiVersion(v.name)] = "replicas"
			}
		}
		if g.chance(0.1) {
			k.scale[k.apiVersion(pick(g, k.versions...).name)] = ""
		}
		for _, v := range k.versions {
			if v.root != nil {
				v.root.Properties["spec"].Properties["replicas"] = &node{Type: "integer"}
			}
		}
	}
	k.finish()
	return k
}

// root returns the schema of whole objects.
func (g *generator) root(status bool) *node {
	n := &node{Type: "object", Properties: map[string]*node{
		"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Ref: "#/components/schemas/" + metaModel},
		"spec": g.structure(3, 6),
	}}
	n.Properties["spec"].MapType = ""
	if status {
		n.Properties["status"] = g.structure(2, 3)
	}
	if g.chance(0.05) {
		n.Properties["extra"] = g.node(2)
	}
	return n
}

// otherVersion returns the version with some fields of spec renamed, and sometimes merged in another way.
func (g *generator) otherVersion(of *version, name string) *version {
	v := &version{name: name, renames: map[string]string{}}
	if of.root == nil {
		for _, field := range []string{"a", "b"} {
			v.renames[field] = field + "In" + name
		}
		return v
	}
	v.root = of.root.clone()
	spec := v.root.Properties["spec"]
	for _, field := range spec.names() {
		if field != "replicas" && g.chance(0.3) {
			v.renames[field] = field + "In" + name
			spec.Properties[field+"In"+name] = spec.Properties[field]
			delete(spec.Properties, field)
		}
	}
	if g.chance(0.1) {
		g.turn(v.root)
	}
	return v
}

// structure returns the schema of an object with fields.
func (g *generator) structure(depth, fields int) *node {
	n := &node{Type: "object", Properties: map[string]*node{}}
	for i := range 1 + g.IntN(fields) {
		n.Properties[string(rune('a'+i))] = g.node(depth - 1)
	}
	switch {
	case g.chance(0.1):
		n.MapType = "atomic"
	case g.chance(0.1):
		n.MapType = "granular"
	}
	n.Preserve = g.chance(0.08)
	return n
}

// node returns any schema. Types below depth 0 are scalars.
func (g *generator) node(depth int) *node {
	if depth <= 0 || g.chance(0.25) {
		return g.scalar()
	}
	switch g.IntN(11) {
	case 0, 1:
		return g.structure(depth, 4)
	case 2, 3:
		n := &node{Type: "object", Additional: g.node(depth - 1)}
		if g.chance(0.25) {
			n.MapType = pick(g, "atomic", "granular")
		}
		return n
	case 4:
		return &node{Type: "array", Items: g.node(depth - 1), ListType: pick(g, "", "atomic")}
	case 5, 6:
		return &node{Type: "array", Items: g.scalar(), ListType: "set"}
	case 7, 8, 9:
		return g.associative(depth)
	}
	switch g.IntN(4) {
	case 0:
		return &node{Type: "object"}
	case 1:
		return &node{Type: "object", Preserve: true}
	case 2:
		return &node{Type: "object", Preserve: true, Properties: map[string]*node{"a": g.node(depth - 1), "b": g.scalar()}}
	}
	return &node{Preserve: true}
}

func (g *generator) scalar() *node {
	switch g.IntN(8) {
	case 0, 1, 2:
		return &node{Type: "string"}
	case 3, 4:
		return &node{Type: "integer"}
	case 5:
		return &node{Type: "boolean"}
	case 6:
		return &node{Type: "number"}
	}
	return &node{IntString: true}
}

// associative returns the schema of a list with one, two or three keys, some with a default.
func (g *generator) associative(depth int) *node {
	item := g.structure(depth, 3)
	item.Preserve = g.chance(0.05)
	n := &node{Type: "array", Items: item, ListType: "map"}
	for i := range pick(g, 1, 1, 1, 2, 2, 3) {
		name := []string{"key", "name", "port"}[i]
		n.ListKeys = append(n.ListKeys, name)
		key := g.scalar()
		if g.chance(0.3) {
			switch key.Type {
			case "string":
				key.Default = "x"
			case "integer", "number":
				key.Default = 1
			case "boolean":
				key.Default = true
			}
		}
		item.Properties[name] = key
	}
	return n
}

// turn makes something atomic that was granular, or the other way round. It reports whether it has found a place.
func (g *generator) turn(n *node) bool {
	if n == nil || n.Ref != "" {
		return false
	}
	var below []*node
	for _, name := range n.names() {
		below = append(below, n.Properties[name])
	}
	below = append(below, n.Additional, n.Items)
	if g.chance(0.6) {
		for _, i := range g.Perm(len(below)) {
			if g.turn(below[i]) {
				return true
			}
		}
	}
	switch {
	case n.Properties["spec"] != nil:
		return false
	case n.Type == "object":
		if n.MapType == "atomic" {
			n.MapType = ""
		} else {
			n.MapType = "atomic"
		}
	case n.Type == "array" && n.ListType != "" && n.ListType != "atomic":
		n.ListType, n.ListKeys = "atomic", nil
	case n.Type == "array" && n.Items.Type == "object" && n.Items.Properties["key"] != nil:
		n.ListType, n.ListKeys = "map", []string{"key"}
	case n.Type == "array" && n.Items.Type != "object" && n.Items.Type != "array" && n.Items.Type != "":
		n.ListType = "set"
	default:
		return false
	}
	return true
}

// value returns a random value of a type. With dup, lists may have duplicate items, which an intent may not.
func (g *generator) value(t *schema.Type, depth int, dup bool) object.Value {
	if g.wrong > 0 && g.chance(g.wrong) {
		return pick(g, object.StringOf("wrong"), object.IntOf(7), object.ListOf(object.IntOf(1)),
			object.Fields("wrong", object.IntOf(1)), object.BoolOf(true))
	}
	if g.chance(0.02) {
		return object.Nil
	}
	switch t.Kind {
	case schema.Struct:
		return g.fields(t, depth, dup)
	case schema.Map:
		var members []object.Member
		for range g.IntN(4) {
			members = append(members, object.Member{Key: pick(g, "k1", "k2", "k3", "k.4"), Value: g.value(t.Elem, depth-1, dup)})
		}
		return object.MapOf(members...)
	case schema.List:
		return g.list(t, depth, dup)
	case schema.Any:
		return g.anything(depth)
	}
	return g.scalarOf(t)
}

func (g *generator) scalarOf(t *schema.Type) object.Value {
	switch t.Kind {
	case schema.String:
		return object.StringOf(pick(g, "", "a", "b", "c", "x", `"q"`, "ü"))
	case schema.Bool:
		return object.BoolOf(g.chance(0.5))
	case schema.Int:
		return object.IntOf(pick[int64](g, 0, 1, 2, 3, 10))
	case schema.Float:
		return pick(g, object.IntOf(1), object.FloatOf(1), object.FloatOf(1.5), object.IntOf(0), object.FloatOf(2.25))
	case schema.IntOrString:
		return pick(g, object.IntOf(1), object.StringOf("1"), object.StringOf("50%"), object.IntOf(2), object.StringOf("x"))
	case schema.Quantity:
		return object.StringOf(pick(g, "1", "2", "500m", "1Gi"))
	case schema.Bytes:
		return object.StringOf(pick(g, "", "YQ==", "Yg=="))
	case schema.Time:
		return object.StringOf(pick(g, "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"))
	case schema.MicroTime:
		return object.StringOf("2020-01-01T00:00:00.000000Z")
	}
	return object.Nil
}

// fields returns a random choice of the fields of a struct, sparse if there are many.
func (g *generator) fields(t *schema.Type, depth int, dup bool) object.Value {
	var members []object.Member
	p := min(0.7, 4/float64(len(t.Fields)+1))
	if depth <= 0 {
		p = min(p, 0.15)
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Name == "managedFields" || f.Name == "apiVersion" && depth > 90 {
			continue
		}
		if g.chance(p) {
			members = append(members, object.Member{Key: f.Name, Value: g.value(f.Type, depth-1, dup)})
		}
	}
	return object.MapOf(members...)
}

// list makes items; those of sets and associative lists are distinct, unless dup is set.
func (g *generator) list(t *schema.Type, depth int, dup bool) object.Value {
	if depth < -4 {
		return object.ListOf()
	}
	var items []object.Value
	for range g.IntN(4) {
		items = g.addItem(t, items, depth, dup)
	}
	return object.ListOf(items...)
}

func (g *generator) addItem(t *schema.Type, items []object.Value, depth int, dup bool) []object.Value {
	item := g.value(t.Elem, depth-1, dup)
	if t.ListType == schema.Atomic {
		return append(items, item)
	}
	if t.ListType == schema.Associative && item.Kind() == object.Map {
		for _, key := range t.ListKeys {
			if f := t.Elem.Field(key); f != nil && g.chance(0.9) {
				item = item.With(key, g.scalarOf(f.Type))
			} else if f != nil && (len(t.ListKeys) > 1 || !f.Implied().IsNull()) {
				item = item.Without(key)
			} else if f != nil && item.At(key).IsNull() && g.chance(0.95) {
				item = item.With(key, g.scalarOf(f.Type))
			}
		}
	}
	id := identity(t, item)
	if (id == "" || id == "null") && g.chance(0.95) {
		return items
	}
	again := slices.ContainsFunc(items, func(have object.Value) bool { return identity(t, have) == id })
	if again && !(dup && g.chance(0.4)) && g.chance(0.98) {
		return items
	}
	at := g.IntN(len(items) + 1)
	return slices.Insert(slices.Clone(items), at, item)
}

// identity returns the text by which the items of a list are distinguished; "" for an item without identity.
func identity(t *schema.Type, item object.Value) string {
	if t.ListType == schema.Set {
		if item.Kind() == object.Map || item.Kind() == object.List {
			return ""
		}
		return string(object.AppendJSON(nil, item))
	}
	var b strings.Builder
	for _, key := range t.ListKeys {
		v, ok := item.Get(key)
		if f := t.Elem.Field(key); !ok && f != nil {
			v = f.Implied()
			ok = !v.IsNull()
		}
		if ok {
			b.WriteString(key + "=" + string(object.AppendJSON(nil, v)) + ";")
		}
	}
	return b.String()
}

// anything returns a value that no schema describes.
func (g *generator) anything(depth int) object.Value {
	if depth > 0 {
		switch g.IntN(4) {
		case 0:
			return object.MapOf(object.Member{Key: pick(g, "a", "b"), Value: g.anything(depth - 1)},
				object.Member{Key: pick(g, "b", "c"), Value: g.anything(depth - 1)})
		case 1:
			return object.ListOf(g.anything(depth-1), g.anything(depth-1))
		}
	}
	return pick(g, object.IntOf(1), object.IntOf(2), object.StringOf("a"), object.StringOf("b"), object.BoolOf(true),
		object.MapOf(),
		object.ListOf(), object.Nil, object.FloatOf(1.5))
}

// change makes some changes to a value of a type.
func (g *generator) change(t *schema.Type, v object.Value, depth int, dup bool) object.Value {
	if g.chance(0.04) {
		return g.value(t, depth, dup)
	}
	switch {
	case v.Kind() == object.Map && (t.Kind == schema.Struct || t.Kind == schema.Map || t.Kind == schema.Any):
		return g.changeMap(t, v, depth, dup)
	case v.Kind() == object.List && t.Kind == schema.List:
		return g.changeList(t, v, depth, dup)
	case g.chance(0.5):
		return v
	}
	return g.value(t, depth, dup)
}

// changeMap changes some members, drops some and adds some.
func (g *generator) changeMap(t *schema.Type, v object.Value, depth int, dup bool) object.Value {
	p := 1.5 / float64(v.Len()+1)
	of := func(name string) *schema.Type {
		if t.Kind == schema.Map {
			return t.Elem
		}
		if f := t.Field(name); f != nil {
			return f.Type
		}
		return &schema.Type{Kind: schema.Any}
	}
	out := v
	for _, m := range v.Members() {
		switch {
		case m.Key == "managedFields":
		case g.chance(p * 0.3):
			out = out.Without(m.Key)
		case g.chance(p):
			out = out.With(m.Key, g.change(of(m.Key), m.Value, depth-1, dup))
		}
	}
	if g.chance(0.3) {
		more := g.value(t, depth, dup)
		for _, m := range more.Members() {
			if _, ok := out.Get(m.Key); !ok && g.chance(0.5) {
				out = out.With(m.Key, m.Value)
			}
		}
	}
	return out
}

// changeList changes some items, drops some, adds some and reorders them.
func (g *generator) changeList(t *schema.Type, v object.Value, depth int, dup bool) object.Value {
	p := 1.2 / float64(v.Len()+1)
	var items []object.Value
	for _, item := range v.Items() {
		switch {
		case g.chance(p * 0.4):
			continue
		case g.chance(p) && t.ListType != schema.Set:
			changed := g.change(t.Elem, item, depth-1, dup)
			if t.ListType == schema.Associative && (identity(t, changed) != identity(t, item) || changed.Kind() != object.Map) {
				changed = item
			}
			item = changed
		}
		items = append(items, item)
	}
	if g.chance(0.4) {
		items = g.addItem(t, items, depth, dup)
	}
	if dup && len(items) > 0 && g.chance(0.04) && t.ListType != schema.Atomic {
		items = append(slices.Clone(items), pick(g, items...))
	}
	if g.chance(0.15) {
		g.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	return object.ListOf(items...)
}

// part keeps some of a value, for an intent that shares existing fields.
func (g *generator) part(t *schema.Type, v object.Value) object.Value {
	switch {
	case v.Kind() == object.Map:
		for _, m := range v.Members() {
			of := t.Elem
			if t.Kind == schema.Struct {
				of = nil
				if f := t.Field(m.Key); f != nil {
					of = f.Type
				}
			}
			switch {
			case g.chance(0.4):
				v = v.Without(m.Key)
			case of != nil && !of.AtomicMap:
				v = v.With(m.Key, g.part(of, m.Value))
			}
		}
	case v.Kind() == object.List && t.Kind == schema.List && t.ListType != schema.Atomic:
		var items []object.Value
		seen := map[string]bool{}
		for _, item := range v.Items() {
			if id := identity(t, item); !seen[id] && g.chance(0.6) {
				seen[id] = true
				if t.ListType == schema.Associative && g.chance(0.5) {
					whole := item
					item = g.part(t.Elem, item)
					for _, key := range t.ListKeys {
						if v, ok := whole.Get(key); ok {
							item = item.With(key, v)
						}
					}
				}
				items = append(items, item)
			}
		}
		return object.ListOf(items...)
	}
	return v
}

// metadata makes the part of metadata that a client writes.
func (g *generator) metadata(dup bool) object.Value {
	m := object.MapOf()
	if g.chance(0.4) {
		m = m.With("labels", g.value(&schema.Type{Kind: schema.Map, Elem: &schema.Type{Kind: schema.String}}, 1, false))
	}
	if g.chance(0.2) {
		m = m.With("annotations", withoutNulls(g.value(&schema.Type{Kind: schema.Map,
			Elem: &schema.Type{Kind: schema.String}}, 1, false)))
	}
	if g.chance(0.15) {
		finalizers := &schema.Type{Kind: schema.List, ListType: schema.Set, Elem: &schema.Type{Kind: schema.String}}
		m = m.With("finalizers", g.list(finalizers, 1, dup))
	}
	if g.chance(0.1) {
		owner := func(uid string) object.Value {
			return object.Fields("apiVersion", object.StringOf("v1"), "kind", object.StringOf("ConfigMap"), "name",
				object.StringOf(pick(g, "a", "b")), "uid", object.StringOf(uid))
		}
		m = m.With("ownerReferences", object.ListOf(owner("1"), owner(pick(g, "2", "3"))))
	}
	if g.chance(0.05) {
		m = m.With(pick(g, "generation", "resourceVersion", "creationTimestamp", "selfLink"), object.Nil)
	}
	return m
}

// withoutNulls drops members that are null, as the API server has none in metadata.
func withoutNulls(v object.Value) object.Value {
	for _, m := range v.Members() {
		if m.Value.IsNull() {
			v = v.Without(m.Key)
		}
	}
	return v
}

// managers are the writers: few, so that they share fields. A second group serves to exceed the cap on managers.
var managers = []string{"alice", "bob", "carol", "kubectl"}

var manyManagers = []string{"m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "m12",
	"m13", "m14",
	"before-first-apply", "ancient-changes", "", "kubectl-client-side-apply", strings.Repeat("long", 32), `quo"ted`, "ü"}

// history makes a kind and the operations of some managers on an object of it. It runs them through upstream as it
// goes, because an update starts from the live object.
func (g *generator) history(steps int, now func() time.Time) (*history, []outcome) {
	h := &history{kind: g.kind()}
	s := &state{kind: h.kind}
	var outcomes []outcome
	intents := map[string]object.Value{}
	crowd := g.chance(0.12)
	if crowd {
		steps *= 3
	}
	for range steps {
		op := g.step(s, intents, crowd)
		h.steps = append(h.steps, op)
		if op.wait > 0 {
			time.Sleep(op.wait)
		}
		o := s.do(upstream{}, op, now())
		outcomes = append(outcomes, o)
		if op.verb == apply && o.err == nil {
			intents[op.manager] = op.body
		}
	}
	return h, outcomes
}

// pruned returns the object without the fields that its version does not have, like the API server before it calls the
// field manager; names differ between versions.
func (g *generator) pruned(k *kind, op step) object.Value {
	v := k.version(k.apiVersion(op.version))
	if v == nil || v.root == nil || g.wrong > 0 {
		return op.body
	}
	return v.root.prune(op.body)
}

// prune drops unknown fields unless the schema preserves them.
func (n *node) prune(v object.Value) object.Value {
	switch {
	case v.Kind() == object.Map && n.Type == "object":
		for _, m := range v.Members() {
			switch below := n.Properties[m.Key]; {
			case below != nil:
				v = v.With(m.Key, below.prune(m.Value))
			case n.Additional != nil:
				v = v.With(m.Key, n.Additional.prune(m.Value))
			case len(n.Properties) > 0 && !n.Preserve:
				v = v.Without(m.Key)
			}
		}
	case v.Kind() == object.List && n.Items != nil:
		for i, item := range v.Items() {
			v = v.WithItem(i, n.Items.prune(item))
		}
	}
	return v
}

// step makes one operation.
func (g *generator) step(s *state, intents map[string]object.Value, crowd bool) step {
	op := step{manager: pick(g, managers...), version: pick(g, s.kind.versions...).name,
		wait: time.Duration(g.IntN(3)) * 400 * time.Millisecond}
	if crowd && g.chance(0.8) || g.chance(0.05) {
		op.manager = pick(g, manyManagers...)
	}
	if g.chance(0.6) {
		op.version = s.kind.versions[0].name
	}
	t := s.kind.version(s.kind.apiVersion(op.version)).typ
	if s.kind.status && g.chance(0.25) {
		op.subresource = "status"
	}
	switch {
	case !s.live.IsNull() && g.chance(0.06) && g.reschema(s, &op):
	case !s.live.IsNull() && len(s.kind.scale) > 0 && g.chance(0.35):
		op.verb, op.force, op.subresource = pick(g, scale, scale, rescale), g.chance(0.3), ""
		op.body = object.Fields("spec", object.Fields("replicas", object.IntOf(int64(1+g.IntN(3)))))
	case s.live.IsNull() && g.chance(0.5), !s.live.IsNull() && g.chance(map[bool]float64{false: 0.35, true: 0.85}[crowd]):
		g.update(s, &op, t, crowd)
	default:
		op.verb, op.force = apply, g.chance(0.3)
		op.body = g.intent(s, &op, t, intents)
	}
	if op.verb != reschema && op.verb != scale && op.verb != rescale {
		op.body = g.pruned(s.kind, op)
	}
	return op
}

// reschema changes the schemas of the kind, or removes a version.
func (g *generator) reschema(s *state, op *step) bool {
	if s.kind.builtin || s.kind.versions[0].root == nil {
		return false
	}
	k := &kind{group: s.kind.group, name: s.kind.name, status: s.kind.status, forgetful: s.kind.forgetful,
		fragile: s.kind.fragile, scale: s.kind.scale}
	for _, v := range s.kind.versions {
		k.versions = append(k.versions, &version{name: v.name, root: v.root.clone(), renames: v.renames})
	}
	if len(k.versions) > 1 && g.chance(0.3) {
		k.versions = k.versions[:len(k.versions)-1]
	} else if !g.turn(pick(g, k.versions...).root) {
		return false
	}
	k.finish()
	*op = step{verb: reschema, kind: k}
	return true
}

// whole returns an object of the kind as a client writes it, without apiVersion and kind.
func (g *generator) whole(t *schema.Type, dup bool) object.Value {
	v := g.value(&schema.Type{Kind: schema.Struct, Fields: t.Fields}, 4, dup)
	if t.Kind == schema.Any {
		v = object.Fields("spec", object.Fields("a", g.anything(3), "b", g.anything(2)))
	} else if t.Field("spec") != nil && v.At("spec").IsNull() && g.chance(0.9) {
		if v.Kind() != object.Map {
			v = object.MapOf()
		}
		v = v.With("spec", g.value(t.Field("spec").Type, 4, dup))
	}
	if v.Kind() != object.Map {
		v = object.MapOf()
	}
	for _, name := range []string{"apiVersion", "kind"} {
		v = v.Without(name)
	}
	return v.With("metadata", g.metadata(dup))
}

// update makes a create, or an update of the live object.
func (g *generator) update(s *state, op *step, t *schema.Type, crowd bool) {
	op.verb = update
	if s.live.IsNull() {
		op.verb, op.subresource = create, ""
		op.body = g.whole(t, true)
	} else {
		live, err := s.kind.convert(s.live, s.kind.apiVersion(op.version))
		if err != nil {
			live = s.live
		}
		meta := live.At("metadata").Without("managedFields").Without("uid").Without("name")
		live = live.Without("apiVersion").Without("kind").Without("metadata")
		if g.chance(0.9) && !(crowd && g.chance(0.8)) {
			live = g.change(t, live, 4, true)
		}
		if live.Kind() != object.Map {
			live = object.MapOf()
		}
		if g.chance(0.25) {
			meta = object.MapOf(append(slices.Clone(meta.Members()), g.metadata(true).Members()...)...)
		}
		op.body = live.Without("apiVersion").Without("kind").With("metadata", meta)
		op.echo = g.chance(0.6)
	}
	if k := op.body.At("metadata", "labels").Kind(); crowd && (k == object.Map || k == object.Null) {
		name := fmt.Sprintf("label-%d", g.IntN(100))
		op.body = op.body.WithAt(object.StringOf("x"), "metadata", "labels", name)
	}
	if g.chance(0.15) {
		op.body = g.annotate(s, op.body, op.version)
	}
	if g.chance(0.06) {
		op.body = op.body.WithAt(g.managed(s), "metadata", "managedFields")
	}
	if *scattered > 0 && g.chance(*scattered) { // without the flag, the numbers of histories keep their meaning
		op.body = op.body.WithAt(g.scatter(s), "metadata", "managedFields")
	}
}

// scatter returns the managedFields after random damage: entries are removed or have another manager, own fields that
// do not exist, and no longer own fields that do.
func (g *generator) scatter(s *state) object.Value {
	var entries []object.Value
	for _, e := range s.live.At("metadata", "managedFields").Items() {
		if g.chance(0.2) {
			continue
		}
		fields := g.thinned(e.At("fieldsV1"))
		if g.chance(0.15) {
			fields = fields.With(pick(g, "f:kind", "f:apiVersion", "f:metadata", "f:spec", "f:zz"), object.MapOf())
		}
		if g.chance(0.15) {
			fields = fields.WithAt(object.MapOf(), "f:spec", pick(g, "f:a", "f:b", "f:c", "."),
				pick(g, "f:k1", "v:1", "i:0", "f:a", "."))
		}
		e = e.With("fieldsV1", fields)
		if g.chance(0.3) {
			e = e.With("operation", object.StringOf(pick(g, "Apply", "Update")))
		}
		if g.chance(0.3) {
			e = e.With("manager", object.StringOf(pick(g, managers...)))
		}
		if g.chance(0.3) {
			e = e.With("apiVersion", object.StringOf(s.kind.apiVersion(pick(g, "v1", "v2", "v3"))))
		}
		entries = append(entries, e)
	}
	return object.ListOf(entries...)
}

// thinned returns a field set without some of its fields, and without the fields below some others.
func (g *generator) thinned(fields object.Value) object.Value {
	for _, m := range fields.Members() {
		switch {
		case g.chance(0.1):
			fields = fields.Without(m.Key)
		case g.chance(0.1):
			fields = fields.With(m.Key, object.MapOf())
		default:
			fields = fields.With(m.Key, g.thinned(m.Value))
		}
	}
	return fields
}

// annotate adds the annotation of client-side apply.
func (g *generator) annotate(s *state, body object.Value, version string) object.Value {
	text := string(object.AppendJSON(nil, body.WithoutAt("metadata", "annotations").WithoutAt("metadata", "managedFields").
		With("apiVersion", object.StringOf(s.kind.apiVersion(version))).With("kind", object.StringOf(s.kind.name))))
	if g.chance(0.1) {
		text = pick(g, "", "{", "{}", `{"apiVersion":"example.com/v1","kind":"Other"}`, "[]",
			strings.Replace(text, "v1", "v9", 1))
	}
	if k := body.At("metadata", "annotations").Kind(); k != object.Map && k != object.Null {
		return body
	}
	return body.WithAt(object.StringOf(text), "metadata", "annotations", annotation)
}

// managed returns managedFields as if written by hand.
func (g *generator) managed(s *state) object.Value {
	live := s.live.At("metadata", "managedFields").Items()
	entry := func(fields string) object.Value {
		return object.Fields("manager", object.StringOf(pick(g, managers...)), "operation",
			object.StringOf(pick(g, "Apply", "Update")),
			"apiVersion", object.StringOf(pick(g, s.kind.apiVersion("v1"), s.kind.apiVersion("v2"), "example.com/v0")),
			"fieldsType", object.StringOf("FieldsV1"), "fieldsV1", parse(fields))
	}
	switch g.IntN(9) {
	case 0, 1:
		return object.ListOf(object.MapOf())
	case 2:
		return object.ListOf()
	case 3:
		return object.ListOf(object.Fields("manager", object.StringOf("x")))
	case 4:
		return object.ListOf(
			entry(`{"f:spec":{"f:a":{},"f:b":{".":{},"f:k1":{}},"x:odd":{}},"f:metadata":{"f:labels":{"f:k1":{}}}}`))
	case 5:
		if len(live) > 0 {
			return object.ListOf(live[g.IntN(len(live)):]...)
		}
		return object.ListOf(entry(`{}`))
	case 6:
		return object.ListOf(append(slices.Clone(live),
			entry(`{"f:spec":{".":{},"f:a":{"k:{\"key\":\"a\"}":{".":{},"f:key":{}},"v:\"a\"":{},"i:0":{}}}}`))...)
	case 7:
		return object.ListOf(append(slices.Clone(live),
			entry(`{"f:spec":{"f:a":{"v:1":{},"v:1.0":{},"v:true":{},"v:null":{}}}}`).
				With("subresource", object.StringOf("status")), entry(`{"f:status":{}}`))...)
	}
	return object.ListOf(entry(pick(g, `{"bad":{}}`, `{"f:spec":1}`, `{"k:{":{}}`, `{"v:":{}}`, `{"i:x":{}}`,
		`{"f:spec":[]}`, `{"f:spec":null}`)))
}

// intent makes the body of an apply: a new one, a changed one, the same one again, or a part of the live object.
func (g *generator) intent(s *state, op *step, t *schema.Type, intents map[string]object.Value) object.Value {
	last, again := intents[op.manager]
	var v object.Value
	switch {
	case again && g.chance(0.15):
		return last
	case again && g.chance(0.65):
		v = g.change(t, last.Without("metadata"), 4, false)
	case !s.live.IsNull() && g.chance(0.4):
		live, err := s.kind.convert(s.live, s.kind.apiVersion(op.version))
		if err != nil {
			live = s.live
		}
		v = g.part(t, live.Without("metadata").Without("apiVersion").Without("kind"))
	default:
		v = g.whole(t, false)
	}
	if v.Kind() != object.Map {
		v = object.MapOf()
	}
	v = v.Without("apiVersion").Without("kind").With("metadata", g.metadata(false))
	if g.chance(0.01) {
		v = v.WithAt(object.ListOf(), "metadata", "managedFields")
	}
	if op.manager == "kubectl" && g.chance(0.1) {
		v = g.annotate(s, v, op.version)
	}
	return v
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// keysOf lists the keys of a map in order.
func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
