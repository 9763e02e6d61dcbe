package patches

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"plinth/object"
	"plinth/schema"
)

// generator makes one case.
type generator struct {
	rng  *rand.Rand
	wild float64 // how often invalid values are written
}

// newGenerator makes the generator of one case or family.
func newGenerator(seed, number uint64) *generator {
	rng := rand.New(rand.NewPCG(seed, number))
	return &generator{rng: rng, wild: []float64{0, 0, 0.02, 0.15}[rng.IntN(4)]}
}

// family holds three variants of an object. Decoding them takes longer than patching them, so several cases share a
// family.
type family struct {
	kind                        *kind
	original, modified, current map[string]any
}

// members is how many cases a family has.
const members = 8

func (g *generator) family(kinds map[string]*kind) family {
	name := pick(g, often)
	if g.chance(0.5) {
		name = pick(g, keysOf(kinds))
	}
	f := family{kind: kinds[name]}
	f.original = g.variant(f.kind, f.kind.vector)
	f.modified, f.current = g.variant(f.kind, f.original), g.variant(f.kind, f.original)
	return f
}

func (g *generator) chance(p float64) bool { return g.rng.Float64() < p }

func pick[T any](g *generator, list []T) T { return list[g.rng.IntN(len(list))] }

// strategic makes a case and describes how its patch was made.
func (g *generator) strategic(f family) (strategic, string) {
	how := "made up"
	k, live := f.kind, f.current
	var patch map[string]any
	switch roll := g.rng.IntN(10); {
	case roll < 2:
		how = "made by CreateTwoWayMergePatch"
		patch = g.twoWay(k, f.original, f.modified)
		if g.chance(0.7) {
			live = f.original
		}
	case roll < 4:
		how = "made by CreateThreeWayMergePatch"
		patch = g.threeWay(k, f.original, f.modified, f.current)
	}
	if patch == nil {
		how = "made up"
		patch = g.mapping(k.typ, live, 0)
	} else if g.chance(0.4) {
		how = "spoilt"
		patch = g.spoilt(patch).(map[string]any)
	}
	if g.chance(g.wild / 2) { // an object that no server could have stored
		live = g.spoilt(live).(map[string]any)
	}
	c := strategic{k, valueOf(live), valueOf(patch)}
	if g.chance(0.002) { // too rare otherwise: lists of lists are told apart only where the live list is empty
		list := object.ListOf(object.Strings("a"))
		c.live, c.patch = c.live.WithAt(object.ListOf(), "metadata", "finalizers"),
			object.Fields("metadata", object.Fields("finalizers", list))
	}
	return c, how
}

func (g *generator) twoWay(k *kind, original, modified map[string]any) map[string]any {
	text, err := strategicpatch.CreateTwoWayMergePatch(jsonOf(original), jsonOf(modified),
		reflect.New(k.golang).Interface())
	return parsed(text, err)
}

func (g *generator) threeWay(k *kind, original, modified, current map[string]any) map[string]any {
	meta, err := strategicpatch.NewPatchMetaFromStruct(reflect.New(k.golang).Interface())
	if err != nil {
		return nil
	}
	text, err := strategicpatch.CreateThreeWayMergePatch(jsonOf(original), jsonOf(modified), jsonOf(current), meta,
		g.chance(0.9))
	return parsed(text, err)
}

// parsed decodes a patch; nil if upstream could not make one.
func parsed(text []byte, err error) map[string]any {
	var patch map[string]any
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(text, &patch) != nil {
		return nil
	}
	return patch
}

// variant returns a changed object that can still be decoded.
func (g *generator) variant(k *kind, doc map[string]any) map[string]any {
	for _, rate := range []float64{pick(g, []float64{0.01, 0.05, 0.15, 0.4}), 0.01} {
		if live, ok := k.typed(g.changed(doc, rate).(map[string]any)); ok {
			return live
		}
	}
	live, _ := k.typed(doc)
	return live
}

// keyNames are the merge keys of lists.
var keyNames = []string{"name", "containerPort", "devicePath", "ip", "mountPath", "port", "resourceClaimName", "status",
	"topologyKey", "type", "uid"}

// changed removes and alters fields, and gives lists items with different keys. The result is a deep copy.
func (g *generator) changed(v any, rate float64) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range keysOf(v) {
			if g.chance(rate*0.6) && key != "apiVersion" && key != "kind" {
				continue
			}
			out[key] = g.changed(v[key], rate)
		}
		return out
	case []any:
		if g.chance(rate / 4) {
			return []any{}
		}
		out := make([]any, 0, len(v)+3)
		for i, item := range v {
			if g.chance(rate) {
				continue
			}
			out = append(out, g.changed(item, rate))
			for range g.rng.IntN(8) - 4 {
				out = append(out, g.sibling(g.changed(item, rate+0.1), i))
			}
		}
		if g.chance(rate * 2) {
			g.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		return out
	case string:
		if g.chance(rate / 3) {
			return v + "X"
		}
	case int64:
		if g.chance(rate / 3) {
			return v + 1
		}
	case bool:
		return v != g.chance(rate/3)
	}
	return v
}

// sibling returns an item of a list with another key, one of few, so that lists have some items in common.
func (g *generator) sibling(item any, _ int) any {
	other := func(v any) any {
		switch v := v.(type) {
		case string:
			return strings.TrimRight(v, "0123456789") + fmt.Sprint(g.rng.IntN(6))
		case int64:
			return 100 + int64(g.rng.IntN(6))
		}
		return v
	}
	m, ok := item.(map[string]any)
	if !ok {
		return other(item)
	}
	for _, key := range keyNames {
		if v, ok := m[key]; ok {
			m[key] = other(v)
		}
	}
	return m
}

// mapping writes a patch for a map of this type, which may be nil.
func (g *generator) mapping(t *schema.Type, live map[string]any, depth int) map[string]any {
	patch := map[string]any{}
	if g.chance(0.03 + g.wild) {
		patch["$patch"] = pick(g, []any{"replace", "delete", "replace", "merge", "x", nil, int64(1), map[string]any{},
			[]any{}, "replace"})
	}
	keys := keysOf(live)
	if t != nil {
		for _, f := range t.Fields {
			if g.chance(1 / float64(2*len(t.Fields))) {
				keys = append(keys, f.Name)
			}
		}
	}
	for _, key := range keys {
		merges, inside := false, t
		if t != nil && t.Kind == schema.Struct {
			inside = nil
			if f := t.Field(key); f != nil {
				inside, merges = f.Type, strings.Contains(f.PatchStrategy, "merge")
			}
		} else if t != nil {
			inside = t.Elem
		}
		_, deep := live[key].(map[string]any)
		if likely := merges || deep || strings.Contains(fmt.Sprint(key), "strategy"); !g.chance(map[bool]float64{true: 0.5,
			false: 0.15}[likely]) {
			continue
		}
		g.member(patch, key, inside, live[key], depth)
	}
	if g.chance(g.wild) {
		patch[pick(g, []string{"unknown", "$unknown", "", "$", "$retainKeysX", "$setElementOrder",
			"$deleteFromPrimitiveListX/finalizers",
			"$deleteFromPrimitiveList", "$setElementOrder/", "$deleteFromPrimitiveList/", "$setElementOrder/unknown",
			"$setElementOrder/a/b",
			"$deleteFromPrimitiveList/unknown", "Metadata", "NAME"})] = g.anything(0)
	}
	if g.chance(0.03 + g.wild/2) {
		patch["$retainKeys"] = g.retainKeys(patch)
	}
	return patch
}

func (g *generator) retainKeys(patch map[string]any) any {
	if g.chance(g.wild) {
		return g.anything(0)
	}
	list := []any{}
	for _, key := range keysOf(patch) {
		if !g.chance(g.wild / 2) {
			list = append(list, key)
		}
	}
	if g.chance(0.5) {
		list = append(list, pick(g, []any{"type", "name", "spec", "x"}))
	}
	if g.chance(g.wild / 2) {
		list = append(list, g.anything(0))
	}
	return list
}

// member writes one member of a patch, and the directives for it.
func (g *generator) member(patch map[string]any, key string, t *schema.Type, live any, depth int) {
	if g.chance(g.wild / 3) {
		key = pick(g, []string{strings.ToUpper(key), strings.ToTitle(key[:min(1, len(key))]) + key[min(1, len(key)):],
			strings.ReplaceAll(key, "s", "ſ")})
	}
	switch {
	case g.chance(0.04):
		patch[key] = nil
		return
	case g.chance(g.wild / 2):
		patch[key] = g.anything(0)
		return
	}
	switch live := live.(type) {
	case map[string]any:
		patch[key] = g.mapping(t, live, depth+1)
		if g.chance(g.wild / 2) {
			patch["$deleteFromPrimitiveList/"+key] = g.mapping(t, live, depth+1)
		}
	case []any:
		g.list(patch, key, t, live, depth)
	case nil:
		if t == nil {
			patch[key] = g.anything(0)
			return
		}
		switch t.Kind {
		case schema.Struct, schema.Map:
			patch[key] = g.mapping(t, nil, depth+1)
		case schema.List:
			g.list(patch, key, t, nil, depth)
		default:
			patch[key] = g.scalar()
		}
	default:
		patch[key] = g.sibling(live, 0)
		if g.chance(g.wild / 2) {
			patch["$deleteFromPrimitiveList/"+key] = pick(g, []any{g.sibling(live, 0), nil, g.anything(0)})
		}
	}
}

// list writes a list, the deletions from it and its order.
func (g *generator) list(patch map[string]any, key string, t *schema.Type, live []any, depth int) {
	var inside *schema.Type
	if t != nil {
		inside = t.Elem
	}
	items := []any{}
	add := func(item any) {
		m, ok := item.(map[string]any)
		if !ok {
			items = append(items, item)
			return
		}
		out := g.mapping(inside, m, depth+1)
		if !g.chance(g.wild / 4) {
			for _, name := range keyNames {
				if v, ok := m[name]; ok {
					out[name] = v
				}
			}
		}
		if list, ok := out["$retainKeys"].([]any); ok && !g.chance(g.wild) {
			for _, name := range keyNames {
				list = append(list, name)
			}
			out["$retainKeys"] = list
		}
		if _, ok := out["$patch"]; !ok && g.chance(0.12) || g.chance(g.wild/2) {
			out["$patch"] = pick(g, []any{"delete", "delete", "delete", "replace"})
			if g.chance(g.wild) {
				out["$patch"] = pick(g, []any{"merge", "x", nil, int64(2)})
			}
		}
		items = append(items, out)
	}
	for _, item := range live {
		for g.chance(0.4) {
			add(item)
			if g.chance(0.9) {
				break
			}
		}
		if g.chance(0.2) {
			add(g.sibling(g.changed(item, 0.1), 0))
		}
	}
	if len(live) == 0 && inside != nil {
		for i := range g.rng.IntN(4) {
			add(g.fresh(inside, i))
		}
	}
	if g.chance(0.3) {
		g.rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	if g.chance(g.wild / 2) {
		items = append(items, g.anything(0))
	}
	if g.chance(g.wild / 4) {
		items = slices.Insert(items, 0, g.anything(0))
	}
	if g.chance(g.wild/2) || live != nil && len(live) == 0 && g.chance(0.3) {
		items = []any{pick(g, []any{[]any{"a"}, "a"})}
	}
	if !g.chance(0.1) {
		patch[key] = items
	}
	if g.chance(0.35) {
		patch["$setElementOrder/"+key] = g.order(items, live)
	}
	if scalars := len(live) == 0 || !isMap(live[0]); scalars && g.chance(0.4) || g.chance(0.02+g.wild/2) {
		list := []any{}
		for _, item := range slices.Concat(live, items) {
			if g.chance(0.3) {
				list = append(list, item)
			}
		}
		patch["$deleteFromPrimitiveList/"+key] = list
		if g.chance(g.wild) {
			patch["$deleteFromPrimitiveList/"+key] = g.anything(0)
		}
	}
}

// fresh returns an item for an empty list.
func (g *generator) fresh(t *schema.Type, i int) any {
	switch t.Kind {
	case schema.Struct:
		m := map[string]any{}
		for _, name := range keyNames {
			if f := t.Field(name); f != nil {
				m[name] = map[bool]any{true: "n" + fmt.Sprint(i), false: int64(i)}[f.Type.Kind == schema.String]
			}
		}
		return m
	case schema.Map:
		return map[string]any{"a": "b"}
	case schema.Int:
		return int64(i)
	}
	return "s" + fmt.Sprint(i)
}

// order returns a $setElementOrder list, mostly one that fits.
func (g *generator) order(items, live []any) any {
	if g.chance(g.wild) {
		return g.anything(0)
	}
	list := []any{}
	add := func(item any, always bool) {
		if !always && g.chance(0.4) {
			return
		}
		if m, ok := item.(map[string]any); ok {
			if _, special := m["$patch"]; special && !g.chance(0.1) {
				return
			}
			key := map[string]any{}
			for _, name := range keyNames {
				if v, ok := m[name]; ok {
					key[name] = v
				}
			}
			item = key
		}
		list = append(list, item)
	}
	rest := slices.Clone(live)
	if g.chance(0.5) {
		g.rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	}
	for _, item := range items {
		for len(rest) > 0 && g.chance(0.4) {
			add(rest[0], false)
			rest = rest[1:]
		}
		add(item, !g.chance(g.wild))
	}
	for _, item := range rest {
		add(item, false)
	}
	if g.chance(g.wild) {
		list = append(list, g.anything(0))
	}
	return list
}

func isMap(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

func (g *generator) scalar() any {
	return pick(g, []any{"a", "b", "", int64(0), int64(80), 80.0, 1.5, true, false})
}

// anything returns a value unrelated to its place.
func (g *generator) anything(depth int) any {
	switch roll := g.rng.IntN(12); {
	case roll < 2 && depth < 3:
		list := []any{}
		for range g.rng.IntN(4) {
			list = append(list, g.anything(depth+1))
		}
		return list
	case roll < 6 && depth < 3:
		m := map[string]any{}
		for range g.rng.IntN(4) {
			key := pick(g, []string{"name", "name", "a", "$patch", "$retainKeys", "type", "$setElementOrder/a",
				"$deleteFromPrimitiveList/a", "containers", "format"})
			m[key] = g.anything(depth + 1)
			if key == "$patch" && g.chance(0.7) {
				m[key] = pick(g, []any{"delete", "replace", "merge"})
			}
		}
		return m
	case roll == 6:
		return nil
	}
	return g.scalar()
}

// spoilt puts values into a patch that do not belong there.
func (g *generator) spoilt(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for _, key := range keysOf(v) {
			switch {
			case g.chance(0.01):
				out[key] = g.anything(0)
			case g.chance(0.01):
				delete(out, key)
			case g.chance(0.01):
				delete(out, key)
				out[pick(g, []string{"$patch", "$retainKeys", "$setElementOrder/" + key,
					"$deleteFromPrimitiveList/" + key})] = v[key]
			default:
				out[key] = g.spoilt(v[key])
			}
		}
		if g.chance(0.02) {
			out["$patch"] = pick(g, []any{"delete", "replace", "merge"})
		}
		return out
	case []any:
		out := make([]any, 0, len(v)+1)
		for _, item := range v {
			if g.chance(0.02) {
				continue
			}
			out = append(out, g.spoilt(item))
			if g.chance(0.02) {
				out = append(out, pick(g, []any{item, g.anything(0)}))
			}
		}
		if g.chance(0.05) {
			g.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		return out
	}
	return v
}
