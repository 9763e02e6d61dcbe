package cel

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	limits "k8s.io/apiserver/pkg/apis/cel"
)

// SPEC: EXT-1: rules that cost too much, each or together, end the validation at the same point as in the reference,
// and messages that cannot be evaluated are replaced by the same text as in the reference.
func TestLimits(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	const nested = `self.l.all(x, self.l.all(y, x == y))`
	over := `self.l.all(x, x == 1) && self.s.size() >= 0`
	many := strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"rule":%q},`, over), 40), ",")
	message := func(expression string) string {
		return fmt.Sprintf(`{"rule":"self.i == 99","message":"else","messageExpression":%q},{"rule":"self.i == 98"}`,
			expression)
	}
	fits := fmt.Sprintf(`{"l":%s,"s":"","i":1}`, list(300))
	long := fmt.Sprintf(`{"l":%s,"s":%q,"i":1}`, list(700), strings.Repeat("ab", 3000))
	spent := map[string]int{}
	for name, c := range map[string]struct{ rules, object, want string }{
		"it fits": {`{"rule":"` + nested + `"}`, fits, ""},
		"one costs too much": {`{"rule":"` + nested + `"},{"rule":"false"}`, long,
			"call cost exceeds limit for rule"},
		"together they cost much": {many, long, ""},
		"a regular expression": {`{"rule":"self.s.matches('^(a|b)*c(a|b)*d(a|b)*e(a|b)*f(a|b)*$')"}`, long,
			"failed rule"},
		"a message costs too much": {message("self.l.all(x, self.l.all(y, x == y)) ? 'a' : 'b'"), long,
			"call cost exceeds limit for messageExpression"},
		"a message is too long":          {message("self.s"), long, "else"},
		"a message has lines":            {message("'a\\nb'"), fits, "else"},
		"a message ends with a line":     {message("'a\\n'"), fits, ": a"},
		"a message is empty":             {message("'  '"), fits, "else"},
		"a message fails":                {message("string(1/0)"), fits, "else"},
		"a message wants an old self":    {message("string(oldSelf.i)"), fits, "else"},
		"a message uses up the budget":   {many + "," + message("self.l.all(x, x == 1) ? 'a' : 'b'"), long, "a"},
		"the message is the rule":        {`{"rule":"  self.i == 99 "}`, fits, "failed rule: self.i == 99"},
		"the rule is empty":              {`{"rule":" "}`, fits, ""},
		"an optional old self, by value": {`{"rule":"oldSelf.hasValue()","optionalOldSelf":true,"messageExpression":"oldSelf.hasValue() ? 'a' : 'b'"}`, fits, ""},
	} {
		text := []byte(fmt.Sprintf(`{"type":"object","x-kubernetes-validations":[%s],"properties":{"i":{"type":"integer"},
			"l":{"type":"array","items":{"type":"integer"}},"s":{"type":"string"}}}`, c.rules))
		theirs, ours := newReference(t, text), newPlinth(t, text)
		for _, old := range [][]byte{nil, []byte(`{"i":2}`)} {
			want, _ := theirs.validate(t, []byte(c.object), old)
			got, _ := ours.validate(t, []byte(c.object), old)
			if diff := compare("errors", got, want); diff != "" {
				t.Errorf("%s (an update: %v): %s", name, old != nil, diff)
			}
			if text := strings.Join(want, "\n"); old == nil && (c.want == "") != (text == "") && c.want != "" ||
				!strings.Contains(text, c.want) {
				t.Errorf("%s: the errors of the reference are %s", name, text)
			}
		}
		for _, budget := range []int64{limits.RuntimeCELCostBudget, 20000, 3510} {
			want, wantLeft := theirs.cost(t, []byte(c.object), budget)
			got, gotLeft := ours.cost(t, []byte(c.object), budget)
			if told := compare("errors of a default", got, want); told != "" || wantLeft != gotLeft {
				t.Errorf("%s: of %d, %s %d is left, the reference has %d", name, budget, told, gotLeft, wantLeft)
			}
			for _, of := range []string{"running out of cost budget, no",
				"messageExpression evaluation failed due to running out"} {
				if strings.Contains(strings.Join(want, " "), of) {
					spent[of]++
				}
			}
		}
	}
	if len(spent) < 2 {
		t.Errorf("not every budget has been used up: %v", spent)
	}
}

// SPEC: EXT-1: stored rules are compiled with all functions of this version, new ones only with those that the previous
// version has, too.
func TestStoredRules(t *testing.T) {
	const properties = `"type":"object","properties":{"l":{"type":"array","maxItems":3,"items":{"type":"integer"}}}`
	now := []byte(`{` + properties +
		`,"x-kubernetes-validations":[{"rule":"self.l.includes(1)","messageExpression":"self.l.includes(2) ? 'a' : 'b'"}]}`)
	for name, was := range map[string]string{
		"nothing is stored": `{` + properties + `}`,
		"the rule is":       `{` + properties + `,"x-kubernetes-validations":[{"rule":"self.l.includes(1)"}]}`,
		"the message is": `{` + properties +
			`,"x-kubernetes-validations":[{"rule":"true","messageExpression":"self.l.includes(2) ? 'a' : 'b'"}]}`,
		"the message is a rule": `{` + properties +
			`,"x-kubernetes-validations":[{"rule":"self.l.includes(2) ? 'a' : 'b'"}]}`,
		"both are": string(now),
	} {
		want, other := newReference(t, now).check(newReference(t, []byte(was)))
		if len(other) > 0 {
			t.Fatal(other)
		}
		got := newPlinth(t, now).check(newPlinth(t, []byte(was)), false)
		if told := compare("checks", got, want); told != "" {
			t.Errorf("%s: %s", name, told)
		}
		if (len(want) == 0) != (name == "both are") {
			t.Errorf("%s: the errors of the reference are %s", name, want)
		}
	}
}

// gateway is the module with the definitions of Gateway API.
const gateway = "sigs.k8s.io/gateway-api@v1.6.3"

// SPEC: EXT-1: the definitions of Gateway API, whose rules are the most intricate in wide use, are valid, and both
// sides return the same errors for their examples and for objects made from their schemas.
func TestGatewayAPI(t *testing.T) {
	out, err := exec.Command("go", "mod", "download", "-json", gateway).Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(module.Dir + "/config/crd/experimental/*.yaml")
	known := map[string]*pairOf{}
	rules := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, schema := range definitionsOf(t, text) {
			p := &pairOf{newReference(t, schema), newPlinth(t, schema), schema}
			known[name] = p
			rules += strings.Count(string(schema), `"rule":`)
			want, other := p.theirs.check(nil)
			if len(other) > 0 {
				t.Logf("%s: %s", name, other[0])
			}
			if told := compare("checks", p.ours.check(nil, false), want); told != "" || len(want) > 0 {
				t.Errorf("%s: %s", name, told)
			}
		}
	}
	examples := 0
	for _, dir := range []string{"standard", "experimental"} {
		files, _ := filepath.Glob(module.Dir + "/examples/" + dir + "/*.yaml")
		nested, _ := filepath.Glob(module.Dir + "/examples/" + dir + "/*/*.yaml")
		for _, file := range append(files, nested...) {
			examples += exampleObjects(t, file, known)
		}
	}
	t.Logf("%d schemas with %d rules, %d examples", len(known), rules, examples)
	if len(known) < 15 || rules < 200 || examples < 40 {
		t.Errorf("%d schemas with %d rules, %d examples: too few", len(known), rules, examples)
	}
}

type pairOf struct {
	theirs *reference
	ours   *plinth
	schema []byte
}

// definitionsOf returns the schemas of a file, by apiVersion and kind.
func definitionsOf(t *testing.T, text []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for part := range strings.SplitSeq(string(text), "\n---") {
		var d struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(part), &d); err != nil || d.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, v := range d.Spec.Versions {
			if v.Schema.OpenAPIV3Schema["properties"] != nil {
				out[d.Spec.Group+"/"+v.Name+" "+d.Spec.Names.Kind] = encode(t, v.Schema.OpenAPIV3Schema)
			}
		}
	}
	return out
}

// exampleObjects compares the errors for the objects of a file: each unchanged, and about forty variants of it.
func exampleObjects(t *testing.T, file string, known map[string]*pairOf) (compared int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n---") {
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(part), &obj); err != nil || obj == nil {
			continue
		}
		p := known[fmt.Sprint(obj["apiVersion"], " ", obj["kind"])]
		if p == nil {
			continue
		}
		compared++
		now := encode(t, obj)
		all := variants(obj)
		step := max(len(all)/40, 1)
		for i := 0; i < len(all); i += step {
			changed := encode(t, all[i])
			told := untilSame(map[string]int{}, func() string {
				return objects(t, changed, now, p.theirs, p.ours,
					map[string]int{})
			})
			if told != "" {
				t.Errorf("%s: %s\n%s", file, told, changed)
			}
		}
	}
	return compared
}

// variants returns an object and its variants in which one value is removed or replaced by another one of its kind.
func variants(v any) []any {
	out := []any{v}
	switch v := v.(type) {
	case map[string]any:
		for key, of := range v {
			without := map[string]any{}
			for k, other := range v {
				without[k] = other
			}
			delete(without, key)
			out = append(out, without)
			for _, below := range variants(of)[1:] {
				changed := map[string]any{}
				for k, other := range v {
					changed[k] = other
				}
				changed[key] = below
				out = append(out, changed)
			}
		}
	case []any:
		for i := range v {
			for _, below := range variants(v[i])[1:] {
				changed := append([]any{}, v...)
				changed[i] = below
				out = append(out, changed)
			}
		}
		if len(v) > 0 {
			out = append(out, append(append([]any{}, v...), v[0]), v[1:])
		}
	case string:
		out = append(out, v+"x", "*", "")
	case float64:
		out = append(out, v+1, 0.0, -v)
	case bool:
		out = append(out, !v)
	}
	return out
}
