package schema

import (
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"plinth/conformance/internal/vectors"
	"plinth/internal/gotypes"
	"plinth/object"
	"plinth/schema"
)

var (
	seed  = flag.Uint64("seed", 1, "seed of the random cases")
	cases = flag.Int("cases", 4000, "number of random cases")
)

// outcome is the result of decoding one text.
type outcome struct {
	json    string // sorted by key; "" if it was refused
	settled string // the stored form
	refused string
	unknown []string
}

func ours(typ *schema.Type, v object.Value) outcome {
	decoded, err := typ.Decode(v)
	if err != nil {
		return outcome{refused: err.Error()}
	}
	return outcome{
		json:    string(object.AppendJSON(nil, decoded.Value)),
		settled: string(object.AppendJSON(nil, typ.Settle(decoded.Value))),
		unknown: decoded.Unknown,
	}
}

// again decodes and settles v with its origin as a hint, and reports where the result differs from that without the
// hint.
func again(t *testing.T, typ *schema.Type, v, settled object.Value) {
	t.Helper()
	want, wantErr := typ.Decode(v)
	got, err := typ.DecodeFrom(v, settled)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() ||
		!slices.Equal(got.Unknown, want.Unknown) || !object.Equal(got.Value, want.Value) {
		t.Errorf("%s\nmade from %s\nis decoded to %s, unknown %q, %v\nnot to %s, unknown %q, %v", object.AppendJSON(nil, v),
			object.AppendJSON(nil, settled),
			object.AppendJSON(nil, got.Value), got.Unknown, err, object.AppendJSON(nil, want.Value), want.Unknown, wantErr)
	}
	if err != nil {
		return
	}
	if got, _ := typ.SettleFrom(want.Value, settled); !object.Equal(got, typ.Settle(want.Value)) {
		t.Errorf("%s\nmade from %s\nis settled to %s\nnot to %s", object.AppendJSON(nil, v), object.AppendJSON(nil, settled),
			object.AppendJSON(nil, got), object.AppendJSON(nil, typ.Settle(want.Value)))
	}
}

type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

func theirs(t *testing.T, typ reflect.Type, text []byte) outcome {
	t.Helper()
	into := reflect.New(typ).Interface()
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		return outcome{refused: err.Error()}
	}
	var out outcome
	for _, err := range strict {
		var field kjson.FieldError
		if !errors.As(err, &field) {
			t.Fatalf("error %v has no path", err)
		}
		out.unknown = append(out.unknown, field.FieldPath())
	}
	out.json = sortedJSON(t, into)
	if _, ok := into.(protobuf); !ok {
		return out
	}
	bytes, err := into.(protobuf).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stored := reflect.New(typ).Interface()
	if err := stored.(protobuf).Unmarshal(bytes); err != nil {
		t.Fatal(err)
	}
	if o, ok := stored.(runtime.Object); ok {
		o.GetObjectKind().SetGroupVersionKind(into.(runtime.Object).GetObjectKind().GroupVersionKind())
	}
	out.settled = sortedJSON(t, stored)
	return out
}

func sortedJSON(t *testing.T, o any) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(object.AppendJSON(nil, parse(t, text)))
}

// compare decodes one value with both and returns our outcome.
func compare(t *testing.T, typ reflect.Type, input object.Value) outcome {
	t.Helper()
	text := object.AppendJSON(nil, input)
	got, want := ours(gotypes.OfType(typ), input), theirs(t, typ, text)
	if got.refused != want.refused {
		t.Errorf("%s: %s\n ours: %q\nwant: %q", typ, text, got.refused, want.refused)
	}
	if got.json != want.json {
		t.Errorf("%s: %s\n ours %s\nwant %s", typ, text, got.json, want.json)
	}
	if want.settled != "" && got.settled != want.settled {
		t.Errorf("%s: settled: %s\n ours %s\nwant %s", typ, text, got.settled, want.settled)
	}
	if !slices.Equal(got.unknown, want.unknown) {
		t.Errorf("%s: %s\n ours: unknown %q\nwant: unknown %q", typ, text, got.unknown, want.unknown)
	}
	return got
}

// SPEC: VAL-1, VAL-3.
func TestVectorsDecodeAsUpstream(t *testing.T) {
	for _, v := range vectors.All(t) {
		t.Run(v.Name, func(t *testing.T) {
			input := parse(t, v.JSON)
			if got := compare(t, v.Type, input); got.refused != "" || len(got.unknown) > 0 {
				t.Errorf("refused %q, unknown %q", got.refused, got.unknown)
			}
			compare(t, v.Type, object.Fields())
			compare(t, v.Type, object.Fields("metadata", object.Fields("name", object.StringOf("n"))))
		})
	}
}

// Every field of every struct, with every replacement: all kinds consist of these.
//
// SPEC: VAL-1, VAL-3.
func TestEveryFieldDecodesAsUpstream(t *testing.T) {
	inputs := make([]object.Value, len(replacements))
	for i, text := range replacements {
		inputs[i] = parse(t, []byte(text))
	}
	structs := allStructs(t)
	for _, typ := range structs {
		compiled := gotypes.OfType(typ)
		zero := string(object.AppendJSON(nil, compiled.Zero()))
		if want := sortedJSON(t, reflect.New(typ).Interface()); zero != want {
			t.Errorf("%s: zero value\n ours %s\nwant %s", typ, zero, want)
		}
		for _, f := range compiled.Fields {
			for _, input := range inputs {
				compare(t, typ, object.Fields(f.Name, input))
			}
		}
		compare(t, typ, object.Fields())
	}
	if len(structs) < 800 {
		t.Errorf("only %d structs", len(structs))
	}
}

// allStructs returns the Go structs of which the kinds consist.
func allStructs(t *testing.T) []reflect.Type {
	t.Helper()
	var list []reflect.Type
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(typ.Elem())
		case reflect.Struct:
			if seen[typ] || gotypes.OfType(typ).Kind != schema.Struct {
				return
			}
			seen[typ] = true
			list = append(list, typ)
			for i := range typ.NumField() {
				visit(typ.Field(i).Type)
			}
		}
	}
	for _, v := range vectors.All(t) {
		visit(v.Type)
	}
	return list
}

// Values of every type in place of the whole object.
func TestNoObject(t *testing.T) {
	for _, v := range vectors.All(t) {
		for _, input := range []string{`[]`, `"x"`, `1`, `true`, `null`} {
			compare(t, v.Type, parse(t, []byte(input)))
		}
	}
}

// SPEC: VAL-1, VAL-3.
func TestMutatedVectorsDecodeAsUpstream(t *testing.T) {
	list := vectors.All(t)
	start := *seed
	var refused, unknown, fine int
	for i := range *cases {
		random := rand.New(rand.NewPCG(start, uint64(i)))
		v := list[i%len(list)]
		input := parse(t, v.JSON)
		for range 1 + random.IntN(4) {
			input = mutate(random, input)
		}
		got := compare(t, v.Type, input)
		switch {
		case got.refused != "":
			refused++
		case len(got.unknown) > 0:
			unknown++
		default:
			fine++
		}
		if got.refused == "" {
			// The stored object is settled, and a changed one shares most of it.
			typ := gotypes.OfType(v.Type)
			decoded, err := typ.Decode(input)
			if err != nil {
				t.Fatal(err)
			}
			settled, stable := typ.SettleFrom(decoded.Value, object.Nil)
			if stable != typ.IsSettled(settled) {
				t.Errorf("%s: stable %v: %s", v.Name, stable, object.AppendJSON(nil, settled))
			}
			for i := 0; stable && i < 4; i++ {
				change := settled
				for range i {
					change = mutate(random, change)
				}
				again(t, typ, change, settled)
			}
		}
		if t.Failed() {
			t.Fatalf("case %d of -seed %d", i, start)
		}
	}
	t.Logf("%d accepted, %d with unknown fields, %d refused", fine, unknown, refused)
	if low := *cases / 10; refused < low || unknown < low || fine < low {
		t.Errorf("the cases are lopsided")
	}
}

// Duplicate members, in known and unknown fields, maps and untyped content.
//
// SPEC: VAL-2.
func TestDuplicatesAsUpstream(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	twice := 0
	for range 20 {
		for _, v := range vectors.All(t) {
			input := parse(t, v.JSON)
			if random.IntN(2) == 0 {
				input = mutate(random, input)
			}
			text := appendTwice(nil, random, input)
			typ := v.Type
			want := theirs(t, typ, text)
			p, err := object.ParseJSON(text)
			if err != nil {
				t.Fatal(err)
			}
			compiled := gotypes.OfType(typ)
			got := ours(compiled, p.Value)
			for _, path := range p.Duplicates {
				if compiled.Has(path) {
					got.unknown = append(got.unknown, path)
				}
			}
			slices.Sort(got.unknown)
			slices.Sort(want.unknown)
			if want.refused == "" && !slices.Equal(got.unknown, want.unknown) {
				t.Fatalf("%s: %s\n ours %q\nwant %q", v.Name, text, got.unknown, want.unknown)
			}
			if want.refused == "" && len(p.Duplicates) > 0 {
				twice++
			}
		}
	}
	if twice < 1000 {
		t.Errorf("only %d documents with duplicates were compared", twice)
	}
}

// appendTwice encodes a value with some of its members twice.
func appendTwice(dst []byte, random *rand.Rand, v object.Value) []byte {
	separator := func(i int) {
		if i > 0 {
			dst = append(dst, ',')
		}
	}
	switch v.Kind() {
	case object.Map:
		dst = append(dst, '{')
		for i, m := range v.Members() {
			separator(i)
			dst = append(object.AppendString(dst, m.Key), ':')
			dst = appendTwice(dst, random, m.Value)
			if random.IntN(40) == 0 {
				dst = append(object.AppendString(append(dst, ','), m.Key), ':')
				dst = object.AppendJSON(dst, m.Value)
			}
		}
		return append(dst, '}')
	case object.List:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			separator(i)
			dst = appendTwice(dst, random, item)
		}
		return append(dst, ']')
	}
	return object.AppendJSON(dst, v)
}

// replacements are the values that replace random places.
var replacements = []string{
	`{}`, `[]`, `""`, `0`, `null`, `{}`, `[]`, `""`, `0`, `null`, `null`, `true`, `false`, `1`, `-1`, `1.0`, `1.5`, `1e3`,
	`"1e3"`, `-0`, `"text"`,
	`2147483648`, `9223372036854775808`, `99999999999999999999999`, `1e400`, `"0.5"`, `"1500m"`, `"1024Mi"`, `" 12 "`,
	`"1Ki"`, `"100000000000000000000Ei"`, `"-3n"`, `"0"`, `"007"`,
	`"2020-01-02T03:04:05Z"`, `"2020-01-02T03:04:05.678+02:00"`, `"0001-01-01T00:00:00Z"`,
	`"2020-01-02T03:04:05.123456789Z"`, `"2020-13-01T00:00:00Z"`,
	`"1h30m"`, `"90m"`, `"YQ=="`, `"YWJj"`, "\"YW\\nJj\"", `"Y"`, `[null]`, `[null,null]`, `{"a":null}`, `{"a":{}}`,
	`{"a":"1"}`, `[{}]`, `[[]]`, `["x",null]`, `[1,2,255]`, `[256]`, `{"a":[]}`, `"80%"`, `"é<>&"`,
}

// mutate changes one random place: it removes or replaces it, or adds an unknown field beside it.
func mutate(random *rand.Rand, v object.Value) object.Value {
	if v.Len() == 0 || v.Kind() == object.String || v.Kind() != object.Map && v.Kind() != object.List {
		return replacement(random)
	}
	i := random.IntN(v.Len())
	deeper := random.IntN(6) > 0
	if v.Kind() == object.List {
		if deeper {
			return v.WithItem(i, mutate(random, v.Items()[i]))
		}
		return v.WithItem(i, replacement(random))
	}
	m := v.Members()[i]
	child := m.Value.Kind()
	if deeper && (child == object.Map || child == object.List) {
		return v.With(m.Key, mutate(random, m.Value))
	}
	switch random.IntN(8) {
	case 0, 1, 2:
		return v.Without(m.Key)
	case 3:
		return v.With("zz"+m.Key, replacement(random))
	case 4:
		return v.With(strings.ToUpper(m.Key[:1])+m.Key[1:], m.Value)
	default:
		return v.With(m.Key, replacement(random))
	}
}

func replacement(random *rand.Rand) object.Value {
	p, err := object.ParseJSON([]byte(replacements[random.IntN(len(replacements))]))
	if err != nil {
		panic(err)
	}
	return p.Value
}

func parse(t *testing.T, text []byte) object.Value {
	t.Helper()
	p, err := object.ParseJSON(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return p.Value
}
