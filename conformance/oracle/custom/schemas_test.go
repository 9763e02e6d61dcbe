package custom

import (
	"math/rand/v2"
	"slices"
)

// node is a schema, or a part of one, as JSON.
type node = map[string]any

// generator makes schemas and objects.
type generator struct {
	*rand.Rand
	density int // probability of an optional field, in percent
}

func newGenerator(seed, number uint64) *generator {
	return &generator{rand.New(rand.NewPCG(seed, number)), 70}
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

var names = []string{"a", "b", "c", "d", "e", "kind", "name", "metadata", "apiVersion", "a-b"}

// schema makes the schema of an object.
func (g *generator) schema() node {
	root := node{"type": "object"}
	properties := node{"spec": g.node(0), "status": g.node(1)}
	for _, name := range []string{"data", "a", "b"} {
		if g.chance(30) {
			properties[name] = g.node(2)
		}
	}
	if g.chance(20) {
		properties["metadata"] = node{"type": "object", "properties": node{"name": g.text(node{"type": "string"})}}
	}
	if g.chance(20) {
		properties["kind"] = node{"type": "string"}
	}
	root["properties"] = properties
	if g.chance(20) {
		root["required"] = []any{"spec"}
	}
	if g.chance(15) {
		root["x-kubernetes-preserve-unknown-fields"] = true
		if g.chance(20) {
			delete(root, "type")
		}
	}
	g.junctors(root, 2)
	return root
}

// node makes the schema of a place.
func (g *generator) node(depth int) (n node) {
	kinds := []func(depth int) node{g.structure, g.structure, g.list, g.mapping, g.embedded, g.loose}
	if depth > 3 {
		kinds = nil
	}
	scalars := []func(depth int) node{
		func(int) node { return g.text(node{"type": "string"}) }, func(int) node { return g.text(node{"type": "string"}) },
		func(int) node { return g.number(node{"type": "integer"}) },
		func(int) node { return g.number(node{"type": "number"}) },
		func(int) node { return node{"type": "boolean"} }, g.intOrString,
	}
	if depth > 0 || len(kinds) == 0 {
		kinds = append(kinds, scalars...)
	}
	n = pick(g, kinds...)(depth)
	if g.chance(12) {
		n["nullable"] = true
	}
	if g.chance(6) {
		n["description"] = "text"
	}
	if g.chance(35) {
		g.junctors(n, depth)
	}
	if g.chance(25) {
		g.fallback(n)
	}
	return n
}

func (g *generator) structure(depth int) node {
	n := node{"type": "object"}
	properties := node{}
	for range g.IntN(5) {
		name := pick(g, names...)
		if properties[name] == nil {
			properties[name] = g.node(depth + 1)
		}
	}
	if len(properties) > 0 {
		n["properties"] = properties
		if g.chance(5) {
			n["additionalProperties"] = true
		}
	}
	g.sizes(n, "Properties")
	if g.chance(30) {
		n["required"] = []any{pick(g, names[:5]...)}
	}
	if g.chance(10) {
		n["x-kubernetes-map-type"] = pick(g, "atomic", "granular")
	}
	if g.chance(15) {
		n["x-kubernetes-preserve-unknown-fields"] = true
	}
	return n
}

func (g *generator) mapping(depth int) node {
	n := node{"type": "object", "additionalProperties": any(g.node(depth + 1))}
	if g.chance(20) {
		n["additionalProperties"] = g.chance(80)
	}
	g.sizes(n, "Properties")
	if g.chance(10) {
		n["x-kubernetes-map-type"] = pick(g, "atomic", "granular")
	}
	if g.chance(10) {
		n["x-kubernetes-preserve-unknown-fields"] = true
	}
	return n
}

func (g *generator) list(depth int) node {
	n := node{"type": "array"}
	switch g.IntN(4) {
	case 0:
		n["items"] = pick(g, func(int) node { return g.text(node{"type": "string"}) },
			func(int) node { return g.number(node{"type": "integer"}) },
			func(int) node { return g.number(node{"type": "number"}) }, g.intOrString, func(int) node {
				return node{"type": "array", "x-kubernetes-list-type": "atomic", "items": node{"type": "integer"}}
			})(depth)
		n["x-kubernetes-list-type"] = "set"
	case 1:
		item := node{"type": "object", "properties": node{}}
		if g.chance(60) {
			item = g.structure(depth + 1)
			if item["properties"] == nil {
				item["properties"] = node{}
			}
		}
		delete(item, "x-kubernetes-map-type")
		keys := slices.Clone(names[:1+g.IntN(2)])
		var required []any
		for _, key := range keys {
			of := pick(g, node{"type": "string"}, node{"type": "integer"}, node{"type": "number"}, node{"type": "boolean"})
			if item["properties"].(node)[key] = of; g.chance(20) && of["type"] == "string" {
				of["default"] = "x"
			} else {
				required = append(required, key)
			}
		}
		if delete(item, "required"); required != nil {
			item["required"] = required
		}
		n["items"], n["x-kubernetes-list-type"] = item, "map"
		n["x-kubernetes-list-map-keys"] = texts(keys)
	default:
		n["items"] = g.node(depth + 1)
		if g.chance(20) {
			n["x-kubernetes-list-type"] = "atomic"
		}
	}
	g.sizes(n, "Items")
	if g.chance(5) {
		n["x-kubernetes-preserve-unknown-fields"] = true
	}
	return n
}

func texts(list []string) (out []any) {
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

func (g *generator) embedded(depth int) node {
	n := g.structure(depth + 1)
	n["x-kubernetes-embedded-resource"] = true
	properties, _ := n["properties"].(node)
	if g.chance(50) || len(properties) == 0 {
		n["x-kubernetes-preserve-unknown-fields"] = true
	}
	delete(n, "additionalProperties")
	for _, name := range []string{"apiVersion", "kind"} {
		if properties[name] != nil {
			properties[name] = g.text(node{"type": "string"})
		}
	}
	if properties["metadata"] != nil {
		properties["metadata"] = node{"type": "object", "properties": node{
			"name":   g.text(node{"type": "string"}),
			"labels": node{"type": "object", "additionalProperties": g.text(node{"type": "string"})},
		}}
	}
	return n
}

// loose returns a schema without a type, or one with keywords for members and items that its type does not have.
func (g *generator) loose(depth int) node {
	n := node{"x-kubernetes-preserve-unknown-fields": true}
	if g.chance(30) {
		n = node{"type": pick(g, "string", "integer", "boolean")}
	}
	switch g.IntN(4) {
	case 0:
		n["properties"] = node{"a": g.node(depth + 1), "b": g.node(depth + 1)}
	case 1:
		n["items"] = g.node(depth + 1)
	case 2:
		n["additionalProperties"] = g.node(depth + 1)
	}
	return n
}

func (g *generator) intOrString(int) node {
	n := node{"x-kubernetes-int-or-string": true}
	either := []any{node{"type": "integer"}, node{"type": "string"}}
	switch g.IntN(3) {
	case 0:
		n["anyOf"] = either
	case 1:
		n["allOf"] = []any{node{"anyOf": either}, g.numberRules(node{}, "integer")}
	}
	if g.chance(30) {
		g.textRules(n)
	}
	if g.chance(30) {
		g.numberRules(n, "")
	}
	return n
}

var patterns = []string{"^a", "^[a-z]*$", "b$", "^(a|b|ab)+$", "é"}

var formats = []string{"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3",
	"uuid4", "uuid5", "isbn", "isbn10",
	"isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime", "date-time",
	"k8s-short-name",
	"k8s-long-name", "int32", "unheard-of"}

func (g *generator) text(n node) node {
	if g.chance(75) {
		g.textRules(n)
	}
	return n
}

func (g *generator) textRules(n node) node {
	switch g.IntN(5) {
	case 0:
		n["minLength"] = g.IntN(4)
	case 1:
		n["maxLength"] = 1 + g.IntN(5)
	case 2:
		n["pattern"] = pick(g, patterns...)
	case 3:
		n["enum"] = []any{"a", "ab", pick(g, "", "c", "é")}
	default:
		n["format"] = pick(g, formats...)
	}
	return n
}

func (g *generator) number(n node) node {
	if g.chance(75) {
		g.numberRules(n, n["type"].(string))
	}
	return n
}

func (g *generator) numberRules(n node, typ string) node {
	bound := func() any {
		if typ == "integer" && g.chance(80) {
			return g.IntN(7) - 3
		}
		return float64(g.IntN(20)-10) / 2
	}
	for range 1 + g.IntN(2) {
		switch g.IntN(5) {
		case 0:
			if n["minimum"] = bound(); g.chance(30) {
				n["exclusiveMinimum"] = true
			}
		case 1:
			if n["maximum"] = bound(); g.chance(30) {
				n["exclusiveMaximum"] = true
			}
		case 2:
			n["multipleOf"] = pick[any](g, 1, 2, 3, 0.5, 1.5, 0.1)
		case 3:
			n["enum"] = []any{1, 2, pick[any](g, 3, 2.5, -1)}
		default:
			n["format"] = pick(g, "int32", "int64", "float", "double", "unheard-of")
		}
	}
	return n
}

func (g *generator) sizes(n node, of string) {
	if g.chance(12) {
		n["min"+of] = g.IntN(3)
	}
	if g.chance(12) {
		n["max"+of] = 1 + g.IntN(3)
	}
}

// junctors adds combined constraints: allOf, anyOf, oneOf, not.
func (g *generator) junctors(n node, depth int) {
	switch g.IntN(5) {
	case 0:
		n["allOf"] = append(list(n["allOf"]), g.constraints(n, depth)...)
	case 1:
		if n["anyOf"] == nil {
			n["anyOf"] = g.constraints(n, depth)
		}
	case 2:
		n["oneOf"] = g.constraints(n, depth)
	case 3:
		n["not"] = g.constraint(n, depth)
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func (g *generator) constraints(n node, depth int) (out []any) {
	for range 1 + g.IntN(3) {
		out = append(out, g.constraint(n, depth))
	}
	return out
}

// constraint makes a schema for a junctor at n. It constrains only what n describes.
func (g *generator) constraint(n node, depth int) node {
	out := node{}
	properties, _ := n["properties"].(node)
	items, _ := n["items"].(node)
	for range 1 + g.IntN(2) {
		switch {
		case len(properties) > 0 && g.chance(70):
			name := pick(g, sortedKeys(properties)...)
			if below, _ := properties[name].(node); below != nil && name != "metadata" && g.chance(70) {
				out["properties"] = node{name: g.constraint(below, depth+1)}
			}
			if g.chance(50) {
				out["required"] = []any{name}
			}
		case items != nil && g.chance(60):
			out["items"] = g.constraint(items, depth+1)
		case n["type"] == "object":
			g.sizes(out, "Properties")
		case n["type"] == "array":
			g.sizes(out, "Items")
		case n["type"] == "integer", n["type"] == "number":
			g.numberRules(out, n["type"].(string))
		case n["type"] == "boolean":
			out["enum"] = []any{true}
		default:
			g.textRules(out)
		}
	}
	if g.chance(15) && depth < 4 {
		g.junctors(out, depth+2)
		if _, nested := out["not"]; nested && len(properties)+len(items) > 0 && g.chance(50) {
			delete(out, "not")
		}
	}
	return out
}

// fallback adds a default, if the reference accepts it as a value of the schema.
func (g *generator) fallback(n node) {
	for range 3 {
		v := g.value(n, 90)
		if v == nil && n["nullable"] != true {
			continue
		}
		if accepts(n, v) {
			n["default"] = v
			return
		}
	}
}
