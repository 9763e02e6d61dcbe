package object

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
)

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", `"\/`, "\b\f\n\r\t\x00\x1f\x7f", "<é>&", "\u2027\u2028\u2029\u202a",
		"\xff\xe2\x82", "\U0001F600", "\uFFFD", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendString(nil, s); string(got) != string(want) {
			t.Errorf("%q: ours %s, encoding/json %s", s, got, want)
		}
	})
}

func FuzzAppendFloat(f *testing.F) {
	for _, x := range []float64{0, math.Copysign(0, -1), 1, 0.1, 1e21, 1e20, 999999999999999999999, 1e-6, 1e-7, 1.5e-9,
		5e-324, math.MaxFloat64, -2.5e+100, 1 << 53} {
		f.Add(math.Float64bits(x))
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		x := math.Float64frombits(bits)
		got := printed(FloatOf(x))
		if math.IsNaN(x) || math.IsInf(x, 0) {
			if got != "null" {
				t.Errorf("%v: %s", x, got)
			}
			return
		}
		if want := twinPrinted(t, x); got != want {
			t.Errorf("%x: ours %s, encoding/json %s", bits, got, want)
		}
	})
}

// The text that is printed of a parsed text is parsed as the same value, and printed unchanged.
func FuzzAppendJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseJSON(text)
		if err != nil {
			return
		}
		for _, appendTo := range []func([]byte, Value) []byte{AppendJSON, AppendObject} {
			once := appendTo([]byte("before"), p.Value)[len("before"):]
			again, err := ParseJSON(append([]byte{}, once...))
			if err != nil {
				t.Fatalf("%q is printed as %q: %v", text, once, err)
			}
			if _, _, exact := AppendStored(nil, p.Value); !exact {
				t.Fatalf("%q: AppendStored returns exact = false", text)
			}
			if twice := appendTo(nil, again.Value); string(twice) != string(once) || !Equal(again.Value, p.Value) {
				t.Fatalf("%q is printed as %q, and that as %q", text, once, twice)
			}
		}
	})
}

// exact is true if and only if parsing the text gives the same value.
func TestAppendStored(t *testing.T) {
	invalid := StringOf("\xff")
	for _, c := range []struct {
		value Value
		exact bool
	}{
		{Fields("kind", StringOf("é<\u2028"), "metadata", Fields("a", Nil, "b", BoolOf(true), "c", IntOf(-1))), true},
		{ListOf(NumberOf("1.50"), NumberOf("1e400"), NumberOf("-0")), true},
		{StringOf("\uFFFD"), true},
		{FloatOf(1.5), false},
		{FloatOf(1), false},
		{Fields("spec", ListOf(Fields("a", FloatOf(0)))), false},
		{Fields("metadata", Fields("name", invalid)), false},
		{Fields("a\xc3", Nil), false},
	} {
		text, _, exact := AppendStored(nil, c.value)
		if want := AppendObject(nil, c.value); string(text) != string(want) {
			t.Errorf("AppendStored prints %s, AppendObject %s", text, want)
		}
		p, err := ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		if exact != c.exact || exact != Equal(p.Value, c.value) {
			t.Errorf("%s: exact is %v, and the text is parsed as %s", text, exact, printed(p.Value))
		}
	}
}

// SPEC: MED-1.
func TestCanonicalOrder(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{},"kind":"K","Alpha":1,"metadata":{"uid":"u","name":"n"},"apiVersion":"v1"}`: `{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"u"},"Alpha":1,"spec":{}}`,

		`{"status":{"metadata":1,"kind":2,"a":3},"kind":"K"}`: `{"kind":"K","status":{"a":3,"kind":2,"metadata":1}}`,

		`{"z":1}`: `{"z":1}`, `{}`: `{}`, `{"metadata":null}`: `{"metadata":null}`, `[1]`: `[1]`,
	} {
		p, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(AppendObject(nil, p.Value)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// 64-bit integers are exact; every other literal stays as it was written.
func TestNumbersAreExact(t *testing.T) {
	for _, literal := range []string{
		"0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
		"18446744073709551615",
		"123456789012345678", "1234567890123456789", "999999999999999999", "1000000000000000000", "-999999999999999999",
		"123456789012345678901234567890", "1.0", "1.50", "1e3", "-0.0", "0.1000000000000000055511151231257827",
	} {
		p, err := ParseJSON([]byte(literal))
		if err != nil {
			t.Fatal(err)
		}
		if got := printed(p.Value); got != literal {
			t.Errorf("%s is printed as %s", literal, got)
		}
		if i, err := strconv.ParseInt(literal, 10, 64); err == nil && p.Value.Int() != i {
			t.Errorf("the Int of %s is %d", literal, p.Value.Int())
		}
	}
}
