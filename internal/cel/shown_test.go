package cel

import (
	"errors"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/object"
)

// Values of each type are shown as JSON.
//
// SPEC: BEY-18
func TestShow(t *testing.T) {
	obj, err := object.ParseJSON([]byte(`{"spec":{"replicas":3,"list":[1,"x",null,{"a":true}],"half":0.5,` +
		`"big":"` + strings.Repeat("x", 10_000) + `"},"metadata":{"name":"a","creationTimestamp":"2026-01-02T03:04:05Z"}}`))
	if err != nil {
		t.Fatal(err)
	}
	scope := NewScope(false, true)
	scope.Add("twice", "object.spec.replicas * 2", false)
	on := &AdmissionInput{Object: obj.Value, Request: func() object.Value { return object.MapOf() },
		User: access.User{Name: "me"}}
	const big = "[object.spec.big,object.spec.big]"
	for _, test := range []struct{ source, value, kind, err string }{
		{"object.spec.replicas > 2", `true`, "bool", ""},
		{"variables.twice", `6`, "int", ""},
		{"object.spec.list", `[1,"x",null,{"a":true}]`, "list", ""},
		{"object.spec.half", `0.5`, "double", ""},
		{"{1: 'x', 2: 'y'}", `{"1":"x","2":"y"}`, "map", ""},
		{"timestamp(object.metadata.creationTimestamp)", `"2026-01-02T03:04:05Z"`, "google.protobuf.Timestamp", ""},
		{"duration('90s')", `"90s"`, "google.protobuf.Duration", ""},
		{"b'ab'", `"YWI="`, "bytes", ""},
		{"18446744073709551615u", `"18446744073709551615"`, "uint", ""},
		{"object.?spec.?nothing", `null`, "optional_type", ""},
		{"object.?spec.?replicas", `3`, "optional_type", ""},
		{"1.0 / 0.0", `"+Inf"`, "double", ""},
		{"type(1)", `"int"`, "type", ""},
		{"quantity('1Ki')", `"1Ki"`, "kubernetes.Quantity", ""},
		{"object.spec.nothing", ``, "", "no such key: nothing"},
		{big, ``, "", ErrTooLargeToShow.Error()},
		{"[1].map(x, [object.spec, object.spec])", ``, "", ErrTooLargeToShow.Error()},
	} {
		e := scope.Evaluate(t.Context(), on, 1_000_000)
		shown, err, stop := e.Show(scope.Compile(Variable, test.source, false))
		if stop != nil {
			t.Fatal(stop)
		}
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want the error %q", test.source, err, test.err)
			}
			continue
		}
		if got := string(object.AppendJSON(nil, shown.Value)); err != nil || got != test.value || shown.Type != test.kind {
			t.Errorf("%s: %v %s of %s, want %s of %s", test.source, err, got, shown.Type, test.value, test.kind)
		}
		if shown.Cost != 1_000_000-e.Left() || shown.Cost < 0 {
			t.Errorf("%s: cost %d", test.source, shown.Cost)
		}
	}
	e := scope.Evaluate(t.Context(), on, 2)
	_, _, stop := e.Show(scope.Compile(Variable, "[1,2,3].map(x, x * object.spec.replicas)", false))
	if !errors.Is(stop, ErrOutOfBudget) {
		t.Errorf("above the budget: %v", stop)
	}
}
