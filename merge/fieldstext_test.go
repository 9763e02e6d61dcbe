package merge

import (
	"testing"

	"plinth/object"
)

// The order of the reference is that of elements, and that of canonical JSON the order of texts. Conformance tests
// compare random sets with upstream's. SPEC: SSA-1, STORE-3
func TestFieldsText(t *testing.T) {
	for _, c := range []struct {
		reference, canonical string
		same                 bool // IsFieldsText is sure of both
	}{
		{`{}`, `{}`, true},
		{`{"f:a":{".":{},"f:b":{}},"f:ab":{}}`, `{"f:a":{".":{},"f:b":{}},"f:ab":{}}`, true},
		{`{"k:{\"a\":1}":{},"k:{\"a\":2}":{}}`, `{"k:{\"a\":1}":{},"k:{\"a\":2}":{}}`, true},
		{`{"k:{\"a\":80}":{},"k:{\"a\":443}":{}}`, `{"k:{\"a\":443}":{},"k:{\"a\":80}":{}}`, false},
		{`{"k:{\"a\":80}":{},"k:{\"a\":800}":{}}`, `{"k:{\"a\":800}":{},"k:{\"a\":80}":{}}`, false},
		{`{"k:{\"a\":\"x\"}":{},"k:{\"a\":\"xy\"}":{}}`, `{"k:{\"a\":\"x\"}":{},"k:{\"a\":\"xy\"}":{}}`, true},
		{`{"k:{\"a\":\"x\"}":{},"k:{\"a\":\"x y\"}":{}}`, `{"k:{\"a\":\"x y\"}":{},"k:{\"a\":\"x\"}":{}}`, false},
		{`{"k:{\"a\":1}":{},"k:{\"a\":1,\"b\":2}":{}}`, `{"k:{\"a\":1,\"b\":2}":{},"k:{\"a\":1}":{}}`, false},
		{`{"v:\"a\"":{},"v:\"b\"":{},"i:1":{}}`, `{"i:1":{},"v:\"a\"":{},"v:\"b\"":{}}`, false},
		{`{"i:2":{},"i:10":{}}`, `{"i:10":{},"i:2":{}}`, false},
		{`{"f:<&>":{}}`, `{"f:\u003c\u0026\u003e":{}}`, false},
		{"{\"f:\u2028\":{}}", `{"f:\u2028":{}}`, false},
		{`{"f:\u0001\n":{}}`, `{"f:\u0001\n":{}}`, false},
		{`{"f:a":{},"x:b":{}}`, `{"f:a":{},"x:b":{}}`, true},
		{`{"f:a":{"k:{\"a\":9}":{".":{}},"k:{\"a\":10}":{}}}`, `{"f:a":{"k:{\"a\":10}":{},"k:{\"a\":9}":{".":{}}}}`, false},
	} {
		if have := AppendFieldsText([]byte("x"), []byte(c.canonical)); string(have) != "x"+c.reference {
			t.Errorf("%s is written as %s, want %s", c.canonical, have[1:], c.reference)
		}
		have, ok := CanonicalFieldsText([]byte("x"), []byte(c.reference))
		if ok && string(have) != "x"+c.canonical {
			t.Errorf("%s is read as %s, want %s", c.reference, have, c.canonical)
		}
		if same := IsFieldsText([]byte(c.reference)); same != c.same {
			t.Errorf("%s is taken for canonical: %v", c.reference, same)
		}
		parsed, err := object.ParseJSON([]byte(c.reference))
		if printed := object.AppendJSON(nil, parsed.Value); err != nil || string(printed) != c.canonical {
			t.Errorf("the canonical form of %s is %s, %v", c.reference, printed, err)
		}
	}
}

// Text that is no set is copied by a writer, and not sure to be canonical. SPEC: STORE-3
func TestOtherFieldsText(t *testing.T) {
	for _, text := range []string{``, `null`, `"x"`, `[]`, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":{`, `{"a":{}`,
		`{"a":{},`,
		`{"a":{},}`, `{"a":1}`, `{ "a":{}}`, `{"a":{}}}`, `{"a":{} }`, `{}{}`, `{"f:a":{},"f:a":{}}`, `{"f:b":{},"f:a":{}}`,
		`{"a" :{}}`, `{,}`} {
		if IsFieldsText([]byte(text)) {
			t.Errorf("%s is taken for canonical", text)
		}
		have, ok := CanonicalFieldsText(nil, []byte(text))
		if ok && text != `{"f:b":{},"f:a":{}}` {
			t.Errorf("%s is read as %s", text, have)
		}
		AppendFieldsText(nil, []byte(text)) // does not panic
	}
}

func FuzzFieldsText(f *testing.F) {
	f.Add([]byte(`{"f:a":{".":{},"k:{\"b\":80}":{}},"v:\"c\"":{},"i:1":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		AppendFieldsText(nil, text)
		canonical, ok := CanonicalFieldsText(nil, text)
		if same := IsFieldsText(text); !ok && !same {
			return
		} else if same {
			canonical = text
		}
		parsed, err := object.ParseJSON(append([]byte(nil), text...))
		if err != nil {
			t.Fatalf("%q is read as %q, and is no JSON: %v", text, canonical, err)
		}
		if want := object.AppendJSON(nil, parsed.Value); string(want) != string(canonical) {
			t.Fatalf("%q is read as %q, want %q", text, canonical, want)
		}
	})
}
