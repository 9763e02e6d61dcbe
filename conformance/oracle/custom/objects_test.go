package custom

import (
	"maps"
	"math"
	"slices"
	"strings"
)

func sortedKeys(m node) []string { return slices.Sorted(maps.Keys(m)) }

// object makes an object of a schema. Percent is how likely each part of it fits.
func (g *generator) object(schema node, percent int) node {
	out, _ := g.structured(schema, percent, 0).(node)
	out["apiVersion"], out["kind"] = "example.org/v1", "Example"
	out["metadata"] = g.metadata(schema, percent)
	return out
}

func (g *generator) metadata(schema node, percent int) any {
	m := node{"name": pick(g, "a", "ab", "name")}
	if properties, _ := schema["properties"].(node); properties["metadata"] != nil {
		if of, _ := properties["metadata"].(node)["properties"].(node); of["name"] != nil {
			m["name"] = g.value(of["name"].(node), percent)
		}
	}
	if !g.chance(percent + 20) {
		m["name"] = pick[any](g, 5, "a/b", "A_B", "")
	}
	if g.chance(20) {
		m["labels"] = node{"a": "b"}
	}
	if !g.chance(percent + 15) {
		m["labels"] = pick[any](g, 5, node{"a b": "c"}, node{"a": "b c"}, node{"a": 1}, nil)
	}
	if g.chance(10) {
		m["finalizers"] = []any{"example.org/f"}
	}
	if g.chance(10) {
		m["creationTimestamp"] = pick[any](g, nil, "2024-01-02T03:04:05Z")
	}
	if !g.chance(percent + 15) {
		m["unheardOf"] = g.anything(0)
	}
	if g.chance(5) {
		m["generation"] = pick[any](g, 1, 2.0, 1.5)
	}
	if !g.chance(percent + 18) {
		return pick[any](g, nil, "text", []any{})
	}
	return m
}

// value makes a value for a place.
func (g *generator) value(n node, percent int) any {
	if n["nullable"] == true && g.chance(20) {
		return nil
	}
	if v, there := n["default"]; there && g.chance(20) {
		return v
	}
	if enum := list(n["enum"]); enum != nil && g.chance(percent) {
		return pick(g, enum...)
	}
	if !g.chance(percent + 8) {
		return g.anything(0)
	}
	typ, _ := n["type"].(string)
	if n["x-kubernetes-int-or-string"] == true {
		typ = pick(g, "integer", "string")
	}
	switch typ {
	case "object":
		return g.structured(n, percent, 1)
	case "array":
		return g.items(n, percent)
	case "string":
		return g.word(n, percent)
	case "integer":
		if !g.chance(percent + 9) {
			return pick[any](g, 1.5, 1e30, 3000000000, int64(math.MaxInt64), literal("1.0"), literal("1e2"))
		}
		return g.figure(n, 1)
	case "number":
		if g.chance(5) {
			return pick[any](g, 1e30, 1e39, -0.25, 1e-9)
		}
		return g.figure(n, 2)
	case "boolean":
		return g.chance(50)
	}
	if g.chance(30) && n["properties"] != nil {
		return g.structured(n, percent, 1)
	}
	if g.chance(30) && n["items"] != nil {
		return g.items(n, percent)
	}
	return g.anything(0)
}

// figure returns a number near the bounds.
func (g *generator) figure(n node, parts int) any {
	i := g.IntN(13*parts) - 6*parts
	if low, ok := n["minimum"].(int); ok && g.chance(70) {
		i = (low + g.IntN(3)) * parts
	}
	if high, ok := n["maximum"].(int); ok && g.chance(70) {
		i = (high - g.IntN(3)) * parts
	}
	if parts > 1 && i%parts != 0 {
		return float64(i) / float64(parts)
	}
	return i / parts
}

func (g *generator) word(n node, percent int) string {
	if format, _ := n["format"].(string); format != "" && g.chance(percent) {
		if good := wellFormed[strings.ReplaceAll(format, "-", "")]; good != nil {
			return pick(g, good...)
		}
	}
	if g.chance(10) {
		return pick(g, "10.0.0.1", "a@b.c", "1s", "A")
	}
	length := g.IntN(5)
	if low, ok := n["minLength"].(int); ok && g.chance(percent) {
		length = low + g.IntN(2)
	}
	if high, ok := n["maxLength"].(int); ok && g.chance(percent) {
		length = g.IntN(high + 1)
	}
	var b strings.Builder
	for range length {
		b.WriteString(pick(g, "a", "a", "b", "b", "é", "1"))
	}
	return b.String()
}

// wellFormed has valid texts of each format; its keys are the formats' names without dashes.
var wellFormed = map[string][]string{
	"bsonobjectid": {"507f1f77bcf86cd799439011"}, "uri": {"http://a.b/c", "/a"}, "email": {"a@b.c"}, "hostname": {"a.bc",
		"a"}, "ipv4": {"10.0.0.1"},
	"ipv6": {"::1"}, "cidr": {"10.0.0.0/8"}, "mac": {"00:00:5e:00:53:01"},
	"uuid":  {"a8098c1a-f86e-11da-bd1a-00112444be1e"},
	"uuid3": {"bcd02e22-68f0-3046-a512-327cca9def8f"}, "uuid4": {"025b0d74-00a2-4048-bf57-227c5111bb34"},
	"uuid5": {"886313e1-3b8a-5372-9b90-0c9aee199e5d"}, "isbn": {"0321751043", "978-0321751041"}, "isbn10": {"0321751043"},
	"isbn13": {"978-0321751041"}, "creditcard": {"4111-1111-1111-1111"}, "ssn": {"111-11-1111"}, "hexcolor": {"#FFF",
		"#a0b1c2"},
	"rgbcolor": {"rgb(1,2,3)"}, "byte": {"YWJj", "YQ=="}, "password": {"a"}, "date": {"2024-02-29"}, "duration": {"1s",
		"22 ns"},
	"datetime": {"2024-01-02T03:04:05Z"}, "k8sshortname": {"a-b"}, "k8slongname": {"a.b-c"},
}

func (g *generator) structured(n node, percent, depth int) any {
	out := node{}
	properties, _ := n["properties"].(node)
	required := list(n["required"])
	for _, name := range sortedKeys(properties) {
		of := properties[name].(node)
		if slices.Contains(required, any(name)) && g.chance(percent) || g.chance(g.density) {
			out[name] = g.value(of, percent)
		}
	}
	switch of := n["additionalProperties"].(type) {
	case node:
		for range g.IntN(3) {
			out[pick(g, "k", "l", "m.n")] = g.value(of, percent)
		}
	case bool:
		if g.chance(70) {
			out["k"] = g.anything(0)
		}
	}
	if n["x-kubernetes-embedded-resource"] == true {
		for _, name := range []string{"apiVersion", "kind"} {
			if out[name] == nil && g.chance(percent) {
				out[name] = "v1"
			}
			if !g.chance(percent + 15) {
				out[name] = pick[any](g, 5, "", "a/b/c", "1 2", nil)
			}
		}
		if g.chance(70) {
			out["metadata"] = g.metadata(n, percent)
		}
	}
	if !g.chance(percent+5) || n["x-kubernetes-preserve-unknown-fields"] == true && g.chance(50) {
		out[pick(g, append([]string{"x", "y"}, names...)...)] = g.anything(0)
	}
	return out
}

func (g *generator) items(n node, percent int) any {
	of, _ := n["items"].(node)
	out := []any{}
	for range g.IntN(4) {
		out = append(out, g.value(of, percent))
	}
	if len(out) > 0 && !g.chance(percent) {
		out = append(out, pick(g, out...))
	}
	return out
}

// anything makes a value of any type.
func (g *generator) anything(depth int) any {
	if depth < 3 {
		switch g.IntN(8) {
		case 0:
			out := []any{}
			for range g.IntN(3) {
				out = append(out, g.anything(depth+1))
			}
			return out
		case 1, 2:
			out := node{}
			for range g.IntN(3) {
				out[pick(g, names...)] = g.anything(depth + 1)
			}
			return out
		}
	}
	return pick[any](g, nil, nil, true, false, 0, 1, 65, -7, 1.5, literal("1.0"), "", "a", "ab", "xyz", 12345678901)
}

// damaged returns a copy of a value with some places changed.
func (g *generator) damaged(v any, times int) any {
	v = clone(v)
	for range times {
		v = g.damage(v, 0)
	}
	return v
}

func (g *generator) damage(v any, depth int) any {
	if depth > 0 && g.chance(20) {
		return g.anything(0)
	}
	switch v := v.(type) {
	case node:
		keys := sortedKeys(v)
		switch {
		case len(keys) == 0 || g.chance(10):
			// the API server checks these earlier
			if name := pick(g, names...); depth > 0 || name != "apiVersion" && name != "kind" {
				v[name] = g.anything(1)
			}
		case g.chance(10) && depth > 0:
			delete(v, pick(g, keys...))
		default:
			key := pick(g, keys...)
			if depth == 0 && key != "metadata" && (key == "apiVersion" || key == "kind") {
				key = "spec"
			}
			v[key] = g.damage(v[key], depth+1)
		}
		return v
	case []any:
		switch {
		case len(v) == 0 || g.chance(10):
			return append(v, g.anything(1))
		case g.chance(15):
			return append(v, clone(pick(g, v...)))
		case g.chance(15):
			g.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
			return v
		case g.chance(10):
			return v[1:]
		}
		i := g.IntN(len(v))
		v[i] = g.damage(v[i], depth+1)
		return v
	}
	return g.anything(1)
}

func clone(v any) any {
	switch v := v.(type) {
	case node:
		out := node{}
		for key, member := range v {
			out[key] = clone(member)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, item := range v {
			out = append(out, clone(item))
		}
		return out
	}
	return v
}
