package object

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// SPEC: MED-4
func TestEveryVectorThroughCBOR(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectorDir(t), "*.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		canonical := AppendJSON(nil, want.Value)
		ours := AppendCBOR(AppendCBORStart(nil), canonical)
		if back, err := ParseCBOR(ours); err != nil || string(AppendJSON(nil, back.Value)) != string(canonical) {
			t.Errorf("%s: our CBOR, parsed by us: %v\n%s\n%s", filepath.Base(file), err, canonical, AppendJSON(nil, back.Value))
		}
		var upstream any
		if err := direct.Unmarshal(ours, &upstream); err != nil {
			t.Errorf("%s: our CBOR, parsed by apimachinery: %v", filepath.Base(file), err)
			continue
		}
		if text, err := json.Marshal(upstream); err != nil || string(text) != string(canonical) {
			t.Errorf("%s: our CBOR, parsed by apimachinery: %v\n%s\n%s", filepath.Base(file), err, canonical, text)
		}
		theirs, err := direct.Marshal(upstream)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseCBOR(theirs); err != nil || string(AppendJSON(nil, back.Value)) != string(canonical) {
			t.Errorf("%s: CBOR of apimachinery, parsed by us: %v\n%s\n%s", filepath.Base(file), err, canonical,
				AppendJSON(nil, back.Value))
		}
	}
}

// SPEC: MED-4
func TestCBORValues(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"00", "0"},
		{"1b7fffffffffffffff", "9223372036854775807"},
		{"3b7fffffffffffffff", "-9223372036854775808"},
		{"1b8000000000000000",
			"cbor: cannot unmarshal positive integer into Go value of type int64 (9223372036854775808 overflows Go's int64)"},
		{"f93c00", "1.0"},
		{"fa47c35000", "100000.0"},
		{"fb3ff8000000000000", "1.5"},
		{"f97e00", "cbor: data item of cbor type primitives is not accepted by protocol: floating-point NaN"},
		{"f4", "false"},
		{"f6", "null"},
		{"f7", "cbor: data item of cbor type primitives is not accepted by protocol: simple value 23 is not recognized"},
		{"e0", "cbor: data item of cbor type primitives is not accepted by protocol: simple value 0 is not recognized"},
		{"43616263", `"abc"`},
		{"63616263", `"abc"`},
		{"41ff", "\"\ufffd\""},
		{"61ff", "cbor: invalid UTF-8 string"},
		{"d643616263", `"YWJj"`},
		{"9fff", "[]"},
		{"80", "[]"},
		{"bfff", "{}"},
		{"a1416101", `{"a":1}`},
		{"bf6161016162f6ff", `{"a":1,"b":null}`},
		{"a2616101616102", `cbor: found duplicate map key "a" at map element index 1`},
		{"a10102", "cbor: cannot unmarshal positive integer into Go value of type string"},
		{"c249010000000000000000", "cbor: data item of cbor type tag is not accepted by protocol: bignum"},
		{"d9d9f7a0", "{}"},
		{"c074323031332d30332d32315432303a30343a30305a", `"2013-03-21T20:04:00Z"`},
		{"a1", "unexpected EOF"},
		{"", "EOF"},
		{"0000", "cbor: 1 bytes of extraneous data starting at index 1"},
		{"ff", `cbor: unexpected "break" code`},
		{strings.Repeat("81", MaxDepth+1) + "00", "cbor: exceeded max nested level 10000"},
		{"9affffffff", "cbor: exceeded max number of elements 2147483647 for CBOR array"},
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseCBOR(data)
		got := string(AppendJSON(nil, parsed.Value))
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%.40s: %s, want %s", c.hex, got, c.want)
		}
	}
}

// SPEC: LIST-8
func TestCBORInPieces(t *testing.T) {
	pieces := []string{`{"kind":"PodList","items":[`, `{"a":"<é\n"}`, `,{"b":[1,-2,3.25,1e30,true,false,null]}`, "]}\n"}
	var whole []byte
	for _, piece := range pieces {
		whole = AppendCBOR(whole, []byte(piece))
	}
	if at := AppendCBOR(nil, []byte(strings.Join(pieces, ""))); !bytes.Equal(at, whole) {
		t.Errorf("in pieces %x, at once %x", whole, at)
	}
	const want = `{"items":[{"a":"<é` + "\\n" + `"},{"b":[1,-2,3.25,1e+30,true,false,null]}],"kind":"PodList"}`
	parsed, err := ParseCBOR(whole)
	if got := unescaped(parsed.Value); err != nil || got != want {
		t.Errorf("%v: %s, want %s", err, got, want)
	}
}

// unescaped prints JSON without escaping <.
func unescaped(v Value) string {
	return strings.ReplaceAll(string(AppendJSON(nil, v)), `\u003c`, "<")
}

func FuzzParseCBOR(f *testing.F) {
	for _, seed := range []string{"a1416101", "bf6161016162f6ff", "9f00f93c00ff", "d643616263", "d9d9f7a0", "c11a514b67b0",
		"c2420100"} {
		data, _ := hex.DecodeString(seed)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := ParseCBOR(data)
		var upstream any
		if theirs := direct.Unmarshal(data, &upstream); (err == nil) != (theirs == nil) {
			t.Fatalf("%x: our error %v, that of apimachinery %v", data, err, theirs)
		}
		if err != nil {
			return
		}
		text := AppendJSON(nil, parsed.Value)
		again, err := ParseCBOR(AppendCBOR(nil, text))
		if err != nil {
			t.Fatalf("%s, printed and parsed: %v", text, err)
		}
		if got := AppendJSON(nil, again.Value); string(got) != string(text) {
			t.Fatalf("%s, printed and parsed, is %s", text, got)
		}
	})
}
