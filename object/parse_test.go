package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// texts are valid and invalid JSON. They are also the seeds of the fuzz test.
var texts = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `nulx`, `tru`, `truth`, `falsy`, `f`, `0`, `-0`, `-`, `-x`, `00`, `01`, `1.`,
	`1.x`, `1.5`, `1e`, `1e+`, `1e+x`, `1E-7`, `1e400`, `-1.25e-3`, `+1`, `.5`, `1 2`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `123456789012345678`,
	`1234567890123456789`, `12345678901234567890`,
	`""`, `"`, `"a`, `"a\`, `"\"`, `"\x"`, `"\u"`, `"\u12"`, `"\u123`, `"\u00e9"`, `"\ud83d\ude00"`, `"\ud83d"`,
	`"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\u0041"`, `"\ude00"`, `"\ud83d\u00`, `"\uD83D\uDE00"`,
	`"\u00g0"`, `"\b\f\n\r\t\/\\\""`,
	"\"a\x01b\"", "\"tab\tbed\"", "\"\x7f\"", "\"\xff\"", "\"a\xffb\xfe\xfdc\"", "\"\xe2\x82\"", "\"\xe2\x82\\u00ac\"",
	"\"\\n\xc3\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", `"é<>&` + "\u2028\u2029" + `"`, "\xef\xbb\xbf{}",
	`"12345678"`, `"1234567\"8"`, `"123456\\78901234567"`, `"1234567é8"`, "\"1234567\x1f\"", `"seventeen letters"`,
	`"fifteen letters!\"`,
	`[]`, `[`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `[1}`, `[[]`, `[[],[[]]]`, `[null,true,"x",{}]`, `]`,
	"[\n\t\r 1 , 2 ]", "[\v1]",
	`{}`, `{`, `{"a"`, `{"a" 1}`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1]`,
	`{1:2}`, `{null:1}`, `{"b":1,"a":2}`, `{"":1}`, `{"a":{"b":{"c":[{"d":1}]}}}`, `}`, `{"a":1}}`, `{"a":1} x`, `//`,
	`'a'`, `{"a":'b'}`, `{"a\u0062":1}`,
}

// ParseJSON agrees with encoding/json about every text: whether it is JSON, the text and the offset of the error, and
// the value.
func checkAgainstEncodingJSON(t *testing.T, text []byte) {
	t.Helper()
	got, err := ParseJSON(bytes.Clone(text))
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var want any
	wantErr := json.Unmarshal(text, &json.RawMessage{})
	if wantErr == nil {
		wantErr = decoder.Decode(&want)
	}
	if err != nil || wantErr != nil {
		var syntax *json.SyntaxError
		var ours *SyntaxError
		if !errors.As(wantErr, &syntax) || !errors.As(err, &ours) {
			t.Fatalf("%q: ours %v, encoding/json %v", text, err, wantErr)
		}
		if ours.Message != syntax.Error() || int64(ours.Offset) != syntax.Offset {
			t.Fatalf("%q: ours %q at %d, encoding/json %q at %d", text, ours.Message, ours.Offset, syntax.Error(), syntax.Offset)
		}
		return
	}
	checkMeans(t, got.Value, want)
}

// checkMeans compares a value with the result of encoding/json, member by member.
func checkMeans(t *testing.T, got Value, want any) {
	t.Helper()
	switch want := want.(type) {
	case nil:
		if !got.IsNull() {
			t.Fatalf("%s is not null", AppendJSON(nil, got))
		}
	case bool:
		if got.Kind() != Bool || got.Bool() != want {
			t.Fatalf("%s is not %v", AppendJSON(nil, got), want)
		}
	case string:
		if got.Kind() != String || got.Str() != want {
			t.Fatalf("%q is not %q", got.Str(), want)
		}
	case json.Number:
		i, err := strconv.ParseInt(want.String(), 10, 64)
		switch {
		case err == nil && (got.Kind() != Int || got.Int() != i):
			t.Fatalf("%s is not the integer %d", AppendJSON(nil, got), i)
		case err != nil && (got.Kind() != Number || got.Str() != want.String()):
			t.Fatalf("%s is not the literal %s", AppendJSON(nil, got), want)
		}
	case []any:
		if got.Kind() != List || got.Len() != len(want) {
			t.Fatalf("%s is not %v", AppendJSON(nil, got), want)
		}
		for i, item := range got.Items() {
			checkMeans(t, item, want[i])
		}
	case map[string]any:
		if got.Kind() != Map || got.Len() != len(want) {
			t.Fatalf("%s is not %v", AppendJSON(nil, got), want)
		}
		if !strictlySorted(got.Members()) {
			t.Fatalf("the members of %s are not sorted", AppendJSON(nil, got))
		}
		for key, value := range want {
			member, ok := got.Get(key)
			if !ok {
				t.Fatalf("%s has no key %q", AppendJSON(nil, got), key)
			}
			checkMeans(t, member, value)
		}
	}
}

// SPEC: MED-1.
func TestParseJSONAsEncodingJSON(t *testing.T) {
	for _, text := range texts {
		checkAgainstEncodingJSON(t, []byte(text))
		checkAgainstEncodingJSON(t, []byte(`{"pad":[`+text+`],"z":"`+text+`"}`))
	}
	pod := podVector(t)
	checkAgainstEncodingJSON(t, pod)
	for n := 0; n < len(pod); n += 397 {
		checkAgainstEncodingJSON(t, pod[:n])
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(checkAgainstEncodingJSON)
}

// SPEC: WRITE-6.
func TestDepthIsLimited(t *testing.T) {
	for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
		for depth, ok := range map[int]bool{MaxDepth: true, MaxDepth + 1: false, 100_000: false} {
			text := strings.Repeat(brackets[0], depth) + "1" + strings.Repeat(brackets[1], depth)
			p, err := ParseJSON([]byte(text))
			if ok != (err == nil) {
				t.Errorf("%s, nested %d deep: %v", brackets[0], depth, err)
			}
			if err != nil {
				checkAgainstEncodingJSON(t, []byte(text))
				continue
			}
			if printed := AppendJSON(nil, p.Value); string(printed) != text {
				t.Errorf("%d deep: a text of %[3]d bytes is printed as %[2]d", depth, len(printed), len(text))
			}
		}
	}
}

// The paths are those of the reference's strict decoding.
//
// SPEC: WRITE-6.
func TestDuplicates(t *testing.T) {
	for _, c := range []struct {
		text  string
		value string
		paths []string
	}{
		{`{"a":1,"b":2}`, `{"a":1,"b":2}`, nil},
		{`{"a":1,"a":2}`, `{"a":2}`, []string{"a"}},
		{`{"a":1,"a":2,"a":3}`, `{"a":3}`, []string{"a"}},
		{`{"b":1,"a":0,"b":2,"a":3}`, `{"a":3,"b":2}`, []string{"b", "a"}},
		{`{"spec":{"replicas":1,"replicas":2}}`, `{"spec":{"replicas":2}}`, []string{"spec.replicas"}},
		{`{"spec":{"containers":[{},{"name":"a","name":"b"}]}}`, `{"spec":{"containers":[{},{"name":"b"}]}}`,
			[]string{"spec.containers[1].name"}},
		{`[[{"a":1,"a":2}]]`, `[[{"a":2}]]`, []string{"[0][0].a"}},
		{`{"x":{"a":1,"a":1},"x":{"a":1,"a":1}}`, `{"x":{"a":1}}`, []string{"x.a", "x"}},
		{`{"a":1,"\u0061":2}`, `{"a":2}`, []string{"a"}},
		{`{"m":{"":1,"":2}}`, `{"m":{"":2}}`, []string{"m."}},
	} {
		p, err := ParseJSON([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(AppendJSON(nil, p.Value)); got != c.value || !slices.Equal(p.Duplicates, c.paths) {
			t.Errorf("%s: %s, duplicates %q", c.text, got, p.Duplicates)
		}
	}
}

func TestDuplicatesAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		b.WriteString(`,"k` + strconv.Itoa(i) + `":1,"k` + strconv.Itoa(i) + `":2`)
	}
	p, err := ParseJSON([]byte("{" + b.String()[1:] + "}"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Value.Len() != 5000 || len(p.Duplicates) != maxDuplicates {
		t.Errorf("%d members, %d duplicates", p.Value.Len(), len(p.Duplicates))
	}
	// Below a long key, every path is as long as the key: only the first paths are built, and few are kept.
	long := strings.Repeat("k", 1<<20)
	for _, inner := range []string{strings.Repeat(`"a":1,`, 100_000) + `"a":1`,
		strings.Repeat(`"a":{"x":1,"x":2},`, 100_000) + `"a":1`} {
		p, err := ParseJSON([]byte(`{"` + long + `":{` + inner + `}}`))
		if err != nil || len(p.Duplicates) != 1 || len(p.Duplicates[0]) > len(long)+len(".a.x") {
			t.Errorf("%d duplicates, %v", len(p.Duplicates), err)
		}
	}
	deep := strings.Repeat(`{"":`, 5000) + "{" + strings.Repeat(`"a":{"x":1,"x":2},`, 100_000) + `"a":1}` +
		strings.Repeat("}", 5000)
	if p, err := ParseJSON([]byte(deep)); err != nil || len(p.Duplicates) != 1 {
		t.Errorf("%d duplicates, %v", len(p.Duplicates), err)
	}
}

// The capacity of a container is its length, so that appending to it cannot overwrite its neighbour in a slab.
func TestParsedContainersAreApart(t *testing.T) {
	p, err := ParseJSON([]byte(`{"a":{"x":1},"b":{"y":2},"l":[[1],[2]]}`))
	if err != nil {
		t.Fatal(err)
	}
	a := p.Value.At("a").Members()
	_ = append(a[:len(a):len(a)], Member{Key: "z"})
	if cap(p.Value.At("a").Members()) != 1 || cap(p.Value.At("l").Items()[0].Items()) != 1 {
		t.Error("a container has spare capacity")
	}
}

func TestUntyped(t *testing.T) {
	for text, want := range map[string]string{
		`1`: `1`, `1.0`: `1`, `1e3`: `1000`, `-0.0`: `-0`, `9223372036854775808`: `9223372036854776000`, `0.1`: `0.1`,
		`1e21`: `1e+21`, `1e-7`: `1e-7`,
		`{"a":[1.50,"1.50",{"b":2.0,"c":1}],"d":null}`: `{"a":[1.5,"1.50",{"b":2,"c":1}],"d":null}`,
		`[1.0,2.0,3]`: `[1,2,3]`,
	} {
		p, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Value.Untyped()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(AppendJSON(nil, v)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	p, err := ParseJSON([]byte(`{"a":[1,1e400]}`))
	if err != nil {
		t.Fatal(err)
	}
	var number *NumberError
	if _, err := p.Value.Untyped(); !errors.As(err, &number) || number.Literal != "1e400" {
		t.Errorf("1e400: %v", err)
	}
	same, err := ParseJSON([]byte(`{"a":[1,"x",{"b":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := same.Value.Untyped(); err != nil || v != same.Value {
		t.Error("a value without Numbers was copied")
	}
}

// Each list or map of numbers is copied once, however many of its numbers change: a copy per number would take
// quadratic time.
//
// SPEC: WRITE-6.
func TestUntypedIsLinear(t *testing.T) {
	for _, n := range []int{100, 10_000} {
		items := make([]Value, n)
		members := make([]Member, n)
		for i := range items {
			items[i] = NumberOf("1.5")
			members[i] = Member{Key: fmt.Sprintf("%08d", i), Value: NumberOf("2.5")}
		}
		v := Fields("list", ListOf(items...), "map", MapOf(members...))
		made, err := v.Untyped()
		if err != nil || made.At("list").Items()[n-1] != FloatOf(1.5) || made.At("map").Members()[n-1].Value != FloatOf(2.5) {
			t.Fatalf("%d numbers: %v", n, err)
		}
		// One copy of the list, one of the map, one of the map around them.
		if allocations := testing.AllocsPerRun(5, func() { _, _ = v.Untyped() }); allocations != 3 {
			t.Errorf("%d numbers: %v allocations", n, allocations)
		}
	}
}

// SPEC: VAL-2
func TestPositions(t *testing.T) {
	const text = `{ "b" : {"x":1, "y":{"x":2},"x" :3} ,"a.b":[1,{"c":1,"c":2,"c":3}, [ {"d":"}"} ]],"b":{"x":4},"\u0061":5 }`
	parsed, err := ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(parsed.Duplicates); got != "[b.x a.b[1].c b]" {
		t.Errorf("duplicates %s", got)
	}
	paths := []string{"b", "b.x", "b.y.x", "a.b", "a.b[1].c", "a.b[2][0].d", "a", "c", "b.z", "a.b[7]"}
	for nth, want := range map[int][]string{
		1: {`"b" :`, `"x":1`, `"x":2`, `"a.b"`, `"c":1`, `"d":`, `"\u0061"`, "", "", ""},
		2: {`"b":{"x":4`, `"x" :3`, "", "", `"c":2`, "", "", "", "", ""},
	} {
		for i, at := range parsed.Positions(paths, nth) {
			if want[i] == "" && at >= 0 || want[i] != "" && (at < 0 || !strings.HasPrefix(text[at:], want[i])) {
				t.Errorf("occurrence %[2]d of %[1]s: at %[3]d", paths[i], nth, at)
			}
		}
	}
	fromYAML, err := ParseYAML([]byte("a: 1"))
	if err != nil || fromYAML.Positions([]string{"a"}, 1) != nil {
		t.Errorf("a YAML document has positions (%v)", err)
	}
}

// Members that are not kept are checked like the others. SPEC: DEL-6
func TestParseMembers(t *testing.T) {
	const text = `{"apiVersion":"v1","spec":{"a":[1,{"metadata":2},[]],"b":{}},"metadata":{"name":"x","l":[{}]},"z":null}`
	parsed, err := ParseMembers([]byte(text), "apiVersion", "metadata")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(AppendJSON(nil, parsed.Value)); got != `{"apiVersion":"v1","metadata":{"name":"x","l":[{}]}}` &&
		got != `{"apiVersion":"v1","metadata":{"l":[{}],"name":"x"}}` {
		t.Error(got)
	}
	for i := range text {
		for _, wrong := range []string{text[:i], text[:i] + "," + text[i:], text[:i] + "]" + text[i:]} {
			_, err := ParseJSON([]byte(wrong))
			_, skimmed := ParseMembers([]byte(wrong), "apiVersion", "metadata")
			if fmt.Sprint(err) != fmt.Sprint(skimmed) {
				t.Fatalf("%s: ParseMembers fails with %v, ParseJSON with %v", wrong, skimmed, err)
			}
		}
	}
}
