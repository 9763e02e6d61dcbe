package proto_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

// read is Read with the sets of managedFields parsed; ok is false if it does not take the message.
func read(t *schema.Type, envelope proto.Envelope, raw []byte) (text string, exact, ok bool) {
	ok = proto.Read(t, envelope, raw, func(text []byte) (object.Value, bool) {
		parsed, err := object.ParseJSON(slices.Clone(text))
		return parsed.Value, err == nil
	}, func(v object.Value, known bool) { text, exact = string(object.AppendObject(nil, v)), known })
	return text, exact, ok
}

// slowly is what Parse, Decode and Settle make of a message.
func slowly(t *schema.Type, envelope proto.Envelope, raw []byte) (string, error) {
	v, err := proto.ParseMessage(t, raw)
	if err != nil {
		return "", err
	}
	decoded, err := t.Decode(v.Edit([]object.Member{{Key: "apiVersion", Value: object.StringOf(envelope.APIVersion)},
		{Key: "kind", Value: object.StringOf(envelope.Kind)}}))
	return string(object.AppendObject(nil, t.Settle(decoded.Value))), err
}

// withUntyped are the kinds whose examples have untyped content, which is not read in one pass.
var withUntyped = []string{"ControllerRevision", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate",
	"CertificateSigningRequest", "SubjectAccessReview", "LocalSubjectAccessReview", "TokenReview", "SelfSubjectReview"}

// Messages as the generated code writes them are read in one pass, with the result of the slow way. SPEC: STORE-3
func TestReadVectors(t *testing.T) {
	dir, found := vectors(t, "HEAD"), 0
	for name, r := range kinds() {
		if slices.Contains(withoutVectors, r.Group) {
			continue
		}
		pb, err := os.ReadFile(filepath.Join(dir, name+".pb"))
		if err != nil {
			t.Fatal(err)
		}
		envelope, raw, err := proto.ReadEnvelope(pb)
		if err != nil {
			t.Fatal(err)
		}
		have, exact, ok := read(r.Schema(), envelope, raw)
		if untyped := slices.Contains(withUntyped, r.Kind); ok == untyped {
			t.Errorf("%s: read in one pass: %v", name, ok)
		}
		if !ok {
			continue
		}
		found++
		want, err := slowly(r.Schema(), envelope, raw)
		if err != nil || have != want || !exact {
			t.Errorf("%s: exact %v, %v\nhave %s\nwant %s", name, exact, err, have, want)
		}
	}
	if found < 55 {
		t.Errorf("only %d vectors", found)
	}
}

// Messages that differ from those of the generated code are left to the slow way, or known not to be exact.
// SPEC: STORE-3
func TestReadUnusual(t *testing.T) {
	metadata := nested("a", 1) + nested("", 2) + nested("b", 3) + nested("", 4) + nested("u", 5) + nested("", 6) +
		"\x38\x00" + nested("", 8)
	usual := nested(metadata, 1)
	envelope := proto.Envelope{APIVersion: "v1", Kind: "ConfigMap"}
	entry := func(key, value string) string { return nested(nested(key, 1)+nested(value, 2), 2) }
	for _, c := range []struct {
		name, message string
		ok, exact     bool
	}{
		{"usual", usual, true, true},
		{"with entries", usual + entry("a", "1") + entry("b", "2"), true, true},
		{"without a field that is always written", nested(nested("a", 1), 1), true, false},
		{"without metadata", entry("a", "1"), true, false},
		{"fields out of order", entry("a", "1") + usual, false, false},
		{"a field twice", usual + usual, false, false},
		{"an unknown field", usual + nested("x", 15), false, false},
		{"a field of another wire type", "\x08\x00", false, false},
		{"entries out of order", usual + entry("b", "1") + entry("a", "2"), false, false},
		{"an entry twice", usual + entry("a", "1") + entry("a", "2"), false, false},
		{"an entry without a value", usual + nested(nested("a", 1), 2), false, false},
		{"an entry without a key", usual + nested(nested("a", 2), 2), false, false},
		{"an entry with more", usual + nested(nested("a", 1)+nested("b", 2)+nested("c", 3), 2), false, false},
		{"no UTF-8", usual + entry("a", "\xff"), false, false},
		{"no UTF-8 in a key", usual + entry("\xff", "a"), false, false},
		{"a length that is too long", usual + "\x12\x86\x00" + nested("a", 1) + nested("b", 2), false, false},
		{"a tag that is too long", "\x8a\x00" + usual[1:], false, false},
		{"cut", usual[:len(usual)-1], false, false},
		{"a length beyond the end", usual + "\x12\x05", false, false},
		{"a number that is too long", nested(strings.Replace(metadata, "\x38\x00", "\x38\x80\x00", 1), 1), false, false},
		{"a bool that is 2", usual + "\x20\x02", false, false},
		{"a set of managedFields that is none", nested(metadata+nested(nested(nested("{", 1), 7), 17), 1), false, false},
		{"a time with nanoseconds", nested(strings.Replace(metadata, nested("", 8), nested("\x08\x01\x10\x01", 8), 1), 1),
			false, false},
		{"a time without nanoseconds", nested(strings.Replace(metadata, nested("", 8), nested("\x08\x01", 8), 1), 1),
			false, false},
		{"a pointer to no time", nested(metadata+nested("", 9), 1), false, false},
	} {
		typ := kinds()["core.v1.ConfigMap"].Schema()
		have, exact, ok := read(typ, envelope, []byte(c.message))
		if ok != c.ok || exact != c.exact {
			t.Errorf("%s: read in one pass: %v, exact: %v", c.name, ok, exact)
		}
		if want, err := slowly(typ, envelope, []byte(c.message)); ok && (err != nil || have != want) {
			t.Errorf("%s: %v\nhave %s\nwant %s", c.name, err, have, want)
		}
		written, err := proto.AppendStored(nil, typ, []byte(have), nil)
		if err == nil && exact != (string(written) == string(envelope.Append(nil, []byte(c.message)))) {
			t.Errorf("%s: exact is %v, and it is written as %q", c.name, exact, written)
		}
	}
}

// Scalars with messages of their own. SPEC: STORE-3
func TestReadScalars(t *testing.T) {
	typ := kinds()["core.v1.Pod"].Schema()
	port := func(message string) string { return nested(nested(message, 2)+nested("", 3), 2, 2, 10, 1, 2) }
	limit := func(message string) string {
		return nested(nested(nested("cpu", 1)+nested(message, 2), 1), 2, 2, 8)
	}
	for _, c := range []struct {
		name, message string
		ok            bool
	}{
		{"a port", port("\x08\x00\x10\x05\x1a\x00"), true},
		{"a named port", port("\x08\x01\x10\x00\x1a\x01a"), true},
		{"a port with both", port("\x08\x00\x10\x05\x1a\x01a"), false},
		{"a named port with both", port("\x08\x01\x10\x05\x1a\x01a"), false},
		{"a port of no kind", port("\x08\x02\x10\x05\x1a\x00"), false},
		{"a port without a name", port("\x08\x00\x10\x05"), false},
		{"a port with more", port("\x08\x00\x10\x05\x1a\x00\x20\x00"), false},
		{"a quantity", limit("\x0a\x025m"), true},
		{"a quantity that is not canonical", limit("\x0a\x051000m"), true},
		{"no quantity", limit("\x0a\x01x"), false},
		{"a quantity without a text", limit(""), false},
		{"a quantity with more", limit("\x0a\x011\x0a\x011"), false},
	} {
		envelope := proto.Envelope{APIVersion: "v1", Kind: "Pod"}
		have, exact, ok := read(typ, envelope, []byte(c.message))
		if ok != c.ok || exact {
			t.Errorf("%s: read in one pass: %v, exact: %v", c.name, ok, exact)
		}
		if want, err := slowly(typ, envelope, []byte(c.message)); ok && (err != nil || have != want) {
			t.Errorf("%s: %v\nhave %s\nwant %s", c.name, err, have, want)
		}
	}
}

// Sets of managedFields are written by a function. SPEC: STORE-3
func TestAppendStored(t *testing.T) {
	typ := kinds()["core.v1.ConfigMap"].Schema()
	const data = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}],"uid":"u"}}`
	value, err := proto.AppendStored([]byte("x"), typ, []byte(data), func(dst, text []byte) []byte {
		return append(dst, strings.ToUpper(string(text))...)
	})
	if err != nil || value[0] != 'x' || !strings.Contains(string(value), nested(`{"F:A":{}}`, 7, 1)) {
		t.Errorf("%q, %v", value, err)
	}
	plain, err := proto.AppendStored(nil, typ, []byte(data), nil)
	want, _ := proto.AppendObject(nil, typ, []byte(data))
	if err != nil || string(plain) != string(want) {
		t.Errorf("%q, %v; want %q", plain, err, want)
	}
	if value, err := proto.AppendStored([]byte("x"), typ, []byte(`{"data":5}`), nil); err == nil || string(value) != "x" {
		t.Errorf("%q, %v", value, err)
	}
}
