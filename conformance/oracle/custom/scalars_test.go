package custom

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// items puts a list of values, each of which has the schema, through both engines, and returns the causes.
func items(t *testing.T, of node, values []any) []string {
	t.Helper()
	s := node{"type": "object", "properties": node{"spec": node{"type": "array", "items": of}}}
	internal, _, err := internalSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	if errs := apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(),
		definition(internal)); len(errs) > 0 {
		t.Fatalf("%s: %v", encoded(of), errs)
	}
	reference, err := newReference(s)
	if err != nil {
		t.Fatal(err)
	}
	plinth, err := newPlinth(s)
	if err != nil {
		t.Fatal(err)
	}
	text := encoded(node{"apiVersion": "example.org/v1", "kind": "Example", "metadata": node{"name": "a"}, "spec": values})
	want, _ := reference.take(text, nil)
	got, _ := plinth.take(text, nil)
	if d := difference(want, got); d != "" {
		t.Errorf("%s\n%s", encoded(of), d)
	}
	return want.causes
}

// Every format, with every type that may have one, and valid and invalid texts of each.
//
// SPEC: EXT-1
func TestFormats(t *testing.T) {
	texts := []any{"", " ", "a", "é", "A_B", "a..b", "-1", "1s1", "2024-02-30", "256.1.1.1", "0000000000", nil, 1, 1.5,
		true, []any{"a"}, node{}}
	for _, list := range slices.Sorted(maps.Keys(wellFormed)) {
		for _, text := range wellFormed[list] {
			texts = append(texts, text, strings.ToUpper(text), text+"x", text[1:])
		}
	}
	for _, format := range formats {
		for _, of := range []node{
			{"type": "string"}, {"type": "string", "nullable": true}, {"x-kubernetes-preserve-unknown-fields": true},
			{"x-kubernetes-int-or-string": true},
			{"type": "integer"}, {"type": "boolean"}, {"type": "object"},
		} {
			of["format"] = format
			causes := items(t, of, texts)
			if _, checked := wellFormed[strings.ReplaceAll(format, "-", "")]; !checked || of["type"] != "string" ||
				of["nullable"] == true || format == "password" {
				continue
			}
			refused := 0
			for _, cause := range causes {
				if strings.Contains(cause, "must be of type "+format+":") {
					refused++
				}
			}
			if refused < 10 || refused > len(texts)-3 {
				t.Errorf("%s refuses %d of %d texts", format, refused, len(texts))
			}
		}
	}
}

// Every rule of numbers, with bounds and values of every sort.
// SPEC: EXT-1
func TestNumbers(t *testing.T) {
	values := []any{0, 1, -1, 2, 3, 65, 1.5, -0.5, 0.1, 0.3, 2147483648, 4294967297, literal("9007199254740993"),
		literal("9223372036854775807"),
		literal("9223372036854775808"), 1e30, 1e39, -1e39, literal("1.0"), literal("1e2"), 2.0000000001, "A", "1", nil, true}
	bounds := []any{0, 1, 1.5, -3, 0.1, 1e10, 1e30, 65}
	refused := map[string]int{}
	for _, typ := range []node{
		{"type": "integer"}, {"type": "number"}, {"x-kubernetes-int-or-string": true},
		{"x-kubernetes-preserve-unknown-fields": true},
	} {
		for _, format := range []string{"", "int32", "int64", "float", "double"} {
			for _, keyword := range []string{"", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
				"enum"} {
				for _, bound := range bounds {
					of := maps.Clone(typ)
					if format != "" {
						of["format"] = format
					}
					switch keyword {
					case "":
					case "enum":
						of["enum"] = []any{bound, 2, "A"}
					case "exclusiveMinimum", "exclusiveMaximum":
						of[keyword], of[strings.ToLower(strings.TrimPrefix(keyword, "exclusive"))] = true, bound
					default:
						of[keyword] = bound
					}
					refused[keyword] += len(items(t, of, values))
					if t.Failed() {
						return
					}
				}
			}
		}
	}
	t.Log(refused)
	for keyword, n := range refused {
		if n <= refused[""] && keyword != "" || n == 0 {
			t.Errorf("%q refuses no value", keyword)
		}
	}
}
