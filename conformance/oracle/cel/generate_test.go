package cel

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes schemas with rules, and objects for them.
type generator struct{ *rand.Rand }

// node is a schema, as JSON has it.
type node = map[string]any

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

func (g generator) one(in int) bool { return g.IntN(in) == 0 }

var fieldNames = []string{"a", "b", "c", "x-y", "x.y", "namespace", "d"}

// schema makes the schema of an object.
func (g generator) schema() node {
	s := g.objectNode(3)
	if g.one(2) {
		s["properties"].(node)["spec"] = g.node(3)
	}
	g.rules(s)
	if !hasRule(s) {
		s["x-kubernetes-validations"] = []node{{"rule": "has(self.a)"}}
	}
	return s
}

func hasRule(v any) bool {
	switch v := v.(type) {
	case node:
		for k, of := range v {
			if k == "x-kubernetes-validations" || hasRule(of) {
				return true
			}
		}
	}
	return false
}

func (g generator) objectNode(depth int) node {
	properties, required := node{}, []string{}
	for range 1 + g.IntN(4) {
		name := pick(g, fieldNames...)
		properties[name] = g.node(depth - 1)
		if g.one(5) {
			required = append(required, name)
		}
	}
	s := node{"type": "object", "properties": properties}
	if len(required) > 0 && g.one(2) {
		s["required"] = required[:1]
	}
	if g.one(6) {
		s["x-kubernetes-map-type"] = pick(g, "atomic", "granular")
	}
	return s
}

// node makes any schema, with rules on some.
func (g generator) node(depth int) node {
	s := g.plain(depth)
	if g.one(8) {
		s["nullable"] = true
	}
	if g.one(2) {
		g.rules(s)
	}
	if g.one(12) && s["type"] == "integer" {
		s["allOf"] = []any{node{"minimum": 1}}
	}
	return s
}

func (g generator) plain(depth int) node {
	kinds := []string{"string", "string", "integer", "integer", "number", "boolean", "ios", "date-time", "duration",
		"byte", "enum"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "list", "list", "set", "keyed", "keyed", "map", "map", "embedded",
			"preserve", "empty")
	}
	if depth > 2 {
		kinds = kinds[11:]
	}
	switch kind := pick(g, kinds...); kind {
	case "string":
		s := node{"type": "string"}
		if g.one(2) {
			s["maxLength"] = 1 + g.IntN(30)
		}
		return s
	case "enum":
		return node{"type": "string", "enum": []string{"alpha", "be"}}
	case "date-time", "duration", "byte":
		return node{"type": "string", "format": kind}
	case "ios":
		return node{"x-kubernetes-int-or-string": true}
	case "object":
		return g.objectNode(depth)
	case "embedded":
		s := node{"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}
		if g.one(2) {
			s["properties"] = node{"spec": g.node(depth - 1), "kind": node{"type": "string"}}
		}
		return s
	case "preserve":
		if g.one(2) {
			return node{"x-kubernetes-preserve-unknown-fields": true}
		}
		return node{"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			"properties": node{"a": g.node(depth - 1)}}
	case "empty":
		return node{"type": "object"}
	case "list":
		return g.bounded(node{"type": "array", "items": g.node(depth - 1)}, "maxItems")
	case "set":
		return g.bounded(node{"type": "array", "x-kubernetes-list-type": "set",
			"items": node{"type": pick(g, "string", "integer")}}, "maxItems")
	case "keyed":
		keys := pick(g, []string{"k"}, []string{"k", "l"}, []string{"x.y"})
		properties := node{"k": node{"type": "string"}, "l": node{"type": "integer"}, "x.y": node{"type": "string"},
			"v": g.node(depth - 1)}
		items := node{"type": "object", "properties": properties, "required": keys}
		g.rules(items)
		return g.bounded(node{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
			"items": items}, "maxItems")
	case "map":
		return g.bounded(node{"type": "object", "additionalProperties": g.node(depth - 1)}, "maxProperties")
	default:
		return node{"type": kind}
	}
}

func (g generator) bounded(s node, with string) node {
	if !g.one(3) {
		s[with] = pick(g, 1, 5, 100, 20000)
	}
	return s
}

func (g generator) rules(s node) {
	if g.one(2) {
		return
	}
	var rules []node
	for range 1 + g.IntN(3) {
		rules = append(rules, g.rule(s))
	}
	s["x-kubernetes-validations"] = rules
}

func (g generator) rule(s node) node {
	r := node{"rule": g.boolean(s, "self", 2)}
	switch g.IntN(8) {
	case 0:
		r["rule"] = "self == oldSelf"
	case 1:
		r["rule"] = fmt.Sprintf("(%s) || self == oldSelf", r["rule"])
	case 2:
		r["optionalOldSelf"] = true
		r["rule"] = pick(g, "!oldSelf.hasValue() || oldSelf.value() == self", "oldSelf.optMap(o, o != self).orValue(false)",
			"oldSelf.hasValue()", "oldSelf.orValue(self) == self")
	case 3:
		if g.one(3) {
			r["rule"] = pick(g, "self.nothing == 1", "1 + 1", "self ==", "other", "self.all(x, x)", "has(self)",
				"oldSelf.hasValue()")
		}
	}
	if g.one(3) {
		r["message"] = pick(g, "it is wrong", " padded ")
	}
	if g.one(4) {
		r["messageExpression"] = pick(g, "'is ' + string(self)", "'said'", "''", "'a\nb'", "string(type(self))", "1",
			"'%s'.format([self])",
			"'old ' + string(oldSelf)", "oldSelf.hasValue() ? 'had' : 'had not'", "self", "string(1/0)",
			"oldSelf == self ? 'same' : 'other'")
	}
	if g.one(4) {
		r["reason"] = pick(g, "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden", "FieldValueDuplicate")
	}
	if properties, ok := s["properties"].(node); ok && g.one(3) {
		for name := range properties {
			r["fieldPath"] = pick(g, fmt.Sprintf("['%s']", name), "."+strings.ReplaceAll(name, ".", ""))
			if _, there := properties[strings.Trim(r["fieldPath"].(string), ".[']")]; !there {
				delete(r, "fieldPath")
			}
		}
	}
	return r
}

// boolean returns an expression over a value of this schema.
func (g generator) boolean(s node, x string, depth int) string {
	if depth == 0 || g.one(9) {
		return pick(g, x+" == "+x, "true", "1 == 1", "false")
	}
	if g.one(8) {
		return fmt.Sprintf("(%s) %s (%s)", g.boolean(s, x, depth-1), pick(g, "&&", "||"), g.boolean(s, x, depth-1))
	}
	n := g.IntN(8) - 2
	if s["x-kubernetes-int-or-string"] == true {
		return pick(g, fmt.Sprintf("type(%s) == int ? %s > %d : %s.startsWith('a')", x, x, n, x),
			fmt.Sprintf("%s == %d", x, n),
			fmt.Sprintf("%s + 1 > %d", x, n), fmt.Sprintf("%s in [1, 'a']", x), fmt.Sprintf("string(%s) != '3'", x))
	}
	switch s["type"] {
	case "integer":
		return pick(g, fmt.Sprintf("%s > %d", x, n), fmt.Sprintf("%s %% 2 == 0", x), fmt.Sprintf("7 / (%s - %d) < 9", x, n),
			fmt.Sprintf("string(%s).size() < 2", x), fmt.Sprintf("[%s, %d].sum() > 2", x, n), fmt.Sprintf("%s < 2.5", x))
	case "number":
		return pick(g, fmt.Sprintf("%s > %d.5", x, max(n, 0)), fmt.Sprintf("%s < %d", x, n),
			fmt.Sprintf("int(%s) == %d", x, n))
	case "boolean":
		return pick(g, x, "!"+x, x+" == false")
	case "string":
		switch s["format"] {
		case "date-time":
			return pick(g, x+".getFullYear() > 2000", x+" < timestamp('2020-01-01T00:00:00Z')")
		case "duration":
			return pick(g, x+" < duration('1h')", x+".getMinutes() > 3")
		case "byte":
			return pick(g, x+".size() < 3", x+" == b'abc'")
		}
		return pick(g, fmt.Sprintf("%s.size() < %d", x, n), x+".startsWith('a')", x+".matches('^[a-c]+$')", x+" < 'b'",
			x+".substring(1) != 'b'",
			x+" in ['a', 'abc']", x+".lowerAscii() == "+x, x+".split('a').size() == 1", x+".contains('b') || isIP("+x+")",
			"quantity("+x+").isInteger()",
			x+".find('[a-z]+') == "+x, "'%s'.format(["+x+"]) == "+x)
	case "array":
		items := s["items"].(node)
		return pick(g, fmt.Sprintf("%s.all(x, %s)", x, g.boolean(items, "x", depth-1)),
			fmt.Sprintf("%s.exists(x, %s)", x, g.boolean(items, "x", depth-1)),
			fmt.Sprintf("%s.size() < %d", x, n), fmt.Sprintf("%s[0] == %s[1]", x, x), fmt.Sprintf("%s + %s == %s", x, x, x),
			fmt.Sprintf("%s.filter(x, %s).size() < 2", x, g.boolean(items, "x", depth-1)), fmt.Sprintf("%s.map(x, x) == %s", x,
				x),
			fmt.Sprintf("%s.exists_one(x, %s)", x, g.boolean(items, "x", depth-1)), fmt.Sprintf("%s.all(x, x in %s)", x, x),
			fmt.Sprintf("%s.all(i, x, i < %d)", x, n))
	case "object":
		if of, ok := s["additionalProperties"].(node); ok {
			return pick(g, fmt.Sprintf("%s.all(k, %s)", x, g.boolean(of, x+"[k]", depth-1)), fmt.Sprintf("'a' in %s", x),
				fmt.Sprintf("%s.exists(k, k == 'b')", x), fmt.Sprintf("%s.size() < %d", x, n), fmt.Sprintf("%s['a'] == %s['b']", x,
					x),
				fmt.Sprintf("%s.all(k, v, %s)", x, g.boolean(of, "v", depth-1)))
		}
		if s["x-kubernetes-embedded-resource"] == true && g.one(2) {
			return pick(g, x+".kind == 'K'", x+".metadata.name.size() < 3", "has("+x+".metadata.generateName)",
				x+".apiVersion == 'v1'")
		}
		properties, _ := s["properties"].(node)
		for name := range properties {
			field := x + "." + strings.NewReplacer("-", "__dash__", ".", "__dot__").Replace(name)
			return pick(g, fmt.Sprintf("!has(%s) || (%s)", field, g.boolean(properties[name].(node), field, depth-1)),
				g.boolean(properties[name].(node), field, depth-1), fmt.Sprintf("has(%s)", field))
		}
	}
	return pick(g, x+" == "+x, "false")
}

// value returns a value of a schema, and sometimes an invalid one.
func (g generator) value(s node) any {
	if s["nullable"] == true && g.one(3) {
		return nil
	}
	if g.one(60) {
		return pick[any](g, "a", 3, true, []any{}, node{}, nil)
	}
	if s["x-kubernetes-int-or-string"] == true {
		return pick[any](g, 1, 3, "a", "5%")
	}
	switch s["type"] {
	case "integer":
		return g.IntN(8) - 2
	case "number":
		return pick[any](g, 1, 0.5, -2.25, 3)
	case "boolean":
		return g.one(2)
	case "string":
		switch s["format"] {
		case "date-time":
			return pick(g, "1999-12-31T23:59:59Z", "2024-02-29T12:00:00.5+02:00", "2024")
		case "duration":
			return pick(g, "1s", "90m", "2 h", "x")
		case "byte":
			return pick(g, "YWJj", "YWJjZGVm", "?")
		}
		return pick(g, "", "a", "abc", "b", "Abc", "äö", "10.0.0.1", "5")
	case "array":
		items := []any{}
		for range g.IntN(4) {
			items = append(items, g.value(s["items"].(node)))
		}
		return items
	case "object":
		return g.members(s)
	}
	return pick[any](g, 1, "a", []any{1, "b"}, node{"a": 1, "b": nil}, 2.5)
}

func (g generator) members(s node) node {
	out := node{}
	if of, ok := s["additionalProperties"].(node); ok {
		for range g.IntN(3) {
			out[pick(g, "a", "b", "c.d")] = g.value(of)
		}
		return out
	}
	properties, _ := s["properties"].(node)
	for name, of := range properties {
		if g.one(5) {
			continue
		}
		out[name] = g.value(of.(node))
		if keys := name; keys == "k" || keys == "l" || keys == "x.y" {
			out[name] = map[string]any{"k": pick(g, "a", "b"), "l": pick(g, 1, 2), "x.y": pick(g, "a", "b")}[keys]
		}
	}
	if s["x-kubernetes-embedded-resource"] == true {
		out["apiVersion"], out["kind"] = pick(g, "v1", "v2"), pick(g, "K", "L")
		out["metadata"] = node{"name": pick(g, "a", "abc"), "labels": node{"a": pick(g, "x", "y")}}
	}
	if s["x-kubernetes-preserve-unknown-fields"] == true && g.one(2) {
		out["more"] = pick[any](g, 1, 1.5, "a", node{"x": 1})
	}
	return out
}

// changed returns a value with a few changes.
func (g generator) changed(s node, v any) any {
	if g.one(6) {
		return g.value(s)
	}
	switch v := v.(type) {
	case []any:
		items, _ := s["items"].(node)
		out := append([]any{}, v...)
		if items == nil {
			return out
		}
		for i := range out {
			if g.one(3) {
				out[i] = g.changed(items, out[i])
			}
		}
		if len(out) > 1 && g.one(3) {
			out[0], out[1] = out[1], out[0]
		}
		if g.one(5) {
			out = append(out, g.value(items))
		}
		return out
	case node:
		out := node{}
		for k, of := range v {
			out[k] = of
			below, ok := s["additionalProperties"].(node)
			if properties, has := s["properties"].(node); has && !ok {
				below, ok = properties[k].(node)
			}
			if ok && g.one(3) {
				out[k] = g.changed(below, of)
			}
		}
		return out
	}
	return v
}
