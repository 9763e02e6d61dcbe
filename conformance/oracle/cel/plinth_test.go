package cel

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"plinth/internal/cel"
	"plinth/object"
	"plinth/schema"
)

// selfName matches the name of the type of self, which contains a number.
var selfName = regexp.MustCompile(`selfType\d+`)

// plinth is one schema in Plinth's form.
type plinth struct {
	typ   *schema.Type
	rules *cel.Rules
}

var objectMeta = schema.FromGo(reflect.TypeFor[metav1.ObjectMeta](), noFacts{})

type noFacts struct{}

func (noFacts) Of(reflect.Type) (schema.Markers, map[string]schema.Markers) {
	return schema.Markers{}, nil
}

func newPlinth(t testing.TB, text []byte) *plinth {
	t.Helper()
	typ, err := schema.Structural(parse(t, text), schema.StructuralOptions{Metadata: objectMeta})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return &plinth{typ: typ, rules: cel.Compile(typ)}
}

func parse(t testing.TB, text []byte) object.Value {
	t.Helper()
	p, err := object.ParseJSON(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	v, err := p.Value.Untyped()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (p *plinth) validate(t testing.TB, obj, old []byte) (errs, warnings []string) {
	t.Helper()
	before := object.Nil
	if old != nil {
		before = parse(t, old)
	}
	list, told := p.rules.Validate(t.Context(), parse(t, obj), before, nil)
	return lines(list), sorted(told)
}

func (p *plinth) cost(t testing.TB, obj []byte, budget int64) ([]string, int64) {
	t.Helper()
	list, left := p.rules.ValidateDefault(context.Background(), field.NewPath("default"), parse(t, obj), budget)
	return lines(list), left
}

// check returns the errors of a definition's rules. Rules that are stored already are recognised by the old schema.
func (p *plinth) check(was *plinth, unchanged bool) []string {
	o := cel.CheckOptions{Unchanged: unchanged}
	if was != nil {
		o.Stored = func(expression string, message bool) bool {
			return slices.Contains(was.expressions(message), expression)
		}
	}
	return lines(cel.Check(p.typ, field.NewPath(schemaPath), o))
}

func (p *plinth) expressions(message bool) (out []string) {
	var walk func(t *schema.Type)
	walk = func(t *schema.Type) {
		if t == nil {
			return
		}
		if t.Custom != nil {
			for _, r := range t.Custom.Rules {
				if message {
					out = append(out, r.MessageExpression)
				} else {
					out = append(out, r.Rule)
				}
			}
		}
		if t == objectMeta {
			return
		}
		for _, f := range t.Fields {
			walk(f.Type)
		}
		walk(t.Items())
		walk(t.Additional())
	}
	walk(p.typ)
	return out
}

// compare reports two lists that differ.
func compare(what string, ours, theirs []string) string {
	if slices.Equal(ours, theirs) {
		return ""
	}
	return fmt.Sprintf("%s differ:\n     ours %s\n   theirs %s", what, strings.Join(ours, "\n          "),
		strings.Join(theirs, "\n          "))
}

func fromYAML(t testing.TB, text []byte) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}
